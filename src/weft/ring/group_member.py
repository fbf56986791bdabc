"""A member of a topic group: it stores records for views, moves them, and examines events. Law: it refuses what was
sent by somebody whose view is out of date, so that nobody stores or looks where nothing is any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from weft.ring.group_messages import Commit, Give, Given, Moved, SendTo
from weft.ring.group_messages import Move as MoveMessage
from weft.ring.group_placement import GroupView
from weft.ring.identifiers import Key
from weft.ring.record_store import RecordStore
from weft.ring.rendezvous_messages import Publication, Record, RingSub


class GroupMember:
    """The part of a node that belongs to one group."""

    def __init__(self, id: int, store: RecordStore, view: GroupView | None = None) -> None:
        self.id = Key(id)
        self.store = store
        self._view = view  # the last that was committed; None before a new member's first
        self._following: GroupView | None = None
        self._newest = 0  # the newest version that something was stored for
        self._awaited: set[Key] = set()  # members that have not acknowledged what was given to them

    def _versions(self) -> set[int]:
        return {view.version for view in (self._view, self._following) if view is not None}

    def accept(self, record: Record, versions: Sequence[int]) -> bool:
        """Store a record whose sender knows views of these versions; refused if there is another that it must know."""
        newest = max(self._versions(), default=0)
        if newest > max(versions):
            return False
        settled = self._view is not None and self._following is None and self._view.version == max(versions)
        if not settled or self._is_mine(record.key, self._view):  # else the sender stores it in the other view, too
            self.store.add(record)
            self._newest = max(self._newest, *versions)
        return True

    def discard(self, key: Key, sub: RingSub) -> None:
        """Forget a record."""
        self.store.discard(key, sub)

    def examine(self, key: Key, event: Publication, version: int) -> tuple[Record, ...] | None:
        """The records under a key that want an event; None if the sender's view is out of date."""
        if self._view is not None and version < self._view.version:
            return None
        return tuple(self.store.match(key, event))

    def receive(self, sender: Key | None, message: MoveMessage | Give | Given | Commit) -> list[SendTo]:
        """A message of the root (None) or another member."""
        match message:
            case MoveMessage(view, following):
                return self._move(view, following)
            case Give(version, records):
                self._newest = max(self._newest, version)
                for record in records:
                    self.store.add(record)
                return [SendTo(sender, Given(version))]
            case Given(version):
                if sender is not None and self._following is not None and version == self._following.version:
                    self._awaited.discard(sender)
                    return self._moved_if_all()
                return []
            case Commit(view):
                self._commit(view)
                return []
        raise AssertionError(message)

    def _move(self, view: GroupView, following: GroupView) -> list[SendTo]:
        """Give each record to the member that it belongs to in the next view, and keep it until that one holds."""
        self._view, self._following = view, following
        elsewhere: dict[Key, list[Record]] = defaultdict(list)
        for record in self.store:
            member = following.place(record.key).member
            if member != self.id:
                elsewhere[member].append(record)
        self._awaited = set(elsewhere)
        given = [
            SendTo(member, Give(following.version, tuple(records))) for member, records in sorted(elsewhere.items())
        ]
        return given or self._moved_if_all()

    def gone(self, member: Key) -> list[SendTo]:
        """Another member is dead and acknowledges nothing any more."""
        if member not in self._awaited:
            return []
        self._awaited.discard(member)
        return self._moved_if_all()

    def _moved_if_all(self) -> list[SendTo]:
        assert self._following is not None
        return [] if self._awaited else [SendTo(None, Moved(self._following.version))]

    def _commit(self, view: GroupView) -> None:
        if self._view is not None and view.version <= self._view.version:
            return
        self._view = view
        if self._following is not None and self._following.version <= view.version:
            self._following = None
        if view.version < self._newest:
            return  # this commit has been overtaken by records for a later view
        for record in list(self.store):
            if not self._is_mine(record.key, view):
                self.store.discard(record.key, record.sub)

    def _is_mine(self, key: Key, view: GroupView | None) -> bool:
        return view is not None and view.place(key).member == self.id
