"""`df.write.format("weft")` and `df.writeStream.format("weft")`: every row becomes an event of a broker. Law: a task or
a micro-batch that runs again with the same rows stores nothing twice.

Spark repeats a micro-batch with the same rows, and a task sorts its own before it publishes them. That a row is in the
same partition again is the query's part: `frame.repartition(4, "key")` sees to it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from weft.errors import PipelineError
from weft.spark.broker_target import BrokerTarget, in_order

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # what Spark tells the tasks of a micro-batch


@dataclass
class PublishedRows(WriterCommitMessage):
    """What a task did."""

    new: int


class BrokerWriter(DataSourceArrowWriter):
    """One job: its tasks publish under a name that is new for every job."""

    def __init__(self, target: BrokerTarget, order: str = "") -> None:
        self._order = order
        self._target = replace(target, name=target.name or f"spark-{uuid.uuid4().hex}")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PublishedRows:  # type: ignore[override]
        """Publish the rows of a partition."""
        return PublishedRows(self._target.publish(_context().partitionId(), 0, in_order(iterator, self._order)))


class BrokerStreamWriter(DataSourceStreamArrowWriter):
    """A stream: its tasks publish under the id of the query, which its checkpoint keeps."""

    def __init__(self, target: BrokerTarget, order: str = "") -> None:
        self._target, self._order = target, order

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PublishedRows:  # type: ignore[override]
        """Publish the rows of a partition of a micro-batch."""
        context = _context()
        query, batch = (context.getLocalProperty(name) for name in (_QUERY, _BATCH))
        if query is None or batch is None:
            raise PipelineError("Spark does not report which micro-batch this is: use foreachBatch and BrokerSink")
        target = replace(self._target, name=f"{self._target.name or 'spark'}-{query}")
        return PublishedRows(target.publish(context.partitionId(), int(batch), in_order(iterator, self._order)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing is left to do: what a task has published is stored."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing can be taken back; the next attempt goes on where this one ended."""


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise PipelineError("rows are published by tasks of Spark")
    return context
