"""`df.write.format("weft")` and `df.writeStream.format("weft")`: every row becomes an event of a broker. A task or a
micro-batch that runs again stores nothing twice, and loses nothing.

The tasks of a stream only stage their rows, in files beside the checkpoint. The driver commits these files as the
micro-batch, by one rename, and then publishes them. When Spark repeats a micro-batch, the files that were committed
first are published to the end, whatever the tasks have staged meanwhile: rows may be in other partitions by then, and
there may be more or fewer partitions. The number of partitions is that of the files, which the checkpoint keeps.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from weft.errors import PipelineError
from weft.pipeline.file_names import plain_path
from weft.spark.batch_folder import BatchFolders
from weft.spark.batch_matching import PartFile
from weft.spark.broker_sink import publish_files
from weft.spark.broker_target import BrokerTarget, in_order

FOLDER = "weft-staged"  # in the checkpoint
_OWNER = "_owner"  # a folder that has the id of the query to which the staged rows belong
_QUERY = "sql.streaming.queryId"  # what Spark tells the tasks of a micro-batch


@dataclass
class PublishedRows(WriterCommitMessage):
    """What a task of a batch did."""

    new: int


@dataclass
class StagedRows(WriterCommitMessage):
    """What a task of a micro-batch did: the file that it has written, None if there were no rows."""

    query: str
    file: str | None


class BrokerWriter(DataSourceArrowWriter):
    """One job: its tasks publish under a name that is new for every job."""

    def __init__(self, target: BrokerTarget, order: str = "") -> None:
        self._order = order
        self._target = replace(target, name=target.name or f"spark-{uuid.uuid4().hex}")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PublishedRows:  # type: ignore[override]
        """Publish the rows of a partition."""
        return PublishedRows(self._target.publish(_context().partitionId(), 0, in_order(iterator, self._order)))


class BrokerStreamWriter(DataSourceStreamArrowWriter):
    """A stream: it publishes under the id of the query, which its checkpoint keeps."""

    def __init__(self, target: BrokerTarget, checkpoint: str, order: str = "") -> None:
        self._target, self._order = target, order
        self._staged = BatchFolders(staging_folder(checkpoint))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:  # type: ignore[override]
        """Stage the rows of a partition of a micro-batch."""
        context = _context()
        query = context.getLocalProperty(_QUERY)
        if query is None:
            raise PipelineError("Spark does not report which query this is: use foreachBatch and BrokerSink")
        return StagedRows(query, self.stage(query, iterator))

    def stage(self, query: str, batches: Iterator[pa.RecordBatch]) -> str | None:
        """Write rows of a query, in the order that is wanted, to a file of their own; returns its name."""
        file = PartFile(self._draft(query) / f"{uuid.uuid4().hex}.parquet")
        for batch in self._ordered(batches):
            file.write(batch)
        return file.close()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish what was staged for the micro-batch, first or now.

        Raises BrokerError, AccessError or EventError, and PipelineError if the folder belongs to another query.
        """
        done = [each for each in messages if isinstance(each, StagedRows)]
        if not done:
            return  # no tasks, no rows
        query = done[0].query
        found = self._manifests(query)
        manifest = found.get(batchId)
        self._claim(query)
        if manifest is None:
            files = sorted(each.file for each in done if each.file is not None)
            manifest = {"batch": batchId, "query": query, "files": files}
            self._staged.commit(batchId, self._draft(query), files, manifest)
        else:
            shutil.rmtree(self._draft(query), ignore_errors=True)
        folder = self._staged.path_of(batchId)
        target = replace(self._target, name=f"{self._target.name or 'spark'}-{query}")
        publish_files(target, batchId, [str(folder / name) for name in manifest["files"]])
        for old in found:
            if old < batchId:
                self._staged.remove(old)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing can be taken back; the next attempt goes on where this one ended."""

    def _manifests(self, query: str) -> dict[int, dict[str, Any]]:
        """What is staged, by micro-batch. Raises PipelineError if another query has staged it.

        Micro-batches have the same numbers in every query: rows of this one would be taken for published.
        """
        found = {}
        for batch in self._staged.committed():
            manifest = self._staged.manifest(batch)
            if manifest is None:
                continue  # removed meanwhile
            if not manifest["query"]:  # an older version staged micro-batches without tasks, and without rows
                self._staged.remove(batch)
            elif manifest["query"] != query:
                raise self._refused(query, manifest["query"])
            else:
                found[batch] = manifest
        return found

    def _claim(self, query: str) -> None:
        """Make the folder this query's. Raises PipelineError if another was first, perhaps just now."""
        owner, draft = self._staged.root / _OWNER, self._draft(query).with_name(f"owner-{query}")
        if not owner.exists():
            (draft / query).mkdir(parents=True, exist_ok=True)
            with suppress(OSError):  # it is there by now
                os.rename(draft, owner)
            shutil.rmtree(draft, ignore_errors=True)
        (found,) = owner.iterdir()
        if found.name != query:
            raise self._refused(query, found.name)

    def _refused(self, query: str, owner: str) -> PipelineError:
        shutil.rmtree(self._draft(query), ignore_errors=True)
        return PipelineError(
            f"{self._staged.root} has the rows of another query ({owner}): name another folder with the option "
            "'staging', or remove it if that query will not be started again"
        )

    def _draft(self, query: str) -> Path:
        return self._staged.root / "_drafts" / f"rows-{query}"

    def _ordered(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not self._order:
            yield from batches
            return
        some = list(batches)
        if some:
            yield from pa.Table.from_batches(some).sort_by(self._order).to_batches()


def staging_folder(checkpoint: str) -> Path:
    """Where rows of a query wait to be published. Raises PipelineError if the driver and all tasks cannot see it."""
    plain = plain_path(checkpoint)
    if not plain or "://" in plain:
        raise PipelineError(
            "rows are staged before they are published: name a folder that the driver and all executors see with the "
            "option 'staging', or such a checkpoint with the option 'checkpointLocation'"
        )
    return Path(plain).absolute() / FOLDER


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise PipelineError("rows are published by tasks of Spark")
    return context
