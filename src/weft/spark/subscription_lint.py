"""Lint of subscriptions on Spark. The counts are those that one machine would find; only examples are sent to the
driver.

Each batch is counted by an executor; hashes of normal forms come to the driver, which finds the duplicates.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from weft.lint import LintReport, SeenAttributes
from weft.lint.lint_counts import EXAMPLES, LintCounts, lint_counts
from weft.lint.lint_report import report_of
from weft.model.schema import Schema
from weft.pipeline.attributes import CORRUPT
from weft.spark.frames import attribute_types, list_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def lint_subscriptions(
    texts: DataFrame, events: DataFrame, schema: Schema | None = None, *, duplicates: bool = True
) -> LintReport:
    """What is wrong with subscriptions (`id`, `filter`), given the columns of events. Cost: one pass, one job."""
    types = {name: kind for name, kind in attribute_types(events).items() if name != CORRUPT}
    lists = list_types(events)
    tested = {name: kind for name, kind in lists.items() if kind is not None}
    known = SeenAttributes.of_columns(types, tested, [name for name in lists if name not in tested])
    count = partial(_counted, seen=known, schema=schema, duplicates=duplicates)
    rows = texts.mapInArrow(count, "counts binary").toArrow().column("counts")
    counts = LintCounts.merged((pickle.loads(row.as_py()) for row in rows), EXAMPLES)
    return report_of(counts, known, most=1)


def _counted(
    batches: Iterator[pa.RecordBatch], seen: SeenAttributes, schema: Schema | None, duplicates: bool
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        ids, texts = (batch.column(at).to_pylist() for at in range(2))
        found = lint_counts(ids, texts, seen, schema, most=EXAMPLES, duplicates=duplicates)
        yield pa.record_batch({"counts": pa.array([pickle.dumps(found, protocol=5)], pa.binary())})
