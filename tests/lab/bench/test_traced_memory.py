"""How benchmarks measure memory: in one place, which waits for other threads before it stops."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

import weft
import weftlab
from weft.index.tree import TreeIndex
from weftlab.bench.traced_memory import TracedMemory


def test_only_one_module_starts_and_stops_tracing() -> None:
    sources = [path for each in (weft, weftlab) for path in Path(each.__path__[0]).rglob("*.py")]
    assert [path.name for path in sources if "import tracemalloc" in path.read_text()] == ["traced_memory.py"]


@pytest.mark.parametrize("fails", [False, True])
def test_other_threads_are_waited_for_while_tracing_goes_on(fails: bool) -> None:
    waited: list[bool] = []

    def settle() -> None:
        waited.append(tracemalloc.is_tracing())

    def measure() -> None:
        with TracedMemory(settle) as traced:
            traced.wait_for(settle)
            if fails:
                raise KeyError
            assert traced.peak_so_far() >= 0

    if fails:
        with pytest.raises(KeyError):
            measure()
    else:
        measure()
    assert waited == [True, True]
    assert not tracemalloc.is_tracing()


def test_an_index_that_rebuilds_in_the_background_is_measured() -> None:
    for _ in range(3):
        with TracedMemory() as traced:
            index = TreeIndex(tail=8, fan=2, large=64)
            for number in range(600):
                index.add(number, f"x > {number} AND y < {number % 7}")  # type: ignore[arg-type]
        assert traced.peak >= traced.kept > 0
