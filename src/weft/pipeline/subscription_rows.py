"""Rows of subscriptions: the columns that are read, and what is found in a batch of rows, on any engine.

Texts are columns `id` and `filter`. Bounds are `id` and, for an attribute x, `x_low` and `x_high` (both inclusive,
either may be missing) or `x` itself for equality; NULL means no bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from weft.lint import LintKind, LintReport
from weft.pipeline.boxes import Boxes, Reading
from weft.pipeline.match_job import FILTER, ID

DUPLICATE = "duplicate id"


def repeated_ids(ids: Any) -> Any:
    """The ids that occur more than once."""
    if pa.types.is_integer(ids.type):
        numbers = ids.to_numpy()
        if bool((numbers[1:] > numbers[:-1]).all()):  # as they often are
            return ids.slice(0, 0)
    counts: Any = ids.value_counts()
    return counts.field("values").filter(counts.field("counts").to_numpy() > 1)


def read_pieces(reading: Reading, batch: pa.RecordBatch) -> Iterator[tuple[Boxes, Any]]:
    """The boxes of a batch, and the ids of the rows that have none for they cannot be read; in pieces."""
    ids = reading.ids(batch)
    for first, boxes, refused in reading.pieces(batch):
        yield boxes, ids.take(pa.array([first + row for row in refused], pa.int64()))


def as_texts(reading: Reading, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of rows as `id` and `filter`, a text; the text of a row that cannot be read is NULL."""
    from weft.pipeline.bound_lint import box_text

    for batch in batches:
        boxes, refused = reading.read(batch)
        others = reading.ids(batch).take(pa.array(list(refused), pa.int64()))
        texts: list[str | None] = [box_text(boxes, owner, reading.schema) for owner in range(len(boxes))]
        texts += [None] * len(others)  # they are errors
        yield pa.record_batch({ID: pa.concat_arrays([boxes.ids, others]), FILTER: pa.array(texts, pa.string())})


def lint_notes(report: LintReport) -> list[str]:
    """The report in sentences; what is not valid is left out elsewhere, with its reason."""
    counts: dict[LintKind, int] = {kind: count for kind, count in report.counts.items() if kind != "invalid"}
    found = LintReport(report.filters, report.dead, counts, report.findings, report.by_events).notes()
    return [*(note.replace(" filter", " subscription", 1) for note in found), *report.ignored_lists()]
