"""Recordings of fault runs: the state that a player computes is the simulator's own, at every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weft.recording import Recording, RunRecorder, RunState
from weftlab.faults.campaign import Setting, run_seed
from weftlab.faults.moving_world import MovingWorld
from weftlab.faults.recorded import FaultsWatch, meta_of, record_faults, state_of
from weftlab.faults.world import World


class Spy(RunRecorder):
    """Keeps the simulator's own state at each step."""

    def __init__(self, path: Path, world: Any) -> None:
        super().__init__(path, meta_of(world), every=16)
        self.world, self.states = world, list[RunState]()

    def step(self, at: int, phase: str, body: Any) -> None:
        super().step(at, phase, body)
        self.states.append(state_of(self.world))


@pytest.mark.parametrize(
    "setting",
    [
        Setting(steps=40),
        Setting(steps=30, network=True, brokers=4, model="covering", advertised=True),
        Setting(steps=30, network=True, brokers=3, model="mics", advertised=False),
        Setting(steps=30, network=True, moves=True),
    ],
    ids=["one", "covering", "mics", "moves"],
)
def test_the_state_of_a_player_is_that_of_the_simulator(tmp_path: Path, setting: Setting) -> None:
    plan = setting.plan(5)
    world = MovingWorld(plan) if setting.moves else World(plan)
    with Spy(tmp_path / "run.weftrun", world) as recorder:
        FaultsWatch(world, recorder).look("begin")
        outcome = world.run()
    recording = Recording(tmp_path / "run.weftrun")
    assert recording.size == len(recorder.states) > 50
    for number, state in enumerate(recorder.states, 1):
        assert recording.state(number) == state
    assert outcome.trace.digest() == run_seed(5, setting).trace.digest(), "recording changes nothing"
    assert any(state.tables for state in recorder.states)
    assert {"up", "down"} <= {each for state in recorder.states for each in state.states.values()} or not world.trunks


def test_a_recording_ends_with_the_verdict(tmp_path: Path) -> None:
    outcome = record_faults(Setting(steps=10, network=True, brokers=3).plan(2), tmp_path / "run.weftrun")
    recording = Recording(tmp_path / "run.weftrun")
    *_, last = recording.steps()
    assert last.phase == "end"
    assert last.body["assertions"] == {"every promise is kept": not outcome.failure}
    assert recording.meta["brokers"] == ["b1", "b2", "b3"]
    kinds = {message[2] for step in recording.steps() for message in step.body.get("messages", ())}
    assert {"told", "hello"} <= kinds


def test_a_broken_promise_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "unfinished", lambda _: "something")
    outcome = record_faults(Setting(steps=5, network=True, brokers=3).plan(2), tmp_path / "run.weftrun")
    assert outcome.failure
    *_, last = Recording(tmp_path / "run.weftrun").steps()
    assert last.body["assertions"] == {"every promise is kept": False}
    assert last.body["note"] == outcome.failure
