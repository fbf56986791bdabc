"""The work of a stream, micro-batch by micro-batch. Each micro-batch of events equals `match` with the version that was
recorded for it before. A micro-batch that Spark runs again, for whatever reason, leaves the same results once.

Spark says which rows a micro-batch has, and runs the last one again after a crash. Here is what makes that harmless:
the journal knows the version of a micro-batch and which commands were applied, and results are committed by a rename.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import monotonic, perf_counter, sleep, time
from typing import TYPE_CHECKING, Any

from weft.errors import PipelineError
from weft.model.schema import Schema
from weft.pipeline.output import ResultForm
from weft.spark.batch_folder import BatchFolders
from weft.spark.batch_matching import REPORT, BatchTask, PartFile, refused_rows
from weft.spark.failures import fault, reason
from weft.spark.stream_commands import CommandColumns, fold
from weft.spark.stream_journal import BatchMetrics, StreamJournal
from weft.spark.subscription_versions import SubscriptionVersions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

DRIVER_ROWS = 10_000  # after a micro-batch with at most so many rows the driver matches the next one itself
_LOOK = 0.02  # seconds between looks for Spark's commit
_TOO_LARGE = "spark.driver.maxResultSize"  # what Spark names when it refuses to hand over rows
EVENTS, COMMANDS, INITIAL = "side=event", "side=command", "side=subscription"  # folders of refused rows

Sink = Callable[["DataFrame", int], None]


class StoppedError(PipelineError):
    """A micro-batch did not begin, because the stream is being stopped."""


@dataclass(frozen=True, slots=True)
class StreamOutput:
    """Where results go: committed folders, and then perhaps a sink that is given the rows of each folder.

    A sink may be called again with the same rows and the same number of a micro-batch, until it has returned once.
    """

    results: BatchFolders
    form: ResultForm
    schema: StructType
    sink: Sink | None = None


class StreamBatches:
    """What a stream does with the micro-batches of its commands and of its events."""

    def __init__(  # noqa: PLR0913 - the parts of a stream
        self,
        folder: Path,
        journal: StreamJournal,
        versions: SubscriptionVersions,
        output: StreamOutput,
        tell: Callable[[BatchMetrics], None] | None = None,
        *,
        driver_rows: int = DRIVER_ROWS,
    ) -> None:
        self.journal = journal
        self.versions = versions
        self.output = output
        self.refusals = {side: BatchFolders(folder / "errors" / side) for side in (EVENTS, COMMANDS, INITIAL)}
        self.working = Lock()  # held while a micro-batch of events is worked on
        self.stopping = False  # whether no further micro-batch of events may begin; changes under the lock
        self.last: int | None = None  # the micro-batch of events that was finished last in this run
        self.progress: Callable[[], Any] = lambda: None  # Spark's report about the last micro-batch
        self.failure: str | None = None  # why a micro-batch failed, first
        self.closing = False  # whether queries are being stopped: what fails then is no cause
        self.left_out = {COMMANDS: 0, INITIAL: 0}  # rows that were set aside in this run; events are in the metrics
        self._folder = folder
        self._tell = tell
        self._driver_rows = driver_rows
        self._before: int | None = None  # rows of the micro-batch before, None if there was none in this run

    def guarded(self, work: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
        """The same work, for Spark: a failure is kept, and told in one sentence.

        Spark reads the text of what it is told with a regular expression, and long texts, as those of Java's own
        exceptions, overflow its stack: the query then ends as if nothing had happened.
        """

        def guard(frame: DataFrame, batch: int) -> None:
            try:
                work(frame, batch)
            except StoppedError:
                raise
            except Exception as error:
                why = fault(error) or reason(error)
                if not self.closing:
                    self.failure = self.failure or why
                raise PipelineError(why) from None

        return guard

    def commands(self, columns: CommandColumns, schema: Schema | None, frame: DataFrame, batch: int) -> None:
        """Apply the commands of a micro-batch, unless they were applied before."""
        if self.journal.command_batch(batch) is not None:
            self._keep_state(frame, "commands")
            return
        rows = columns.gathered(frame)
        if not rows.num_rows:
            return
        result = fold(rows, self.versions, schema)
        self.refuse(COMMANDS, batch, result.refused)
        version = self.versions.newest + rows.num_rows
        self.versions.apply(version, batch, result.changes, result.dropped_ids, len(result.refused))

    def refuse(self, side: str, batch: int, rows: Sequence[tuple[str, str]]) -> None:
        """Set rows aside, with the reasons, unless those of this micro-batch were set aside before."""
        refusals = self.refusals[side]
        if not rows or refusals.manifest(batch) is not None:
            return
        draft = refusals.draft(batch)
        file = PartFile(draft / "part-00000.parquet")
        file.write(refused_rows(rows))
        refusals.commit(batch, draft, [file.close() or ""], {"batch": batch, "refused": len(rows)})
        self.left_out[side] += len(rows)

    def events(self, frame: DataFrame, batch: int) -> None:
        """Match the events of a micro-batch, as `judged` has them, and commit what was found."""
        with self.working:
            if self.stopping:
                raise StoppedError("the stream is being stopped")
            self.note_progress()
            version = self.journal.begin(batch, self.versions.newest, time())
            self.versions.forget(version)
            begun = perf_counter()
            output = self.output
            manifest = output.results.manifest(batch)
            if manifest is None:
                manifest = self._matched(frame, batch, version)
            else:
                self._keep_state(frame, "events")
            if output.sink is not None:
                staged = output.results
                output.sink(read_batch(frame, staged, batch, output.schema), batch)
                for old in staged.committed():
                    if old < batch:
                        staged.remove(old)
            counts = {name: manifest[name] for name in ("events", "matches", "refused")}
            size = self.versions.size_of(version)
            metrics = BatchMetrics(batch, version, time(), size, **counts, seconds=perf_counter() - begun)
            self.journal.finish(metrics)
            self.last = batch
        if self._tell is not None:
            self._tell(metrics)

    def await_commit(self, active: Callable[[], bool], seconds: float) -> None:
        """Wait until Spark has stored that the last micro-batch is done, at most so long. Hold `working` meanwhile."""
        end = monotonic() + seconds
        while self.last is not None and active() and monotonic() < end:
            if (self._folder / "events" / "commits" / str(self.last)).exists():
                return
            sleep(_LOOK)

    def _keep_state(self, frame: DataFrame, query: str) -> None:
        """Evaluate a micro-batch whose results are there, if Spark keeps state for the query, as for a watermark.

        Spark commits the state when rows are evaluated, and fails if that did not happen.
        """
        if (self._folder / query / "state").is_dir():
            frame.write.format("noop").mode("overwrite").save()

    def note_progress(self) -> None:
        """Store what Spark reports about the micro-batch before."""
        found = self.progress()
        if found is None:
            return
        state = found.stateOperators
        late = sum(each.numRowsDroppedByWatermark for each in state)
        twice = sum(int(each.customMetrics.get("numDroppedDuplicateRows", 0)) for each in state)
        self.journal.measured(found.batchId, late, twice, found.durationMs.get("triggerExecution", 0) / 1000)

    def _matched(self, frame: DataFrame, batch: int, version: int) -> dict[str, Any]:
        """Match and commit; returns the manifest."""
        results, refusals = self.output.results, self.refusals[EVENTS]
        draft, refused = results.draft(batch), refusals.draft(batch)
        task = BatchTask(self.versions.files(version), self.output.form, str(draft), str(refused))
        reports = self._reports(frame, task)
        manifest: dict[str, Any] = {"batch": batch, "version": version}
        manifest |= {name: sum(row[name] for row in reports) for name in ("events", "matches", "refused")}
        manifest["files"] = sorted(row["results"] for row in reports if row["results"] is not None)
        self._before = manifest["events"] + manifest["refused"]
        if manifest["refused"] and refusals.manifest(batch) is None:
            files = [row["refusals"] for row in reports if row["refusals"] is not None]
            refusals.commit(batch, refused, files, {"batch": batch, "refused": manifest["refused"]})
        results.commit(batch, draft, manifest["files"], manifest)
        return manifest

    def _reports(self, frame: DataFrame, task: BatchTask) -> list[dict[str, Any]]:
        """What the tasks of a micro-batch report, or the driver where it matches alone.

        A job with workers takes longer than matching a few thousand events. How many there are is known only when they
        have been read: the micro-batch before says. If it says too little, Spark refuses to hand over the rows, or the
        driver takes longer than the workers would have.
        """
        if self._before is not None and self._before <= self._driver_rows:
            try:
                rows = frame.toArrow()
            except Exception as error:
                if _TOO_LARGE not in str(error):
                    raise
            else:
                return task.report(iter(rows.to_batches()), "part-00000.parquet").to_pylist()
        return [row.asDict() for row in frame.mapInArrow(task, REPORT).collect()]


def read_batch(like: DataFrame, folders: BatchFolders, batch: int, schema: StructType) -> DataFrame:
    """The committed rows of a micro-batch."""
    spark, manifest = like.sparkSession, folders.manifest(batch) or {"files": []}
    paths = [str(folders.path_of(batch) / name) for name in manifest["files"]]
    return spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)
