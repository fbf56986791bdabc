"""The cost of ids: `Index` with strings against `TreeIndex` with its integers. Both find as many matches.

The same filters and events, in turn; ids of a batch are written out as an Arrow dictionary column.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from weft.index import Index, TreeIndex
from weft.index.base import Ids
from weft.workloads import Workload
from weftlab.bench.report import timed


def with_ids(workload: Workload) -> Index:
    """The filters of a workload under strings, in an index that has answered once."""
    index = Index()
    index.update_columns([f"rule-{n}" for n in range(len(workload))], workload.bounds)
    index.match_batch(workload.table.slice(0, 3)).to_arrow()
    index.match(workload.table.slice(0, 1).to_pylist()[0])
    return index


def more_for_one(index: Index, tree: TreeIndex, events: Sequence[Any]) -> float:
    """Seconds that a single match takes longer."""
    seconds, found = timed(lambda: [tree.match(event) for event in events])
    seconds_more, ids = timed(lambda: [index.match(event) for event in events])
    assert [len(each) for each in ids] == [len(each) for each in found], "ids must be as many as subscriptions"
    return (seconds_more - seconds) / len(events)


def times_of_batches(index: Index, tree: TreeIndex, batches: Sequence[pa.RecordBatch]) -> float:
    """The time of batches, in times of the tree's."""
    ours = theirs = 0.0
    for batch in batches:
        took, found = timed(partial(_found, tree, batch))
        theirs += took
        took, ids = timed(partial(_written, index, batch))
        ours += took
        assert len(ids) == len(found), "ids must be as many as subscriptions"
    return ours / theirs if theirs else float(np.nan)


def _found(tree: TreeIndex, batch: pa.RecordBatch) -> Ids:
    return tree.match_batch(batch).ids


def _written(index: Index, batch: pa.RecordBatch) -> pa.Array[Any]:
    return index.match_batch(batch).ids
