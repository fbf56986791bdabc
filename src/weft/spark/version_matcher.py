"""One version of the subscriptions, as an executor matches with it. Results are those of an index of exactly the
subscriptions of that version. The subscriptions of an event come in ascending order of their numbers, so that a replay
writes the same rows in the same order.

A version is a base, which all workers of a machine map into memory, and the changes since. A worker keeps the last
version that it read: the next one costs the changes between them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from weft.index.base import Matches
from weft.index.tree import TreeIndex
from weft.pipeline.predicate_settings import environment_predicates
from weft.spark.subscription_changes import IdNames, Numbers, SubscriptionChanges

INDEX, NAMES = "index", "names.arrow"
_STREAMS = 4  # whose versions a process keeps


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """Where a version is: the folder of its base, and which changes follow."""

    folder: str
    number: int
    changes: tuple[int, ...] = ()  # the versions with changes after the base, ascending, up to this one

    def path_of(self, version: int) -> Path:
        """The file with the changes that led to a version."""
        return Path(self.folder, f"changes-{version}")

    def open(self) -> VersionMatcher:
        """The version, from what this process has already read where that is possible. Raises PipelineError."""
        stream = str(Path(self.folder).parent)
        matcher = _KEPT.pop(stream, None)
        if matcher is None or matcher.files.folder != self.folder or matcher.files.number > self.number:
            matcher = VersionMatcher(replace(self, number=-1, changes=()))
        matcher.advance(self)
        while len(_KEPT) >= _STREAMS:
            _KEPT.pop(next(iter(_KEPT)), None)
        _KEPT[stream] = matcher
        return matcher


class VersionMatcher:
    """An index of the base without what was dropped since, and an index of what was added since."""

    def __init__(self, files: VersionFiles) -> None:
        self.files = files
        folder = Path(files.folder)
        self._base = TreeIndex.open(
            folder / INDEX, verify=False, predicates=environment_predicates()
        )  # the driver wrote it
        self._names = read_names(folder / NAMES)
        self._added = TreeIndex(self._base.schema, predicates=environment_predicates())
        self._added_names: dict[int, str] = {}
        self._late = IdNames.of(())  # the same
        self._gone: set[int] = set()  # of the base
        self._hidden: Numbers = np.zeros(0, np.int64)  # the same, sorted

    def __len__(self) -> int:
        return sum(sub not in self._gone for sub in self._base.subscriptions()) + len(self._added)

    def advance(self, files: VersionFiles) -> None:
        """Apply the changes up to a later version."""
        for version in files.changes:
            if version > self.files.number:
                self._apply(SubscriptionChanges.load(files.path_of(version)))
        if len(files.changes) and self._names is not None:
            self._late = IdNames.of(self._added_names.items())
        if len(self._gone) != len(self._hidden):
            self._hidden = np.sort(np.fromiter(self._gone, np.int64, len(self._gone)))
        self.files = files

    def match(self, batch: pa.RecordBatch) -> Matches:
        """The subscriptions of each event, by number; events that cannot be read are set aside with the reason."""
        base = self._base.match_batch(batch)
        found, parts = base, [Matches(base.offsets, base.ids)]
        if len(self._hidden):
            near = np.minimum(np.searchsorted(self._hidden, found.ids), len(self._hidden) - 1)
            keep = self._hidden[near] != found.ids
            kept = np.concatenate([[0], np.cumsum(keep)])
            parts = [Matches(kept[found.offsets], found.ids[keep])]
        if len(self._added):
            parts.append(self._added.match_batch(batch).without(base.errors))
        merged = Matches.merged(parts, len(found))
        events = np.repeat(np.arange(len(merged)), merged.counts)
        order = np.lexsort((merged.ids, events))
        return Matches(merged.offsets, merged.ids[order], base.errors)

    def ids(self, numbers: Numbers) -> Any:
        """What their users call the subscriptions."""
        if self._names is None:
            return pa.array(numbers)
        if not len(self._late.numbers):
            return self._names.take(numbers)
        late = np.isin(numbers, self._late.numbers)
        both = pa.concat_arrays([self._names.take(numbers[~late]), self._late.take(numbers[late])])
        places = np.empty(len(numbers), np.int64)
        places[np.concatenate([np.flatnonzero(~late), np.flatnonzero(late)])] = np.arange(len(numbers))
        return both.take(pa.array(places))

    def _apply(self, changes: SubscriptionChanges) -> None:
        dropped = changes.drop.tolist()
        self._gone.update(number for number in dropped if number not in self._added)
        self._added.discard_many(changes.drop)
        for number in dropped:
            self._added_names.pop(number, None)
        if len(changes.add):
            self._added.add_boxes(changes.add, changes.boxes)
        if changes.names is not None:
            self._added_names.update(zip(changes.add.tolist(), changes.names.to_pylist(), strict=True))


_KEPT: dict[str, VersionMatcher] = {}  # by stream: what this process read last


def read_names(path: Path) -> IdNames | None:
    """The string ids of a base; None where ids are integers."""
    if not path.exists():
        return None
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    return IdNames(table["number"].to_numpy(), table["name"].combine_chunks())


def write_names(path: Path, names: IdNames) -> None:
    """Write string ids beside a base."""
    table = pa.table({"number": names.numbers, "name": names.names})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
