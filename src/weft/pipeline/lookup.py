"""Batches of events matched with indexes. Each pair is found once, on the values themselves. Results are made as they
are consumed, and the number in memory at a time is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from weft.index.base import Matches
from weft.pipeline.attributes import attributes
from weft.pipeline.boxes import Matcher
from weft.pipeline.output import Output, ResultForm, write

_ROWS = 16_384  # events that are matched together, at most
_FASTER = 4  # times as many as before, at most
_MATCHES = 2_000_000  # of events that are matched together, about: they are in memory at once


def match_batches(
    batches: Iterable[pa.RecordBatch], matchers: Sequence[Matcher], wanted: ResultForm
) -> Iterator[pa.RecordBatch]:
    """The results of batches of events, of one index or of two that share no subscription."""
    one, *rest = matchers
    ids = one.ids
    if rest and one.names is not None:  # one list of names for both
        ids = Matcher(one.index, pa.concat_arrays([matcher.names for matcher in matchers])).ids
    events = EventSlices(sum(len(matcher.index) for matcher in matchers))
    for batch in batches:
        named = batch.rename_columns(list(wanted.names))
        seen, kept, output = attributes(named), named.select(list(wanted.carried)), wanted.output
        if output is Output.COUNTS:
            added: Any = pa.array(np.sum([matcher.index.count_batch(seen) for matcher in matchers], axis=0))
            yield pa.record_batch([*kept.columns, added], names=[*kept.schema.names, output.column])
            continue
        for first, last in events.of(batch.num_rows):
            some = seen.slice(first, last - first)
            found = [one.match(some)]
            for other in rest:
                more = other.match(some)
                shift = 0 if one.names is None else len(one.names)
                found.append(Matches(more.offsets, more.ids + shift))
            together = Matches.merged(found, some.num_rows)
            events.learn(last - first, len(together.ids))
            yield from write(kept.slice(first, last - first), together, output, ids)


class EventSlices:
    """How many events to match together, so that their matches are about _MATCHES: as those before had."""

    def __init__(self, subscriptions: int) -> None:
        self._rows = max(1, min(_ROWS, _MATCHES // max(subscriptions, 1)))  # the first events may match all

    def of(self, rows: int) -> Iterator[tuple[int, int]]:
        """The first event of each slice, and where it ends; one slice at least."""
        first = 0
        while first < rows or not first:
            last = min(first + self._rows, rows)
            yield first, last
            if last >= rows:
                return
            first = last

    def learn(self, rows: int, found: int) -> None:
        """Record the matches of a number of events."""
        if rows:
            self._rows = max(1, min(_FASTER * rows, _ROWS, _MATCHES * rows // max(found, 1)))
