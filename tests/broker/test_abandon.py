"""Sessions that go on without the broker that had them: reported as a gap, and what it has comes late."""

from __future__ import annotations

from itertools import count

import pytest

from broker.moving import Mover, in_small_parts, network_of, settle
from broker.network import Network
from weft.broker.moves.states import MoveState
from weft.protocol.link_messages import LinkRelay, RelayKind
from weft.protocol.messages import Bye, Deliver, Failed, Gap, QueueNumber, SubNumber, Subscribe
from weft.protocol.move_messages import MoveChunk, MovedSession, MoveFlush, decode_move

SECOND = 1_000_000  # microseconds; clients are patient for a thousand milliseconds


def stage() -> tuple[Network, Mover, Mover]:
    """A reader at a, with one event that it has not acknowledged; a publisher in the middle."""
    network = network_of("a", "m", "b", "c")
    reader, writer = Mover(network, "r", "a"), Mover(network, "p", "m")
    reader.subscribe(1, "TRUE")
    settle(network, reader, writer)
    writer.publish(x=1)
    network.settle()
    return network, reader, writer


def keep_back(network: Network, name: str, kind: type) -> None:
    """Lose the messages of a kind that a broker sends."""
    relay = network[name].core._links.relay

    def losing(message: LinkRelay, now: object) -> bool:
        lost = message.kind is RelayKind.MOVE and isinstance(decode_move(message.body), kind)
        return True if lost else relay(message, now)  # type: ignore[arg-type]

    network[name].core._links.relay = losing  # type: ignore[method-assign]


def state(network: Network, name: str, reader: Mover) -> MoveState:
    return network[name].core._moves.state(reader.id)


def is_clean(network: Network) -> bool:
    every = [network[name].core._moves for name in "ambc"]
    return not any(
        each.asking or each.departures.left or each.arrivals.arriving or each.arrivals.finishing for each in every
    )


def gaps(network: Network, reader: Mover) -> list[Gap]:
    return [each for each in network[reader.home].messages(reader.connection) if isinstance(each, Gap)]


