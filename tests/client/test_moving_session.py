"""A client session that moves while its old connection works: make before break."""

from __future__ import annotations

import msgspec

from weft.client.effects import Arrived, Dial, Greet, HangUp, Lost, MoveEnded, Over, Ready, SessionEffect
from weft.client.session import ClientSession, ConnectionPolicy, SessionState
from weft.client.subscription import AckBook, SubscriptionOptions, SubscriptionRequest, SubscriptionState
from weft.client.subscription_handle import Inbox
from weft.errors import ConnectError
from weft.log.base import SessionId
from weft.protocol.addresses import Address
from weft.protocol.messages import (
    MOVES,
    Accepted,
    Ack,
    Bye,
    Deliver,
    Hello,
    HomeBroker,
    Offset,
    QueueNumber,
    SubNumber,
    Welcome,
    Whereabouts,
    next_epoch,
    pack,
)
from weft.protocol.move_messages import with_token

OLD, NEW = Address.parse("weft://old"), Address.parse("weft://new")
FIRST = next_epoch(0)


def welcome(log: str, epoch: int) -> Welcome:
    return Welcome(MOVES, SessionId(7), epoch, 1, 0, True, (SubNumber(1),), log, 1, "", 1 << 20, 0)


def at_home() -> ClientSession:
    """A session with a subscription, welcome at the old broker."""
    session = ClientSession("mover", ConnectionPolicy((OLD,)))
    state = SubscriptionState(SubNumber(1), SubscriptionOptions(durable=True), window=100, token=session.token)
    session.subscribe(state, SubscriptionRequest("subscribe", "x > 0", None))
    session.start(0)
    session.opened(1, 1)
    session.take()
    session.received(1, [HomeBroker("old"), welcome("log-old", FIRST), Accepted("subscribe", 1, Offset(1))], 2)
    session.take()
    return session


def delivery(offset: int) -> Deliver:
    head = msgspec.Raw(msgspec.msgpack.encode([{"x": offset}]))
    return Deliver(QueueNumber(1), Offset(offset), 1, 0, pack([SubNumber(1)]), head, b"")


def kinds(effects: list[SessionEffect]) -> list[type]:
    return [type(each) for each in effects]


def moving() -> tuple[ClientSession, Greet]:
    """The same, with a second connection on which the new broker is greeted."""
    session = at_home()
    effects = session.move(NEW, 10)
    assert Dial(2, NEW) in effects
    assert HangUp(1) not in effects
    [greeting] = [each for each in session.opened(2, 11) if isinstance(each, Greet)]
    session.check()
    return session, greeting


def test_the_old_connection_goes_on_until_the_new_broker_has_the_session() -> None:
    session, greeting = moving()
    hello, whence = greeting.messages
    assert isinstance(hello, Hello)
    assert (hello.epoch, greeting.connection) == (next_epoch(FIRST), 2)
    assert isinstance(whence, Whereabouts)
    assert (whence.session, whence.home) == (7, "old")
    assert Arrived in kinds(session.received(1, [delivery(5)], 12)), "deliveries go on"
    assert session.received(2, [HomeBroker("new")], 13) == []
    effects = session.received(2, [welcome("log-new", hello.epoch)], 14)
    assert kinds(effects)[:2] == [HangUp, Lost]
    assert HangUp(1) in effects
    assert MoveEnded(None) in effects
    [ready] = [each for each in effects if isinstance(each, Ready)]
    assert ready.moved_from == "log-old"
    assert (session.connection, session.address, session.state) == (2, NEW, SessionState.READY)
    assert session.received(1, [delivery(6)], 15) == [], "what comes on the old connection counts no more"
    session.check()


def test_the_old_broker_may_close_its_connection_first() -> None:
    session, _ = moving()
    session.received(1, [Bye("moved", "")], 12)
    assert Lost in kinds(session.closed(1, 13))
    assert (session.connection, session.state) == (2, SessionState.GREETING)
    session.check()
    assert MoveEnded(None) in session.received(2, [HomeBroker("new"), welcome("log-new", 5 * FIRST)], 14)
    session.check()


def test_a_broker_that_is_not_there_changes_nothing() -> None:
    session = at_home()
    session.move(NEW, 10)
    [ended] = session.dial_failed(2, ConnectError("nobody is there"), 11)
    assert isinstance(ended, MoveEnded)
    assert isinstance(ended.error, ConnectError)
    assert (session.connection, session.state) == (1, SessionState.READY)
    assert Arrived in kinds(session.received(1, [delivery(5)], 12))
    session.check()


