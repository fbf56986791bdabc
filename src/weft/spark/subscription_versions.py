"""The versions of a stream's subscriptions, kept by the driver. A version that a micro-batch may still need is on disk,
whole. Older ones are removed, so that the disk holds about two copies of the subscriptions.

Version n is the state after the first n commands. It is stored as a base, an index snapshot in a folder of its own, and
the changes since. When many changes have gathered, a new base is written; the old folder is removed as soon as a
micro-batch has begun with the new one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from weft.index.tree import TreeIndex
from weft.log.data_directory import sync_directory
from weft.model.schema import Schema
from weft.pipeline.boxes import Boxes
from weft.pipeline.predicate_settings import environment_predicates
from weft.spark.stream_journal import StreamJournal, VersionRow
from weft.spark.subscription_changes import IdNames, Numbers, SubscriptionChanges
from weft.spark.version_matcher import INDEX, NAMES, VersionFiles, read_names, write_names

MOST_VERSIONS = 512  # since a base
LEAST_CHANGES = 10_000  # since a base, before a new one is written; or a tenth of the base


class SubscriptionVersions:
    """All versions that are kept, and which ids the newest has. `most_versions` and `least_changes` are for tests."""

    def __init__(  # noqa: PLR0913 - structural constants
        self,
        folder: Path,
        journal: StreamJournal,
        numbered: bool,
        schema: Schema | None = None,
        *,
        most_versions: int = MOST_VERSIONS,
        least_changes: int = LEAST_CHANGES,
    ) -> None:
        self._folder = folder
        self._journal = journal
        self._schema = schema
        self._limits = most_versions, least_changes
        self._lock = RLock()
        self.numbered = numbered
        self._next = 0  # number, where ids are strings
        self._bases: list[int] = [base for base, _ in journal.generations()]
        self._rows: list[VersionRow] = []
        folder.mkdir(exist_ok=True)
        for left in folder.iterdir():  # of a base that was never finished, or was to be removed
            if left.name not in map(str, self._bases):
                shutil.rmtree(left)
        if self._bases:
            self._rows = journal.versions(self._bases[0])
            self._restore()

    @property
    def empty(self) -> bool:
        """Whether no version exists yet: `begin` makes the first."""
        return not self._bases

    @property
    def newest(self) -> int:
        """The newest version."""
        with self._lock:
            return self._rows[-1].version if self._rows else self._bases[-1]

    def __len__(self) -> int:
        return self._size

    def begin(self, boxes: Boxes | None) -> None:
        """Make version 0, of the subscriptions that a stream begins with."""
        boxes = boxes or Boxes.none(self.numbered)
        index = TreeIndex(self._schema, predicates=environment_predicates())
        numbers = boxes.ids.to_numpy() if self.numbered else np.arange(len(boxes))
        index.add_boxes(numbers, boxes.columns)
        self._write_base(0, index, None if self.numbered else IdNames(numbers, boxes.ids))
        self._restore()

    def number_of(self, id: int | str) -> int | None:
        """The number of a subscription in the newest version, None if there is none with this id."""
        if id in self._recent:
            return self._recent[id]
        if isinstance(id, str):
            return self._named.get(id)
        at = int(np.searchsorted(self._base_ids, id))
        return id if at < len(self._base_ids) and self._base_ids[at] == id else None

    def new_numbers(self, ids: list[int] | list[str]) -> Numbers:
        """Numbers for subscriptions that are added: their ids, or numbers that were never used."""
        if self.numbered:
            return np.array(ids, np.int64)
        first, self._next = self._next, self._next + len(ids)
        return np.arange(first, self._next)

    def apply(
        self, version: int, batch: int, changes: SubscriptionChanges, dropped_ids: Iterable[int | str], refused: int
    ) -> None:
        """Store the next version; `dropped_ids` are the ids of the dropped. A new base is written if one is due."""
        base = self._bases[-1]
        if len(changes):
            changes.save(self._files(base).path_of(version))
        self._note(changes, dropped_ids)
        row = VersionRow(version, batch, len(changes), refused, self._size)
        self._journal.add_version(row)
        with self._lock:
            self._rows.append(row)
        since = [row.changes for row in self._rows if row.version > base]
        most, least = self._limits
        if len(since) > most or sum(since) > max(least, self._base_size // 10):
            self._compact()

    def files(self, version: int) -> VersionFiles:
        """Where a version is. Cost: O(versions since its base)."""
        with self._lock:
            base = max(base for base in self._bases if base <= version)
            changes = tuple(row.version for row in self._rows if base < row.version <= version and row.changes)
        found = self._files(base)
        return VersionFiles(found.folder, version, changes)

    def size_of(self, version: int) -> int:
        """How many subscriptions a version has."""
        with self._lock:
            sizes = {row.version: row.size for row in self._rows}
        return sizes.get(version, dict(self._journal.generations()).get(version, 0))

    def forget(self, before: int) -> None:
        """Remove what only versions before this one need."""
        with self._lock:
            base = max(base for base in self._bases if base <= before)
            old = [each for each in self._bases if each < base]
            if not old:
                return
            self._bases = [each for each in self._bases if each >= base]
            last = max((row.batch for row in self._rows), default=-1)
            self._rows = [row for row in self._rows if row.version >= base]
            self._journal.forget(base, last)
        for each in old:
            shutil.rmtree(self._folder / str(each), ignore_errors=True)

    # -- bases ----------------------------------------------------------------------------------

    def _files(self, base: int) -> VersionFiles:
        return VersionFiles(str((self._folder / str(base)).resolve()), base)

    def _compact(self) -> None:
        """Write the newest version as a base."""
        version = self._rows[-1].version
        index, names = self._replayed()
        self._write_base(version, index, names)
        self._restore()

    def _replayed(self) -> tuple[TreeIndex, IdNames | None]:
        """The newest version, from a base and its changes."""
        files = self.files(self.newest)
        folder = Path(files.folder)
        index = TreeIndex.open(folder / INDEX, verify=False, predicates=environment_predicates())
        known = read_names(folder / NAMES)
        names = None if known is None else dict(zip(known.numbers.tolist(), known.names.to_pylist(), strict=True))
        for version in files.changes:
            changes = SubscriptionChanges.load(files.path_of(version))
            index.discard_many(changes.drop)
            if len(changes.add):
                index.add_boxes(changes.add, changes.boxes)
            if names is not None:
                for number in changes.drop.tolist():
                    names.pop(number, None)
                names.update(zip(changes.add.tolist(), changes.names.to_pylist(), strict=True))
        index.settle()
        return index, None if names is None else IdNames.of(names.items())

    def _write_base(self, version: int, index: TreeIndex, names: IdNames | None) -> None:
        draft, place = self._folder / f".{version}-draft", self._folder / str(version)
        for left in (draft, place):
            shutil.rmtree(left, ignore_errors=True)
        draft.mkdir()
        index.snapshot(draft / INDEX)
        if names is not None:
            write_names(draft / NAMES, names)
        for file in draft.rglob("*"):
            sync_directory(file)
        os.replace(draft, place)
        sync_directory(self._folder)
        self._journal.add_generation(version, len(index))
        with self._lock:
            self._bases.append(version)

    # -- which ids there are --------------------------------------------------------------------

    def _restore(self) -> None:
        """What the newest version has, from its base and changes."""
        base = self._bases[-1]
        folder = self._folder / str(base)
        names = read_names(folder / NAMES)
        index = TreeIndex.open(folder / INDEX, verify=False, predicates=environment_predicates())
        self._recent: dict[Any, int | None] = {}
        self._base_size = self._size = len(index)
        self._base_ids: Numbers = np.array(index.subscriptions() if names is None else [], np.int64)
        self._named: dict[str, int] = {}
        if names is not None:
            self._named = dict(zip(names.names.to_pylist(), names.numbers.tolist(), strict=True))
        top = int(names.numbers[-1]) + 1 if names is not None and len(names.numbers) else 0
        self._next = max(top, self._next)
        files = self.files(self.newest)
        known = {number: name for name, number in self._named.items()}
        for version in files.changes:
            changes = SubscriptionChanges.load(files.path_of(version))
            dropped = changes.drop.tolist() if names is None else [known[number] for number in changes.drop.tolist()]
            self._note(changes, dropped)
            if names is not None:
                known.update(zip(changes.add.tolist(), changes.names.to_pylist(), strict=True))
                self._next = max([self._next, *(number + 1 for number in changes.add.tolist())])

    def _note(self, changes: SubscriptionChanges, dropped_ids: Iterable[int | str]) -> None:
        """The ids that came and went."""
        self._recent.update(dict.fromkeys(dropped_ids))
        ids = changes.add.tolist() if changes.names is None else changes.names.to_pylist()
        self._recent.update(zip(ids, changes.add.tolist(), strict=True))
        self._size += len(changes.add) - len(changes.drop)
