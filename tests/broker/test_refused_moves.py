"""Moves that are refused: one sentence each, and nothing is changed."""

from __future__ import annotations

from typing import Any

import pytest

from broker.moving import Mover, network_of, settle
from broker.network import Network
from weft.errors import LocalProtocolError
from weft.protocol.link_messages import LinkRelay, RelayKind
from weft.protocol.messages import Bye
from weft.protocol.move_messages import MoveRefused, MoveRequest, decode_move, encode_move

SECOND = 1_000_000


def stage() -> tuple[Network, Mover]:
    network = network_of("a", "m", "b")
    reader = Mover(network, "r", "a")
    reader.subscribe(1, "TRUE")
    settle(network, reader)
    return network, reader


def rows(network: Network) -> list[Any]:
    states = [network[name].log.restore() for name in "amb"]
    return [(state.moves, state.sessions, {*state.subs}) for state in states]


def reasons(network: Network, broker: str, connection: str) -> list[str]:
    return [each.reason for each in network[broker].messages(connection) if isinstance(each, Bye)]


def test_a_broker_on_the_way_that_does_not_know_moves() -> None:
    network, reader = stage()
    network["m"].core._links.probed = lambda *_: None  # type: ignore[method-assign]
    for neighbour in network["b"].core._links.neighbours.values():
        neighbour.knows_moves = False
    before = rows(network)
    connection = reader.greet("b")
    network.wait(30 * SECOND)
    [reason] = reasons(network, "b", connection)
    assert reason == "a broker on the way to a runs an older version of Weft; update it"
    assert rows(network) == before


def test_another_session_of_the_same_name() -> None:
    network, reader = stage()
    other = Mover(network, "r", "b")
    assert other.id != reader.id
    before = rows(network)
    [reason] = reasons(network, "b", reader.greet("b"))
    assert reason == "another session named 'r' is at b; choose another name"
    assert rows(network) == before


def test_a_session_of_another_principal() -> None:
    network, reader = stage()
    a, posted = network["a"], list[Any]()
    a.core._links.relay = lambda relay, _: bool(posted.append(decode_move(relay.body)))  # type: ignore[method-assign]
    before = rows(network)
    body = encode_move(MoveRequest(reader.id, 9 * reader.epoch, "r", "eve"))

    def receive(now: Any) -> list[Any]:
        a.core._begin(now)
        a.core._moves.receive(LinkRelay("a", "b", body, kind=RelayKind.MOVE), now)
        return a.core._finish(now)

    a.call(receive)
    [refused] = posted
    assert isinstance(refused, MoveRefused)
    assert (refused.code, refused.reason) == ("owner", "the session belongs to another principal")
    assert rows(network) == before


@pytest.mark.parametrize(
    ("name", "broker", "reason"),
    [
        ("q", "b", "there is no session 'q' here; `weft sessions` lists all"),
        ("r", "a", "session 'r' is at a already"),
        ("r", "z", "z is not in the network of a; name a broker that is"),
        ("r", "", "a broker without a name is not in the network of a; name a broker that is"),
    ],
)
def test_what_an_operator_asks_for(name: str, broker: str, reason: str) -> None:
    network, _ = stage()
    a, before = network["a"], rows(network)
    with pytest.raises(LocalProtocolError) as refused:
        a.call(lambda now: a.core.invite(name, broker, "weft://b", now))
    assert str(refused.value) == reason
    assert rows(network) == before


def test_a_session_that_moves_already() -> None:
    network, reader = stage()
    a, b = network["a"], network["b"]
    b.at_once = False
    reader.move("b", make_before_break=True)
    network.settle(but="b")
    with pytest.raises(LocalProtocolError, match="session 'r' is moving already; wait until it has"):
        a.call(lambda now: a.core.invite("r", "m", "weft://m", now))
    b.at_once = True
    settle(network, reader)
    assert reader.home == "b"
