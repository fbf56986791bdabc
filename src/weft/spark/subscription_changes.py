"""Changes of a set of subscriptions, as they are stored between two versions. Applied in order, the changes after a
base give exactly the subscriptions of each version.

A subscription has a number: its id, or where ids are strings the number that it was given when it was added. So the
order of numbers, by which results are sorted, is the same whenever a version is read.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.algebra.columns import BoxColumns
from weft.errors import PipelineError
from weft.log.data_directory import sync_directory

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SubscriptionChanges:
    """First the dropped go, then the added come; a subscription that is replaced is in both."""

    drop: Numbers
    add: Numbers
    names: Any  # an Arrow array: the string ids of the added; None where ids are integers
    boxes: BoxColumns  # those of owner o are the filter of add[o]

    def __len__(self) -> int:
        return len(self.drop) + len(self.add)

    def save(self, path: Path) -> None:
        """Write the changes, whole or not at all."""
        write_file(path, pickle.dumps(self, protocol=5))

    @staticmethod
    def load(path: Path) -> SubscriptionChanges:
        """Read changes back. Raises PipelineError."""
        try:
            changes = pickle.loads(path.read_bytes())
        except (OSError, pickle.UnpicklingError, EOFError, AttributeError) as error:
            raise PipelineError(
                f"the changes in {path} cannot be read: {error}; the checkpoint must be a folder that the driver and "
                "all executors see"
            ) from error
        assert isinstance(changes, SubscriptionChanges)
        return changes


@dataclass(frozen=True, slots=True)
class IdNames:
    """String ids by number. Cost: a binary search for each.

    >>> names = IdNames.of([(7, "b"), (3, "a")])
    >>> names.take(np.array([7, 3, 7])).to_pylist()
    ['b', 'a', 'b']
    """

    numbers: Numbers  # ascending
    names: Any  # an Arrow array of strings

    @staticmethod
    def of(pairs: Iterable[tuple[int, str]]) -> IdNames:
        """From pairs in any order; the numbers differ."""
        ordered = sorted(pairs)
        numbers = np.array([number for number, _ in ordered], np.int64)
        return IdNames(numbers, pa.array([name for _, name in ordered], pa.string()))

    def take(self, numbers: Numbers) -> Any:
        """The ids of these numbers, all of which are known."""
        return self.names.take(pa.array(np.searchsorted(self.numbers, numbers)))


def write_file(path: Path, data: bytes) -> None:
    """Write a file so that it survives a crash, whole, in place of an older one."""
    draft = path.with_name(f".{path.name}-draft")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    sync_directory(path.parent)
