"""A node in topic groups: as a subscriber, a publisher and a member (003, 3.2).

The members of a group register at the server of their region on every level of the group's tree, and a cell is looked
for from its leaf region up to the root: O(log n) servers, each found in O(log n) messages. Region servers only say
where a cell should be. Where it is, the members know (`weft.ring.group_cells`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from weft.ring.chord import ANSWER, ChordNode
from weft.ring.group_cells import Adopting, CellQuestion, GroupCells
from weft.ring.group_placement import GroupTree
from weft.ring.group_state import Arc, GroupRule, StateStore, root_key
from weft.ring.identifiers import Key
from weft.ring.keys_in_hand import KeysInHand
from weft.ring.messages import NodeAddress
from weft.ring.record_keeper import RecordKeeper
from weft.ring.rendezvous_messages import (
    Deregister,
    Elsewhere,
    Enter,
    Entered,
    Exit,
    FetchSettings,
    Locate,
    Located,
    Register,
    Renew,
    Reshape,
    Reshaped,
    Review,
    RingEffect,
    Settings,
    WorkAnswer,
)
from weft.ring.work import NO_TOKEN, RingWork, WorkState, WorkTable

_Request = Register | Deregister | Reshape | FetchSettings  # to the root of a topic

SOON = 50_000  # microseconds: what is asked for is known by then, or asked for again
REVIEW = 10 * ANSWER  # between two looks whether cells belong elsewhere
_MOST_KNOWN = 10_000  # topics
_MOST_HOSTS = 8  # that a question is referred to before it waits


@dataclass(slots=True, eq=False)
class Registering(RingWork):
    """This node becomes a member of a topic's group."""

    topic: str
    hops: int = 0
    affected: set[Key] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class RootErrand(RingWork):
    """A request to the root of a topic, until it is done."""

    request: _Request
    hops: int = 0


@dataclass(slots=True, eq=False)
class Renewing(RingWork):
    """The root of a host is told that this node is still a member."""

    topics: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Locating(RingWork):
    """The place of a cell is looked for, from its leaf region up."""

    topic: str
    cell: Key
    since: int
    question: CellQuestion | None = None  # what it is for, if not for stores and visits
    level: int = 0
    hops: int = 0


@dataclass(slots=True, eq=False)
class Entering(RingWork):
    """A member is registered at its region servers anew, by the owner of its identifier."""

    member: Key
    host: str
    former: GroupTree | None
    affected: set[Key] = field(default_factory=set)


