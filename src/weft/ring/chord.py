"""One node of a Chord ring, without sockets and clocks. When the ring is quiet, the owner of a key is its successor.

A node that does not answer in time is considered dead, and ignored until another node mentions it again. While nodes
join and leave, a lookup may return a former owner; stabilisation corrects this. As long as fewer nodes fail at once
than a list of successors is long, every error is corrected. The list of successors alone makes lookups correct; fingers
make them short.

A node remembers the members that it has heard of, and removes one only when it leaves in order or is forgotten by
command. Now and then it looks its own identifier up through a member that is not near. If another node answers, there
are two rings: the nodes tell each other their successors (`Meet`), and the rings become one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile

from weft.errors import LocalProtocolError, RingError
from weft.ring.identifiers import IdSpace, Key, successor
from weft.ring.messages import (
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
    Meet,
    Neighbours,
    NodeAddress,
    NodeRef,
    Notify,
    OwnershipChanged,
    RequestToken,
    Route,
    SendTo,
)

ANSWER = 1_000_000  # microseconds within which a node must answer
PERIOD = 500_000  # between two stabilisations
_MOST_HOPS = 128  # a look-up that takes more goes round in circles
_TRIES = 8  # to join
_UNKNOWN = Key(-1)  # the identifier of a node of which only the address is known
_NEARER = 3  # nodes in a step, in case the nearest is dead
_LOOK_AROUND = 10_000_000  # between two looks for another ring
_LOOK_SOON = 2_000_000  # while somebody is silent
_MOST_MEMBERS = 4_096
_MOST_LEFT = 16  # nodes that have left, in an answer
_ANSWERS = (LookupStep, Neighbours)  # what a node that is joining waits for


@dataclass(slots=True)
class _Lookup:
    """A look-up that this node makes step by step."""

    key: Key
    hops: int = 0
    tried: set[NodeAddress] = field(default_factory=set)
    next: list[NodeRef] = field(default_factory=list)  # nearest first
    purpose: str = ""  # join, finger, or the application's


@dataclass(slots=True)
class Member:
    """Another node that was ever heard of, in its latest life."""

    node: NodeRef
    silent_since: int | None = None  # it has not answered since then
    silent_at: int = 0  # when it did not answer last


@dataclass(slots=True)
class _Request:
    """A message whose answer is awaited."""

    to: NodeRef
    deadline: int
    lookup: RequestToken | None = None  # the look-up that it belongs to
    purpose: str = ""  # join, or nothing in particular


class ChordNode:
    """A node of a ring: the other nodes that it knows, and the messages by which it finds them.

    It knows its predecessor, its next nodes in `successors`, which ascend clockwise and never include the node itself,
    and in `fingers` for each i the owner of its id + 2**i.

    >>> node = ChordNode(IdSpace(16), "a", 5)
    >>> node.owns(3), node.successor
    (True, NodeRef(id=5, address='a', life=0))
    >>> node.follow([NodeRef(9, "b"), NodeRef(2, "c"), NodeRef(5, "a"), NodeRef(9, "b")])
    >>> [other.address for other in node.successors], [other.address for other in node.nearer(3)]
    (['b', 'c'], ['c', 'b'])
    """

    def __init__(self, space: IdSpace, address: str, id: int | None = None, successors: int = 8, life: int = 0) -> None:
        self.space = space
        key = space.hash(address) if id is None else Key(id % space.size)
        self.me = NodeRef(key, NodeAddress(address), life)
        self.predecessor: NodeRef | None = None
        self.successors: list[NodeRef] = []
        self.fingers: list[NodeRef | None] = [None] * space.bits
        self._length = successors
        self.left = False
        self._next_token = 0
        self._lookups: dict[RequestToken, _Lookup] = {}
        self._requests: dict[RequestToken, _Request] = {}
        self._finger = 0
        self._due = 0
        self.joining = False  # it has asked to join, and is not part of the ring yet, even if it has failed once
        self._through: NodeRef | None = None  # whom it asks to join
        self._tries = 0
        self.leaving = False  # nobody is to consider it a predecessor any more
        self.members: dict[NodeAddress, Member] = {}
        self.departed: dict[NodeRef, None] = {}  # members that left in order, the latest last
        self._outdated: list[NodeRef] = []  # former lives of members that were started again
        self._look_at = 0
        self._look_turn = 0

    # -- members ---------------------------------------------------------------------------------------

    def remember(self, *nodes: NodeRef | None) -> None:
        """Remember nodes that others mention, unless they have left."""
        for node in nodes:
            if node is None or node.address == self.me.address or node.id == _UNKNOWN or node in self.departed:
                continue
            known = self.members.get(node.address)
            if known is None or known.node.life < node.life:
                self.members[node.address] = Member(node)
                if known is not None:
                    self._outdated.append(known.node)
        while len(self.members) > _MOST_MEMBERS:
            silent = (address for address, member in self.members.items() if member.silent_since is not None)
            del self.members[next(silent, next(iter(self.members)))]

    def heard(self, node: NodeRef) -> list[ChordEffect]:
        """A node has sent something. If it was started again since, its former life is dead."""
        self.remember(node)
        member = self.members.get(node.address)
        if member is not None and member.node == node:
            member.silent_since = None
        return self._forget_outdated() if self._outdated else []

    def _forget_outdated(self) -> list[ChordEffect]:
        outdated, self._outdated = self._outdated, []
        return [effect for node in outdated for effect in self.forget(node)]

    def silent(self, node: NodeRef, now: int) -> None:
        """A node has not answered."""
        member = self.members.get(node.address)
        if member is not None and member.node == node:
            member.silent_since, member.silent_at = member.silent_since or now, now

    def is_silent(self, node: NodeRef) -> bool:
        """Whether a member has not answered when it was asked last."""
        member = self.members.get(node.address)
        return member is not None and member.silent_since is not None

    def has_left(self, node: NodeRef) -> list[ChordEffect]:
        """A node has left in order."""
        if node == self.me or node in self.departed:
            return []
        member = self.members.get(node.address)
        if member is not None and member.node.life <= node.life:
            del self.members[node.address]
        self.departed[node] = None
        while len(self.departed) > _MOST_MEMBERS:
            del self.departed[next(iter(self.departed))]
        return self.forget(node)

    def unreachable(self) -> dict[NodeAddress, int]:
        """The members that do not answer, and since when."""
        found = sorted(self.members.items())
        return {address: each.silent_since for address, each in found if each.silent_since is not None}

    def _look_around(self, now: int) -> list[ChordEffect]:
        """Look this node's place up through a member that is not near; another ring answers with another node."""
        silent = any(member.silent_since is not None for member in self.members.values())
        self._look_at = now + (_LOOK_SOON if silent or not self.successors else _LOOK_AROUND)
        near = {*self.neighbours(), self.predecessor}
        known = [member.node for member in self.members.values()]
        far = [n for n in known if n not in near] or [n for n in known if n not in self.successors]
        if not far:
            return []
        self._look_turn += 1
        token = self._token()
        self._lookups[token] = _Lookup(self.me.id, next=[far[self._look_turn % len(far)]], purpose="meet")
        return self._advance(token, now)

    def _meet(self, node: NodeRef) -> list[ChordEffect]:
        """Follow a living node that is before the successor, and tell it of the former successor."""
        self.remember(node)
        if node == self.me or self.leaving or node in self.departed or node in self.successors[:1]:
            return []
        distance = self.space.distance
        if self.successors and distance(self.me.id, node.id) >= distance(self.me.id, self.successor.id):
            return []
        former = list(self.successors)
        self.follow([node, *former])
        return [SendTo(node.address, Notify(self.me)), *(SendTo(node.address, Meet(each)) for each in former[:1])]

    # -- the nodes that it knows -----------------------------------------------------------------------

    @property
    def successor(self) -> NodeRef:
        """The next node, clockwise; itself when it is alone."""
        return self.successors[0] if self.successors else self.me

    def owns(self, key: int) -> bool:
        """Whether a key is this node's, as far as it knows."""
        if self.predecessor is None:
            return not self.successors or key == self.me.id
        return self.space.between(key, self.predecessor.id, self.me.id)

    def owner(self, key: int) -> NodeRef | None:
        """The owner of a key, if it is this node or the next."""
        if self.owns(key):
            return self.me
        return self.successor if self.space.between(key, self.me.id, self.successor.id) else None

    def neighbours(self) -> list[NodeRef]:
        """The distinct other nodes it knows: successors first, then fingers."""
        known = [*self.successors, *(finger for finger in self.fingers if finger is not None)]
        return list(dict.fromkeys(node for node in known if node != self.me))

    def nearer(self, key: int) -> list[NodeRef]:
        """Known nodes between this one and a key, the nearest to the key first. Cost: O(fingers)."""
        reach = self.space.distance(self.me.id, key) or self.space.size
        known = [node for node in self.neighbours() if 0 < self.space.distance(self.me.id, node.id) < reach]
        return sorted(known, key=lambda node: self.space.distance(node.id, key))

    def follow(self, successors: Sequence[NodeRef]) -> None:
        """Take this list of successors, without this node and whatever comes after it, in their latest lives."""
        latest = dict.fromkeys(self._latest(node) for node in successors)
        others = takewhile(lambda node: node.id != self.me.id, latest)
        self.successors = list(islice(others, self._length))

    def _latest(self, node: NodeRef) -> NodeRef:
        """A node that others mention, in the latest life that is known: they may not have heard of it yet."""
        known = self.members.get(node.address)
        return known.node if known is not None and known.node.life > node.life else node

    def forget(self, node: NodeRef) -> list[ChordEffect]:
        """A node is dead, as far as can be told."""
        self.successors = [other for other in self.successors if other != node]
        self.fingers = [None if finger == node else finger for finger in self.fingers]
        if not self.successors:  # whoever is still known: stabilising finds the nearest
            self.successors = sorted(self.neighbours(), key=lambda n: self.space.distance(self.me.id, n.id))[:1]
        if node != self.predecessor:
            return []
        self.predecessor = None
        return [OwnershipChanged(node, None)]

    # -- joining and leaving ---------------------------------------------------------------------------

    def join(self, known: NodeAddress, now: int) -> list[ChordEffect]:
        """Join the ring of a node that is known. `Joined` or `JoinFailed` follows."""
        if self.successors or self.left or self._through is not None:
            raise LocalProtocolError(f"{self.me.address} is already part of a ring")
        self.joining, self._through, self._tries = True, NodeRef(_UNKNOWN, known), 0
        return self._try_to_join(now)

    def begin(self) -> None:
        """Be a ring of its own, or become one: nobody else is part of it yet."""
        self.joining, self._through = False, None
        self._lookups = {token: lookup for token, lookup in self._lookups.items() if lookup.purpose != "join"}
        self._requests = {token: request for token, request in self._requests.items() if request.purpose != "join"}

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
        others = dict.fromkeys(node for node in (self.predecessor, *self.successors) if node and node != self.me)
        message = Leaving(self.me, self.predecessor, tuple(self.successors))
        return [SendTo(node.address, message) for node in others]

    # -- look-ups --------------------------------------------------------------------------------------

    def lookup(self, key: int, now: int, *, recursive: bool = False) -> tuple[RequestToken, list[ChordEffect]]:
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

    def _advance(self, token: RequestToken, now: int) -> list[ChordEffect]:
        """Ask the nearest node that was not asked yet."""
        lookup = self._lookups[token]
        while lookup.next:
            node = lookup.next.pop(0)
            if node.address not in lookup.tried and node != self.me and lookup.hops < _MOST_HOPS:
                lookup.tried.add(node.address)
                lookup.hops += 1
                return self._ask(node, lambda request: Find(request, lookup.key), now, token)
        return self._ended(token, None, now)

    def _ended(self, token: RequestToken, owner: NodeRef | None, now: int) -> list[ChordEffect]:
        lookup = self._lookups.pop(token)
        if lookup.purpose == "join":
            return self._placed(owner, now)
        if lookup.purpose == "meet":
            if owner is None or owner.id == self.me.id or self.leaving:
                return []
            return self._ask(owner, Ask, now, purpose="meet")
        if lookup.purpose == "finger":
            if owner is not None:
                self.fingers[self.space.distance(self.me.id, lookup.key).bit_length() - 1] = owner
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
        effects: list[ChordEffect] = [] if self.left or self.joining else self.heard(sender)
        for message in messages:
            if not self.left and (not self.joining or isinstance(message, _ANSWERS)):
                effects += self._handle(sender, message, now)
        return effects

    def _handle(self, sender: NodeRef, message: ChordMessage, now: int) -> list[ChordEffect]:
        match message:
            case Find(token, key):
                owner = self.owner(key)
                nearer = () if owner is not None else tuple(self.nearer(key)[:_NEARER])
                return [SendTo(sender.address, LookupStep(token, owner, nearer))]
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
                left = tuple(self.departed)[-_MOST_LEFT:]
                return [SendTo(sender.address, Neighbours(token, self.predecessor, tuple(self.successors), left))]
            case Neighbours(token):
                return self._heard(token, message, now)
            case Notify(node):
                return self._notified(node)
            case Meet(node):
                return self._meet(node)
            case Leaving():
                return self._bereft(message)
        raise AssertionError(message)

    def _stepped(self, token: RequestToken, message: LookupStep, now: int) -> list[ChordEffect]:
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
                    self.silent(request.to, now)
                    effects += self.forget(request.to)
                if request.lookup in self._lookups:
                    effects += self._advance(request.lookup, now)
                if request.purpose == "join":
                    effects += self._try_to_join(now)
        effects += self._forget_outdated() if self._outdated else []
        if now >= self._due:
            self._due = now + PERIOD
            effects += self._stabilise(now)
        if now >= self._look_at and not self.joining and not self.leaving:
            effects += self._look_around(now)
        return effects

    def _stabilise(self, now: int) -> list[ChordEffect]:
        """Ask the successor for its neighbours, the predecessor for life, and look one finger up."""
        effects: list[ChordEffect] = []
        for node in dict.fromkeys((self.successor, self.predecessor)):
            if node is not None and node != self.me:
                effects += self._ask(node, Ask, now)
        if self.successors:
            self._finger = (self._finger + 1) % self.space.bits
            key, token = Key((self.me.id + (1 << self._finger)) % self.space.size), self._token()
            if self.space.between(key, self.me.id, self.successor.id):
                self.fingers[self._finger] = self.successor
            else:
                self._lookups[token] = _Lookup(key, next=self.nearer(key)[:_NEARER], purpose="finger")
                effects += self._advance(token, now)
        return effects

    def _heard(self, token: RequestToken, message: Neighbours, now: int) -> list[ChordEffect]:
        request = self._requests.pop(token, None)
        if request is not None and request.purpose == "join":
            self.joining, self._through = False, None
            self.remember(request.to, message.predecessor, *message.successors)
            self.follow([request.to, *message.successors])
            self._due = 0
            return [Joined(), SendTo(request.to.address, Notify(self.me))]
        effects: list[ChordEffect] = []
        for node in message.left:
            effects += self.has_left(node)
        self.remember(message.predecessor, *message.successors)
        if request is not None and request.purpose == "meet":
            return [*effects, *self._met(request.to, message)]
        if request is None or request.to != self.successor:
            return effects
        between = message.predecessor
        successors = [request.to, *message.successors]
        if (
            between not in (None, self.me, request.to)
            and between not in self.departed
            and self.space.between(between.id, self.me.id, request.to.id)
        ):
            successors.insert(0, between)
            effects += self._ask(between, Ask, now)
        self.follow([node for node in successors if node not in self.departed])
        return effects if self.leaving else [*effects, SendTo(self.successor.address, Notify(self.me))]

    def _met(self, node: NodeRef, message: Neighbours) -> list[ChordEffect]:
        """The owner of this node's place in another ring: this node is before it, and after its predecessor."""
        effects = self._meet(node)
        if message.predecessor not in (None, self.me, node):
            effects.append(SendTo(message.predecessor.address, Meet(self.me)))
        elif message.predecessor is None:
            effects.append(SendTo(node.address, Notify(self.me)))
        if not message.successors:  # it is alone
            effects.append(SendTo(node.address, Meet(self.me)))
        return effects

    def _notified(self, node: NodeRef) -> list[ChordEffect]:
        effects: list[ChordEffect] = []
        if node == self.me or node in self.departed:
            return effects
        self.remember(node)
        if not self.successors:  # it was alone
            self.successors = [node]
        if self.is_nearer(node):
            effects.append(OwnershipChanged(self.predecessor, node))
            self.predecessor = node
        return effects

    def is_nearer(self, node: NodeRef) -> bool:
        """Whether a node would be a nearer predecessor than the present one."""
        known, distance = self.predecessor, self.space.distance
        return known is None or distance(node.id, self.me.id) < distance(known.id, self.me.id)

    def _bereft(self, message: Leaving) -> list[ChordEffect]:
        """A neighbour leaves in order."""
        was_next = message.node == self.successor
        effects = self.has_left(message.node)
        if was_next:
            self.follow([node for node in (*message.successors, *self.successors) if node not in self.departed])
        if self.predecessor is None and message.predecessor not in (None, self.me):
            effects.append(OwnershipChanged(message.node, message.predecessor))
            self.predecessor = message.predecessor
        return effects

    # -- requests --------------------------------------------------------------------------------------

    def _ask(
        self,
        node: NodeRef,
        message: Callable[[RequestToken], ChordMessage],
        now: int,
        lookup: RequestToken | None = None,
        purpose: str = "",
    ) -> list[ChordEffect]:
        token = self._token()
        self._requests[token] = _Request(node, now + ANSWER, lookup, purpose)
        return [SendTo(node.address, message(token))]

    def _token(self) -> RequestToken:
        self._next_token += 1
        return RequestToken(self._next_token)


def quiet_ring(space: IdSpace, ids: Iterable[int], successors: int = 8) -> list[ChordNode]:
    """The nodes of a ring with these identifiers, in ascending order; a node's address is "n" and its identifier.

    It is the ring that joining and stabilising leads to. Cost: O(n log n bits).

    >>> one, other = quiet_ring(IdSpace(16), [9, 3])
    >>> one.me, one.successor.id, other.owns(7)
    (NodeRef(id=3, address='n3', life=0), 9, True)
    """
    ascending = sorted(ids)
    if len(set(ascending)) < len(ascending):
        raise RingError("two nodes have the same identifier; each needs its own")
    nodes = [ChordNode(space, f"n{each}", each, successors) for each in ascending]
    by_id = {node.me.id: node.me for node in nodes}
    if len(nodes) == 1:
        return nodes
    for at, node in enumerate(nodes):
        following = nodes[at + 1 : at + 1 + successors]
        following += nodes[: min(successors - len(following), at)]
        node.successors = [other.me for other in following]
        node.predecessor = nodes[at - 1].me
        node.remember(node.predecessor, *node.successors)
        for bit in range(space.bits):
            node.fingers[bit] = by_id[successor((node.me.id + (1 << bit)) % space.size, ascending)]
    return nodes
