"""The benchmark of hostile filters runs, tiny."""

from __future__ import annotations

import pytest

from weft import normalize, parse
from weft.routing.registry import MODELS
from weftlab.bench import hostile, hostile_broker, hostile_index
from weftlab.bench.hostile_index import INDEX_ROWS


def test_the_hostile_benchmark_measures_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile, "_TEXT", 1_000)
    monkeypatch.setattr(hostile, "INDEX_ROWS", [row for row in INDEX_ROWS if row.name == "index_list"])
    monkeypatch.setattr(hostile, "admissions", lambda *_: [])
    told: list[str] = []
    results = hostile.run(quick=True, progress=told.append, sizes=(2, 3, 4))
    cases = {case.name for case in hostile.CASES}
    assert {result.name.split("/")[0] for result in results} == cases | {"parse_shapes", "index_list"}
    figures = {result.name.split("/")[2] for result in results if result.name.split("/")[0] != "index_list"}
    assert figures == {"cpu", "growth", "peak_memory", "peak_memory_growth", "peak_memory_before"}
    assert len(told) == len(cases) + 2
    assert all(result.value is not None for result in results)
    assert {size for case in hostile.CASES for size in case.before} <= {size for c in hostile.CASES for size in c.sizes}


def test_admission_is_measured_in_a_whole_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile_broker, "MODELS", {model: MODELS[model] for model in ("covering", "dls")})
    filters = {"boxes": lambda n: f"x > {n} AND y < 7 OR s = 'w{n}'", "refused": lambda n: f"x => {n}"}
    monkeypatch.setattr(hostile_broker, "hostile_filters", lambda: filters)
    results = hostile_broker.admissions(quick=True, progress=lambda _: None)
    assert [result.name.split("/")[0] for result in results] == 3 * ["admission_covering"] + 3 * ["admission_dls"]
    assert all(result.value for result in results), "it took time at home and at a neighbour, and memory"


def test_an_admitted_filter_joins_the_index() -> None:
    network = hostile_broker.HostileNetwork("simple")
    for number in range(3):
        network.admit(f"x > {number}")
    assert network.home.core._parts.matcher.flushes == 3
    network.close()


def test_hostile_filters_are_as_long_as_a_text_may_be() -> None:
    texts = [text(1) for text in hostile_broker.hostile_filters().values()]
    assert all(1_000 < len(text) <= 65_536 for text in texts)


@pytest.mark.parametrize("name", ["index_list", "index_attributes", "index_boxes", "index_patterns"])
def test_the_filters_of_an_index_row_are_admitted_at_every_size(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile_index, "_added", lambda text: {"boxes": len(normalize(parse(text)).boxes)})
    (row,) = (row for row in INDEX_ROWS if row.name == name)
    assert all(row.work(size)["boxes"] for size in row.sizes)
