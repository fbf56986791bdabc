"""What nodes say to the root of a topic group, and the root to the nodes that store for it.

Each message names the key that its receiver must own: the topic's place on the circle, or a member's identifier.
"""

from __future__ import annotations

import msgspec

from weft.ring.group_placement import GroupView
from weft.ring.identifiers import Key
from weft.ring.messages import RequestMessage, Token


class Register(RequestMessage, frozen=True, tag=41):
    """A node subscribes to the topic, or still does. To the root."""

    key: Key
    topic: str
    member: Key


class Deregister(RequestMessage, frozen=True, tag=42):
    """A node does not subscribe to the topic any more. To the root."""

    key: Key
    topic: str
    member: Key


class Reshape(RequestMessage, frozen=True, tag=43):
    """Give the group's tree another depth and rotation distance; None leaves one as it is. To the root."""

    key: Key
    topic: str
    depth: int | None = None
    rotation: int | None = None


class FetchViews(RequestMessage, frozen=True, tag=44):
    """Which views hold? `digest` is that of the views that the sender knows. `Views` answers. To the root."""

    key: Key
    topic: str
    digest: bytes = b""


class Views(msgspec.Struct, frozen=True, array_like=True, tag=45):
    """The answer to `FetchViews`: none if there is no such group, None if they are those that the sender knows."""

    token: Token
    views: tuple[GroupView, ...] | None
    digest: bytes = b""


class Shift(RequestMessage, frozen=True, tag=46):
    """Store what is under a member's identifier where it belongs in the next view, too. Of the root."""

    key: Key
    topic: str
    view: GroupView
    following: GroupView


class Settle(RequestMessage, frozen=True, tag=47):
    """Forget what was stored under a member's identifier for views before this version only. Of the root."""

    key: Key
    topic: str
    version: int


GroupRequest = Register | Deregister | Reshape | FetchViews | Shift | Settle
