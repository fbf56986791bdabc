"""The new broker loses its log in the middle of a move: what the old one has goes to whoever asks next."""

from __future__ import annotations

import pytest

from broker.moving import Mover, settle
from broker.network import Network
from broker.test_abandon import SECOND, gaps, is_clean, keep_back, stage, state
from weft.broker.moves.states import MoveState
from weft.errors import LocalProtocolError
from weft.log.memory import MemoryLog
from weft.protocol.move_messages import MoveChunk, MoveEnd


def moving(kept_back: type) -> tuple[Network, Mover, Mover]:
    """The reader has left a with an event that it has not acknowledged, and b does not have everything yet."""
    network, reader, writer = stage()
    relay = network["a"].core._links.relay
    keep_back(network, "a", kept_back)
    reader.move("b")
    network.settle()
    reader.look()
    assert state(network, "a", reader) is MoveState.NONE
    assert state(network, "b", reader) is (MoveState.ARRIVING if kept_back is MoveEnd else MoveState.FILLING)
    assert network["a"].core._moves.departures.left
    network["a"].core._links.relay = relay  # type: ignore[method-assign]
    return network, reader, writer


def lose_log(network: Network, name: str) -> None:
    unplug(network, name)
    network[name].start(MemoryLog("another log"))
    for peer in "mc":
        network[name].attach(peer)
        network.dial(peer, name)
    network.settle()


def unplug(network: Network, name: str) -> None:
    for near, far in [(near, far) for near, far in network.wires.items() if near.broker == name]:
        network._forget(near, far)
        network[far.broker].cut(far.connection)
    network[name].driver.stop()


def finished(network: Network, reader: Mover, writer: Mover, home: str, count: int = 1) -> None:
    """It is there, with what it had and a gap for what it may have missed, and nothing is left over."""
    settle(network, reader, writer, rounds=8)
    assert reader.is_welcome
    assert reader.home == home
    assert reader.shown == [b"p 1"]
    assert len(gaps(network, reader)) == count
    homes = [name for name in "ambc" if state(network, name, reader) is MoveState.HOME]
    assert homes == [home]
    assert is_clean(network)
    writer.publish(x=2)
    settle(network, reader, writer)
    assert reader.shown == [b"p 1", b"p 2"]
    left = network["a"].log.restore()
    assert {sub.session for sub in left.subs.values()} <= {*left.sessions}
    network.check()


@pytest.mark.parametrize("target", ["b", "a", "c"])
@pytest.mark.parametrize("crash", [False, True])
def test_a_client_gets_what_the_old_broker_has(target: str, crash: bool) -> None:
    network, reader, writer = moving(MoveEnd)
    lose_log(network, "b")
    if crash:
        network.crash("a")
        network.dial("m", "a")
    reader.connection = ""
    for _ in range(3):
        if not reader.is_welcome:
            reader.greet(target)
            settle(network, reader, writer, rounds=4)
    finished(network, reader, writer, target)


def test_a_session_that_has_come_again_by_another_way_gets_it_late() -> None:
    network, reader, writer = moving(MoveEnd)
    unplug(network, "b")
    reader.connection = ""
    reader.greet("c", abandon=1_000)  # a says that the session is at b, which is silent
    for _ in range(4):
        settle(network, writer)
    reader.look()
    assert (reader.home, reader.is_welcome) == ("c", True)
    reader.subscribe(1, "TRUE")
    settle(network, reader, writer)
    network["b"].start(MemoryLog("another log"))
    for peer in "mc":
        network["b"].attach(peer)
        network.dial(peer, "b")
    settle(network, reader, writer, rounds=8)
    assert network["a"].core._moves.departures.left
    reader.move("b")
    settle(network, reader, writer, rounds=4)
    assert (reader.home, reader.is_welcome, reader.shown) == ("b", True, [])
    network.wait(31 * SECOND)
    settle(network, reader, writer, rounds=4)
    assert reader.shown == [b"p 1"]
    assert is_clean(network)


def test_an_operator_gives_what_is_left_to_another_broker_if_the_new_one_is_gone() -> None:
    network, reader, writer = moving(MoveEnd)
    a = network["a"]
    for broker in "mb":
        with pytest.raises(LocalProtocolError, match="session 'r' is moving to b; wait until it has"):
            a.call(lambda now, broker=broker: a.core.invite("r", broker, "weft://b", now))
    unplug(network, "b")
    network["m"].call(network["m"].core.detach, "b")
    network.settle()
    network.wait(SECOND)
    a.call(lambda now: a.core.invite("r", "m", "weft://m", now))
    settle(network, writer, rounds=4)
    assert state(network, "m", reader) is MoveState.HOME
    reader.connection = ""
    reader.greet("m")
    settle(network, reader, writer, rounds=4)
    assert reader.shown == [b"p 1"]
    assert not a.core._moves.departures.left


def test_a_reminder_does_no_harm() -> None:
    """The new broker is slow, and is told again and again that the session is its own."""
    network, reader, writer = moving(MoveEnd)
    keep_back(network, "a", MoveChunk)
    for _ in range(3):
        network.wait(31 * SECOND)
    assert network["a"].core._moves.departures.left
    assert state(network, "b", reader) is MoveState.FILLING
    network.crash("a")
    network.dial("m", "a")
    settle(network, reader, writer, rounds=8)
    finished(network, reader, writer, "b", count=0)
