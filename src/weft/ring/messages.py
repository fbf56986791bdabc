"""What nodes of a ring say to each other to keep the ring, and what a node asks its driver to do."""

from __future__ import annotations

from typing import NamedTuple, NewType

import msgspec

from weft.ring.identifiers import Key

Address = NewType("Address", str)  # what a transport needs to reach a node
Token = NewType("Token", int)  # of a request, unique at the node that asks


class NodeRef(NamedTuple):
    """A node as others know it."""

    id: Key
    address: Address


class _Message(msgspec.Struct, frozen=True, array_like=True):
    """One message; on the wire an array of its tag and its fields."""


class Find(_Message, frozen=True, tag=1):
    """Whose is this key, as far as you know? The answer is a `Step`."""

    token: Token
    key: Key


class LookupStep(_Message, frozen=True, tag=2):
    """The owner of a key if it is known, else nodes that are nearer to it, the nearest first."""

    token: Token
    owner: NodeRef | None
    nearer: tuple[NodeRef, ...] = ()


class Route(_Message, frozen=True, tag=3):
    """Find the owner of a key for `origin`: passed on from node to node."""

    token: Token
    key: Key
    origin: NodeRef
    hops: int


class Found(_Message, frozen=True, tag=4):
    """The answer to a `Route`, from the node before the owner."""

    token: Token
    owner: NodeRef
    hops: int


class Ask(_Message, frozen=True, tag=5):
    """Who are your neighbours? Also asks whether a node is alive."""

    token: Token


class Neighbours(_Message, frozen=True, tag=6):
    """The answer to `Ask`."""

    token: Token
    predecessor: NodeRef | None
    successors: tuple[NodeRef, ...]


class Notify(_Message, frozen=True, tag=7):
    """The sender may be your predecessor."""

    node: NodeRef


class Leaving(_Message, frozen=True, tag=8):
    """A node leaves the ring; these were its neighbours."""

    node: NodeRef
    predecessor: NodeRef | None
    successors: tuple[NodeRef, ...]


class RequestMessage(_Message, frozen=True):
    """A message that is answered with the same token: by `Done`, unless it says otherwise."""

    token: Token


ChordMessage = Find | LookupStep | Route | Found | Ask | Neighbours | Notify | Leaving


class SendTo(msgspec.Struct, frozen=True):
    """Send a message to a node."""

    to: Address
    message: ChordMessage


class Joined(msgspec.Struct, frozen=True):
    """The node is part of a ring."""


class JoinFailed(msgspec.Struct, frozen=True):
    """The node could not join, and is alone."""

    reason: str


class LookedUp(msgspec.Struct, frozen=True):
    """A look-up has ended: `owner` is None if nobody could be reached who knows."""

    token: Token
    key: Key
    owner: NodeRef | None
    hops: int


class OwnershipChanged(msgspec.Struct, frozen=True):
    """The node's keys begin after another predecessor than before: data must move."""

    before: NodeRef | None
    after: NodeRef | None


ChordEffect = SendTo | Joined | JoinFailed | LookedUp | OwnershipChanged
