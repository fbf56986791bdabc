"""Recordings: the state that a player computes is the simulator's own, at every step."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from weft.errors import WeftError
from weft.recording import Recording, RunRecorder, RunState, no_state
from weftlab.mobility.campaign import NetworkSettings, prepared
from weftlab.mobility.light import LightWorld
from weftlab.mobility.protocols import PROTOCOLS
from weftlab.mobility.recorded import body_of, record_run, state_of
from weftlab.mobility.script import Movers, busy

SCENE = prepared(NetworkSettings(areas=2, routers=4), busy(moves=8, movers=Movers.BOTH), 1)


def rows(path: Path) -> list[Any]:
    with sqlite3.connect(path) as opened:
        return [opened.execute(f"SELECT * FROM {table}").fetchall() for table in ("run", "step", "keyframe")]


def test_the_state_of_a_player_is_that_of_the_simulator(tmp_path: Path) -> None:
    tree, script = SCENE
    states: dict[int, RunState] = {}
    steps = 1
    with RunRecorder(tmp_path / "run.weftrun", {}, every=16) as recorder:
        recorder.step(0, "begin", {"streams": {each.name: each.at for each in script.clients}})

        def watch(now: int, what: str, facts: dict[str, Any]) -> None:
            nonlocal steps
            steps += 1
            recorder.step(now, "", body_of(what, facts))
            if what in ("learn", "arrive") and steps % 3 == 0:
                states[steps] = state_of(world)

        world = LightWorld(tree, script, PROTOCOLS["weft"].kind, watch)
        world.run()
    recording = Recording(tmp_path / "run.weftrun")
    assert recording.size == steps
    assert len(states) > 20
    for number, state in states.items():
        assert recording.state(number) == state
    assert recording.state(steps) == state_of(world)
    assert recording.state(0) == no_state()


def test_the_same_run_gives_the_same_rows(tmp_path: Path) -> None:
    for name in ("one", "other"):
        row = record_run("acyclic", *SCENE, tmp_path / f"{name}.weftrun")
        assert row.failures == []
    assert rows(tmp_path / "one.weftrun") == rows(tmp_path / "other.weftrun")
    recording = Recording(tmp_path / "one.weftrun")
    assert recording.meta["protocol"] == "acyclic"
    *_, last = recording.steps()
    assert last.body["assertions"] == {"5.1": True, "5.2": True, "bounds": True}
    assert last.body["figures"]["lost events"] == 0
    assert last.body["figures"]["brokers updated"] <= last.body["figures"]["updated at most"]
    assert {"leave", "arrive", "finish"} <= {step.phase for step in recording.steps()}


def test_what_is_not_a_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeftError, match="there is no recording"):
        Recording(tmp_path / "none.weftrun")
    (tmp_path / "text.weftrun").write_text("not a database, and long enough to be looked at " * 40)
    with pytest.raises(WeftError, match="is not a recording"):
        Recording(tmp_path / "text.weftrun")
    record_run("weft", *SCENE, tmp_path / "run.weftrun")
    with pytest.raises(WeftError, match="there is no step 9999999"):
        Recording(tmp_path / "run.weftrun").state(9_999_999)
