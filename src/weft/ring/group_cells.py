"""The cells that are stored under members of topic groups, and how they move (003, 3.2).

Of every cell one member has it, with all records that are placed by it, and every other refuses stores and visits for
it, so that these wait while cells move. A member that finds cells that belong elsewhere gives them on: it stops
answering for them, has that copied, and repeats the gift until the other member has it.

Cells that were lost with all copies belong to nobody. A member that is asked for such cells for `abandon` microseconds,
and is where the region servers say they should be, adopts them, and answers no visits until all subscribers have stored
their subscriptions again. Should anybody have cells of these after all, the next review gives them to it.

What a member stores is kept under its identifier like everything on the ring: after it has died or left, the next node
on the circle goes on for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from weft.ring.chord import ANSWER, ChordNode
from weft.ring.group_state import Arc, CellHold, StateId, StateStore
from weft.ring.identifiers import Key
from weft.ring.keys_in_hand import KeysInHand
from weft.ring.messages import NodeRef
from weft.ring.record_keeper import RecordKeeper, RingReply
from weft.ring.rendezvous_messages import GiveCells, GrantCells, Located, Record, RingEffect, WorkAnswer
from weft.ring.work import NO_TOKEN, RingWork, WorkState, WorkTable


@dataclass(slots=True, eq=False)
class Reviewing(RingWork):
    """The cells under a member are compared with what the region servers say."""

    member: Key
    topics: list[str]
    arcs: list[Arc] = field(default_factory=list)  # that are left of the first topic
    again: bool = False
    failed: bool = False  # somebody does not have a copy


@dataclass(slots=True, eq=False)
class Adopting(RingWork):
    """A cell that a member is asked for, and that perhaps nobody has."""

    member: Key
    topic: str
    cell: Key
    failed: bool = False  # somebody does not have a copy


@dataclass(slots=True, eq=False)
class Holding(RingWork):
    """Cells that were given to a member here: they are being copied."""

    reply: RingReply


CellQuestion = Reviewing | Adopting  # what the place of a cell is looked for
_MOST_WANTED = 10_000  # cells
_ASKED_AGAIN = 10 * ANSWER  # within which whoever wants a cell asks again


class GroupCells:
    """The cells of members whose identifiers this node answers for. `find` looks for the place of a cell: `located` or
    `not_found` is called then.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a node that it uses
        self,
        chord: ChordNode,
        table: WorkTable,
        keys: KeysInHand,
        keeper: RecordKeeper,
        states: StateStore,
        find: Callable[[str, Key, CellQuestion, int], list[RingEffect]],
    ) -> None:
        self._table, self._keys, self._keeper, self._states, self._find = table, keys, keeper, states, find
        self._space = chord.space
        self._wanted: dict[tuple[str, Key, Key], tuple[int, int]] = {}  # cells that are not here: asked for since, last
        table.handle(Reviewing, self._reviewed_one)
        table.handle(Adopting, self._adopted)
        table.handle(Holding, self._held)

    def holds(self) -> list[CellHold]:
        """All that have cells, or cells on their way."""
        return [s for s in self._states if isinstance(s, CellHold) and (s.arcs or s.giving)]

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
            if message.learning:
                self._keys.learn(message.key, now)
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
            self._keys.learn(message.key, now, message.learning)
        return self._keep(hold, now, reply, message.records)

    def _keep(self, hold: CellHold, now: int, reply: RingReply, records: tuple[Record, ...] = ()) -> list[RingEffect]:
        self._states.take((hold,))
        work = Holding(reply)
        self._table.begin(work, WorkState.COPYING)
        effects = self._keys.copy_state(work, hold, now, records)
        return effects if work.open else [*effects, *self._held(work, None, True, now)]

    def _held(self, work: Holding, part: NodeRef | None, answer: WorkAnswer, now: int) -> list[RingEffect]:  # noqa: ARG002
        if answer is False:
            self._table.end(work)
            return work.reply.done(ok=False)
        if work.open:
            return []
        self._table.end(work)
        return work.reply.done()

    # -- reviews ---------------------------------------------------------------------------------------

    def review(self, member: Key, now: int) -> list[RingEffect]:
        """See whether cells of a member belong elsewhere."""
        running = next((work for work in self._table.of(Reviewing) if work.member == member), None)
        if running is not None:
            running.again = True
            return []
        holds = [hold for hold in self.holds() if hold.member == member]
        if not holds or not self._keys.serves(member):
            return []
        work = Reviewing(member, sorted(hold.topic for hold in holds))
        self._table.begin(work, WorkState.LOCATING)
        return self._review_topic(work, now)

    def _review_topic(self, work: Reviewing, now: int) -> list[RingEffect]:
        if not work.topics or not self._keys.serves(work.member):
            self._table.end(work)
            return self.review(work.member, now) if work.again else []
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
        return self._find(work.topics[0], work.arcs[0].upto, work, now)

    def not_found(self, work: CellQuestion, now: int) -> list[RingEffect]:
        """Nobody knows where a cell should be: the next review, or whoever wants the cell, asks again."""
        if isinstance(work, Adopting):
            self._table.end(work)
            return []
        return self._review_next(work, now, skip=True)

    def located(self, work: CellQuestion, answer: Located, now: int) -> list[RingEffect]:
        """The place of a cell is known."""
        return self._adopt(work, answer, now) if isinstance(work, Adopting) else self._reviewed(work, answer, now)

    def _reviewed(self, work: Reviewing, answer: Located, now: int) -> list[RingEffect]:
        """The place of the last cell that is left is known: give it on, if it is another member."""
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
        effects = self._keys.copy_state(work, hold, now)
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
        missing, learning = self._keys.missing_since(now), self._keys.learning_left(hold.member, now)
        message = GiveCells(NO_TOKEN, to, hold.topic, *arc, tuple(records), hold.member, hold.serial, missing, learning)
        return self._table.errand(work, "gift", to, message, now)

    def _reviewed_one(self, work: Reviewing, part: object, answer: WorkAnswer, now: int) -> list[RingEffect]:
        if not self._keys.serves(work.member):  # the new owner of the member's identifier goes on
            self._table.end(work)
            return []
        hold = self.hold(work.topics[0], work.member)
        if part is None:  # it has paused
            work.to(WorkState.COPYING)
            work.failed = False
            effects = self._keys.copy_state(work, hold, now)
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
        effects += self._keys.copy_state(work, hold, now)
        if work.open:
            return effects
        work.to(WorkState.LOCATING)
        return [*effects, *self._review_next(work, now)]

    # -- cells that nobody has -------------------------------------------------------------------------

    def wanted(self, topic: str, member: Key, cells: Iterable[Key], now: int) -> list[RingEffect]:
        """Somebody asks for cells under a member, which does not have all of them. If that lasts, they are lost."""
        effects: list[RingEffect] = []
        hold = self.hold(topic, member)
        for cell in cells:
            if hold.has(self._space, cell):
                continue
            since, last = self._wanted.pop((topic, member, cell), (now, now))
            since = now if now - last > _ASKED_AGAIN else since
            if now - since < self._keys.abandon:
                self._wanted[topic, member, cell] = since, now
            elif all((work.topic, work.member) != (topic, member) for work in self._table.of(Adopting)):
                work = Adopting(member, topic, cell)
                self._table.begin(work, WorkState.LOCATING)
                effects += self._find(topic, cell, work, now)
            else:
                self._wanted[topic, member, cell] = since, now
        while len(self._wanted) > _MOST_WANTED:
            del self._wanted[next(iter(self._wanted))]
        return effects

    def _adopt(self, work: Adopting, answer: Located, now: int) -> list[RingEffect]:
        """The member has the cell from now on, with those around it that have the same place."""
        hold = self.hold(work.topic, work.member)
        if (
            answer.member != work.member
            or not self._keys.serves(work.member)
            or hold.giving is not None
            or hold.has(self._space, work.cell)
        ):
            self._table.end(work)
            return []
        self._keys.learn(work.member, now)
        self._keys.watch_silent()
        hold = hold.with_arc(self._space, Arc(answer.after, answer.upto))
        self._states.take((hold,))
        work.to(WorkState.COPYING)
        return self._copy_adopted(work, hold, now)

    def _copy_adopted(self, work: Adopting, hold: CellHold, now: int) -> list[RingEffect]:
        effects = self._keys.copy_state(work, hold, now)
        if not work.open:
            self._table.end(work)
        return effects

    def _adopted(self, work: Adopting, part: NodeRef | None, answer: WorkAnswer, now: int) -> list[RingEffect]:
        if not self._keys.serves(work.member):
            self._table.end(work)
            return []
        if part is None:  # it has paused
            work.to(WorkState.COPYING)
            work.failed = False
            return self._copy_adopted(work, self.hold(work.topic, work.member), now)
        work.failed |= answer is False
        if work.open:
            return []
        if work.failed:
            self._table.pause(work, now)
        else:
            self._table.end(work)
        return []
