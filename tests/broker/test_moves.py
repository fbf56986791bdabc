"""Sessions move from broker to broker: nothing is lost, nothing comes twice, and the order is kept."""

from __future__ import annotations

import pytest

from broker.moving import Mover, in_small_parts, network_of, settle
from broker.network import Network
from broker.test_abandon import keep_back
from broker.test_links_random import SCHEMA
from weft.broker.limits import ClientLimits
from weft.broker.moves.states import MoveState
from weft.protocol.messages import (
    Ack,
    Advertise,
    Deliver,
    Failed,
    Hello,
    History,
    ListDead,
    Nack,
    Offset,
    QueueNumber,
    ReadHistory,
    RetryDead,
    SubNumber,
    Subscribe,
)
from weft.protocol.move_messages import MoveFlush
from weft.routing import MODELS


def payloads(name: str, *numbers: int) -> list[bytes]:
    return [b"%s %d" % (name.encode(), number) for number in numbers]


@pytest.mark.parametrize("make_before_break", [False, True])
@pytest.mark.parametrize("advertised", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_a_subscriber_moves_and_misses_nothing(model: str, advertised: bool, make_before_break: bool) -> None:
    network = network_of("a", "m", "b", model=model, schema=SCHEMA, advertised=advertised)
    reader, here, there = Mover(network, "r", "a"), Mover(network, "p", "a"), Mover(network, "q", "b")
    if advertised:
        here.say(Advertise(1, "TRUE"))
        there.say(Advertise(1, "TRUE"))
    reader.subscribe(1, "x < 5")
    settle(network, reader, here, there)
    here.publish(x=1)
    there.publish(x=1)
    here.publish(x=6)
    network.settle()  # delivered, and not acknowledged
    reader.move("b", make_before_break=make_before_break)
    here.publish(x=2)
    there.publish(x=2)
    settle(network, reader, here, there)
    assert reader.is_welcome
    here.publish(x=3)
    there.publish(x=3)
    settle(network, reader, here, there)
    assert sorted(reader.shown) == sorted([*payloads("p", 1, 3, 4), *payloads("q", 1, 2, 3)])
    assert [each for each in reader.shown if each.startswith(b"p")] == payloads("p", 1, 3, 4)
    states = {name: network[name].core._moves.state(reader.id) for name in "amb"}
    assert states == {"a": MoveState.NONE, "m": MoveState.NONE, "b": MoveState.HOME}
    for name in "amb":
        core = network[name].core
        assert not core._moves.departures.left
        assert not core._moves.arrivals.arriving
        assert not core._moves.arrivals.finishing
    network.check()


def moved_once(*, publish: int = 3) -> tuple[Network, Mover, Mover]:
    """A reader that has moved from a to b with events that it had not acknowledged."""
    network = network_of("a", "m", "b")
    reader, writer = Mover(network, "r", "a"), Mover(network, "p", "a")
    reader.subscribe(1, "TRUE")
    settle(network, reader, writer)
    for _ in range(publish):
        writer.publish(x=1)
    network.settle()
    reader.move("b")
    settle(network, reader, writer)
    assert reader.is_welcome
    return network, reader, writer


def test_copies_are_seen_by_nobody_else() -> None:
    network, _, writer = moved_once()
    node = network["b"]
    stored = [origin[0] for group in node.log.read(Offset(1), 99) for origin in group.events.origins.tolist()]
    assert len(stored) == 3
    assert all(publisher < 0 for publisher in stored)
    node.hello("h", "")
    (history,) = [each for each in node.say("h", ReadHistory(1, Offset(1))) if isinstance(each, History)]
    assert (history.events, history.next) == ((), 4)
    node.hello("since")
    node.say("since", Subscribe(SubNumber(1), "TRUE", QueueNumber(1), since=Offset(1)))
    network.settle()
    assert node.got("since") == []
    assert not [message for _, message in node.sent if type(message).__name__ == "LinkEvents"]
    writer.publish(x=1)
    settle(network)
    assert node.got("since") == [b"p 4"]


def test_nothing_is_left_after_many_moves() -> None:
    """Moving to and fro leaves what is told and heard as if the session had never moved."""
    network, reader, writer = moved_once()
    before = {name: network[name].interest("m") for name in "ab"}
    for home in ("a", "m", "b", "a", "b"):
        reader.move(home)
        writer.publish(x=1)
        settle(network, reader, writer)
        assert reader.home == home
    assert reader.shown == payloads("p", *range(1, 9))
    assert {name: network[name].interest("m") for name in "ab"} == before
    for name in "amb":
        state = network[name].log.restore()
        assert len(state.subs) == (2 if name == "b" else 0)
        assert {row.side for row in state.moves.values()} <= {3}, "tombstones alone"


def test_a_session_that_moves_is_not_changed() -> None:
    network = network_of("a", "b")
    reader = Mover(network, "r", "a")
    reader.subscribe(1, "TRUE")
    settle(network, reader)
    network["b"].at_once = False
    reader.move("b", make_before_break=True)
    network.settle(but="b")
    (failed,) = network["a"].say(reader.connection, Subscribe(SubNumber(2), "x = 1", QueueNumber(2)))
    assert isinstance(failed, Failed)
    assert failed.code == "moving"
    network["b"].at_once = True
    settle(network, reader)
    reader.subscribe(2, "x = 1")
    settle(network, reader)
    assert sorted(network["b"].core._sessions.by_name["r"].subs) == [1, 2]


def test_another_process_of_the_same_name_finds_its_session_by_the_tombstone() -> None:
    network, reader, writer = moved_once()
    network["b"].cut(reader.connection)
    writer.publish(x=2)
    network["a"].connect("new")
    network["a"].say("new", Hello(versions=(2, 4), session="r"))
    settle(network)
    assert network["a"].got("new") == [b"p 4"], "the session has come back, with what was not acknowledged"
    assert [name for name in "amb" if network[name].core._moves.state(reader.id) is MoveState.HOME] == ["a"]


def test_an_older_client_is_told_where_its_session_is() -> None:
    network, reader, _ = moved_once()
    network["b"].cut(reader.connection)
    network["a"].connect("old")
    (bye,) = network["a"].say("old", Hello(versions=(2, 3), session="r"))
    assert (bye.code, "has moved to b" in bye.reason) == ("refused", True)


def test_what_fails_goes_on_failing_where_the_session_is() -> None:
    """Failures and dead letters move along."""
    network = network_of("a", "b", limits=ClientLimits(failures=2, backoff=1_000))
    reader, writer = Mover(network, "r", "a"), Mover(network, "p", "a")
    reader.subscribe(1, "TRUE")
    settle(network, reader, writer)
    writer.publish(x=1)
    writer.publish(x=2)
    network.settle()
    for attempt in (1, 2):  # the first one becomes a dead letter
        reader.say(Nack(QueueNumber(1), ((Offset(1), attempt),), "bad"))
        network.wait(10_000)
    reader.say(Nack(QueueNumber(1), ((Offset(2), 3),), "bad"))  # the second one has failed once
    network.settle()
    reader.move("b")
    network.wait(2_000_000)
    reader.look(ack=False)
    node = network["b"]
    (answer,) = [each for each in node.say(reader.connection, ListDead(1, QueueNumber(1))) if hasattr(each, "letters")]
    (letter,) = answer.letters
    assert (letter.failures, letter.reason, letter.payload) == (2, "bad", b"p 1")
    (second,) = [each for each in node.messages(reader.connection) if isinstance(each, Deliver)]
    reader.say(Nack(QueueNumber(1), ((second.offset, second.attempt),), "bad again"))
    network.wait(1_000_000)
    (answer,) = [each for each in node.say(reader.connection, ListDead(2, QueueNumber(1))) if hasattr(each, "letters")]
    assert sorted(each.payload for each in answer.letters) == [b"p 1", b"p 2"], "it has failed twice by now"
    node.say(reader.connection, RetryDead(3, QueueNumber(1), (letter.offset,)))
    again = [each for each in node.messages(reader.connection) if isinstance(each, Deliver)][-1]
    assert (again.offset, again.payload) == (letter.offset, b"p 1")
    reader.say(Ack(QueueNumber(1), Offset(0), ((letter.offset, Offset(letter.offset + 1)),)))
    (answer,) = [each for each in node.say(reader.connection, ListDead(4, QueueNumber(1))) if hasattr(each, "letters")]
    assert [each.payload for each in answer.letters] == [b"p 2"]


def test_a_session_travels_in_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscriptions, events, dead letters of several queues, and what was seen of many publishers."""
    in_small_parts(monkeypatch)
    network = network_of("a", "b", limits=ClientLimits(failures=1))
    reader = Mover(network, "r", "a")
    writers = [Mover(network, f"p{number}", "b") for number in range(4)]
    for number in range(1, 4):
        reader.subscribe(number, f"x >= {number}", ordered=False)
    reader.say(Advertise(1, "x > 0 AND y = 1"))
    settle(network, reader, *writers)
    for writer in writers:
        for x in (1, 2, 3):
            writer.publish(x=x)
    network.settle()
    sent = [each for each in network["a"].messages(reader.connection) if isinstance(each, Deliver)]
    for each in sent[:9]:
        reader.say(Nack(each.queue, ((each.offset, each.attempt),), "bad"))
    network.settle()
    reader.move("b")
    for writer in writers:
        writer.publish(x=3)
    network.wait(3_000_000)
    reader.look(ack=False)
    node, letters = network["b"], dict[int, list[bytes]]()
    for number in range(1, 4):
        answers = node.say(reader.connection, ListDead(number, QueueNumber(number), limit=100))
        letters[number] = [each.payload for answer in answers if hasattr(answer, "letters") for each in answer.letters]
    assert sum(map(len, letters.values())) == 9
    got = [(each.queue, each.payload) for each in node.messages(reader.connection) if isinstance(each, Deliver)]
    assert len(got) == len({*got}), "none twice"
    assert len(got) == 4 * (3 + 2 + 1) - 9 + 4 * 3
    assert len(node.core._sessions.by_name["r"].subs) == 3


def test_an_invited_broker_that_does_not_take_a_session_says_so_and_it_may_be_changed() -> None:
    network = network_of("a", "m", "b")
    reader = Mover(network, "r", "a")
    reader.subscribe(1, "TRUE")
    reader.subscribe(2, "x > 1")
    settle(network, reader)
    network["b"].core._moves.arrivals._limits = ClientLimits(subscriptions=1)
    network["a"].call(lambda now: network["a"].core.invite("r", "b", "weft://b", now))
    settle(network, reader)
    session = network["a"].core._sessions.by_name.get("r")
    assert session is not None, "it has left"
    assert network["a"].core.counts.get("moves not taken") == 1
    assert not session.is_moving
    assert not network["a"].log.restore().moves
    assert "r" not in network["b"].core._sessions.by_name
    reader.subscribe(3, "x > 2")
    settle(network, reader)
    assert len(session.subs) == 3, "it is not refused as moving"
    network.check()


@pytest.mark.parametrize("removed", [False, True])
def test_what_is_acknowledged_and_trimmed_while_the_session_leaves_does_not_come_again(removed: bool) -> None:
    """The old broker needs it to say what it had. If it is removed all the same, the session is described again."""
    network = network_of("a", "m", "b")
    reader, writer = Mover(network, "r", "a"), Mover(network, "p", "m")
    reader.subscribe(1, "TRUE")
    settle(network, reader, writer)
    a, b = network["a"], network["b"]
    relay = b.core._links.relay
    keep_back(network, "b", MoveFlush)
    reader.move("b", make_before_break=True)
    network.settle()
    assert b.core._moves.state(reader.id) is MoveState.ARRIVING
    writer.publish(x=1)  # both get it
    network.settle()
    reader.look()
    assert reader.shown == payloads("p", 1)
    network.settle()
    a.call(a.core.store_floors)
    a.log.trim(a.core.needed)
    assert len([*a.log.read(Offset(1), 99)]) == 1, "it is still needed"
    if removed:
        a.log.trim(Offset(2))
        a.call(a.core.trimmed, Offset(2))
    b.core._links.relay = relay  # type: ignore[method-assign]
    settle(network, reader, writer)
    if removed:
        assert not reader.is_welcome
        reader.greet("b")
    settle(network, reader, writer)
    assert (reader.home, reader.is_welcome) == ("b", True)
    assert reader.shown == payloads("p", 1)
    assert a.core._moves.needed > 1, "it is needed no longer"
