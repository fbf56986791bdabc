"""One node of a Chord ring, without sockets and clocks. Law: when the ring is quiet, a key's owner is its successor.

A node that does not answer in time is considered dead, and forgotten until it is heard of again. While nodes come and
go, a look-up may be answered with a former owner; stabilising mends this, and after fewer failures at once
than a list of successors is long, nothing stays wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from weft.errors import LocalProtocolError
from weft.ring.chord_table import ChordTable
from weft.ring.identifiers import IdSpace, Key
from weft.ring.messages import (
    Address,
    Ask,
    ChordEffect,
    ChordMessage,
    Find,
    Found,
    Joined,
    JoinFailed,
    Leaving,
    LookedUp,
    LookupStep,
    Neighbours,
    NodeRef,
    Notify,
    OwnershipChanged,
    Route,
    SendTo,
    Token,
)

ANSWER = 1_000_000  # microseconds within which a node must answer
PERIOD = 500_000  # between two stabilisations
_MOST_HOPS = 128  # a look-up that takes more goes round in circles
_TRIES = 8  # to join
_UNKNOWN = Key(-1)  # the identifier of a node of which only the address is known
_NEARER = 3  # nodes in a step, in case the nearest is dead
_ANSWERS = (LookupStep, Neighbours)  # what a node that is joining waits for


@dataclass(slots=True)
class _Lookup:
    """A look-up that this node makes step by step."""

    key: Key
    hops: int = 0
    tried: set[Address] = field(default_factory=set)
    next: list[NodeRef] = field(default_factory=list)  # nearest first
    purpose: str = ""  # join, finger, or the application's


@dataclass(slots=True)
class _Request:
    """A message whose answer is awaited."""

    to: NodeRef
    deadline: int
    lookup: Token | None = None  # the look-up that it belongs to
    purpose: str = ""  # join, or nothing in particular


class ChordNode(ChordTable):
    """A node of a ring: what it knows of others, and the messages by which it learns that.

    >>> node = ChordNode(IdSpace(16), "a", 5)
    >>> node.owns(3), node.successor
    (True, NodeRef(id=5, address='a'))
    """

    def __init__(self, space: IdSpace, address: str, id: int | None = None, successors: int = 8) -> None:
        key = space.hash(address) if id is None else Key(id % space.size)
        super().__init__(space, NodeRef(key, Address(address)), successors)
        self.left = False
        self._next_token = 0
        self._lookups: dict[Token, _Lookup] = {}
        self._requests: dict[Token, _Request] = {}
        self._finger = 0
        self._due = 0
        self.joining = False  # it has asked to join, and is not part of the ring yet, even if it has failed once
        self._through: NodeRef | None = None  # whom it asks to join
        self._tries = 0

    # -- joining and leaving ---------------------------------------------------------------------------

    def join(self, known: Address, now: int) -> list[ChordEffect]:
        """Join the ring of a node that is known. `Joined` or `JoinFailed` follows."""
        if self.successors or self.left or self._through is not None:
            raise LocalProtocolError(f"{self.me.address} is already part of a ring")
        self.joining, self._through, self._tries = True, NodeRef(_UNKNOWN, known), 0
        return self._try_to_join(now)

    def _try_to_join(self, now: int) -> list[ChordEffect]:
        """Look this node's place up. The owner of it may have died: once the ring has noticed, another try succeeds."""
        assert self._through is not None
        self._tries += 1
        if self._tries > _TRIES:
            self._through = None
            return [JoinFailed("no node of the ring could be reached")]
        token = self._token()
        self._lookups[token] = _Lookup(self.me.id, next=[self._through], purpose="join")
        return self._advance(token, now)

    def leave(self) -> list[ChordEffect]:
        """Leave in order: neighbours are told. The application moves its data first."""
        self.left = True
        others = dict.fromkeys(node for node in (self.predecessor, self.successor) if node and node != self.me)
        return [SendTo(node.address, Leaving(self.me, self.predecessor, tuple(self.successors))) for node in others]

    # -- look-ups --------------------------------------------------------------------------------------

    def lookup(self, key: int, now: int, *, recursive: bool = False) -> tuple[Token, list[ChordEffect]]:
        """Find the owner of a key; `LookedUp` with this token follows.

        Step by step, this node asks one node after the other, and survives dead ones. Recursively the question is
        passed on, which takes half as many messages, and is lost if a node on the way is dead.
        """
        token = self._token()
        if (owner := self.owner(key)) is not None:
            return token, [LookedUp(token, Key(key), owner, int(owner != self.me))]
        if recursive:
            self._requests[token] = _Request(self.me, now + ANSWER, token)
            self._lookups[token] = _Lookup(Key(key))
            return token, self._route(Route(token, Key(key), self.me, 0))
        self._lookups[token] = _Lookup(Key(key), next=self.nearer(key)[:_NEARER])
        return token, self._advance(token, now)

    def _advance(self, token: Token, now: int) -> list[ChordEffect]:
        """Ask the nearest node that was not asked yet."""
        lookup = self._lookups[token]
        while lookup.next:
            node = lookup.next.pop(0)
            if node.address not in lookup.tried and node != self.me and lookup.hops < _MOST_HOPS:
                lookup.tried.add(node.address)
                lookup.hops += 1
                return self._ask(node, lambda request: Find(request, lookup.key), now, token)
        return self._ended(token, None, now)

    def _ended(self, token: Token, owner: NodeRef | None, now: int) -> list[ChordEffect]:
        lookup = self._lookups.pop(token)
        if lookup.purpose == "join":
            return self._placed(owner, now)
        if lookup.purpose == "finger":
            if owner is not None:
                self.set_finger(lookup.key, owner)
            return []
        return [LookedUp(token, lookup.key, owner, lookup.hops + (owner is not None))]

    def _placed(self, owner: NodeRef | None, now: int) -> list[ChordEffect]:
        """This node's place is before `owner`, if that one is alive."""
        if owner is None:
            return self._try_to_join(now)
        if owner.id == self.me.id:
            self._through = None
            if owner.address == self.me.address:
                return [JoinFailed("the ring has not yet noticed that this node was started again")]
            return [JoinFailed(f"identifier {self.me.id} is taken by {owner.address}; give this node another address")]
        return self._ask(owner, Ask, now, purpose="join")

    def _welcomed(self, owner: NodeRef, successors: Sequence[NodeRef]) -> list[ChordEffect]:
        self.joining, self._through = False, None
        self.follow([owner, *successors])
        self._due = 0
        return [Joined(), SendTo(owner.address, Notify(self.me))]

    def _route(self, message: Route) -> list[ChordEffect]:
        if (owner := self.owner(message.key)) is not None:
            return [SendTo(message.origin.address, Found(message.token, owner, message.hops + (owner != self.me)))]
        nearer = self.nearer(message.key)
        if not nearer or message.hops >= _MOST_HOPS:
            return []
        return [SendTo(nearer[0].address, Route(message.token, message.key, message.origin, message.hops + 1))]

    # -- messages --------------------------------------------------------------------------------------

    def receive(self, sender: NodeRef, messages: Sequence[ChordMessage], now: int) -> list[ChordEffect]:
        """Messages of another node. A node that has left, or has not joined yet, answers nobody.

        So a ring that takes a node that was started again for alive finds out that it is not, and lets it join.
        """
        effects: list[ChordEffect] = []
        for message in messages:
            if not self.left and (not self.joining or isinstance(message, _ANSWERS)):
                effects += self._handle(sender, message, now)
        return effects

    def _handle(self, sender: NodeRef, message: ChordMessage, now: int) -> list[ChordEffect]:
        match message:
            case Find(token, key):
                return [SendTo(sender.address, self._step(token, key))]
            case LookupStep(token):
                return self._stepped(token, message, now)
            case Route():
                return self._route(message)
            case Found(token, owner, hops):
                self._requests.pop(token, None)
                lookup = self._lookups.get(token)
                if lookup is None:
                    return []
                lookup.hops = hops - 1
                return self._ended(token, owner, now)
            case Ask(token):
                return [SendTo(sender.address, Neighbours(token, self.predecessor, tuple(self.successors)))]
            case Neighbours(token):
                return self._heard(token, message, now)
            case Notify(node):
                return self._notified(node)
            case Leaving():
                return self._bereft(message)
        raise AssertionError(message)

    def _step(self, token: Token, key: Key) -> LookupStep:
        owner = self.owner(key)
        return LookupStep(token, owner, () if owner is not None else tuple(self.nearer(key)[:_NEARER]))

    def _stepped(self, token: Token, message: LookupStep, now: int) -> list[ChordEffect]:
        request = self._requests.pop(token, None)
        if request is None or request.lookup not in self._lookups:
            return []
        if message.owner is not None:
            return self._ended(request.lookup, message.owner, now)
        lookup = self._lookups[request.lookup]
        lookup.next = [*message.nearer, *lookup.next]
        return self._advance(request.lookup, now)

    # -- keeping the ring ------------------------------------------------------------------------------

    def tick(self, now: int) -> list[ChordEffect]:
        """Time passes: what was not answered is given up, and the ring is mended now and then."""
        effects: list[ChordEffect] = []
        if self.left:
            return effects
        for token, request in list(self._requests.items()):
            if request.deadline <= now and token in self._requests:
                del self._requests[token]
                if request.to != self.me:
                    effects += self.forget(request.to)
                if request.lookup in self._lookups:
                    effects += self._advance(request.lookup, now)
                if request.purpose == "join":
                    effects += self._try_to_join(now)
        if now >= self._due:
            self._due = now + PERIOD
            effects += self._stabilise(now)
        return effects

    def _stabilise(self, now: int) -> list[ChordEffect]:
        """Ask the successor for its neighbours, the predecessor for life, and look one finger up."""
        effects: list[ChordEffect] = []
        for node in dict.fromkeys((self.successor, self.predecessor)):
            if node is not None and node != self.me:
                effects += self._ask(node, Ask, now)
        if self.successors:
            self._finger = (self._finger + 1) % self.space.bits
            key, token = self.finger_key(self._finger), self._token()
            if self.space.between(key, self.me.id, self.successor.id):
                self.fingers[self._finger] = self.successor
            else:
                self._lookups[token] = _Lookup(key, next=self.nearer(key)[:_NEARER], purpose="finger")
                effects += self._advance(token, now)
        return effects

    def _heard(self, token: Token, message: Neighbours, now: int) -> list[ChordEffect]:
        request = self._requests.pop(token, None)
        if request is not None and request.purpose == "join":
            return self._welcomed(request.to, message.successors)
        if request is None or request.to != self.successor:
            return []
        between = message.predecessor
        successors = [request.to, *message.successors]
        effects: list[ChordEffect] = []
        if between is not None and self.is_before(between, request.to):
            successors.insert(0, between)
            effects += self._ask(between, Ask, now)
        self.follow(successors)
        return [*effects, SendTo(self.successor.address, Notify(self.me))]

    def _notified(self, node: NodeRef) -> list[ChordEffect]:
        effects: list[ChordEffect] = []
        if node == self.me:
            return effects
        if not self.successors:  # it was alone
            self.successors = [node]
        if self.is_nearer_predecessor(node):
            effects.append(OwnershipChanged(self.predecessor, node))
            self.predecessor = node
        return effects

    def _bereft(self, message: Leaving) -> list[ChordEffect]:
        """A neighbour leaves in order."""
        was_next = message.node == self.successor
        effects = self.forget(message.node)
        if was_next:
            self.follow([*message.successors, *self.successors])
        if self.predecessor is None and message.predecessor not in (None, self.me):
            effects.append(OwnershipChanged(message.node, message.predecessor))
            self.predecessor = message.predecessor
        return effects

    def forget(self, node: NodeRef) -> list[ChordEffect]:
        """A node is dead, as far as can be told."""
        return [OwnershipChanged(node, None)] if self.drop(node) else []

    # -- requests --------------------------------------------------------------------------------------

    def _ask(
        self,
        node: NodeRef,
        message: Callable[[Token], ChordMessage],
        now: int,
        lookup: Token | None = None,
        purpose: str = "",
    ) -> list[ChordEffect]:
        token = self._token()
        self._requests[token] = _Request(node, now + ANSWER, lookup, purpose)
        return [SendTo(node.address, message(token))]

    def _token(self) -> Token:
        self._next_token += 1
        return Token(self._next_token)
