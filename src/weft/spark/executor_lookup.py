"""Batches of events matched with indexes, as an executor does it."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import pyarrow as pa

from weft.kernels.jit import load
from weft.pipeline import lookup
from weft.pipeline.boxes import Matcher
from weft.pipeline.output import ResultForm
from weft.spark.shipped_index import Shipped


def match_shipped(shipped: Shipped, wanted: ResultForm, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of a partition of events, with the index that was shipped."""
    yield from match_batches(batches, [shipped.open()], wanted)


def match_batches(
    batches: Iterable[pa.RecordBatch], matchers: Sequence[Matcher], wanted: ResultForm
) -> Iterator[pa.RecordBatch]:
    """The results of batches of events, of one index or of two that share no subscription."""
    _settle()
    yield from lookup.match_batches(batches, matchers, wanted)


@cache
def _settle() -> None:
    """Load the kernels, once in a process.

    Spark's worker collects garbage after every task. All that is loaded takes 50 ms to look through: it is exempted.
    """
    from pyspark import TaskContext

    load()
    if TaskContext.get() is not None:
        gc.collect()
        gc.freeze()
