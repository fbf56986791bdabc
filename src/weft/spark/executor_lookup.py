"""Batches of events against indexes, as an executor does it. Law: each pair once, on the values themselves."""

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
    for batch in batches:
        named = batch.rename_columns(list(wanted.names))
        seen, kept, output = attributes(named), named.select(list(wanted.carried)), wanted.output
        if output is Output.COUNTS:
            added: Any = pa.array(np.sum([matcher.index.count_batch(seen) for matcher in matchers], axis=0))
            yield pa.record_batch([*kept.columns, added], names=[*kept.schema.names, output.column])
            continue
        found = [one.match(seen)]
        for other in rest:
            more = other.match(seen)
            shift = 0 if one.names is None else len(one.names)
            found.append(Matches(more.offsets, more.ids + shift))
        yield from write(kept, Matches.merged(found, batch.num_rows), output, ids)
