"""The check of an active set with events. An event that a subscription admits and the active set does not is an error,
never a figure; so is the converse where the model is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import PipelineError
from weft.index.base import AnyEvent
from weft.kernels.arrays import Mask
from weft.space.cell_space import CellSpace, cells_of
from weft.spark.chunks import admitted, in_chunks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_CHUNK = 100_000


@dataclass(frozen=True, slots=True)
class AggregateCheck:
    """How many of the events match a subscription, and how many the active set admits.

    >>> AggregateCheck(events=10, wanted=3, admitted=4).false_positives
    0.25
    """

    events: int
    wanted: int
    admitted: int

    @property
    def false_positives(self) -> float:
        """The share of the admitted events that match no subscription."""
        return (self.admitted - self.wanted) / self.admitted if self.admitted else 0.0


def check(
    filters: DataFrame,
    active: DataFrame,
    events: Sequence[AnyEvent],
    space: CellSpace | None = None,
    *,
    exact: bool = True,
) -> AggregateCheck:
    """Compare what all filters admit with what the active set admits: filters or, with a space, its items.

    Raises PipelineError with the first event on which they differ.
    """
    wanted = _matching(filters, events)
    given = _matching(active.select("filter"), events) if space is None else _in_space(active, events, space)
    for wrong, what in (
        (wanted & ~given, "would be lost"),
        (given & ~wanted, "is admitted but matches no subscription"),
    ):
        if wrong.any() and (exact or what == "would be lost"):
            event = events[int(np.flatnonzero(wrong)[0])]
            raise PipelineError(f"the active set is not equivalent: {event} {what}; please report this")
    return AggregateCheck(len(events), int(wanted.sum()), int(given.sum()))


def _matching(filters: DataFrame, events: Sequence[AnyEvent]) -> Mask:
    found = filters.mapInArrow(partial(in_chunks, partial(admitted, list(events)), _CHUNK), "event bigint")
    mask = np.zeros(len(events), np.bool_)
    mask[found.distinct().toArrow()["event"].to_numpy()] = True
    return mask


def _in_space(active: DataFrame, events: Sequence[AnyEvent], space: CellSpace) -> Mask:
    rows = active.toArrow()
    items = np.stack([rows[name].to_numpy() for name in space.fields], axis=1)
    return space.admits(space.united(items), cells_of(space, list(events)))
