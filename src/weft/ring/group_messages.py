"""What the root of a group and its members say to each other, and publishers and subscribers to them."""

from __future__ import annotations

import msgspec

from weft.ring.group_placement import GroupView
from weft.ring.identifiers import Key
from weft.ring.messages import Token
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


class FetchViews(msgspec.Struct, frozen=True):
    """A subscriber or publisher to the root: which views hold? The answer are `GroupRoot.views`."""

    token: Token


class Accept(msgspec.Struct, frozen=True):
    """A subscriber to a member: store a record. The answer is `GroupMember.accept`'s."""

    token: Token
    record: Record
    versions: tuple[int, ...]


class Examine(msgspec.Struct, frozen=True):
    """A publisher to a member: who wants an event under a key? The answer is `GroupMember.examine`'s."""

    token: Token
    key: Key
    event: Publication
    version: int


class ToRoot(msgspec.Struct, frozen=True):
    """Send a message to the root of the group."""

    message: FetchViews


class ToMember(msgspec.Struct, frozen=True):
    """Send a message to a member."""

    to: Key
    message: Accept | Examine


class Stored(msgspec.Struct, frozen=True):
    """A record is where every event published from now on finds it."""

    record: Record


class Examined(msgspec.Struct, frozen=True):
    """These records under a key want an event."""

    key: Key
    event: Publication
    records: tuple[Record, ...]


ClientEffect = ToRoot | ToMember | Stored | Examined
