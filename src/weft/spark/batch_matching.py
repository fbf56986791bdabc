"""One micro-batch, as workers match it: rows in, files out. Every event is matched or set aside with the reason. What a
task reports is complete on disk.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from weft.index.base import Matches
from weft.pipeline.attributes import attributes
from weft.pipeline.output import Output, ResultForm, write
from weft.spark.batch_folder import DRAFT
from weft.spark.version_matcher import VersionFiles

REPORT = "results string, refusals string, events bigint, matches bigint, refused bigint"
REFUSED = pa.schema([("row", pa.string()), ("reason", pa.string())])


@dataclass(frozen=True, slots=True)
class BatchTask:
    """What the tasks of a micro-batch do: match with a version, and write results and refused rows to two folders."""

    version: VersionFiles
    wanted: ResultForm
    results: str
    refusals: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Match a partition; returns one row of REPORT. `batches` are those of `weft.spark.events.judged`."""
        from pyspark import TaskContext

        context = TaskContext.get()
        part, attempt = (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())
        yield self.report(batches, f"part-{part:05}-{attempt}.parquet")

    def report(self, batches: Iterator[pa.RecordBatch], name: str) -> pa.RecordBatch:
        """Match some batches and write what was found to files of this name."""
        results, refusals = PartFile(Path(self.results, name)), PartFile(Path(self.refusals, name))
        events = matches = refused = 0
        matcher = None
        for batch in batches:
            good, bad = _split(batch)
            events += good.num_rows
            errors = bad
            if good.num_rows:
                matcher = matcher or self.version.open()
                named = good.select(range(len(self.wanted.names))).rename_columns(list(self.wanted.names))
                found = matcher.match(attributes(named))
                if found.errors:
                    events -= len(found.errors)
                    errors += [(_shown(named, row), error.message) for row, error in found.errors.items()]
                    fine = np.delete(np.arange(good.num_rows), list(found.errors))
                    found, named = _of_rows(found, fine), named.take(fine)
                matches += len(found.ids)
                for made in _rows(named.select(list(self.wanted.carried)), found, self.wanted.output, matcher.ids):
                    results.write(made)
            refused += len(errors)
            if errors:
                refusals.write(refused_rows(errors))
        done: list[list[Any]] = [[results.close()], [refusals.close()], [events], [matches], [refused]]
        kinds = (pa.string(), pa.string(), pa.int64(), pa.int64(), pa.int64())
        names = ["results", "refusals", "events", "matches", "refused"]
        return pa.record_batch([pa.array(value, kind) for value, kind in zip(done, kinds, strict=True)], names=names)


class PartFile:
    """A parquet file of a draft, which is made when its first rows come. `path` is without the ending of drafts."""

    def __init__(self, path: Path) -> None:
        self._name, self._path = path.name, path.with_name(path.name + DRAFT)
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        if not rows.num_rows:
            return
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, rows.schema)
        self._writer.write_batch(rows)

    def close(self) -> str | None:
        """Put the file on disk; returns its name once it is committed, None if there were no rows."""
        if self._writer is None:
            return None
        self._writer.close()
        handle = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        return self._name


def refused_rows(errors: Iterable[tuple[str, str]]) -> pa.RecordBatch:
    """Rows that could not be used, and why."""
    rows, reasons = zip(*errors, strict=True)
    return pa.record_batch([pa.array(rows, pa.string()), pa.array(reasons, pa.string())], schema=REFUSED)


def _split(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[tuple[str, str]]]:
    """The events of a batch, and the other rows with the reasons."""
    reason = batch.column("reason")
    if reason.null_count == batch.num_rows:
        return batch, []
    bad = batch.filter(reason.is_valid())
    rows: list[Any] = bad.column("row").to_pylist()
    reasons: list[Any] = bad.column("reason").to_pylist()
    return batch.filter(reason.is_null()), list(zip(rows, reasons, strict=True))


def _rows(kept: pa.RecordBatch, found: Matches, output: Output, ids: Any) -> Iterator[pa.RecordBatch]:
    if output is Output.COUNTS:
        yield pa.record_batch([*kept.columns, pa.array(found.counts)], names=[*kept.schema.names, output.column])
    else:
        yield from write(kept, found, output, ids)


def _of_rows(found: Matches, rows: Any) -> Matches:
    """The matches of some events, in ascending order."""
    return Matches.of([found[row] for row in rows.tolist()])


def _shown(batch: pa.RecordBatch, row: int) -> str:
    """An event as JSON."""
    return json.dumps(batch.slice(row, 1).to_pylist()[0], default=str, ensure_ascii=False)
