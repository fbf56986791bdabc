"""An index on its way to the executors. It is shipped once to each executor and mapped into memory, so that all its
Python workers share one copy. A worker keeps the few indexes that it opened last.

Where executors see the driver's files, they open the snapshot where it is. Elsewhere it travels as one archive, which
the first worker of an executor unpacks beside it. A new index is built while Spark starts the job: its tasks wait for
the snapshot, or for the notice that there will be none.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import time
import zipfile
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from weft.errors import PipelineError
from weft.model.schema import Schema
from weft.pipeline.boxes import Boxes, Matcher, open_matcher, write_matcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEPT: list[tempfile.TemporaryDirectory[str]] = []  # snapshots of this process, removed when it ends
_OPEN: OrderedDict[str, Matcher] = OrderedDict()
_MOST_OPEN = 4
_PENDING, _FAILED = "pending", "failed"  # beside a snapshot that is being written, and one that could not be
_POLL = 0.002  # seconds


@dataclass(frozen=True, slots=True)
class Shipped:
    """Where executors find a snapshot: by its path, or in the archive that Spark gave them."""

    path: str
    archive: str | None = None
    written: int = 0  # when, so that another snapshot in its place is not taken for it
    own: bool = False  # the driver has written it, or is about to, and nobody else writes there

    def open(self) -> Matcher:
        """The index; opened once in a process. Raises SnapshotError, and PipelineError if it could not be built."""
        key = self.archive or f"{self.path} {self.written}"
        if key not in _OPEN:
            own = self.own and self.archive is None
            if own:
                _await(Path(self.path))
            _OPEN[key] = open_matcher(Path(self.path) if self.archive is None else _unpacked(self.archive), own)
            if len(_OPEN) > _MOST_OPEN:
                _OPEN.popitem(last=False)
        _OPEN.move_to_end(key)
        return _OPEN[key]


def written(matcher: Matcher) -> Path:
    """A snapshot of an index, in a folder that lives as long as this process."""
    place = _new_place()
    write_matcher(matcher, place)
    return place


def _new_place() -> Path:
    _KEPT.append(tempfile.TemporaryDirectory(prefix="weft-snapshot-", ignore_cleanup_errors=True))
    return Path(_KEPT[-1].name, "index")


def ship(spark: SparkSession, snapshot: Path) -> Shipped:
    """Make a snapshot available to the executors."""
    remote = not hasattr(spark, "_jsparkSession")
    if not remote and sees_files(spark.sparkContext.master or ""):
        own = any(snapshot.parent == Path(kept.name) for kept in _KEPT)
        return Shipped(str(snapshot.resolve()), written=(snapshot / "index.json").stat().st_mtime_ns, own=own)
    archive = _packed(snapshot)
    if remote:
        spark.addArtifact(str(archive), file=True)
    else:
        spark.sparkContext.addFile(str(archive))
    return Shipped(str(snapshot), archive.name)


def ship_boxes(spark: SparkSession, boxes: Boxes, schema: Schema | None, *, wait: bool = True) -> Shipped:
    """Build an index on the driver, and make it available to the executors.

    Without `wait` it may still be being built, where executors can wait for it themselves.
    """
    if wait or not hasattr(spark, "_jsparkSession") or not sees_files(spark.sparkContext.master or ""):
        return ship(spark, written(boxes.matcher(schema)))
    place = _new_place()
    (place.parent / _PENDING).touch()
    threading.Thread(target=_build, args=(boxes, schema, place), name="weft-index").start()  # ends before the process
    return Shipped(str(place.resolve()), own=True)


def _build(boxes: Boxes, schema: Schema | None, place: Path) -> None:
    """Write the snapshot of an index; when `pending` is gone, it exists, or `failed` has the reason."""
    try:
        write_matcher(boxes.matcher(schema), place)
    except BaseException as error:  # the tasks raise it
        with suppress(OSError):  # the disk may be full
            (place.parent / _FAILED).write_text(str(error) or type(error).__name__, encoding="utf-8")
    finally:
        (place.parent / _PENDING).unlink(missing_ok=True)


def _await(place: Path) -> None:
    """Wait until a snapshot is written. Raises PipelineError if it could not be."""
    while (place.parent / _PENDING).exists():
        time.sleep(_POLL)
    failed = place.parent / _FAILED
    if failed.exists() or not place.exists():
        reason = failed.read_text(encoding="utf-8") if failed.exists() else "its files could not be written"
        raise PipelineError(f"the index of the subscriptions could not be built: {reason}")


def sees_files(master: str) -> bool:
    """Whether executors are this very process; others may be on other machines."""
    return master.startswith("local") and not master.startswith("local-cluster")


def _packed(snapshot: Path) -> Path:
    """An archive named by what is in it."""
    _KEPT.append(tempfile.TemporaryDirectory(prefix="weft-archive-", ignore_cleanup_errors=True))
    draft = Path(_KEPT[-1].name, "draft.zip")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED) as archive:
        for file in sorted(snapshot.iterdir()):
            archive.write(file, file.name)
    with draft.open("rb") as whole:
        digest = hashlib.file_digest(whole, "sha256").hexdigest()
    return draft.rename(draft.with_name(f"weft-{digest[:24]}.zip"))


def _unpacked(name: str) -> Path:
    """The archive's files, beside it; any number of workers may race."""
    from pyspark import SparkFiles

    archive = Path(SparkFiles.get(name))
    place = archive.with_suffix("")
    if not place.exists():
        draft = Path(tempfile.mkdtemp(prefix="weft-", dir=archive.parent))
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(draft)
        try:
            os.replace(draft, place)
        except OSError:  # another was first
            shutil.rmtree(draft, ignore_errors=True)
    return place
