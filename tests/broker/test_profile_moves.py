"""Sessions with profiles move: nobody sees a profile end because of it, and subscribers are shown the difference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.moving import Mover, in_small_parts, network_of, settle
from broker.network import Network
from broker.profile_network import SECOND, Shown, shown
from weft.broker.moves import departures
from weft.protocol.messages import (
    Deliver,
    Failed,
    ProfilePublished,
    PublishProfile,
    Replace,
    Subscribe,
    SubscribeProfiles,
    WithdrawProfile,
)
from weft.protocol.move_messages import tokens_of

Notices = list[tuple[str, str, str]]


class ProfileMover(Mover):
    """A client that remembers the notices that it was shown, each once."""

    def __init__(self, network: Network, name: str, home: str) -> None:
        self.notices: list[Shown] = []
        self.seen: set[tuple[str, int]] = set()
        super().__init__(network, name, home)

    def look(self, *, ack: bool = True) -> None:
        before = self.connection
        super().look(ack=ack)
        if self.connection and self.connection == before and self.welcome is not None:
            for message in self.network[self.home].messages(self.connection):
                if isinstance(message, Deliver):
                    tokens = {(self.welcome.log_id, int(message.offset)), *tokens_of(message.head)}
                    if not tokens & self.seen:
                        self.notices += shown(message)
                    self.seen |= tokens

    def query(self, number: int, text: str, meeting: str = "overlap") -> None:
        self.say(SubscribeProfiles(Subscribe(number, text, number), meeting))

    def publish_profile(self, name: str, text: str, seconds: int = 600, **options: Any) -> None:
        self.say(PublishProfile(1, name, text, seconds * SECOND, **options))

    @property
    def changes(self) -> Notices:
        return [(each.change, each.name, each.reason) for each in self.notices]


@pytest.fixture
def row() -> Iterator[tuple[Network, ProfileMover, ProfileMover, ProfileMover]]:
    """A publisher at a, subscribers at a and c."""
    network = network_of("a", "m", "b", "c")
    clients = (
        ProfileMover(network, "station", "a"),
        ProfileMover(network, "near", "a"),
        ProfileMover(network, "far", "c"),
    )
    station, near, far = clients
    near.query(1, "x >= 0")
    far.query(1, "x >= 0")
    settle(network, *clients)
    yield network, station, near, far
    for name in "ambc":
        core = network[name].core
        core.check()
        assert not core._moves.departures.left
        assert not core._moves.arrivals.arriving
        assert not core._moves.arrivals.finishing


@pytest.mark.parametrize("make_before_break", [False, True])
@pytest.mark.parametrize("to", ["m", "b", "c"])
def test_a_publisher_moves_and_nobody_sees_its_profiles_end(row, to, make_before_break):
    network, station, near, far = row
    station.publish_profile("7", "x BETWEEN 1 AND 5", payload=b"one")
    station.publish_profile("8", "x BETWEEN 1 AND 5")
    settle(network, *row[1:])
    station.move(to, make_before_break=make_before_break)
    settle(network, *row[1:])
    assert station.home == to
    assert near.changes == far.changes == [("appeared", "7", ""), ("appeared", "8", "")]
    assert [len(network[name].core._homes) for name in ("a", to)] == [0, 2]
    assert not network["a"].log.restore().profiles
    station.say(WithdrawProfile(5, "7"))
    station.publish_profile("8", "x BETWEEN 1 AND 6")
    settle(network, *row[1:])
    assert near.changes[2:] == far.changes[2:] == [("ended", "7", "withdrawn"), ("changed", "8", "")]


def test_versions_go_on_above_those_of_the_old_broker(row):
    network, station, *_ = row
    network["a"].pass_time(3_600 * SECOND)
    station.publish_profile("7", "x > 1")
    station.say(WithdrawProfile(5, "7"))
    settle(network, *row[1:])
    station.move("b")
    settle(network, *row[1:])
    network.crash("b")
    for peer in ("m", "c"):
        network.dial("b", peer)
    network.settle()
    station.connection = ""
    station.greet("b")
    settle(network, *row[1:])
    station.publish_profile("7", "x > 1")
    settle(network, *row[1:])
    published = [each for name in "ab" for _, each in network[name].sent if isinstance(each, ProfilePublished)]
    assert published[-1].version > network["a"].core.time - 60 * SECOND


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("make_before_break", [False, True])
def test_a_subscriber_moves_and_is_shown_the_difference(row, monkeypatch, make_before_break, small):
    network, station, near, _ = row
    if small:
        in_small_parts(monkeypatch)
        monkeypatch.setattr(departures, "_SHOWN_AT_ONCE", 1)
    for name in ("stays", "is withdrawn", "changes"):
        station.publish_profile(name, "x BETWEEN 1 AND 5")
    station.publish_profile("expires", "x > 3", seconds=4)
    settle(network, *row[1:])
    assert len(near.notices) == 4
    near.move("c", make_before_break=make_before_break)
    station.say(WithdrawProfile(5, "is withdrawn"))
    station.publish_profile("changes", "x > 3")
    station.publish_profile("new", "x > 4")
    settle(network, *row[1:], rounds=10)
    assert near.home == "c"
    assert sorted(near.changes[4:]) == [
        ("appeared", "new", ""),
        ("changed", "changes", ""),
        ("ended", "expires", "expired"),
        ("ended", "is withdrawn", "withdrawn"),
    ]
    assert not network["a"].log.restore().shown


def test_what_is_not_acknowledged_and_what_a_filter_left_come_once_across_a_move_and_restarts(row):
    network, station, near, _ = row
    station.publish_profile("7", "x BETWEEN 1 AND 5")
    network.settle()  # delivered, and not looked at
    near.say(Replace(1, "x > 8"))
    network.settle()
    near.move("c")
    network.settle()
    network.crash("c")
    network.dial("b", "c")
    network.settle()
    near.connection = ""
    near.greet("c")
    settle(network, *row[1:], rounds=12)
    assert near.changes == [("appeared", "7", ""), ("ended", "7", "left")]


def test_both_move_and_come_back(row):
    network, station, near, far = row
    station.publish_profile("7", "x BETWEEN 1 AND 5")
    settle(network, *row[1:])
    for to in ("b", "c", "a"):
        station.move(to)
        near.move(to)
        settle(network, *row[1:], rounds=8)
    assert near.changes == far.changes == [("appeared", "7", "")]
    assert len(network["a"].core._homes) == 1


def test_a_broker_without_profiles_refuses_the_session_and_the_old_one_goes_on():
    network = network_of("a", "b")
    station = ProfileMover(network, "station", "a")
    station.publish_profile("7", "x > 1")
    network.settle()
    network["b"].core._homes._refusal = "a ring has no profiles; use a network of links"
    station.move("b")
    settle(network, station)
    assert not station.is_welcome
    station.greet("a")
    settle(network, station)
    assert station.home == "a"
    station.say(WithdrawProfile(5, "7"))
    network.settle()
    assert not [each for _, each in network["a"].sent if isinstance(each, Failed)]
