"""Faults planted into moves: each leaves out one step of the protocol, and the simulation must notice it.

The first ones are protocols of the thesis on mobility (5.3 to 5.5) that lose events: `flush beside the links` is its
standard four phases, `subscriptions on the device` and `publish before the end` (tear down and set up, or delayed
unadvertisement) are named there. The names of the others are those of the reference.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from weft.broker.links.interest_in import InterestReceiver
from weft.broker.links.links import Links
from weft.broker.moves import arrivals
from weft.broker.moves.arrivals import Arrivals
from weft.broker.moves.departures import Departures, PullPhase
from weft.broker.moves.moves import Moves
from weft.broker.moves.states import MoveState
from weft.client.publisher import Publisher
from weft.log.base import NEVER
from weft.protocol.link_messages import LinkRelay, RelayKind
from weft.protocol.move_messages import MovedSession, MoveEnd, MoveFinish, MoveFlush, encode_move
from weftlab.faults.broker_process import BrokerProcess

Patch = pytest.MonkeyPatch
MOVE_MUTANTS: dict[str, Callable[[Patch], None]] = {}


def mutant(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    MOVE_MUTANTS[plant.__name__.replace("_", " ")] = plant
    return plant


def beside_the_links(patch: Patch, kind: type) -> None:
    """Messages of a kind arrive by another way than events and interest, and sooner."""
    post, start = Moves._post, BrokerProcess.start
    processes: dict[int, dict[str, BrokerProcess]] = {}

    def starting(self):
        processes.setdefault(id(self.engine), {})[self.name] = self
        start(self)

    def sooner(self, destination, message, now):
        here = next((each for some in processes.values() for each in some.values() if _moves(each) is self), None)
        if here is None or type(message) is not kind:
            post(self, destination, message, now)
            return
        there = processes[id(here.engine)][destination]
        relay = LinkRelay(destination, self.name, encode_move(message), kind=RelayKind.MOVE)
        here.engine.after(200, lambda: there.core is not None and there.do(_receive(there.core), relay))

    patch.setattr(BrokerProcess, "start", starting)
    patch.setattr(Moves, "_post", sooner)


def _moves(process):
    return None if process.core is None else process.core._moves


def _receive(core):
    def receive(relay, now):
        core._begin(now)
        core._moves.receive(relay, now)
        return core._finish(now)

    return receive


@mutant
def flush_beside_the_links(patch: Patch) -> None:
    beside_the_links(patch, MoveFlush)


@mutant
def state_beside_the_links(patch: Patch) -> None:
    beside_the_links(patch, MovedSession)


@mutant
def end_beside_the_links(patch: Patch) -> None:
    beside_the_links(patch, MoveEnd)


@mutant
def subscriptions_on_the_device(patch: Patch) -> None:
    """The new broker asks nobody: the client subscribes there anew."""
    patch.setattr(Moves, "greet", lambda *_: False)


@mutant
def publish_before_the_end(patch: Patch) -> None:
    """The client is welcome as soon as the copy is there."""
    installed = Arrivals.installed

    def welcoming(self, arrival, now):
        client, arrival.client = arrival.client, None
        if client is not None and self._sessions.is_open(client.connection):
            arrival.session.pub_epoch = client.hello.pub_epoch
            arrival.session.pub_received = 0
            self._clients.admit(client.connection, client.hello, arrival.session, now)
        installed(self, arrival, now)

    patch.setattr(Arrivals, "installed", welcoming)


@mutant
def relays_are_not_gated(patch: Patch) -> None:
    receive = Links._receive

    def at_once(self, connection, neighbour, message, now):
        if isinstance(message, LinkRelay):
            self.relayed(message, now)
        else:
            receive(self, connection, neighbour, message, now)

    patch.setattr(Links, "_receive", at_once)


@mutant
def what_the_old_broker_had_is_not_dropped(patch: Patch) -> None:
    patch.setattr(arrivals, "_is_known", lambda *_: False)


@mutant
def the_client_does_not_recognize_events(patch: Patch) -> None:
    patch.setattr("weft.client.subscription.tokens_of", lambda _: ())


@mutant
def the_marker_is_sent_before_the_copy_is_stored(patch: Patch) -> None:
    install = Arrivals.install

    def hasty(self, parts, peer, client, now):
        install(self, parts, peer, client, now)
        arrival = self.arriving[parts[0].session]
        key = arrival.session.id, arrival.epoch
        self._post(peer, MoveFlush(*key, arrival.log_id, arrival.start, arrival.version), now)

    patch.setattr(Arrivals, "install", hasty)


@mutant
def the_old_broker_forgets_with_the_last_chunk(patch: Patch) -> None:
    pull = Departures.pull

    def forgetful(self, message, source, now):
        pull(self, message, source, now)
        departure = self.left.get((message.session, message.epoch))
        if departure is not None and message.phase == PullPhase.LETTERS.value:
            self.finish(MoveFinish(message.session, message.epoch), source, now)

    patch.setattr(Departures, "pull", forgetful)


@mutant
def finish_is_sent_before_the_session_is_at_home(patch: Patch) -> None:
    pour = Arrivals.pour

    def hasty(self, arrival, now):
        pour(self, arrival, now)
        self._post(arrival.peer, MoveFinish(arrival.session.id, arrival.epoch), now)

    patch.setattr(Arrivals, "pour", hasty)


@mutant
def the_epoch_is_not_stored(patch: Patch) -> None:
    answer = Departures.answer

    def forgetful(self, session, message, source, now):
        write = self._journal.write
        before = len(write.changes), len(write.waiting)
        answer(self, session, message, source, now)
        if len(write.waiting) > before[1]:
            value = write.waiting.pop()
            del write.changes[before[0] :]
            self.describe(*value.subject[:2], now)

    patch.setattr(Departures, "answer", forgetful)


@mutant
def the_publisher_renumbers(patch: Patch) -> None:
    welcomed = Publisher.welcomed
    patch.setattr(Publisher, "welcomed", lambda self, epoch, stored, **_: welcomed(self, epoch, stored, kept=False))


@mutant
def a_session_that_has_left_is_restored(patch: Patch) -> None:
    restore = Departures.restore

    def nothing_left(self, kept):
        restore(self, kept)
        return {}

    patch.setattr(Departures, "restore", nothing_left)


@mutant
def what_has_left_does_not_keep_the_log(patch: Patch) -> None:
    patch.setattr(Departures, "needed", property(lambda _: NEVER))


@mutant
def the_own_tombstone_is_not_asked(patch: Patch) -> None:
    patch.setattr(Departures, "whereabouts", lambda *_: None)


@mutant
def what_is_poured_is_poured_again(patch: Patch) -> None:
    copied = Arrivals.copied

    def forgetful(self, stored, now):
        if stored.state is MoveState.HOME:
            copied(self, stored, now)
        else:
            copied(self, stored._replace(poured=stored.arrival.poured), now)

    patch.setattr(arrivals, "_POURED", 2)
    patch.setattr(Arrivals, "copied", forgetful)


@mutant
def a_marker_waits_for_learning_only(patch: Patch) -> None:
    """Rare: a directed test finds it at once (`test_markers`)."""
    has_work = InterestReceiver.has_work

    def learnt(self, got):
        if self._frame is None and self._waiting and isinstance(self._waiting[0][0], LinkRelay):
            return True
        return has_work(self, got)

    patch.setattr(InterestReceiver, "has_work", learnt)
