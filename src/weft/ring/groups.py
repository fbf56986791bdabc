"""A node in topic groups: as a subscriber and publisher, and as a member that stores cells (003, 3.2).

The members of a group register at the server of their region on every level of the group's tree, and a cell is looked
for from its leaf region up to the root: O(log n) servers, each found in O(log n) messages. Region servers only say
where a cell should be. Where it is, the members know: of every cell one member has it, with all records that are placed
by it, and every other refuses stores and visits for it, so that these wait while cells move. A member that finds cells
that belong elsewhere gives them on: it stops answering for them, and repeats the gift until the other member has it.

What a member stores is kept under its identifier like everything on the ring: after it has died or left, the next node
on the circle goes on for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from weft.ring.chord import ANSWER, ChordNode
from weft.ring.group_placement import GroupTree
from weft.ring.group_state import Arc, CellHold, GroupRule, KeyState, StateId, StateStore, root_key
from weft.ring.identifiers import Key
from weft.ring.keys_in_hand import KeysInHand
from weft.ring.messages import NodeAddress, NodeRef
from weft.ring.record_keeper import RecordKeeper, RingReply
from weft.ring.rendezvous_messages import (
    CopyRecords,
    Deregister,
    Elsewhere,
    Enter,
    Entered,
    Exit,
    FetchSettings,
    GiveCells,
    GrantCells,
    Locate,
    Located,
    Record,
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
    review: Reviewing | None = None  # what it is for, if not for stores and visits
    level: int = 0
    hops: int = 0


@dataclass(slots=True, eq=False)
class Reviewing(RingWork):
    """The cells under a member are compared with what the region servers say."""

    member: Key
    topics: list[str]
    arcs: list[Arc] = field(default_factory=list)  # that are left of the first topic
    again: bool = False
    failed: bool = False  # somebody does not have a copy


@dataclass(slots=True, eq=False)
class Entering(RingWork):
    """A member is registered at its region servers anew, by the owner of its identifier."""

    member: Key
    host: str
    former: GroupTree | None
    affected: set[Key] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Holding(RingWork):
    """Cells that were given to a member here: they are being copied."""

    reply: RingReply


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
        self._chord, self._table, self._keys, self._keeper, self._states = chord, table, keys, keeper, states
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
        keeper.region_peers = self._region_peers
        for kind, step in (
            (Registering, self._registered),
            (RootErrand, self._root_answered),
            (Renewing, self._renewed),
            (Locating, self._located),
            (Reviewing, self._reviewed_one),
            (Entering, self._entered),
            (Holding, self._held),
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
        self._locating.pop((work.topic, work.cell), None)
        if work.review is not None:
            return self._review_located(work.review, answer, now)
        self._unplace(work.topic, work.cell)
        known = self._places.pop(work.topic, {})
        known[Arc(answer.after, answer.upto)] = answer.member
        self._places[work.topic] = known
        while len(self._places) > _MOST_KNOWN:
            del self._places[next(iter(self._places))]
        return []

    def _not_found(self, work: Locating, now: int) -> list[RingEffect]:
        self._table.end(work)
        self._locating.pop((work.topic, work.cell), None)
        return [] if work.review is None else self._review_next(work.review, now, skip=True)

    # -- cells of members ------------------------------------------------------------------------------

    def hold(self, topic: str, member: Key) -> CellHold:
        """The cells that are stored under a member."""
        found = self._states.get(StateId("cells", member, (topic,)))
        return found if isinstance(found, CellHold) else CellHold(topic, member)

    def has(self, topic: str, member: Key, cells: tuple[Key, ...]) -> bool:
        """Whether a member stores these cells."""
        hold = self.hold(topic, member)
        return all(hold.has(self._space, cell) for cell in cells)

    def granted(self, message: GrantCells, now: int, reply: RingReply) -> list[RingEffect]:
        """The first member of a group has all cells."""
        hold = self.hold(message.topic, message.key)
        if not hold.serial:
            hold = hold.with_arc(self._space, Arc(message.key, message.key))
        return self._keep(hold, now, reply)

    def given(self, message: GiveCells, now: int, reply: RingReply) -> list[RingEffect]:
        """Another member gives cells, with their records."""
        before = self.hold(message.topic, message.key)
        gift = message.giver, message.serial
        hold = before.taking(self._space, Arc(message.after, message.upto), gift)
        if hold is not before:
            self._keeper.records.take(message.records, now)
            self._keeper.unshare()
            self._keys.watch_also(message.missing, now)
        return self._keep(hold, now, reply, message.records)

    def _keep(self, hold: CellHold, now: int, reply: RingReply, records: tuple[Record, ...] = ()) -> list[RingEffect]:
        self._states.take((hold,))
        work = Holding(reply)
        self._table.begin(work, WorkState.COPYING)
        effects = self._copy(work, hold, now, records)
        return effects if work.open else [*effects, *self._held(work, None, True, now)]

    def _copy(self, work: RingWork, state: KeyState, now: int, records: tuple[Record, ...] = ()) -> list[RingEffect]:
        effects: list[RingEffect] = []
        message = CopyRecords(NO_TOKEN, records, (state,))
        for target in self._keys.copy_targets(state.key):
            effects += self._table.ask(work, target, target.address, message, now)
        for former in self._keys.copies.former_holders():
            effects += self._table.tell(former.address, message)
        return effects

    def _held(self, work: Holding, part: NodeRef | None, answer: WorkAnswer, now: int) -> list[RingEffect]:  # noqa: ARG002
        if answer is False:
            self._table.end(work)
            return work.reply.done(ok=False)
        if work.open:
            return []
        self._table.end(work)
        return work.reply.done()

    # -- reviews ---------------------------------------------------------------------------------------

    def review(self, message: Review, now: int) -> list[RingEffect]:
        """See whether cells of a member belong elsewhere, and register it first if the tree is another one."""
        if message.enter:
            for topic in [topic for topic in self._trees if self.host(topic) == message.host]:
                del self._trees[topic]
            work = Entering(message.key, message.host, message.former)
            self._table.begin(work, WorkState.REGISTERING)
            return self._ask_root(work, FetchSettings(NO_TOKEN, Key(0), "", message.host), now)
        return self._review(message.key, now)

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
        return self._review(work.member, now)

    def _review(self, member: Key, now: int) -> list[RingEffect]:
        running = next((work for work in self._table.of(Reviewing) if work.member == member), None)
        if running is not None:
            running.again = True
            return []
        holds = [s for s in self._states if isinstance(s, CellHold) and s.member == member and (s.arcs or s.giving)]
        if not holds or not self._keys.serves(member):
            return []
        work = Reviewing(member, sorted(hold.topic for hold in holds))
        self._table.begin(work, WorkState.LOCATING)
        return self._review_topic(work, now)

    def _review_topic(self, work: Reviewing, now: int) -> list[RingEffect]:
        if not work.topics or not self._keys.serves(work.member):
            self._table.end(work)
            return self._review(work.member, now) if work.again else []
        hold = self.hold(work.topics[0], work.member)
        if hold.giving is not None:  # it was begun before
            work.to(WorkState.COPYING)
            return self._give(work, hold, now)
        work.arcs = list(hold.arcs)
        return self._review_next(work, now)

    def _review_next(self, work: Reviewing, now: int, skip: bool = False) -> list[RingEffect]:
        """Look for the place of the last cell that is left of a topic."""
        if work not in self._table:
            return []
        if not work.arcs or skip:
            work.topics.pop(0)
            return self._review_topic(work, now)
        return self._locate(Locating(work.topics[0], work.arcs[0].upto, now, work), now)

    def _review_located(self, work: Reviewing, answer: Located, now: int) -> list[RingEffect]:
        assert answer.member is not None
        if work not in self._table or not self._keys.serves(work.member):
            self._table.end(work)
            return []
        arc, distance, size = work.arcs[0], self._space.distance, self._space.size
        whole = (distance(answer.after, arc.upto) or size) >= (distance(arc.after, arc.upto) or size)
        piece = arc if whole else Arc(answer.after, arc.upto)
        work.arcs = work.arcs[1:] if whole else [Arc(arc.after, answer.after), *work.arcs[1:]]
        hold = self.hold(work.topics[0], work.member)
        if answer.member == work.member or not hold.has(self._space, arc.upto):
            return self._review_next(work, now)
        hold = hold.giving_away(self._space, piece, answer.member)
        work.to(WorkState.COPYING)
        self._states.take((hold,))
        effects = self._copy(work, hold, now)
        return effects if work.open else [*effects, *self._give(work, hold, now)]

    def _give(self, work: Reviewing, hold: CellHold, now: int) -> list[RingEffect]:
        """The copies know that cells are on their way: give them to the other member."""
        assert hold.giving is not None
        work.to(WorkState.GIVING)
        arc, to = hold.giving
        between = self._space.between
        records = []
        for record in self._keeper.records.under(hold.member, hold.topic):
            cells = tuple(cell for cell in record.cells if between(cell, *arc))
            if cells:
                records.append(msgspec.structs.replace(record, key=to, cells=cells))
        missing = self._keys.missing_since(now)
        message = GiveCells(NO_TOKEN, to, hold.topic, *arc, tuple(records), hold.member, hold.serial, missing)
        return self._table.errand(work, "gift", to, message, now)

    def _reviewed_one(self, work: Reviewing, part: object, answer: WorkAnswer, now: int) -> list[RingEffect]:
        if not self._keys.serves(work.member):  # the new owner of the member's identifier goes on
            self._table.end(work)
            return []
        hold = self.hold(work.topics[0], work.member)
        if part is None:  # it has paused
            work.to(WorkState.COPYING)
            work.failed = False
            effects = self._copy(work, hold, now)
            return effects if work.open else [*effects, *self._copied(work, hold, now)]
        if work.state is WorkState.GIVING:
            if answer is not False:
                return self._was_given(work, hold, now)
            work.to(WorkState.COPYING)
            self._table.pause(work, now)
            return []
        work.failed |= answer is False
        return [] if work.open else self._copied(work, hold, now)

    def _copied(self, work: Reviewing, hold: CellHold, now: int) -> list[RingEffect]:
        if work.failed:
            self._table.pause(work, now)
            return []
        if hold.giving is not None:
            return self._give(work, hold, now)
        work.to(WorkState.LOCATING)
        return self._review_next(work, now)

    def _was_given(self, work: Reviewing, hold: CellHold, now: int) -> list[RingEffect]:
        """The other member has the cells: what is left of the records stays, and the rest goes."""
        if hold.giving is None:  # two rings have met meanwhile, and the cells are here again
            work.again = True
            work.to(WorkState.COPYING)
            work.to(WorkState.LOCATING)
            return self._review_next(work, now)
        arc, between = hold.giving[0], self._space.between
        effects: list[RingEffect] = []
        for record in self._keeper.records.under(hold.member, hold.topic):
            left = tuple(cell for cell in record.cells if not between(cell, *arc))
            if not left:
                self._keeper.records.forget(record.slot)
            elif left != record.cells:
                self._keeper.records.put(msgspec.structs.replace(record, cells=left))
        self._keeper.unshare()
        hold = hold.given()
        self._states.take((hold,))
        work.to(WorkState.COPYING)
        effects += self._copy(work, hold, now)
        if work.open:
            return effects
        work.to(WorkState.LOCATING)
        return [*effects, *self._review_next(work, now)]

    # -- time ------------------------------------------------------------------------------------------

    def tick(self, now: int) -> list[RingEffect]:
        """Renew memberships before the lease is over; look at all cells now and then, and when keys have moved."""
        effects: list[RingEffect] = []
        late = now - self._reviewed >= REVIEW
        if late or self._changes != self._keys.changes:
            self._changes, self._reviewed = self._keys.changes, now if late else self._reviewed
            holds = [s for s in self._states if isinstance(s, CellHold) and (s.arcs or s.giving)]
            for hold in holds if late else ():  # nobody tells a former member that the tree is another one
                self._trees.pop(hold.topic, None)
            for member in sorted({hold.member for hold in holds}):
                if self._keys.serves(member):
                    effects += self._review(member, now)
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
