"""Short runs of `make chaos`."""

from __future__ import annotations

import pytest

from server.chaos import run_chaos
from server.moving_chaos import run_chaos as run_moving_chaos


@pytest.mark.slow
def test_a_broker_that_is_killed_among_three_loses_nothing(tmp_path):
    figures = run_chaos(1, seed=1, place=tmp_path, pause=0.2)
    assert figures["events confirmed"] > 20
    assert figures["deliveries"] > figures["events confirmed"]
    assert figures["reconnects"] > 0


@pytest.mark.slow
def test_brokers_that_are_killed_ten_times_lose_nothing(tmp_path):
    assert run_chaos(10, seed=2, place=tmp_path)["reconnects"] > 10


@pytest.mark.slow
def test_brokers_that_are_killed_in_each_state_of_a_move_lose_nothing(tmp_path):
    figures = run_moving_chaos(tmp_path, kills=4, moves=40, clients=8, rate=400)
    assert figures["moves"] >= 40
    assert sum(figures["kills"].values()) == 8, "in all, and by state"
