"""Recordings of overlay runs: the state that a player computes is the simulator's own, at every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.errors import ProtocolError
from weft.language.text import parse
from weft.network.tables import BrokerId, Direction, TableNetwork
from weft.recording import Recording, RunRecorder, RunState
from weftlab.overlay.overlay import Expected, Scenario, scenario, simulate
from weftlab.overlay.recorded import OverlayWatch, meta_of, record_overlay, state_of
from weftlab.overlay.trees import tree

TEXTS = ("x < 5", "x < 3", "x > 4", "x BETWEEN 2 AND 6", "y = 'a'", "x = 1 OR y = 'b'", "x >= 0", "x < 5 AND y = 'a'")


def given(**options: Any) -> Scenario:
    rng = np.random.default_rng(3)
    filters = [parse(TEXTS[n % len(TEXTS)]) for n in range(20)]
    events = [{"x": n % 8, "y": "ab"[n % 2]} for n in range(12)]
    return scenario(tree("random", 6, rng), filters, events, rng, churn=0.4, **options)


class Watch(OverlayWatch):
    """Keeps the tables themselves after each message."""

    def __init__(self, scene: Scenario, recorder: RunRecorder) -> None:
        super().__init__(scene, recorder)
        self.states: dict[int, RunState] = {}

    def moved(self, network: TableNetwork, what: Direction | BrokerId) -> None:
        super().moved(network, what)
        self.states[self._time] = state_of(network, {str(name): dict(held) for name, held in self._local.items()})


@pytest.mark.parametrize("model", ["simple", "covering", "merging"])
@pytest.mark.parametrize("advertised", [False, True])
def test_the_state_of_a_player_is_that_of_the_simulator(tmp_path: Path, model: str, advertised: bool) -> None:
    scene = given(advertised=advertised)
    with RunRecorder(tmp_path / "run.weftrun", meta_of(scene, model, 1), every=8) as recorder:
        watch = Watch(scene, recorder)
        simulate(scene, model, Expected(scene), watch=watch)
    recording = Recording(tmp_path / "run.weftrun")
    assert len(watch.states) > 30
    times = {step.at: step.number for step in recording.steps()}
    for time, state in watch.states.items():
        assert recording.state(times[time]) == state


def test_recording_changes_no_figure_and_the_same_run_gives_the_same_steps(tmp_path: Path) -> None:
    scene = given()
    expected = Expected(scene)
    plain = simulate(scene, "covering", expected)
    runs = [record_overlay(scene, "covering", expected, tmp_path / name) for name in ("one", "other")]
    for run in runs:
        assert (run.messages, run.told, run.deliveries) == (plain.messages, plain.told, plain.deliveries)
    one, other = (list(Recording(tmp_path / name).steps()) for name in ("one", "other"))
    assert one == other
    assert one[-1].body["assertions"] == {"every event reaches its subscribers, and nobody else": True}
    assert {"subscribe", "unsubscribe", "publish", "end"} <= {step.phase for step in one}
    assert sum(len(step.body.get("delivered", ())) for step in one) == plain.deliveries


def test_a_loss_is_recorded(tmp_path: Path) -> None:
    scene = given()
    expected = Expected(scene)
    expected.deliveries.pop()
    with pytest.raises(ProtocolError):
        record_overlay(scene, "covering", expected, tmp_path / "run.weftrun")
    *_, last = Recording(tmp_path / "run.weftrun").steps()
    assert last.body["assertions"] == {"every event reaches its subscribers, and nobody else": False}
    assert "bug" in last.body["note"]
