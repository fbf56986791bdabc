"""What a node remembers of its ring from one start to the next: its lives, and the members that it has known.

It is a file beside the log. It is replaced as a whole, so that a crash leaves the old one or the new one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from weft.errors import OptionError
from weft.ring.messages import NodeRef

FILE = "ring.json"


class RingMemory(msgspec.Struct):
    """The life of the last start, and the members of the ring."""

    life: int = 0
    members: list[NodeRef] = []

    @classmethod
    def load(cls, directory: Path | None) -> RingMemory:
        """What was stored; nothing at the first start. Raises OptionError if the file cannot be read."""
        if directory is None or not (directory / FILE).exists():
            return cls()
        try:
            return msgspec.json.decode((directory / FILE).read_bytes(), type=cls)
        except (OSError, ValueError) as error:
            raise OptionError(
                f"{directory / FILE} cannot be read: {error}; remove it, and name a node with --join"
            ) from error

    def store(self, directory: Path | None, members: Iterable[NodeRef]) -> None:
        """Replace what was stored, if it is something else."""
        found = sorted(members)
        if directory is None or (found == self.members and (directory / FILE).exists()):
            return
        self.members = found
        new = directory / f"{FILE}.new"
        with new.open("wb") as file:
            file.write(msgspec.json.encode(self))
            file.flush()
            os.fsync(file.fileno())
        new.replace(directory / FILE)
