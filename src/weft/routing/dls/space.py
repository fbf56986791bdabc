"""Filters and events as labels (DLS 4). An event that matches a filter has one of the filter's labels at some level in
use.

All of this is arithmetic on public parameters: a client that knows them can map its own subscriptions and events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from weft.algebra.box import NormalForm
from weft.algebra.relate import as_form
from weft.index.base import AnyEvent
from weft.interest.label_set import LabelSet
from weft.kernels.arrays import Ints
from weft.language.ast import Filter
from weft.model.schema import Schema
from weft.routing.table import Item
from weft.space.label_sides import LabelSides
from weft.space.label_space import LabelSpace


def labels_of(wanted: Filter | NormalForm, sides: LabelSides) -> Ints | None:
    """The labels of a filter in the newest space; None if it never matches."""
    form = as_form(wanted)
    side = sides.side if sides.coming is None else 1 - sides.side
    return sides.labels(form, side) if form else None


def items_of(wanted: Filter, sides: LabelSides) -> tuple[LabelSet, ...]:
    """The labels of a filter in the form in which a client's broker is told them."""
    labels = labels_of(wanted, sides)
    return () if labels is None else (LabelSet(tuple(labels.tolist())),)


def labels_in(items: Iterable[Item]) -> Ints:
    """All labels of items, with repetitions."""
    return np.array([label for item in items if isinstance(item, LabelSet) for label in item.labels], np.int64)


def is_sound(item: object, sides: LabelSides) -> bool:
    """Whether an item is a set of labels of the current spaces."""
    if not isinstance(item, LabelSet) or not item.labels or not 0 <= min(item.labels) <= max(item.labels) < 1 << 63:
        return False
    labels = np.array(item.labels, np.int64)
    return bool((labels[1:] > labels[:-1]).all() and sides.sound(labels).all())


def cells_of(events: Sequence[AnyEvent], space: LabelSpace, schema: Schema | None = None) -> Ints:
    """The cells of events in all grids of a space, one row each; they determine the labels at any level."""
    return np.concatenate([grid.cells(events, schema) for grid in space.grids], axis=1)
