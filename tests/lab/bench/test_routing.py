"""The routing benchmark runs, tiny: its figures are there, and every model delivers as a scan does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from weft.cli.app import app
from weft.routing.simple.table import SimpleTable
from weftlab.bench import routing
from weftlab.overlay.overlay import MODELS


@pytest.mark.parametrize("names", [("zipf",), pytest.param(routing.NAMES, marks=pytest.mark.slow)], ids="-".join)
def test_the_routing_benchmark_measures_every_figure(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]) -> None:
    for name, few in (("NAMES", names), ("_EVENTS", 100), ("_ROUNDS", 3)):
        monkeypatch.setattr(routing, name, few)
    told: list[str] = []
    results = routing.run(quick=True, progress=told.append, size=60)
    found = {result.name: result for result in results}
    assert len(found) == len(results)
    expected = {f"{name}/60/simple_to_covering" for name in routing.NAMES}
    for model in routing.TOLD:
        figures = ("updates", "told", "held", "change_us", "learn_us")
        expected |= {f"{name}/60/{model}_{figure}" for name in routing.NAMES for figure in figures}
        expected |= {f"route/60/{model}_us", f"route/60/{model}_cpu_us", f"memory/60/{model}_bytes"}
    expected |= {f"chain/60/{model}_{figure}" for model in routing.CHAINED for figure in ("per_s", "cpu_us")}
    table = ("pairs_per_s", "change_us", "learn_us", "removal_us", "bulk_us", "bytes", "longest_call_ms")
    expected |= {f"table/60/{figure}" for figure in table}
    assert found.keys() == expected
    assert all(result.value is not None and result.value > 0 for result in results)
    for name in names:
        assert found[f"{name}/60/simple_told"].value == 60 * (routing.BROKERS - 1)
    assert found["zipf/60/simple_to_covering"].value > 1
    assert found["zipf/60/covering_held"].value < found["zipf/60/simple_held"].value
    goals = {name for name, result in found.items() if result.goal is not None}
    assert goals == {
        "chain/60/covering_per_s",
        *(f"route/60/{model}_us" for model in routing.TOLD),
        *(f"table/60/{figure}" for figure in table[1:]),
    }
    assert told


class Forgetful(SimpleTable):
    """Routes nothing."""

    def route_batch(self, events, source, places=None):
        return {}


def test_a_model_that_delivers_less_than_a_scan_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "simple", Forgetful)
    with pytest.raises(AssertionError, match="simple must deliver as a scan does"):
        routing.run(quick=True, progress=lambda _: None, size=100)


@pytest.mark.slow
def test_it_runs_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (("NAMES", ("zipf",)), ("TOLD", ["simple", "covering"]), ("CHAINED", ("covering",))):
        monkeypatch.setattr(routing, name, few)
    path = tmp_path / "figures.json"
    result = CliRunner().invoke(app, ["bench", "routing", "--size", "60", "--out", str(path)])
    assert result.exit_code == 0, result.output
    assert json.loads(path.read_text())["bench"] == "routing"