class Groups:
    """The part of a node that knows topic groups."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a node that it uses
        self,
        chord: ChordNode,
        table: WorkTable,
        keys: KeysInHand,
        keeper: RecordKeeper,
        states: StateStore,
        rule: GroupRule,
        uses: Callable[[str], bool],
    ) -> None:
        self._chord, self._table, self._keys = chord, table, keys
        self._rule, self._uses, self._space = rule, uses, chord.space
        self._hosts: dict[str, str] = {}  # of topics that were given to a super topic
        self._trees: dict[str, GroupTree] = {}  # of topics
        self._nobody: dict[str, tuple[int, tuple[NodeAddress, ...]]] = {}  # topics without a group, when that was asked
        self._members: dict[str, int] = {}  # topics that this node is a member of, and when it has said so
        self._places: dict[str, dict[Arc, Key]] = {}  # what region servers have said
        self._peers: dict[str, dict[int, tuple[Key, ...]]] = {}  # of this node's regions, by host and level
        self._locating: dict[tuple[str, Key], Locating] = {}  # for stores and visits
        self._changes = keys.changes
        self._reviewed = 0
        self.cells = GroupCells(chord, table, keys, keeper, states, self._find)
        keeper.region_peers = self._region_peers
        for kind, step in (
            (Registering, self._registered),
            (RootErrand, self._root_answered),
            (Renewing, self._renewed),
            (Locating, self._located),
            (Entering, self._entered),
        ):
            table.handle(kind, step)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that this node is a member of."""
        return tuple(sorted(self._members))

    def host(self, topic: str) -> str:
        """The host of a topic that was heard of last."""
        return self._hosts.get(topic, topic)

    # -- the root --------------------------------------------------------------------------------------

    def _ask_root(self, work: RingWork, request: _Request, now: int) -> list[RingEffect]:
        host = self.host(request.topic)
        key = root_key(self._space, host)
        made = msgspec.structs.replace(request, key=key, host=host)
        return self._table.errand(work, "root", key, made, now)

    def _referred(self, topic: str, host: str) -> None:
        self._hosts.pop(topic, None)
        self._trees.pop(topic, None)
        if host != topic:
            self._hosts[topic] = host
        while len(self._hosts) > _MOST_KNOWN:
            del self._hosts[next(iter(self._hosts))]

    def _heard_tree(self, topic: str, answer: Settings) -> None:
        if answer.tree is None:
            self._trees.pop(topic, None)
            return
        if self._trees.get(topic) != answer.tree:
            self._places.pop(topic, None)
        self._trees.pop(topic, None)
        self._trees[topic] = answer.tree
        while len(self._trees) > _MOST_KNOWN:
            del self._trees[next(iter(self._trees))]

    def send_to_root(self, request: _Request, now: int) -> list[RingEffect]:
        """Have the root of a topic do something."""
        work = RootErrand(request)
        self._table.begin(work, WorkState.REGISTERING)
        return self._ask_root(work, request, now)

    def _root_answered(self, work: RootErrand, part: str | None, answer: WorkAnswer, now: int) -> list[RingEffect]:
        request = work.request
        if part is None:
            work.to(WorkState.REGISTERING)
            return self._ask_root(work, request, now)
        if isinstance(answer, Elsewhere):
            self._referred(request.topic, answer.host)
            work.hops += 1
            if work.hops % _MOST_HOSTS:
                return self._ask_root(work, request, now)
        elif answer is not False:
            self._table.end(work)
            return [Reshaped(request.topic)] if isinstance(request, Reshape) else []
        if isinstance(request, Deregister) and request.topic in self._members:
            self._table.end(work)  # it is a member again
            return []
        self._table.pause(work, now)
        return []

    # -- becoming a member -----------------------------------------------------------------------------

    def is_member(self, topic: str) -> bool:
        """Whether the region servers know this node as a member of a topic's group."""
        return topic in self._members

    def register(self, topic: str, now: int) -> list[RingEffect]:
        """Become a member of a topic's group, unless it is one or is about to be one."""
        if topic in self._members or any(work.topic == topic for work in self._table.of(Registering)):
            return []
        work = Registering(topic)
        self._table.begin(work, WorkState.REGISTERING)
        return self._register(work, now)

    def _register(self, work: Registering, now: int) -> list[RingEffect]:
        return self._ask_root(work, Register(NO_TOKEN, Key(0), "", work.topic, self._chord.me.id), now)

    def _registered(self, work: Registering, part: object, answer: WorkAnswer, now: int) -> list[RingEffect]:
        me = self._chord.me.id
        if work.state is WorkState.PAUSED:
            work.to(WorkState.REGISTERING)
            return self._register(work, now)
        if work.state is WorkState.REGISTERING:
            if isinstance(answer, Elsewhere):
                self._referred(work.topic, answer.host)
                work.hops += 1
                if work.hops % _MOST_HOSTS:
                    return self._register(work, now)
            if not isinstance(answer, Settings) or answer.tree is None:
                self._table.pause(work, now)
                return []
            self._heard_tree(work.topic, answer)
            work.to(WorkState.ENTERING)
            return self._enter(work, answer.host, answer.tree, me, now)
        if isinstance(answer, Entered) and isinstance(part, int):
            work.affected.update(answer.affected)
            self._peers.setdefault(self.host(work.topic), {})[part] = answer.peers
        if work.open:
            return []
        if work.state is WorkState.ENTERING:
            work.to(WorkState.ALERTING)
            effects = self._alert(work, work.affected - {me}, self.host(work.topic), now)
            if work.open:
                return effects
        self._table.end(work)
        self._members[work.topic] = now
        return []

    def _enter(self, work: RingWork, host: str, tree: GroupTree, member: Key, now: int) -> list[RingEffect]:
        """Register a member at the server of its region on every level."""
        effects: list[RingEffect] = []
        for level in range(tree.depth, -1, -1):
            key = tree.region_server(level, member)
            message = Enter(NO_TOKEN, key, host, tree, level, member)
            effects += self._table.errand(work, level, key, message, now, repeat=True)
        return effects

    def _alert(self, work: RingWork, members: set[Key], host: str, now: int) -> list[RingEffect]:
        """Have other members see whether they have cells of a new one."""
        effects: list[RingEffect] = []
        for member in sorted(members):
            effects += self._table.errand(work, member, member, Review(NO_TOKEN, member, host), now, repeat=True)
        return effects

    def _region_peers(self) -> set[Key]:
        """The other members of this node's groups, in the smallest region of each that has some."""
        found: set[Key] = set()
        for host in {self.host(topic) for topic in self._members}:
            by_level = self._peers.get(host, {})
            found.update(next((by_level[level] for level in sorted(by_level, reverse=True) if by_level[level]), ()))
        return found

    def unused(self, topic: str, now: int) -> list[RingEffect]:
        """Leave a group."""
        for work in self._table.of(Registering):
            if work.topic == topic:
                self._table.end(work)
        self._members.pop(topic, None)
        return self.send_to_root(Deregister(NO_TOKEN, Key(0), "", topic, self._chord.me.id), now)

    def leave(self, now: int) -> list[RingEffect]:
        """Leave all groups: another node will go on for this one."""
        topics, self._members = list(self._members), {}
        me = self._chord.me.id
        requests = [Deregister(NO_TOKEN, Key(0), "", topic, me) for topic in topics]
        return [effect for request in requests for effect in self.send_to_root(request, now)]

    @property
    def leaving(self) -> int:
        """Requests to roots that are not answered yet."""
        return self._table.count(RootErrand)

    # -- places of cells -------------------------------------------------------------------------------

    def place(self, topic: str, cell: Key) -> Key | None:
        """The member that stores a cell, as far as is known."""
        between = self._space.between
        known = self._places.get(topic, {})
        return next((member for arc, member in known.items() if between(cell, *arc)), None)

    def not_at(self, topic: str, cell: Key) -> None:
        """A member has refused what was sent for a cell: it is elsewhere, or the tree is another one."""
        self._trees.pop(topic, None)
        self._unplace(topic, cell)

    def _unplace(self, topic: str, cell: Key) -> None:
        known = self._places.get(topic, {})
        for arc in [arc for arc in known if self._space.between(cell, *arc)]:
            del known[arc]

    def nobody(self, topic: str, since: int, silent: set[NodeAddress]) -> bool:
        """Whether nobody had ever subscribed to a topic at some time, except perhaps at nodes that are silent."""
        asked, missing = self._nobody.get(topic, (-1, ()))
        if asked < since:
            return False
        silent.update(missing)
        return True

    def locate(self, topic: str, cell: Key, now: int) -> list[RingEffect]:
        """Look for the place of a cell, unless that is being done."""
        known = self._locating.get((topic, cell))
        if known is not None and known in self._table:
            return []
        work = self._locating[topic, cell] = Locating(topic, cell, now)
        return self._locate(work, now)

    def _find(self, topic: str, cell: Key, question: CellQuestion, now: int) -> list[RingEffect]:
        """Look for the place of a cell that a member has, or is about to adopt: then in the tree of this moment."""
        if isinstance(question, Adopting):
            self._trees.pop(topic, None)
        return self._locate(Locating(topic, cell, now, question), now)

    def _locate(self, work: Locating, now: int) -> list[RingEffect]:
        self._table.begin(work, WorkState.LOCATING)
        tree = self._trees.get(work.topic)
        if tree is None:
            return self._ask_root(work, FetchSettings(NO_TOKEN, Key(0), "", work.topic), now)
        work.level = tree.depth
        return self._ask_region(work, tree, now)

    def _ask_region(self, work: Locating, tree: GroupTree, now: int) -> list[RingEffect]:
        key = tree.region_server(work.level, work.cell)
        message = Locate(NO_TOKEN, key, self.host(work.topic), tree, work.level, work.cell)
        return self._table.errand(work, tree, key, message, now)

    def _located(self, work: Locating, part: object, answer: WorkAnswer, now: int) -> list[RingEffect]:
        if part == "root":
            return self._located_tree(work, answer, now)
        if isinstance(answer, Located) and answer.member is not None:
            self._table.end(work)
            return self._found(work, answer, now)
        if isinstance(answer, Located) and work.level > 0 and isinstance(part, GroupTree):
            work.level -= 1
            return self._ask_region(work, part, now)
        self._trees.pop(work.topic, None)  # the tree may not be used any more
        return self._not_found(work, now)

    def _located_tree(self, work: Locating, answer: WorkAnswer, now: int) -> list[RingEffect]:
        if isinstance(answer, Elsewhere):
            self._referred(work.topic, answer.host)
            work.hops += 1
            if work.hops < _MOST_HOSTS:
                return self._ask_root(work, FetchSettings(NO_TOKEN, Key(0), "", work.topic), now)
        if not isinstance(answer, Settings):
            return self._not_found(work, now)
        self._heard_tree(work.topic, answer)
        if answer.tree is None:
            self._nobody.pop(work.topic, None)
            self._nobody[work.topic] = work.since, answer.silent
            while len(self._nobody) > _MOST_KNOWN:
                del self._nobody[next(iter(self._nobody))]
            self._members.pop(work.topic, None)  # the root has died with all copies: begin again
            return self._not_found(work, now)
        work.level = answer.tree.depth
        return self._ask_region(work, answer.tree, now)

    def _found(self, work: Locating, answer: Located, now: int) -> list[RingEffect]:
        assert answer.member is not None
        if work.question is not None:
            return self.cells.located(work.question, answer, now)
        self._locating.pop((work.topic, work.cell), None)
        self._unplace(work.topic, work.cell)
        known = self._places.pop(work.topic, {})
        known[Arc(answer.after, answer.upto)] = answer.member
        self._places[work.topic] = known
        while len(self._places) > _MOST_KNOWN:
            del self._places[next(iter(self._places))]
        return []

    def _not_found(self, work: Locating, now: int) -> list[RingEffect]:
        self._table.end(work)
        if work.question is not None:
            return self.cells.not_found(work.question, now)
        self._locating.pop((work.topic, work.cell), None)
        return []

    # -- reviews ---------------------------------------------------------------------------------------

    def review(self, message: Review, now: int) -> list[RingEffect]:
        """See whether cells of a member belong elsewhere, and register it first if the tree is another one."""
        if message.enter:
            for topic in [topic for topic in self._trees if self.host(topic) == message.host]:
                del self._trees[topic]
            work = Entering(message.key, message.host, message.former)
            self._table.begin(work, WorkState.REGISTERING)
            key = root_key(self._space, message.host)
            return self._table.errand(work, "root", key, FetchSettings(NO_TOKEN, key, message.host, message.host), now)
        return self.cells.review(message.key, now)

    def _entered(self, work: Entering, part: object, answer: WorkAnswer, now: int) -> list[RingEffect]:
        if part == "root":
            if not isinstance(answer, Settings) or answer.tree is None:
                self._table.end(work)
                return []
            work.to(WorkState.ENTERING)
            effects = self._enter(work, work.host, answer.tree, work.member, now)
            former = work.former
            if former is not None and former != answer.tree:
                for level in range(former.depth, -1, -1):
                    key = former.region_server(level, work.member)
                    message = Exit(NO_TOKEN, key, work.host, former, level, work.member)
                    effects += self._table.errand(work, (former, level), key, message, now, repeat=True)
            return effects
        if isinstance(answer, Entered) and isinstance(part, int):
            work.affected.update(answer.affected)
            if work.member == self._chord.me.id:
                self._peers.setdefault(work.host, {})[part] = answer.peers
        if work.open:
            return []
        if work.state is WorkState.ENTERING:
            work.to(WorkState.ALERTING)
            alerts = self._alert(work, work.affected - {work.member}, work.host, now)
            if work.open:
                return alerts
        self._table.end(work)
        return self.cells.review(work.member, now)

    # -- time ------------------------------------------------------------------------------------------

    def tick(self, now: int) -> list[RingEffect]:
        """Renew memberships before the lease is over; look at all cells now and then, and when keys have moved."""
        effects: list[RingEffect] = []
        late = now - self._reviewed >= REVIEW
        if late or self._changes != self._keys.changes:
            self._changes, self._reviewed = self._keys.changes, now if late else self._reviewed
            holds = self.cells.holds()
            for hold in holds if late else ():  # nobody tells a former member that the tree is another one
                self._trees.pop(hold.topic, None)
            for member in sorted({hold.member for hold in holds}):
                if self._keys.serves(member):
                    effects += self.cells.review(member, now)
            for host in sorted({self.host(topic) for topic in self._members}) if late else ():
                effects += self.review(Review(NO_TOKEN, self._chord.me.id, host, enter=True), now)
        lease = self._rule.lease
        due: set[str] = set()
        for topic in [] if lease is None else [t for t, since in self._members.items() if now - since >= lease // 3]:
            if self._uses(topic):
                due.add(self.host(topic))
            else:  # it was registered again while it was being left
                effects += self.unused(topic, now)
        for host in sorted(due):
            topics = tuple(topic for topic in self._members if self.host(topic) == host)
            self._members.update(dict.fromkeys(topics, now))
            work = Renewing(topics)
            self._table.begin(work, WorkState.REGISTERING)
            key = root_key(self._space, host)
            message = Renew(NO_TOKEN, key, host, topics, self._chord.me.id)
            effects += self._table.errand(work, "root", key, message, now)
        return effects

    def _renewed(self, work: Renewing, part: str, answer: WorkAnswer, now: int) -> list[RingEffect]:  # noqa: ARG002
        self._table.end(work)
        effects: list[RingEffect] = []
        for topic in work.topics if answer is False else ():
            if self._members.pop(topic, None) is not None and self._uses(topic):
                effects += self.register(topic, now)
        return effects
