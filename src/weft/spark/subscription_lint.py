"""Lint of subscriptions on Spark. Law: the counts are those that one machine would find; only examples travel.

Each batch is counted by an executor; hashes of normal forms come to the driver, which finds the duplicates.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from weft.lint import LintKind, LintReport, SeenAttributes
from weft.lint.lint_counts import EXAMPLES, LintCounts, lint_counts
from weft.lint.lint_report import report_of
from weft.model.schema import Schema
from weft.spark.events import CORRUPT
from weft.spark.frames import attribute_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def lint_subscriptions(
    texts: DataFrame, events: DataFrame, schema: Schema | None = None, *, duplicates: bool = True
) -> LintReport:
    """What is wrong with subscriptions (`id`, `filter`), given the columns of events. Cost: one pass, one job."""
    seen = {name: frozenset([kind]) for name, kind in attribute_types(events).items() if name != CORRUPT}
    known = SeenAttributes(seen)
    count = partial(_counted, seen=known, schema=schema, duplicates=duplicates)
    rows = texts.mapInArrow(count, "counts binary").toArrow().column("counts")
    counts = LintCounts.merged((pickle.loads(row.as_py()) for row in rows), EXAMPLES)
    return report_of(counts, known, most=1)


def lint_notes(report: LintReport) -> list[str]:
    """The report in sentences; what is not valid is left out elsewhere, with its reason."""
    counts: dict[LintKind, int] = {kind: count for kind, count in report.counts.items() if kind != "invalid"}
    found = LintReport(report.filters, report.dead, counts, report.findings, report.by_events).notes()
    return [note.replace(" filter", " subscription", 1) for note in found]


def _counted(
    batches: Iterator[pa.RecordBatch], seen: SeenAttributes, schema: Schema | None, duplicates: bool
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        ids, texts = (batch.column(at).to_pylist() for at in range(2))
        found = lint_counts(ids, texts, seen, schema, most=EXAMPLES, duplicates=duplicates)
        yield pa.record_batch({"counts": pa.array([pickle.dumps(found, protocol=5)], pa.binary())})
