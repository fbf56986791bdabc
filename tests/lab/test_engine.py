"""Simulated time: actions run by time, then priority, then in the order in which they were scheduled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import LocalProtocolError
from weftlab.engine import Engine


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 1)), max_size=30))
def test_actions_run_by_time_then_priority_then_sequence(plan: list[tuple[int, int]]) -> None:
    engine = Engine()
    seen: list[int] = []
    for number, (time, priority) in enumerate(plan):
        engine.at(time, lambda number=number: seen.append(number), priority)
    assert engine.run() == len(plan)
    assert seen == sorted(range(len(plan)), key=lambda number: (*plan[number], number))


def test_an_action_may_schedule_another_at_the_same_instant() -> None:
    engine, seen = Engine(), []
    engine.at(3, lambda: (seen.append("a"), engine.after(0, lambda: seen.append("c"))))
    engine.at(3, lambda: seen.append("b"))
    engine.run()
    assert seen == ["a", "b", "c"]


def test_a_cancelled_action_never_runs_and_does_not_move_time() -> None:
    engine, seen = Engine(), []
    first = engine.at(3, lambda: seen.append("never"))
    engine.at(9, lambda: seen.append("late"))
    first.cancel()
    assert len(engine) == 1
    assert engine.run(until=5) == 0
    assert (engine.now, seen) == (5, [])
    engine.run()
    assert (engine.now, seen) == (9, ["late"])


def test_the_past_is_refused() -> None:
    engine = Engine()
    engine.run(until=5)
    with pytest.raises(LocalProtocolError, match="4 is in the past"):
        engine.at(4, lambda: None)
