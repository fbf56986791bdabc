"""Recordings of rings: the state that a player computes is the simulator's own, at every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weft.errors import OptionError
from weft.recording import Recording, RunRecorder, RunState
from weftlab.ring.recorded import (
    RecordNumbers,
    RingFaultsWatch,
    model_state,
    record_ring,
    record_ring_faults,
    world_state,
)
from weftlab.ring.ring_comparison import RingOptions, compare, designs
from weftlab.ring.ring_faults import RingWorld, plan_of, run_ring, run_ring_world
from weftlab.ring.ring_model import RingModel
from weftlab.ring.ring_workload import RingWorkloadSettings, ring_workload

SMALL = RingWorkloadSettings(nodes=24, ring=256, subscriptions=60, events=20)


class Spy(RunRecorder):
    """Keeps the simulator's own state at each step."""

    def __init__(self, path: Path, world: RingWorld) -> None:
        super().__init__(path, {}, every=16)
        self.world, self.numbers, self.states = world, RecordNumbers(), list[RunState]()

    def step(self, at: int, phase: str, body: Any) -> None:
        super().step(at, phase, body)
        self.states.append(world_state(self.world, self.numbers))


@pytest.mark.parametrize("mode", ["direct", "groups"])
def test_the_state_of_a_player_is_that_of_the_nodes(tmp_path: Path, mode: str) -> None:
    plan = plan_of(3, mode, 8)
    world = RingWorld(plan)
    with Spy(tmp_path / "run.weftrun", world) as recorder:
        RingFaultsWatch(world, recorder)
        run = run_ring_world(world)
    recording = Recording(tmp_path / "run.weftrun")
    assert recording.size == len(recorder.states) > 50
    for number, state in enumerate(recorder.states, 1):
        assert recording.state(number) == state
    assert any("/records/" in name for state in recorder.states for name in state.tables)
    assert any("/fingers/" in name for name in recorder.states[-1].tables)
    assert run.trace.digest() == run_ring(plan).trace.digest(), "recording changes nothing"
    recorded = record_ring_faults(plan, tmp_path / "whole.weftrun")
    *_, last = Recording(tmp_path / "whole.weftrun").steps()
    assert last.body["assertions"] == {"every promise is kept": not recorded.failure}


@pytest.mark.parametrize("name", list(designs(RingOptions())))
def test_the_state_of_a_player_is_that_of_the_model(tmp_path: Path, name: str) -> None:
    workload, design = ring_workload(SMALL, 2), designs(RingOptions(depth=3, rotation=9, threshold=4))[name]
    outcome = record_ring(workload, name, design, 2, tmp_path / "run.weftrun")
    model = RingModel(workload, design, 2)
    plain = model.run()
    assert (plain.cost, plain.hops, plain.matches) == (outcome.cost, outcome.hops, outcome.matches)
    recording = Recording(tmp_path / "run.weftrun")
    assert recording.state(recording.size) == model_state(model)
    hops = [message for step in recording.steps() for message in step.body.get("messages", ()) if message[2] == "event"]
    assert len(hops) == outcome.hops
    stored = dict.fromkeys(range(1, recording.size + 1), 0)
    for number in stored:
        tables = recording.state(number).tables
        stored[number] = sum(len(items) for table, items in tables.items() if table.endswith("subscriptions"))
    assert list(stored.values()) == sorted(stored.values()), "subscriptions are stored one after the other"


def test_only_a_known_design_is_recorded(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="there is no design 'rings'; choose from one cluster"):
        compare(SMALL, RingOptions(), [1], names=["rings"], record=tmp_path / "run.weftrun")
