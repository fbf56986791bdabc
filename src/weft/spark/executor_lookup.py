"""Batches of events against indexes, as an executor does it. Laws: each pair once, on the values themselves; results
are made as they are taken, and those in memory at a time are bounded however many there are in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from weft.index.base import Matches
from weft.spark.boxes import Matcher
from weft.spark.events import attributes
from weft.spark.output import Output, ResultForm, write
from weft.spark.shipped_index import Shipped

_FIRST = 4_096  # events that are matched together at first
_FASTER = 4  # times as many as before, at most
_MATCHES = 2_000_000  # of events that are matched together, about: they are in memory at once


def match_shipped(shipped: Shipped, wanted: ResultForm, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of a partition of events, with the index that was shipped."""
    yield from match_batches(batches, [shipped.open()], wanted)


def match_batches(
    batches: Iterable[pa.RecordBatch], matchers: Sequence[Matcher], wanted: ResultForm
) -> Iterator[pa.RecordBatch]:
    """The results of batches of events, of one index or of two that share no subscription."""
    one, *rest = matchers
    ids = one.ids
    if rest and one.names is not None:  # one list of names for both
        ids = Matcher(one.index, pa.concat_arrays([matcher.names for matcher in matchers])).ids
    rows = _FIRST
    for batch in batches:
        named = batch.rename_columns(list(wanted.names))
        seen, kept, output = attributes(named), named.select(list(wanted.carried)), wanted.output
        if output is Output.COUNTS:
            added: Any = pa.array(np.sum([matcher.index.count_batch(seen) for matcher in matchers], axis=0))
            yield pa.record_batch([*kept.columns, added], names=[*kept.schema.names, output.column])
            continue
        at = 0
        while at < batch.num_rows or not batch.num_rows:
            some = seen.slice(at, rows)
            found = [one.match(some)]
            for other in rest:
                more = other.match(some)
                shift = 0 if one.names is None else len(one.names)
                found.append(Matches(more.offsets, more.ids + shift))
            together = Matches.merged(found, some.num_rows)
            yield from write(kept.slice(at, rows), together, output, ids)
            if not batch.num_rows:
                break
            at += some.num_rows
            rows = _next(some.num_rows, len(together.ids))


def _next(rows: int, found: int) -> int:
    """How many events to match next, so that about _MATCHES are found; after so many that found so many."""
    return max(1, min(_FASTER * rows, _MATCHES * rows // max(found, 1)))
