"""What nodes say to the root of a topic group, and the root to other roots and to the nodes that store for it.

Each message names the key that its receiver must own: the place of the topic's host on the circle, or a member's
identifier. Requests to a host that does not have the topic are answered with `Elsewhere`.
"""

from __future__ import annotations

import msgspec

from weft.ring.group_placement import GroupView
from weft.ring.group_state import GroupState
from weft.ring.identifiers import Key
from weft.ring.messages import RequestMessage, Token


class Register(RequestMessage, frozen=True, tag=41):
    """A node subscribes to the topic, or still does. To the root."""

    key: Key
    host: str
    topic: str
    member: Key


class Renew(RequestMessage, frozen=True, tag=54):
    """A node still subscribes to these topics of a host. To the root, which refuses if it knows better."""

    key: Key
    host: str
    topics: tuple[str, ...]
    member: Key


class Deregister(RequestMessage, frozen=True, tag=42):
    """A node does not subscribe to the topic any more. To the root."""

    key: Key
    host: str
    topic: str
    member: Key


class Reshape(RequestMessage, frozen=True, tag=43):
    """Give the group's tree another depth and rotation distance; None leaves one as it is. To the root."""

    key: Key
    host: str
    topic: str
    depth: int | None = None
    rotation: int | None = None


class FetchViews(RequestMessage, frozen=True, tag=44):
    """Which views hold? `digest` is that of the views that the sender knows. `Views` answers. To the root."""

    key: Key
    host: str
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


class Elsewhere(msgspec.Struct, frozen=True, array_like=True, tag=48):
    """The answer of a root that does not have the topic: whom to ask."""

    token: Token
    host: str


class Entrust(RequestMessage, frozen=True, tag=49):
    """The topic is yours from now on; its state as the sender's reference has it. Of a root to another."""

    key: Key
    host: str
    state: GroupState


class AskTopics(RequestMessage, frozen=True, tag=50):
    """Which topics' groups are you a member of? `TopicsAre` answers. Of the root to a member."""


class TopicsAre(msgspec.Struct, frozen=True, array_like=True, tag=51):
    """The answer to `AskTopics`."""

    token: Token
    topics: tuple[str, ...]


class Probe(RequestMessage, frozen=True, tag=52):
    """The members of the sender's topics: are they like those of the host of this topic? `Probed` answers."""

    key: Key
    host: str
    topic: str
    parts: dict[str, tuple[int, ...]]


class Probed(msgspec.Struct, frozen=True, array_like=True, tag=53):
    """The answer to `Probe`: the super topic that the receiver has given its topics to; None if they are not alike."""

    token: Token
    into: str | None


HostRequest = Register | Renew | Deregister | Reshape | FetchViews | Probe | Entrust
GroupRequest = HostRequest | AskTopics | Shift | Settle
GroupAnswer = Views | Elsewhere | TopicsAre | Probed
