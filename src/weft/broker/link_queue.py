"""What waits to be sent to one neighbour: updates, marks of changes, and letters. Law: it leaves in the order in which
it came in; letters stay when the rest is forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from weft.broker.completion import PendingChange
from weft.broker.link_messages import ABOUT, LinkRelay
from weft.interest.label_set import Retuning
from weft.log.base import Offset
from weft.routing.table import Item, ItemId, Update


class WaitingUpdate:
    """An update that is being sent; what it adds must not change meanwhile."""

    __slots__ = ("_adds", "about", "adding", "drop", "notes", "offered", "offset", "size")

    def __init__(self, update: Update, offset: Offset) -> None:
        self.about = ABOUT.index(update.about)
        self._adds = iter(update.add.items())
        self.adding = len(update.add)  # items that it still adds
        self.drop = deque(update.drop)
        self.notes = update.notes
        self.offset = offset  # its drops may have to wait for the events below
        self.offered = False  # a part of it has announced the label space
        self.size = 0 if update.fresh else len(update.add) + len(update.drop)

    def take(self) -> tuple[ItemId, Item]:
        """The next item that it adds."""
        self.adding -= 1
        return next(self._adds)

    @property
    def done(self) -> bool:
        """Whether all of its items were looked at."""
        return not self.adding and not self.drop

    @property
    def stages(self) -> Iterator[Retuning]:
        """What it says of a re-tuning, which is said once."""
        return (note for note in self.notes if isinstance(note, Retuning))


class Letter(NamedTuple):
    """Something to be handed on behind the events below an offset, and before all others."""

    offset: Offset
    message: LinkRelay


class ControlQueue:
    """The queue of one neighbour. `size` is how many items were put into it by updates that are not done; a table that
    tells everything at once, because the neighbour was compared, does not count.
    """

    __slots__ = ("_entries", "_letters", "size")

    def __init__(self) -> None:
        self._entries: deque[WaitingUpdate | PendingChange | Letter] = deque()
        self._letters: deque[Letter] = deque()  # of the entries
        self.size = 0

    @property
    def head(self) -> WaitingUpdate | PendingChange | Letter | None:
        """What comes next."""
        return self._entries[0] if self._entries else None

    @property
    def barrier(self) -> Offset | None:
        """Events from here on must wait for a letter."""
        return self._letters[0].offset if self._letters else None

    def put(self, entry: WaitingUpdate | PendingChange | Letter) -> None:
        """Put something behind everything else."""
        self._entries.append(entry)
        if isinstance(entry, WaitingUpdate):
            self.size += entry.size
        elif isinstance(entry, Letter):
            self._letters.append(entry)

    def pop(self) -> None:
        """The next one is done."""
        entry = self._entries.popleft()
        if isinstance(entry, WaitingUpdate):
            self.size -= entry.size
        elif isinstance(entry, Letter):
            self._letters.popleft()

    # -- forgetting -----------------------------------------------------------------------------------

    def forget(self) -> tuple[list[PendingChange], list[Retuning]]:
        """Forget everything but letters: the changes and the stages of re-tunings that were in it."""
        changes, stages = [*self._changes()], [stage for each in self._updates() for stage in each.stages]
        self._entries, self.size = deque(self._letters), 0
        return changes, stages

    def forget_updates(self, about: int) -> list[Retuning]:
        """Forget the updates of one kind: the stages of re-tunings that were in any update."""
        stages = [stage for each in self._updates() for stage in each.stages]
        self._entries = deque(
            each for each in self._entries if not isinstance(each, WaitingUpdate) or each.about != about
        )
        self.size = sum(each.size for each in self._updates())
        return stages

    def forget_letters(self) -> None:
        """There is no session: letters are lost."""
        self._letters.clear()
        self._entries = deque(each for each in self._entries if not isinstance(each, Letter))

    # -- contents -------------------------------------------------------------------------------------

    def _updates(self) -> Iterator[WaitingUpdate]:
        return (each for each in self._entries if isinstance(each, WaitingUpdate))

    def _changes(self) -> Iterator[PendingChange]:
        return (each for each in self._entries if isinstance(each, PendingChange))

    @property
    def items(self) -> int:
        """How many items wait to be looked at."""
        return sum(each.adding + len(each.drop) for each in self._updates())

    @property
    def changes(self) -> int:
        """How many marks wait."""
        return sum(1 for _ in self._changes())

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert self.size == sum(each.size for each in self._updates())
        assert [*self._letters] == [each for each in self._entries if isinstance(each, Letter)]
