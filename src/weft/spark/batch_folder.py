"""A folder of one micro-batch, committed by one rename. A reader sees all files of a micro-batch or none. A micro-batch
that is committed is never written again.

Workers write their files into a draft that no reader looks at, under names of their own that end in `.draft`, because
DuckDB and Polars also look into folders whose names begin with `_`. The driver moves those that Spark's finished tasks
reported into a fresh folder, adds the manifest and renames the folder: files of tasks that died
or ran twice stay behind. This needs a file system whose renames are atomic: a local one, NFS or HDFS, but not S3.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import PipelineError
from weft.log.data_directory import sync_directory

MANIFEST = "_manifest.json"
DRAFT = ".draft"  # after the name of a file that is not committed
_DRAFTS = "_drafts"


@dataclass(frozen=True, slots=True)
class BatchFolders:
    """The micro-batches in a folder: `batch=0`, `batch=1`, ..."""

    root: Path

    def path_of(self, batch: int) -> Path:
        """Where a committed micro-batch is."""
        return self.root / f"batch={batch}"

    def manifest(self, batch: int) -> dict[str, Any] | None:
        """The manifest of a committed micro-batch; None if it is not committed."""
        try:
            found: dict[str, Any] = json.loads((self.path_of(batch) / MANIFEST).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found

    def draft(self, batch: int) -> Path:
        """Where files of a micro-batch go; drafts that were left behind are removed."""
        drafts = self.root / _DRAFTS
        try:
            drafts.mkdir(parents=True, exist_ok=True)
            for left in drafts.iterdir():
                shutil.rmtree(left, ignore_errors=True)
        except OSError as error:
            raise PipelineError(f"{self.root} cannot be written: {error.strerror}") from None
        return drafts / f"{batch}-{uuid.uuid4().hex}"

    def commit(self, batch: int, draft: Path, files: Iterable[str], manifest: dict[str, Any]) -> None:
        """Make these files of a draft, and no others, the micro-batch; there, DRAFT is added to their names."""
        ready = draft.with_name(f"{draft.name}-ready")
        shutil.rmtree(ready, ignore_errors=True)
        ready.mkdir(parents=True)
        for name in files:
            os.replace(draft / (name + DRAFT), ready / name)
        with (ready / MANIFEST).open("w", encoding="utf-8") as file:
            json.dump(manifest, file)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(ready)
        os.rename(ready, self.path_of(batch))
        sync_directory(self.root)
        shutil.rmtree(draft, ignore_errors=True)

    def committed(self) -> list[int]:
        """The micro-batches that are committed, ascending."""
        found = (path.parent.name.partition("=")[2] for path in self.root.glob(f"batch=*/{MANIFEST}"))
        return sorted(int(number) for number in found if number.isdigit())

    def remove(self, batch: int) -> None:
        """Remove a micro-batch that is no longer needed."""
        shutil.rmtree(self.path_of(batch), ignore_errors=True)
