"""Faults planted into moves: each leaves out one step of the protocol, and the simulation must notice it.

The first ones are protocols of the thesis on mobility (5.3 to 5.5) that lose events: `flush beside the links` is its
standard four phases; subscriptions on the device, a direct fetch after `Complete`, a publisher that tears down and sets
up, and one whose unadvertisement is delayed, are named there.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from weft.broker.completion import Announcement
from weft.broker.hello import ClientConnections
from weft.broker.links.interest_in import InterestReceiver
from weft.broker.links.links import Links
from weft.broker.moves import arrivals, moves
from weft.broker.moves.arrivals import Arrival, Arrivals
from weft.broker.moves.departures import Departures, PullPhase
from weft.broker.moves.moves import Moves
from weft.broker.moves.states import MoveState
from weft.broker.sessions import Session
from weft.client.advertisements import AdvertState
from weft.client.publisher import Publisher
from weft.client.session import ClientSession
from weft.log.base import NEVER
from weft.model.paged_dict import PagedDict
from weft.protocol.link_messages import LinkRelay, RelayKind
from weft.protocol.messages import Bye, Deliver, unpack
from weft.protocol.move_messages import MovedSession, MoveEnd, MoveFinish, MoveFlush, encode_move
from weftlab.faults.broker_process import BrokerProcess
from weftlab.faults.client_connection import ClientConnection

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
def direct_fetch_after_complete(patch: Patch) -> None:
    """No marker: the new broker waits until its subscriptions are complete, and then asks the old one directly."""
    beside_the_links(patch, MoveFlush)
    announced: dict[Arrival, list[Announcement]] = {}
    repeat = Arrivals.repeat

    def when_complete(self, arrival, now):
        session = arrival.session
        if arrival not in announced and arrival.state is MoveState.ARRIVING and arrival.stored:
            announced[arrival] = [self._completion.announce(session, "subscribe", number) for number in session.subs]
        if arrival.state is not MoveState.ARRIVING or all(each.complete for each in announced.get(arrival, ())):
            repeat(self, arrival, now)

    patch.setattr(moves, "_FIRST", 1_000)
    patch.setattr(moves, "_LONGEST", 2_000)
    patch.setattr(Arrivals, "repeat", when_complete)


def welcome_with_the_copy(patch: Patch) -> None:
    """The client is welcome as soon as the copy is there, and publishes there at once, with numbers of their own."""
    installed, fill = Arrivals.installed, Arrivals.fill

    def welcoming(self, arrival, now):
        client, arrival.client = arrival.client, None
        if client is not None and self._sessions.is_open(client.connection):
            arrival.session.pub_epoch, arrival.session.pub_received = client.hello.pub_epoch + 1, 0
            self._clients.admit(client.connection, client.hello, arrival.session, now)
        installed(self, arrival, now)

    def filling(self, arrival, message, now):
        numbers = arrival.session.pub_epoch, arrival.session.pub_received
        fill(self, arrival, message, now)
        arrival.session.pub_epoch, arrival.session.pub_received = numbers

    patch.setattr(Arrivals, "installed", welcoming)
    patch.setattr(Arrivals, "fill", filling)
    patch.setattr(AdvertState, "holds_events", False)


@mutant
def delayed_unadvertisement(patch: Patch) -> None:
    """A publisher advertises at the new broker and publishes at once; the old advertisement goes later."""
    welcome_with_the_copy(patch)


@mutant
def tear_down_and_set_up(patch: Patch) -> None:
    """The same, and the old advertisement goes when the publisher does."""
    welcome_with_the_copy(patch)
    describe, torn_down = Departures.describe, dict[Session, dict[int, tuple[int, str]]]()

    def tearing_down(self, session, asked, now):
        session.adverts = torn_down.get(session, session.adverts)
        describe(self, session, asked, now)
        if session not in torn_down:
            torn_down[session] = dict(session.adverts)
            self._adverts.drop_all(session)
        session.adverts = {}

    patch.setattr(Departures, "describe", tearing_down)


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


@mutant
def the_log_may_have_more_than_the_old_broker_says(patch: Patch) -> None:
    """The description of a session has the next offset of the log in place of its stored end."""
    describe = Departures.describe

    def early(self, session, asked, now):
        post, following = self._post, self._journal.next
        self._post = lambda to, message, now: post(to, structs.replace(message, start=following), now)
        describe(self, session, asked, now)
        self._post = post

    patch.setattr(Departures, "describe", early)


@mutant
def the_old_connection_is_read_by_the_client_after_the_welcome(patch: Patch) -> None:
    drop, received = ClientConnection._drop, ClientSession.received

    def keeping(self, number, *, notice):
        line = self._lines.get(number)
        if not notice or line is None or not line.was_welcome or number == self._session.connection:
            drop(self, number, notice=notice)

    def reading(self, connection, messages, now):
        known = connection == self.connection or (self._next is not None and connection == self._next.number)
        if not known:
            connection, messages = self.connection, [each for each in messages if isinstance(each, Deliver)]
        return received(self, connection, messages, now)

    patch.setattr(ClientConnection, "_drop", keeping)
    patch.setattr(ClientSession, "received", reading)


@mutant
def the_old_connection_is_read_by_the_broker_after_the_marker(patch: Patch) -> None:
    flush = Departures.flush

    def reading(self, session, message, source, now):
        closed, self._clients.closed = self._clients.closed, lambda *_: None
        flush(self, session, message, source, now)
        self._clients.closed = closed

    patch.setattr(Departures, "flush", reading)


@mutant
def interest_is_withdrawn_before_the_cut_is_stored(patch: Patch) -> None:
    cut = Departures.cut

    def hasty(self, departure):
        cut(self, departure)
        session = departure.session
        for sub in session.subs.values():
            self._links.tell(self._matcher.discard(sub.slot))
        session.subs = PagedDict()
        self._close(departure, Bye("moved", departure.address))

    patch.setattr(Departures, "cut", hasty)


@mutant
def a_client_is_ignored_while_its_session_is_invited(patch: Patch) -> None:
    greet = Moves.greet

    def ignoring(self, connection, hello, whence, now):
        if any(each.name == hello.session and each.client is None for each in self.asking.values()):
            self._wait(connection)
            return True
        return greet(self, connection, hello, whence, now)

    patch.setattr(Moves, "greet", ignoring)


@mutant
def copies_are_sent_to_neighbours(patch: Patch) -> None:
    write, tell = arrivals.write_copies, {}
    begin = Arrivals.__init__

    def beginning(self, parts, ingest, links, *others):
        begin(self, parts, ingest, links, *others)
        tell[parts.journal] = links

    def routing(journal, copies):
        write(journal, copies)
        batch = journal.write.batches[-1]
        links = [each.window.link_id for each in tell[journal].neighbours.values()]
        batch.routes = {link: range(len(batch)) for link in links}

    patch.setattr(Arrivals, "__init__", beginning)
    patch.setattr(arrivals, "write_copies", routing)


@mutant
def the_version_of_a_session_is_not_compared(patch: Patch) -> None:
    flush = Departures.flush

    def trusting(self, session, message, source, now):
        if session.asked is not None:
            message = structs.replace(message, version=session.asked.version)
        flush(self, session, message, source, now)

    patch.setattr(Departures, "flush", trusting)


@mutant
def the_rules_of_the_new_broker_are_not_checked(patch: Patch) -> None:
    def trusting(self, parts):
        parse = self._subscriptions.parse
        subs = {sub.number: parse(sub.filter) for part in parts for sub in part.subscriptions}
        return subs, {number: parse(text) for part in parts for number, text in part.adverts}

    patch.setattr(Arrivals, "check", trusting)


@mutant
def nothing_is_said_again(patch: Patch) -> None:
    """Not after a while; what a link has lost, and what a detached neighbour did not hand on, never comes."""
    patch.setattr(Moves, "_again", lambda *_: None)


@mutant
def a_refusal_of_an_invited_broker_is_not_sent(patch: Patch) -> None:
    patch.setattr(
        Moves, "_not_taken", lambda self, asking, source, code, reason, now: self._give_up(asking, code, reason, now)
    )


@mutant
def what_is_abandoned_is_not_claimed(patch: Patch) -> None:
    repeat = Arrivals.repeat
    patch.setattr(Arrivals, "repeat", lambda self, arrival, now: None if arrival.claims else repeat(self, arrival, now))


@mutant
def a_claim_is_not_restored(patch: Patch) -> None:
    restore = Arrivals.restore

    def forgetful(self, kept):
        restore(self, kept)
        self.finishing = {key: arrival for key, arrival in self.finishing.items() if not arrival.claims}

    patch.setattr(Arrivals, "restore", forgetful)


@mutant
def what_comes_late_was_delivered_already(patch: Patch) -> None:
    patch.setattr(arrivals, "_without", lambda _, event: unpack(event.packed))


@mutant
def a_gap_is_not_reported(patch: Patch) -> None:
    go_on = Arrivals._go_on

    def silent(self, arrival, now):
        queues = self._queues_of(arrival.session)
        gaps = [queue.gap for queue in queues]
        go_on(self, arrival, now)
        for queue, gap in zip(queues, gaps, strict=True):
            queue.gap = gap

    patch.setattr(Arrivals, "_go_on", silent)


@mutant
def an_abandoned_publisher_keeps_its_epoch(patch: Patch) -> None:
    admit = ClientConnections.admit

    def keeping(self, connection, message, session, now):
        if session is not None and session.pub_epoch == 0:
            session.pub_epoch = message.pub_epoch
        admit(self, connection, message, session, now)

    patch.setattr(ClientConnections, "admit", keeping)


@mutant
def a_slow_broker_is_abandoned(patch: Patch) -> None:
    go_on = Moves._go_on_without

    def impatient(self, item, now):
        item.heard = 0
        go_on(self, item, now)

    patch.setattr(Moves, "_go_on_without", impatient)


@mutant
def a_session_that_has_gone_on_elsewhere_is_welcome(patch: Patch) -> None:
    greet = Moves._greet_here

    def welcoming(self, connection, hello, whence, *others):
        return greet(self, connection, hello, structs.replace(whence, home=""), *others)

    patch.setattr(Moves, "_greet_here", welcoming)


@mutant
def an_older_state_of_a_session_is_not_forgotten(patch: Patch) -> None:
    """It came from a backup, or it is claimed elsewhere."""
    patch.setattr(Moves, "_compare", lambda *_: None)


@mutant
def a_broker_that_knows_nothing_does_not_say_so(patch: Patch) -> None:
    pull = Departures.pull

    def silent(self, message, source, now):
        if (message.session, message.epoch) in self.left:
            pull(self, message, source, now)

    patch.setattr(Departures, "pull", silent)


@mutant
def what_came_since_the_description_is_trimmed(patch: Patch) -> None:
    patch.setattr(Departures, "_with_asked", lambda _: [])


@mutant
def what_is_lost_is_not_handed_on(patch: Patch) -> None:
    patch.setattr(Departures, "hand_on", lambda *_: False)


@mutant
def nobody_says_that_a_session_is_not_asked_for(patch: Patch) -> None:
    patch.setattr(Moves, "_decline", lambda *_: None)
