"""Results of a stream published into a broker. Every row becomes one event, whatever fails in between."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow.parquet as pq

from weft.pipeline.file_names import plain_path
from weft.spark.broker_target import BrokerTarget, check_publishable, events_of_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CONNECTIONS = 4


@dataclass(frozen=True, slots=True)
class BrokerSink:
    """A sink for `match_stream`: each result is published as an event, with the columns as attributes.

    The rows of a micro-batch are staged in files before they come here, so that a second attempt publishes the same
    rows in the same order; each file has a session of its own.
    """

    target: BrokerTarget

    def bound(self, stream: str) -> BrokerSink:
        """The sink of one stream: another one, with another checkpoint, starts to count its micro-batches again."""
        return BrokerSink(replace(self.target, name=f"{self.target.name}-{stream}"))

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Publish the rows of a micro-batch. Raises BrokerError, AccessError or EventError."""
        check_publishable((field.name, field.dataType) for field in frame.schema.fields)
        publish_files(self.target, batch, sorted(plain_path(unquote(path)) for path in frame.inputFiles()))


def publish_files(target: BrokerTarget, batch: int, files: Sequence[str]) -> int:
    """Publish the rows of a micro-batch, each file in a session of its own; returns how many are new to the broker.

    The same files in the same order may come again. Raises BrokerError, AccessError or EventError.
    """

    def publish(partition: int, path: str) -> int:
        with pq.ParquetFile(path) as file:
            return target.publish(partition, batch, events_of_rows(file.iter_batches()))

    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        return sum(pool.map(publish, range(len(files)), files))
