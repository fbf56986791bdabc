"""Batches of events against indexes, as an executor does it. Law: each pair once, on the values themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from weft.index.base import Matches
from weft.spark.boxes import Matcher
from weft.spark.events import attributes
from weft.spark.output import Output, Wanted, both, write
from weft.spark.shipping import Shipped


def match_batches(shipped: Shipped, wanted: Wanted, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of a partition of events, with the index that was shipped."""
    matchers = [shipped.open()]
    for batch in batches:
        yield from match_batch(batch, matchers, wanted)


def match_batch(batch: pa.RecordBatch, matchers: Sequence[Matcher], wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """The results of a batch of events, of one index or of two that share no subscription."""
    named = batch.rename_columns(list(wanted.names))
    seen, kept, output = attributes(named), named.select(list(wanted.carried)), wanted.output
    one, *rest = matchers
    if output is Output.COUNTS:
        counts = np.sum([matcher.index.count_batch(seen) for matcher in matchers], axis=0)
        added: Any = pa.array(counts)
        yield pa.record_batch([*kept.columns, added], names=[*kept.schema.names, output.column])
        return
    found, ids = one.match(seen), one.ids
    for other in rest:
        more = other.match(seen)
        if one.names is not None:  # one list of names for both
            more = Matches(more.offsets, more.ids + len(one.names))
            ids = Matcher(one.index, pa.concat_arrays([one.names, other.names])).ids
        found = both(found, more)
    yield from write(kept, found, output, ids)