@pytest.mark.parametrize("crash", [False, True])
def test_a_session_whose_broker_is_gone_begins_anew_and_gets_the_rest_late(crash: bool) -> None:
    network, reader, writer = stage()
    network.cut("m", "a")
    reader.connection = ""
    reader.greet("b", abandon=1_000)
    network.wait(SECOND // 2)
    reader.look()
    assert not reader.is_welcome, "the client is patient"
    network.wait(SECOND)
    reader.look()
    assert reader.is_welcome
    assert state(network, "b", reader) is MoveState.HOME
    assert reader.welcome.subscriptions == (), "nobody has told b what it wants: the client subscribes, and sees a gap"
    reader.subscribe(1, "TRUE")
    settle(network, reader, writer)
    writer.publish(x=2)
    settle(network, reader, writer)
    assert reader.shown == [b"p 2"]
    if crash:
        network.crash("b")
        network.dial("m", "b")
        network.dial("b", "c")
        reader.connection = ""
        reader.greet("b")
        settle(network, reader, writer)
    network.dial("m", "a")
    settle(network, reader, writer, rounds=12)
    assert reader.shown == [b"p 2", b"p 1"], "it is late"
    assert state(network, "a", reader) is MoveState.NONE
    writer.publish(x=3)
    settle(network, reader, writer)
    assert reader.shown[2:] == [b"p 3"]
    assert is_clean(network)
    network.check()


def test_a_publisher_begins_another_epoch() -> None:
    network, reader, writer = stage()
    network.cut("b", "c")
    writer.network["m"].cut(writer.connection)
    writer.connection = ""
    network.cut("m", "b")
    network.cut("a", "m")
    writer.greet("c", abandon=1_000)
    network.wait(2 * SECOND)
    writer.look()
    assert writer.is_welcome
    assert (writer.welcome.pub_epoch, writer.welcome.pub_seq) == (2, 0)
    assert reader.is_welcome


@pytest.mark.parametrize("kind", [MoveFlush, MoveChunk])
def test_a_copy_goes_on_with_what_it_has_and_gets_the_rest_late(kind: type) -> None:
    """The old broker dies after it has described the session, or while it hands over what it has."""
    network, reader, writer = stage()
    keep_back(network, "b" if kind is MoveFlush else "a", kind)
    reader.network["a"].cut(reader.connection)
    reader.connection = ""
    reader.greet("b", abandon=1_000)
    network.settle()
    assert state(network, "b", reader) is (MoveState.ARRIVING if kind is MoveFlush else MoveState.FILLING)
    network.cut("m", "a")
    writer.publish(x=2)
    network.wait(3 * SECOND)
    settle(network, reader, writer)
    assert reader.is_welcome
    assert state(network, "b", reader) is MoveState.HOME
    assert reader.shown == [b"p 2"]
    assert len(gaps(network, reader)) == 1, "the client learns that something may be missing"
    network.crash("a")
    network.dial("m", "a")
    settle(network, reader, writer, rounds=12)
    assert reader.shown == [b"p 2", b"p 1"]
    late = [each for each in network["b"].messages(reader.connection) if isinstance(each, Deliver)][-1]
    assert late.attempt > 1, "it may have been delivered before"
    assert state(network, "a", reader) is MoveState.NONE
    assert is_clean(network)
    network.check()


def test_a_broker_that_answers_slowly_is_not_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other chunk is lost: all takes longer than the client is patient, without a long silence."""
    in_small_parts(monkeypatch)
    network, reader, writer = stage()
    for _ in range(30):
        writer.publish(x=1)
    network.settle()
    a = network["a"].core
    relay, times = a._links.relay, count()

    def slow(message: LinkRelay, now: object) -> bool:
        chunk = message.kind is RelayKind.MOVE and isinstance(decode_move(message.body), MoveChunk)
        return True if chunk and next(times) % 2 == 0 else relay(message, now)  # type: ignore[arg-type]

    a._links.relay = slow  # type: ignore[method-assign]
    reader.network["a"].cut(reader.connection)
    reader.connection = ""
    reader.greet("b", abandon=1_000)
    network.wait(SECOND)
    network.wait(SECOND)
    assert state(network, "b", reader) is MoveState.FILLING
    network.wait(6 * SECOND)
    settle(network, reader, writer, rounds=6)
    assert len(reader.shown) == 31
    assert "sessions abandoned" not in network["b"].core.counts


def test_the_old_broker_does_not_welcome_a_client_that_has_gone_on_elsewhere() -> None:
    network, reader, writer = stage()
    network.cut("m", "a")
    reader.connection = ""
    reader.greet("b", abandon=1_000)
    network.wait(2 * SECOND)
    settle(network, reader, writer)
    assert reader.home == "b"
    reader.subscribe(1, "TRUE")
    settle(network, reader, writer)
    again = reader.greet("a")
    network.settle()
    closed = [each for each in network["a"].messages(again) if isinstance(each, Bye)]
    assert [each.code for each in closed] == ["moving"], "a has the session still, as it was"
    assert "has gone on at b" in closed[0].reason
    network.dial("m", "a")
    settle(network, reader, writer, rounds=12)
    assert state(network, "a", reader) is MoveState.NONE
    reader.greet("a")
    settle(network, reader, writer, rounds=6)
    assert (reader.home, reader.is_welcome) == ("a", True), "now it comes as from anywhere"
    assert is_clean(network)


def test_a_session_that_moves_on_gives_up_what_would_come_late() -> None:
    network, reader, writer = stage()
    network.cut("m", "a")
    reader.connection = ""
    reader.greet("b", abandon=1_000)
    network.wait(2 * SECOND)
    settle(network, reader, writer)
    reader.subscribe(1, "TRUE")
    settle(network, reader, writer)
    reader.move("c")
    settle(network, reader, writer)
    assert reader.home == "c"
    network.dial("m", "a")
    settle(network, reader, writer, rounds=12)
    assert {name: state(network, name, reader) for name in "ambc"} == {
        "a": MoveState.NONE,
        "m": MoveState.NONE,
        "b": MoveState.NONE,
        "c": MoveState.HOME,
    }
    assert is_clean(network)
    writer.publish(x=2)
    settle(network, reader, writer)
    assert reader.shown == [b"p 2"]


def test_a_broker_that_was_restored_from_a_backup_forgets_a_session_that_had_left() -> None:
    network, reader, writer = stage()
    a = network["a"]
    backup = a.log.backup("another log")
    reader.move("b")
    settle(network, reader, writer)
    assert reader.home == "b"
    for near, far in [(near, far) for near, far in network.wires.items() if near.broker == "a"]:
        network._forget(near, far)
        network[far.broker].cut(far.connection)
    a.driver.stop()
    a.start(backup)
    network.dial("m", "a")
    settle(network, reader, writer)
    assert state(network, "a", reader) is MoveState.HOME, "as it was then"
    reader.greet("a")
    settle(network, reader, writer)
    reader.greet("a")
    settle(network, reader, writer, rounds=8)
    assert (reader.home, reader.is_welcome) == ("a", True)
    assert state(network, "b", reader) is MoveState.NONE
    assert is_clean(network)


@pytest.mark.parametrize("moved_on", [False, True])
@pytest.mark.parametrize("kind", [MoveFlush, MoveChunk])
def test_a_broker_that_was_restored_in_the_middle_of_a_move_goes_on_with_what_it_has(
    kind: type, moved_on: bool
) -> None:
    """The old broker has handed over everything, and has forgotten it."""
    network, reader, writer = stage()
    sender = "b" if kind is MoveFlush else "a"
    relay = network[sender].core._links.relay
    keep_back(network, sender, kind)
    reader.move("b")
    network.settle()
    backup = network["b"].log.backup("another log")
    network[sender].core._links.relay = relay  # type: ignore[method-assign]
    settle(network, reader, writer)
    assert state(network, "b", reader) is MoveState.HOME
    if moved_on:
        reader.move("c")
        settle(network, reader, writer)
    for near, far in [(near, far) for near, far in network.wires.items() if near.broker == "b"]:
        network._forget(near, far)
        network[far.broker].cut(far.connection)
    network["b"].driver.stop()
    network["b"].start(backup)
    network.dial("m", "b")
    network.dial("b", "c")
    if not moved_on:
        reader.connection = ""
    for _ in range(3):
        reader.greet("b")
        settle(network, reader, writer, rounds=4)
    assert (reader.home, reader.is_welcome) == ("b", True)
    assert {name: state(network, name, reader) for name in "ambc"} == {
        "a": MoveState.NONE,
        "m": MoveState.NONE,
        "b": MoveState.HOME,
        "c": MoveState.NONE,
    }
    assert is_clean(network)
    writer.publish(x=9)
    settle(network, reader, writer)
    assert reader.shown[-1] == b"p 2"


def test_a_session_may_be_changed_again_when_the_broker_that_asked_for_it_has_forgotten_that() -> None:
    """It has crashed before it stored a copy, and the client stays where it is."""
    network, reader, writer = stage()
    relay = network["a"].core._links.relay
    keep_back(network, "a", MovedSession)
    connection = reader.connection
    reader.greet("b")
    network.settle()
    network.crash("b")
    network.dial("m", "b")
    network.dial("b", "c")
    network["a"].core._links.relay = relay  # type: ignore[method-assign]
    reader.pending = None
    [refused] = network["a"].say(connection, Subscribe(SubNumber(2), "x = 1", QueueNumber(2)))
    assert isinstance(refused, Failed)
    assert refused.code == "moving"
    for _ in range(2):
        network.wait(31 * SECOND)
    assert not network["a"].core._sessions.by_name["r"].is_moving
    reader.subscribe(2, "x = 1")
    settle(network, reader, writer)
    assert len(network["a"].core._sessions.by_name["r"].subs) == 2
    reader.move("b")
    settle(network, reader, writer)
    assert reader.home == "b"
