"""Filters at both ends of a link: equal bit for bit after every update, and switched at the same one, in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from routing.machine import Network, RestartingNetwork
from routing.models import LABELS, PREDICATES, Model, labelled
from strategies import thorough
from weft import Schema, parse
from weft.index.base import SubId
from weft.network.tables import BrokerId, Carried, Direction
from weft.routing.dls.items import Switch
from weft.routing.dls.space import LabelSpace
from weft.routing.dls.structure import FilterShape
from weft.routing.dls.table import DlsTable
from weft.routing.table import Link, Tell, Update
from weft.space import Grid


class Watched(RestartingNetwork):
    """Notes the teller's filter with each update that it sends, and compares when that has arrived."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.sent: Counter[Direction] = Counter()
        self.arrived: Counter[Direction] = Counter()
        self.states: dict[tuple[Direction, int], tuple[int, bytes]] = {}
        self.switches: list[Switch] = []
        self.late = 0  # updates that arrived when the teller had switched once more already
        self.compared = 0

    def _send(self, broker: BrokerId, tells: Iterable[Tell]) -> None:
        tells = list(tells)
        super()._send(broker, tells)
        for tell in tells:
            self.sent[broker, BrokerId(tell.link)] += 1
            self.switches += [note for note in tell.update.notes if isinstance(note, Switch)]
        for link in {tell.link for tell in tells}:
            direction = broker, BrokerId(link)
            last = [tell.update for tell in tells if tell.link == link][-1]
            if (told := self.dls(broker).filter_told(link)) is not None and not last.partial:
                self.states[direction, self.sent[direction]] = told[0], told[1].to_bytes()

    def _arrive(self, direction: Direction, message: Update | Carried) -> None:
        super()._arrive(direction, message)
        if isinstance(message, Update):
            sender, receiver = direction
            self.arrived[direction] += 1
            told = self.states.pop((direction, self.arrived[direction]), None)
            if told is not None:  # not in the midst of several that were told at once
                heard = self.dls(receiver).filter_heard(Link(sender))
                assert heard is not None
                assert (heard[0], heard[1].to_bytes()) == told, "the ends' filters differ after an update"
                self.compared += 1
                now = self.dls(sender).filter_told(Link(receiver))
                self.late += now is not None and now[0] > told[0]

    def _lose(self, direction: Direction) -> None:
        super()._lose(direction)
        self.sent[direction] = self.arrived[direction] = 0
        self.states = {key: state for key, state in self.states.items() if key[0] != direction}

    def dls(self, broker: BrokerId) -> DlsTable:
        table = self.table(broker)
        assert isinstance(table, DlsTable)
        return table


SHAPES = {
    "a counter at first": (FilterShape(2, 1, bits=8), 0.2),
    "few counters of 4 bits": (FilterShape(8, 3), 1.0),  # full at once, and freed by `tidy`
    "some of both": (FilterShape(4, 2), 0.5),
}


@pytest.mark.parametrize("hierarchical", [False, True], ids=["peers", "hierarchy"])
@pytest.mark.parametrize("name", SHAPES)
def test_the_ends_are_equal_after_every_update(name: str, hierarchical: bool) -> None:
    """On the networks of the conformance suite: links come and go, and nothing is lost either."""
    shape, rate = SHAPES[name]
    make = partial(DlsTable, LABELS, predicates=PREDICATES, shape=shape, rate=rate, bundle=2, refresh=True)
    options = {"model": Model(make, admits=labelled), "hierarchical": hierarchical, "network": Watched}
    steps = settings(thorough(4), stateful_step_count=30)
    run_state_machine_as_test(type("Twins", (Network,), options), settings=steps)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_filters_grow_and_shrink_under_updates_and_events_in_flight(seed: int) -> None:
    """Hundreds of labels come and go on a path of brokers, with events between all messages."""
    rng = np.random.default_rng(seed)
    schema = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 100]} for name in ("x", "y")}})
    space = LabelSpace([Grid.uniform(schema, cells=32)])
    names = [BrokerId(name) for name in ("west", "middle", "east", "south")]
    overlay = Watched(names, partial(DlsTable, space, shape=FilterShape(8, 3), rate=0.05, bundle=4), rng)
    for one, other in ((0, 1), (1, 2), (1, 3)):
        overlay.attach(names[one], names[other])
    stays = parse("x BETWEEN 40 AND 60 AND y > 50")
    overlay.subscribe(names[2], SubId(0), stays)
    overlay.settle()
    published = []
    homes: dict[SubId, BrokerId] = {}
    for turn in range(240):
        at = names[int(rng.integers(4))]
        x, y = rng.uniform(0, 90, 2).tolist()
        if turn < 120:
            overlay.subscribe(at, SubId(1 + turn), parse(f"x BETWEEN {x} AND {x + 9} AND y BETWEEN {y} AND {y + 9}"))
            homes[SubId(1 + turn)] = at
        else:
            overlay.unsubscribe(homes[SubId(turn - 119)], SubId(turn - 119))
        published.append(overlay.publish(names[0], {"x": 50, "y": 55.5}))
        for _ in range(int(rng.integers(5))):
            overlay.step()
    overlay.settle()
    overlay.check()
    got = {delivery.number for delivery in overlay.deliveries if delivery.sub == 0}
    assert got == set(published), "an event was lost"
    sizes = [switch.counters for switch in overlay.switches]
    assert max(sizes) > 500
    assert any(later < earlier for earlier, later in pairwise(sizes))
    assert overlay.compared > 200
    assert overlay.late > 0, "no update was in flight when its teller switched once more"
