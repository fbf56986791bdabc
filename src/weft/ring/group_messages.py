"""What the root of a group and its members say to each other, and publishers and subscribers to them."""

from __future__ import annotations

import msgspec

from weft.ring.group_placement import GroupView
from weft.ring.identifiers import Key
from weft.ring.rendezvous_messages import Publication, Record


class Move(msgspec.Struct, frozen=True):
    """The root to a member: give the records that belong elsewhere in the next view to where they belong."""

    view: GroupView
    following: GroupView


class Give(msgspec.Struct, frozen=True):
    """A member to another: store these for a view. `Given` answers."""

    version: int
    records: tuple[Record, ...]


class Given(msgspec.Struct, frozen=True):
    """The answer to `Give`."""

    version: int


class Moved(msgspec.Struct, frozen=True):
    """A member to the root: all that it had is where it belongs in the next view, too."""

    version: int


class Commit(msgspec.Struct, frozen=True):
    """The root to members: only this view holds from now on."""

    view: GroupView


GroupMessage = Move | Give | Given | Moved | Commit


class SendTo(msgspec.Struct, frozen=True):
    """Send a message to a member, or to the root if `to` is None."""

    to: Key | None
    message: GroupMessage


class Found(msgspec.Struct, frozen=True):
    """Records that want an event; None if the view was out of date, and the root must be asked again."""

    event: Publication
    records: tuple[Record, ...] | None