def test_after_a_refusal_the_old_broker_hears_a_newer_hello() -> None:
    """Otherwise it would go on believing that the session is about to leave."""
    session, greeting = moving()
    session.received(2, [Bye("unreachable", "it does not take the session: no")], 12)
    effects = session.closed(2, 13)
    [ended] = [each for each in effects if isinstance(each, MoveEnded)]
    assert "no" in str(ended.error)
    assert HangUp(1) in effects
    assert Dial(3, OLD) in effects
    session.opened(3, 14)
    again = session.take()[0]
    assert isinstance(again, Hello)
    assert isinstance(greeting.messages[0], Hello)
    assert again.epoch > greeting.messages[0].epoch
    session.check()


def test_a_lost_second_connection_is_opened_again() -> None:
    session, greeting = moving()
    assert session.closed(2, 12)
    session.check()
    assert Dial(3, NEW) in session.tick(1_000_000)
    [again] = [each for each in session.opened(3, 1_000_001) if isinstance(each, Greet)]
    assert isinstance(again.messages[0], Hello)
    assert isinstance(greeting.messages[0], Hello)
    assert again.messages[0].epoch > greeting.messages[0].epoch
    assert session.state is SessionState.READY
    session.check()


def test_a_move_to_the_same_broker_takes_its_own_connection_over() -> None:
    session, _ = moving()
    session.received(1, [Bye("taken over", "a newer connection")], 12)
    assert Over not in kinds(session.closed(1, 13))
    assert MoveEnded(None) in session.received(2, [HomeBroker("old"), welcome("log-old", 5 * FIRST)], 14)


def test_a_session_that_is_closed_while_it_moves_drops_both_connections() -> None:
    session, _ = moving()
    assert HangUp(2) in session.close(12, 1_000_000)
    assert session.state is SessionState.CLOSING
    effects = session.stop()
    assert HangUp(1) in effects
    assert session.state is SessionState.OVER


def test_an_event_that_was_acknowledged_under_another_number_of_the_same_log_is_not_shown_again() -> None:
    """The session was elsewhere and is back, and its client has not noticed; the acknowledgement is on its way."""
    book = AckBook(QueueNumber(1), ordered=True, window=10, token=lambda: 7)
    book.begin(reports=True, log_id="log-old", inherits=True)
    decisions: list[bool] = []
    inbox = Inbox(durable=True, ordered=True, most=10, most_bytes=1_000, decided=decisions.append)
    inbox.put(book.delivered(book.renumbered([delivery(5)])))
    assert inbox.pop() == delivery(5)
    book.lost()
    inbox.lost()
    book.begin(reports=True, log_id="log-old", inherits=True)
    inbox.ack(5)
    head = msgspec.Raw(with_token(bytes(delivery(5).head), "log-old", Offset(5)))
    again = msgspec.structs.replace(delivery(9), attempt=2, head=head)
    inbox.put(book.delivered(book.renumbered([again])))
    assert inbox.pop() is None, "the book is asked first"
    assert decisions[-1]
    inbox.settle(book)
    assert inbox.pop() is None
    assert len(inbox) == 0


def test_what_is_acknowledged_late_concerns_no_event_of_another_log() -> None:
    """The broker has lost its log, and numbers events again from the beginning."""
    book = AckBook(QueueNumber(1), ordered=True, window=10, token=lambda: 7)
    book.begin(reports=True, log_id="log-old")
    [shown] = book.delivered(book.renumbered([delivery(5)]))
    book.lost()
    book.forget()
    book.begin(reports=True, log_id="log-new")
    book.ack([shown.offset])
    assert book.take() == []
    [again] = book.delivered(book.renumbered([delivery(5)]))
    book.ack([again.offset])
    assert [book.as_numbered(each) for each in book.take()] == [Ack(QueueNumber(1), Offset(6))]


def test_a_broker_that_makes_the_session_anew_is_left_again() -> None:
    """It is on a ring, or in another network, and has no way to ask: the session stays where it is."""
    session, _ = moving()
    effects = session.received(2, [msgspec.structs.replace(welcome("log-new", 9 * FIRST), session=SessionId(8))], 12)
    [ended] = [each for each in effects if isinstance(each, MoveEnded)]
    assert "does not know the session 'mover', which is at old" in str(ended.error)
    assert HangUp(2) in effects
    assert Dial(3, OLD) in effects
    session.check()
