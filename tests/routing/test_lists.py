"""Every table delivers by HAS what `matches` says, lists and values alike, and stops when a subscription ends."""

from __future__ import annotations

import numpy as np
import pytest

from routing.machine import MOST_STEPS
from routing.models import TABLES
from strategies import LIST_EVENTS
from weft.index.base import SubId
from weft.language.meaning import matches
from weft.language.text import parse
from weft.network.tables import BrokerId, TableNetwork
from weft.routing.table import Link

TEXTS = (
    "a HAS 'a'",
    "a HAS ANY ('ab', 1) AND b IS NULL",
    "a HAS ALL ('a', 'b')",
    "NOT a HAS 'a'",
    "a HAS 1 AND b = 'a'",
    "b HAS 'a' OR a HAS TRUE",
    "(a HAS 'zz') IS NULL OR b HAS 2",
    "a HAS LIKE 'a%'",
    "a HAS (>= 1 AND < 2)",
    "a HAS (>= 1 AND < 1.5) AND b IS NULL",
    "a NOT HAS LIKE '%b'",
    "a HAS ((IN ('a', 1)) IS NOT TRUE)",
)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_delivers_what_has_says(name: str) -> None:
    names = [BrokerId(f"b{n}") for n in range(4)]
    network = TableNetwork(names, TABLES[name].make, np.random.default_rng(1))
    for one, other in zip(names[1:], names, strict=False):
        network.attach(one, other)
    filters = {SubId(n): (names[n % 4], parse(text)) for n, text in enumerate(TEXTS)}
    for sub, (home, wanted) in filters.items():
        network.subscribe(home, sub, wanted)
    network.settle(MOST_STEPS)
    events = [*LIST_EVENTS[::3], {"a": "a"}, {"b": 1}, {}]
    for round_ in range(2):
        before = len(network.deliveries)
        for at, event in enumerate(events):
            network.publish(names[at % 4], event)
            network.settle(MOST_STEPS)
        found = sorted(each.sub for each in network.deliveries[before:])
        wanted_subs = sorted(sub for event in events for sub, (_, each) in filters.items() if matches(each, event))
        assert found == wanted_subs, round_
        home, _ = filters.pop(SubId(round_))
        network.unsubscribe(home, SubId(round_))
        network.settle(MOST_STEPS)


def test_among_very_many_values_of_lists_what_covers_a_filter_is_found() -> None:
    here, there = BrokerId("here"), BrokerId("there")
    network = TableNetwork([here, there], TABLES["covering"].make, np.random.default_rng(1))
    network.attach(here, there)
    for n in range(400):
        network.subscribe(here, SubId(n), parse(f"a HAS 'tag {n}'"))
    for n in range(20):
        network.subscribe(here, SubId(1_000 + n), parse(f"a HAS ALL ('tag {n}', 'x') AND b > {n}"))
    network.settle(MOST_STEPS)
    assert len(network.table(here).told(Link(there))) == 400
    network.unsubscribe(here, SubId(7))
    network.settle(MOST_STEPS)
    told = [str(item) for item in network.table(here).told(Link(there)).values()]
    assert len(told) == 400
    assert any("'tag 7'" in each and "b > 7" in each for each in told)
