"""Claims and charts, on a small network: every figure gives verdicts, and every chart is well-formed."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from weft.errors import WeftError
from weftlab.mobility import claims as claims_module
from weftlab.mobility.campaign import NetworkSettings, compare, prepared
from weftlab.mobility.charts import Axes, draw_lines, draw_protocols
from weftlab.mobility.claims import FIGURES, MobilityStudy, figures_of
from weftlab.mobility.script import busy

SMALL = NetworkSettings(areas=2, routers=6)


def test_every_figure_gives_verdicts_with_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_module, "SUBSCRIBERS", (5, 20, 50))
    monkeypatch.setattr(claims_module, "PUBLISHERS", (1, 3))
    study = MobilityStudy(SMALL, [1, 2], moves=4)
    found = study.claims()
    assert {each.figure for each in found} == set(FIGURES)
    assert len(found) > 20
    assert all(0 <= each.holds <= each.seeds == 2 for each in found)
    assert {each.verdict for each in found} <= {"holds", "holds in part", "does not hold"}
    by_text = {each.text: each for each in found}
    assert by_text["average costs are below the upper bounds"].verdict == "holds"
    assert by_text["ping/pong is the most expensive"].verdict == "holds"
    study.draw(FIGURES, tmp_path)
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == [f"figure-{name}.svg" for name in ("5.11", "5.12", "5.13", "5.14")]
    for path in tmp_path.iterdir():
        assert "acyclic" in "".join(ElementTree.fromstring(path.read_text()).itertext())


def test_figures_are_named_or_all() -> None:
    assert figures_of("all") == FIGURES
    assert figures_of("5.13, table-5.4") == ("5.13", "table-5.4")
    assert figures_of("") == ()
    with pytest.raises(WeftError, match=r"no claims of '5\.9'"):
        figures_of("5.9")


def test_a_chart_of_protocols_shows_what_is_lost(tmp_path: Path) -> None:
    scenes = [prepared(SMALL, busy(moves=12), seed) for seed in (1, 2)]
    rows = compare(["device", "weft"], scenes)
    draw_protocols(rows, "two protocols", tmp_path / "two.svg")
    texts = list(ElementTree.fromstring((tmp_path / "two.svg").read_text()).itertext())
    assert "device" in texts
    assert rows[0].verdict.startswith("loses")
    assert rows[1].verdict == "safe"
    assert rows[1].failures == []
    assert f"{1e4 * rows[0].total.lost / rows[0].total.due:,.1f}" in texts


def test_a_line_chart_takes_one_seed_and_one_number(tmp_path: Path) -> None:
    for logarithmic in (True, False):
        draw_lines({"a": {5: np.array([3.0])}}, Axes("one", "x", "y", logarithmic), tmp_path / "one.svg")
        assert "<polyline" in (tmp_path / "one.svg").read_text()
