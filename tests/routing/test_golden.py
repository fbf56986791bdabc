"""Every model tells and delivers what it did when the golden runs were recorded."""

from __future__ import annotations

import json

import pytest

from routing.golden import FILE, SEEDS, play
from routing.models import TABLES

FEW = range(1)


def differing(name: str, advertised: bool, seeds: range) -> list[tuple[int, str]]:
    """The seeds with another digest, and of what."""
    golden = json.loads(FILE.read_text())[f"{name}{' with advertisements' if advertised else ''}"]
    delivered, told = golden["delivered"].split(), golden["told"].split()
    found = []
    for seed in seeds:
        now = play(name, advertised, seed)
        found += [(seed, "delivered")] * (now[0] != delivered[seed])
        found += [(seed, "told")] * (now[1] != told[seed])
    return found


@pytest.mark.parametrize("advertised", [False, True], ids=["subscriptions", "advertisements"])
@pytest.mark.parametrize("name", TABLES)
def test_a_few_golden_runs(name: str, advertised: bool) -> None:
    assert differing(name, advertised, FEW) == []


@pytest.mark.slow
@pytest.mark.parametrize("advertised", [False, True], ids=["subscriptions", "advertisements"])
@pytest.mark.parametrize("name", TABLES)
def test_all_golden_runs(name: str, advertised: bool) -> None:
    assert differing(name, advertised, SEEDS) == []
