"""The benchmark of moves runs, tiny, and says what it must."""

from __future__ import annotations

from weftlab.bench import BENCHES, moves


def test_the_benchmark_of_moves_measures_every_figure() -> None:
    results = {each.name: each for each in moves.run(quick=True, progress=lambda _: None)}
    kinds = ("make_before_break", "break_before_make")
    figures = ("unit_ms", "interruption_p50", "interruption_p99")
    assert {*results} == {
        "moves_per_s",
        *(f"{kind}/{figure}" for kind in kinds for figure in figures),
        *(f"holds/{many}/{figure}" for many in (0, 100) for figure in ("bytes", "s")),
        "messages_off_the_path",
    }
    assert all(each.value is not None and (each.value > 0) == (each.goal is None) for each in results.values())
    assert results["holds/100/bytes"].value > results["holds/0/bytes"].value  # type: ignore[operator]
    assert BENCHES["moves"]() is moves.run
