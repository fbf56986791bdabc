"""Messages by which nodes maintain a ring, and the effects that a node returns to its driver."""

from __future__ import annotations

from typing import NamedTuple, NewType

import msgspec

from weft.ring.identifiers import Key

NodeAddress = NewType("NodeAddress", str)  # what a transport needs to reach a node
RequestToken = NewType("RequestToken", int)  # of a request, unique at the node that asks


class NodeRef(NamedTuple):
    """A node as others know it. Every start of a node at its address is another life, with a higher number."""

    id: Key
    address: NodeAddress
    life: int = 0


class _Message(msgspec.Struct, frozen=True, array_like=True):
    """One message; on the wire an array of its tag and its fields."""


class TokenMessage(_Message, frozen=True):
    """A request, or its answer with the same token: `Done`, unless the request's docstring names another answer."""

    token: RequestToken


class Find(TokenMessage, frozen=True, tag=1):
    """Whose is this key, as far as you know? `LookupStep` answers."""

    key: Key


class LookupStep(TokenMessage, frozen=True, tag=2):
    """The owner of a key if it is known, else nodes that are nearer to it, the nearest first."""

    owner: NodeRef | None
    nearer: tuple[NodeRef, ...] = ()


class Route(TokenMessage, frozen=True, tag=3):
    """Find the owner of a key for `origin`: passed on from node to node."""

    key: Key
    origin: NodeRef
    hops: int


class Found(TokenMessage, frozen=True, tag=4):
    """The answer to a `Route`, from the node before the owner."""

    owner: NodeRef
    hops: int


class Ask(TokenMessage, frozen=True, tag=5):
    """Who are your neighbours? Also asks whether a node is alive."""


class Neighbours(TokenMessage, frozen=True, tag=6):
    """The answer to `Ask`. `left` are nodes that have left the ring in order."""

    predecessor: NodeRef | None
    successors: tuple[NodeRef, ...]
    left: tuple[NodeRef, ...] = ()


class Notify(_Message, frozen=True, tag=7):
    """The sender may be your predecessor."""

    node: NodeRef


class Leaving(_Message, frozen=True, tag=8):
    """A node leaves the ring in order; these were its neighbours."""

    node: NodeRef
    predecessor: NodeRef | None
    successors: tuple[NodeRef, ...]


class Meet(_Message, frozen=True, tag=9):
    """A living node that may be your successor. Two rings become one by this message."""

    node: NodeRef


ChordMessage = Find | LookupStep | Route | Found | Ask | Neighbours | Notify | Leaving | Meet


class SendTo(msgspec.Struct, frozen=True):
    """Send a message to a node."""

    to: NodeAddress
    message: ChordMessage


class Joined(msgspec.Struct, frozen=True):
    """The node is part of a ring."""


class JoinFailed(msgspec.Struct, frozen=True):
    """The node could not join, and is alone."""

    reason: str


class LookedUp(msgspec.Struct, frozen=True):
    """A look-up has ended: `owner` is None if no node that knows it could be reached."""

    token: RequestToken
    key: Key
    owner: NodeRef | None
    hops: int


class OwnershipChanged(msgspec.Struct, frozen=True):
    """The node's keys begin after another predecessor than before: data must move."""

    before: NodeRef | None
    after: NodeRef | None


ChordEffect = SendTo | Joined | JoinFailed | LookedUp | OwnershipChanged
