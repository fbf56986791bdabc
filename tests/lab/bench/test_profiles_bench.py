"""The profiles benchmark runs, tiny: its figures are there, and what is preloaded is not compared."""

from __future__ import annotations

from weft.algebra.profile import Meeting
from weftlab.bench import profiles


def test_the_profiles_benchmark_measures_its_figures(monkeypatch) -> None:
    monkeypatch.setattr(profiles, "_CHECKED", 20)
    monkeypatch.setattr(profiles, "_CHANGES", 5)
    told: list[str] = []
    results = [*profiles._changes(Meeting.OVERLAP, 40, told.append), *profiles._patterns(20, told.append)]
    found = {result.name: result for result in results}
    assert found["overlap/40/pairs"].value > 0
    assert found["overlap/40/change_ms"].goal == 2.0
    assert found["preloaded/20/comparisons"].ok
    assert told
