"""Balance: an overloaded broker invites others to take sessions over, and nobody moves when the load is equal."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.moving import Mover, network_of, settle
from broker.network import Network
from weft.broker.limits import BalanceLimits
from weft.broker.moves.balance import SessionLoad, chosen
from weft.broker.moves.states import MoveState
from weft.protocol.messages import Hello, Publish

LIMITS = BalanceLimits()
SECOND = 1_000_000

rates = st.lists(st.floats(0, 100), max_size=30)


@given(rates, st.lists(st.floats(0, 1_000), min_size=1, max_size=4))
def test_whatever_is_chosen_nobody_gets_too_much_and_the_broker_keeps_enough(
    own: list[float], others: list[float]
) -> None:
    loads = {"here": sum(own), **{f"b{n}": load for n, load in enumerate(others)}}
    found = chosen("here", loads, [SessionLoad(f"s{n}", rate) for n, rate in enumerate(own)], LIMITS)
    mean = sum(loads.values()) / len(loads)
    after = dict(loads)
    for session, broker in found:
        rate = own[int(session[1:])]
        after["here"] -= rate
        after[broker] += rate
    assert len({session for session, _ in found}) == len(found) <= LIMITS.most
    if loads["here"] <= LIMITS.above * mean:
        assert found == []
    for broker in {broker for _, broker in found}:
        assert after[broker] <= LIMITS.until * mean + 1e-6
    if found:
        assert after["here"] >= (2 - LIMITS.until) * mean - 1e-6


@given(st.floats(1, 1e6), st.integers(2, 6), st.randoms(use_true_random=False))
def test_loads_that_differ_little_move_nobody(load: float, brokers: int, rng: Random) -> None:
    loads = {f"b{n}": load * rng.uniform(0.95, 1.05) for n in range(brokers)}
    for name in loads:
        assert chosen(name, loads, [SessionLoad("s", load / 100)] * 50, LIMITS) == []


def stage(*numbers: int) -> tuple[Network, list[Mover]]:
    """Three brokers with so many sessions each, whose clients are away, and a publisher each."""
    network = network_of("a", "b", "c")
    readers: list[Mover] = []
    for name, number in zip("abc", numbers, strict=True):
        for _ in range(number):
            reader = Mover(network, f"r{len(readers)}", name)
            reader.subscribe(1, f"x = {len(readers)}")
            readers.append(reader)
    for name in "abc":
        network[name].connect("p")
        network[name].say("p", Hello())  # without a name: it cannot be moved
    settle(network, rounds=1)
    for reader in readers:
        network[reader.home].cut(reader.connection)
    for name in "abc":
        node = network[name]
        node.call(lambda now, node=node, name=name: node.core.balance(True, f"weft://{name}", LIMITS, now))  # type: ignore[misc]
    return network, readers


def run(network: Network, readers: list[Mover], *seconds: int) -> None:
    """Each session gets three events a second, one of each publisher."""
    for second in range(*seconds):
        first = 1 + second * len(readers)
        for name in "abc":
            network[name].say("p", *(Publish.of(first + n, {"x": n}, b"") for n in range(len(readers))))
        network.wait(SECOND)


def homes(network: Network, readers: list[Mover]) -> dict[str, int]:
    found = dict.fromkeys("abc", 0)
    for reader in readers:
        [home] = [name for name in "abc" if network[name].core._moves.state(reader.id) is MoveState.HOME]
        found[home] += 1
    return found


def moved(network: Network) -> dict[str, int]:
    return {name: network[name].core.counts.get("sessions moved to balance", 0) for name in "abc"}


SLOW = pytest.mark.slow
SPREADS = [(27, 2, 1), pytest.param((2, 27, 1), marks=SLOW), pytest.param((14, 15, 1), marks=SLOW)]


@pytest.mark.parametrize("numbers", SPREADS)
def test_within_a_minute_no_broker_has_more_than_1_3_times_the_mean(numbers: tuple[int, int, int]) -> None:
    network, readers = stage(*numbers)
    run(network, readers, 40)
    found, before = homes(network, readers), moved(network)
    assert max(found.values()) <= 1.3 * len(readers) / 3
    assert sum(before.values()) <= 27, "nothing goes back and forth"
    run(network, readers, 40, 60)
    assert moved(network) == before, "it is quiet then"
    network.check()


def test_with_equal_load_nobody_moves() -> None:
    network, readers = stage(10, 10, 10)
    run(network, readers, 40)
    assert homes(network, readers) == {"a": 10, "b": 10, "c": 10}
    assert not any(moved(network).values())


def test_a_broker_that_does_not_take_part_is_not_given_anything() -> None:
    network, readers = stage(9, 1, 1)
    network["c"].call(lambda now: network["c"].core.balance(False, "", None, now))
    run(network, readers, 20)
    assert homes(network, readers) == {"a": 5, "b": 5, "c": 1}


def test_a_session_that_has_come_rests() -> None:
    network, readers = stage(9, 1, 1)
    run(network, readers, 20)
    came = network["c"].core._moves.arrivals.came
    assert came.keys() == {
        reader.id
        for reader in readers
        if reader.home != "c" and network["c"].core._moves.state(reader.id) is MoveState.HOME
    }
    assert came
