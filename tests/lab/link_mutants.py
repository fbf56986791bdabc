"""Faults planted into links: each breaks one promise of a network, and the simulation must notice it.

A mutant patches one method. The names are those of the reference of faults for many brokers.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from routing.test_mutants import AddsBeforeDrops, LosesTheUncovered
from weft.broker.broker import Core
from weft.broker.completion import Completion, LearntFrame
from weft.broker.journal import PendingWrite
from weft.broker.links.events import EventWindow
from weft.broker.links.interest_in import InterestReceiver
from weft.broker.links.interest_out import InterestSender
from weft.broker.links.links import Links
from weft.broker.links.neighbour import LinkState, Neighbour, PendingRows
from weft.log.base import MoveGot
from weft.log.memory import MemoryLog
from weft.routing.adverts import Advertised
from weft.routing.table import About, Update
from weftlab.faults.shape import Shape

Patch = pytest.MonkeyPatch
LINK_MUTANTS: dict[str, Callable[[Patch], None]] = {}


def mutant(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    LINK_MUTANTS[plant.__name__.replace("_", " ")] = plant
    return plant


@mutant
def the_obvious_rule_for_complete(patch: Patch) -> None:
    """A change waits only for the links that were told something because of it."""
    tell, put_marks = Links.tell, Completion._put_marks

    def recording(self, tells, table=0):
        completion = self._completion
        completion.lately = getattr(completion, "lately", set()) | {each.link for each in tells}
        tell(self, tells, table)

    def obvious(self, change):
        lately, self.lately = getattr(self, "lately", set()), set()
        known, self._neighbours = self._neighbours, {k: v for k, v in self._neighbours.items() if k in lately}
        try:
            put_marks(self, change)
        finally:
            self._neighbours = known

    patch.setattr(Links, "tell", recording)
    patch.setattr(Completion, "_put_marks", obvious)


@mutant
def nobody_waits_for_a_link_that_is_cut(patch: Patch) -> None:
    end = InterestSender.end

    def hasty(self):
        end(self)
        for mark in self.marks.give_up():
            mark.completed(self.link)

    patch.setattr(InterestSender, "end", hasty)


@mutant
def a_broker_tells_before_it_has_what_it_heard(patch: Patch) -> None:
    init = Core.__init__

    def forgetful(self, log, state, *args, **kwargs):
        state.heard.clear()
        init(self, log, state, *args, **kwargs)

    patch.setattr(Core, "__init__", forgetful)


@mutant
def a_resync_drops_before_it_adds(patch: Patch) -> None:
    following = InterestSender._next_frame

    def hasty(self, settled, *args):
        return self._resync_end() if self._comparing else following(self, settled, *args)

    patch.setattr(InterestSender, "_next_frame", hasty)


@mutant
def got_is_stored_apart_from_its_events(patch: Patch) -> None:
    group, stored = PendingWrite.group, Links.events_stored

    def apart(self, at):
        arrivals, self.arrivals = self.arrivals, []
        made = group(self, at)
        self.arrivals = arrivals
        return made

    def later(self, value):
        stored(self, value)
        self._journal.write.changes.append(MoveGot(value.neighbour.window.link_id, value.got))

    patch.setattr(PendingWrite, "group", apart)
    patch.setattr(Links, "events_stored", later)


@mutant
def got_is_acknowledged_before_it_is_stored(patch: Patch) -> None:
    events = Links._events

    def early(self, neighbour, message):
        events(self, neighbour, message)
        neighbour.got = neighbour.received

    patch.setattr(Links, "_events", early)


@mutant
def what_is_heard_is_acknowledged_before_it_is_stored(patch: Patch) -> None:
    put = PendingRows.put

    def early(self, changes, subject=None):
        if isinstance(subject, LearntFrame):
            subject.frame.stored = True
            subject.receiver.advance()
        put(self, changes)

    patch.setattr(PendingRows, "put", early)


@mutant
def an_unsynced_link_is_routed_to(patch: Patch) -> None:
    init = Neighbour.__init__

    def synced(self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.state, self.synced = LinkState.SYNCED, True

    patch.setattr(Neighbour, "__init__", synced)


@mutant
def a_link_resumes_one_too_far(patch: Patch) -> None:
    resume = EventWindow.resume
    patch.setattr(EventWindow, "resume", lambda self, got: resume(self, got + 1 if got else 0))


@mutant
def a_link_forgets_its_items_on_resume(patch: Patch) -> None:
    begin = InterestReceiver.begin

    def forgetful(self):
        if any(self.hashes):
            for about, hashes, digest in zip(About, self.hashes, self._digests, strict=True):
                self._table.learn(self.link, Update(about, fresh=True))
                for wire, hashed in hashes.items():
                    digest.drop(wire, hashed)
                hashes.clear()
        yield from begin(self)

    patch.setattr(InterestReceiver, "begin", forgetful)


@mutant
def a_restored_back_up_keeps_its_log_id(patch: Patch) -> None:
    backup = MemoryLog.backup
    patch.setattr(MemoryLog, "backup", lambda self, log_id: backup(self, self.log_id))


@mutant
def events_of_a_link_are_stored_again(patch: Patch) -> None:
    events = Links._events

    def careless(self, neighbour, message):
        neighbour.received = 0
        events(self, neighbour, message)

    patch.setattr(Links, "_events", careless)


@mutant
def retention_removes_what_a_neighbour_has_not_got(patch: Patch) -> None:
    patch.setattr(
        Core, "needed", property(lambda self: min((q.stored_below for q in self._queues.all), default=self.end))
    )


@mutant
def wire_ids_begin_anew_in_each_session(patch: Patch) -> None:
    have = InterestSender.receive_have

    def anew(self, message):
        last = have(self, message)
        self._next_wire = 1
        return last

    patch.setattr(InterestSender, "receive_have", anew)


@mutant
def the_uncovered_set_is_dropped(patch: Patch) -> None:
    patch.setattr(Shape, "make_table", lambda self: _maybe_advertised(self, LosesTheUncovered()))


@mutant
def an_update_adds_before_it_drops(patch: Patch) -> None:
    patch.setattr(Shape, "make_table", lambda self: _maybe_advertised(self, AddsBeforeDrops()))


@mutant
def a_withdrawn_advertisement_overtakes_events(patch: Patch) -> None:
    patch.setattr(Links, "_withdraw_behind", lambda self, neighbour: 0)


def _maybe_advertised(shape, table):
    return Advertised(table) if shape.advertised else table
