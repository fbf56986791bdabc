"""The most expensive legal filters, pairs and events that are known, and how their cost grows. No figure exceeds what
the limits allow.

Each case is measured at three sizes, in milliseconds of this process's CPU; `growth` is the exponent between the first
and the last size (1 is linear). `before` is what the case took before there was a budget, on the machine that found it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import process_time

import numpy as np

from weft.algebra.merge import merge
from weft.algebra.normalize import normalize
from weft.algebra.relate import covers, overlaps
from weft.errors import WeftError
from weft.language.meaning import matches
from weft.language.text import parse
from weft.model.event import Event
from weft.model.limits import LIMITS
from weft.model.schema import Schema
from weftlab.bench import hostile_routing
from weftlab.bench.hostile_broker import admissions, bounded_schema
from weftlab.bench.hostile_index import INDEX_ROWS, UNITS, IndexRow
from weftlab.bench.hostile_routing import Work
from weftlab.bench.report import Result
from weftlab.bench.traced_memory import TracedMemory

HostileSizes = tuple[int, int, int]

_TEXT = 1_000_000  # characters of a long text


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured, and the seconds that it took before at some of its sizes."""

    name: str
    sizes: HostileSizes
    prepare: Callable[[int], Work]
    goal: float  # milliseconds at the largest size
    before: dict[int, float] = field(default_factory=dict)


def run(quick: bool, progress: Callable[[str], None], sizes: HostileSizes | None = None) -> list[Result]:
    """All figures; `sizes` replaces those of every case."""
    results: list[Result] = []
    for case in CASES:
        progress(case.name.replace("_", " "))
        taken = [_milliseconds(case.prepare(size), 1 if quick else 3) for size in sizes or case.sizes]
        for size, took in zip(sizes or case.sizes, taken, strict=True):
            last = size == case.sizes[-1]
            results.append(Result(f"{case.name}/{size}/cpu", took, "ms", case.goal if last else None, "lower"))
            if size in case.before:
                results.append(Result(f"{case.name}/{size}/before", 1000 * case.before[size], "ms"))
        small, _, large = sizes or case.sizes
        growth = math.log(taken[-1] / taken[0]) / math.log(large / small)
        results.append(Result(f"{case.name}/{large}/growth", growth, "exponent"))
    progress("memory")
    results += _memory(sizes, quick)
    for row in INDEX_ROWS:
        progress(row.name.replace("_", " "))
        results += _index_row(row, quick, sizes)
    return results + admissions(quick, progress)


def _index_row(row: IndexRow, quick: bool, sizes: HostileSizes | None) -> list[Result]:
    """The figures of a row of the index at three sizes, and how the first of them grows."""
    results: list[Result] = []
    chosen = sizes or (row.quick if quick else row.sizes)
    first: list[float] = []
    for size in chosen:
        figures = row.work(size)
        first.append(max(next(iter(figures.values())), 1e-9))
        for name, value in figures.items():
            last = size == row.sizes[-1]
            goal = row.goals.get(name) if last else None
            results.append(Result(f"{row.name}/{size}/{name}", value, UNITS[name], goal, "lower"))
            if size in row.before.get(name, {}):
                results.append(Result(f"{row.name}/{size}/{name}_before", row.before[name][size], UNITS[name]))
    growth = math.log(first[-1] / first[0]) / math.log(chosen[-1] / chosen[0])
    results.append(Result(f"{row.name}/{chosen[-1]}/growth", growth, "exponent"))
    return results


def _milliseconds(work: Work, times: int) -> float:
    """The least of some runs; a refusal is an answer, too."""
    best = math.inf
    for _ in range(times):
        start = process_time()
        with suppress(WeftError):
            work()
        best = min(best, process_time() - start)
    return 1000 * max(best, 1e-6)


def _memory(sizes: HostileSizes | None, quick: bool) -> list[Result]:
    """What remembered shapes take, and the largest admission."""
    results = []
    for name, numbers, work, goal in (
        ("parse_shapes", sizes or ((100, 300, 900) if quick else (500, 1_500, 5_000)), _learn, LIMITS.shapes / 1e6),
        ("admit_in", sizes or (2_500, 5_000, 10_000), lambda number: normalize(parse(_in(number))), 4.0),
    ):
        peaks = []
        for number in numbers:
            with TracedMemory() as traced:
                work(number)
            peaks.append(traced.peak / 1e6)
            results.append(Result(f"{name}/{number}/peak_memory", peaks[-1], "MB", goal, "lower"))
        growth = math.log(peaks[-1] / peaks[0]) / math.log(numbers[-1] / numbers[0])
        results.append(Result(f"{name}/{numbers[-1]}/peak_memory_growth", growth, "exponent"))
    results.append(Result("parse_shapes/5000/peak_memory_before", 627.0, "MB"))
    return results


# -- the cases -------------------------------------------------------------------------------------


def _learn(number: int) -> None:
    for shape in range(number):
        parse(" AND ".join(f"a{shape}_{test} > 5" for test in range(130))[:2_000].rpartition(" AND ")[0])


def _in(number: int) -> str:
    return f"x IN ({','.join(map(str, range(0, 2 * number, 2)))})"


def _admit(text: str) -> Work:
    return lambda: normalize(parse(text))


def _words(number: int, seed: int) -> list[str]:
    return [f"{word:08x}" for word in np.random.default_rng(seed).integers(0, 2**32, number)]


def _nested(leaves: int) -> Work:
    inner: dict[str, object] = {f"k{leaf}": leaf for leaf in range(leaves)}
    for level in range(98):
        inner = {f"{level:05}" * 2_000: inner}
    return lambda: Event.of(inner)


def _match_patterns(number: int) -> Work:
    tree = parse(" OR ".join(f"s LIKE '%{word}_z%'" for word in _words(number, 1)))
    text = np.random.default_rng(2).bytes(_TEXT // 2).hex()
    return lambda: matches(tree, {"s": text})


def _match_holes(number: int) -> Work:
    tree = parse(f"s LIKE '%{'a_' * number}b%'")
    text = "a" * _TEXT
    return lambda: matches(tree, {"s": text})


def _patterns_of_patterns(length: int) -> Work:
    tests = [f"s LIKE '%{word}{'ab%' * length}'" for word in _words(40, 3)]
    return _admit(f"{' AND '.join(tests[:20])} AND ({' OR '.join(tests[20:])})")


def _contains(number: int, seed: int) -> str:
    return " OR ".join(f"s LIKE '%{word}%'" for word in _words(number, seed))


def _unequal(number: int, seed: int) -> str:
    values = np.random.default_rng(seed).integers(0, 10**6, (number, 26)).tolist()
    boxes = (" AND ".join(f"a{n} != {value}" for n, value in enumerate(row)) for row in values)
    return " OR ".join(f"({box})" for box in boxes)


def _pair(relate: Callable[..., bool], one: str, other: str) -> Work:
    forms = normalize(parse(one)), normalize(parse(other))
    return lambda: relate(*forms)


def _cutters(attributes: int, each: int = 30) -> Work:
    wide, narrow = hostile_routing.cutters(attributes, each)
    return lambda: covers(parse(wide), parse(narrow))


def _merge(number: int) -> Work:
    schema = Schema.from_dict({"attributes": {f"x{n}": {"type": "float", "bounds": [0, 1000]} for n in range(5)}})
    rng = np.random.default_rng(6)

    def box() -> str:
        lows = [rng.uniform(0, 800) for _ in range(5)]
        ends = [(low, low + rng.uniform(50, 400)) for low in lows]
        return " AND ".join(f"x{n} BETWEEN {low:.3f} AND {high:.3f}" for n, (low, high) in enumerate(ends))

    forms = [normalize(parse(" OR ".join(f"({box()})" for _ in range(number))), schema) for _ in range(2)]
    return lambda: merge(forms, schema)


def _table(model: str, texts: Callable[[int], list[str]]) -> Callable[[int], Work]:
    return lambda size: hostile_routing.added(model, texts(size))


def _cells(boxes: int) -> Work:
    return hostile_routing.added("mics", hostile_routing.cells(boxes), bounded_schema())


def _slow(model: str, size: int) -> dict[int, float]:
    """What was seen: more than 25 s, in the two models that were tried."""
    return {} if model == "negative" else {size: 25.0}


def _chain(number: int) -> str:
    tests = " OR ".join(f"(a{test % 50} > {test} AND b < {test})" for test in range(number))
    return tests[:65_000].rpartition(" OR ")[0]


CASES = (
    Case("event_nested_keys", (500, 1000, 2000), _nested, 50, {2000: 1.9}),
    Case("match_patterns", (8, 32, 100), _match_patterns, 250, {32: 3.4, 100: 20.0}),
    Case("match_holes", (300, 3_000, 30_000), _match_holes, 500, {30_000: 5.8}),
    Case("admit_in", (2_500, 5_000, 10_000), lambda n: _admit(_in(n)), 50),
    Case(
        "admit_not_equal",
        (1_000, 2_000, 4_000),
        lambda n: _admit(" AND ".join(f"x != {3 * value}" for value in range(n))),
        50,
        {4_000: 3.5},
    ),
    Case("admit_patterns", (30, 100, 300), _patterns_of_patterns, 50, {300: 8.8}),
    Case("admit_comparisons", (375, 750, 1_500), lambda n: _admit(_chain(n)), 50),
    Case("refuse_comparisons", (2_000, 4_000, 8_000), lambda n: _admit(_chain(n)), 50),
    Case("refuse_cutters", (100, 300, 1_000), lambda n: _cutters(n, 50), 50, {1_000: 10.3}),
    Case("covers_patterns", (50, 100, 200), lambda n: _pair(covers, _contains(n, 7), _contains(n, 8)), 100, {200: 4.8}),
    Case(
        "overlaps_patterns",
        (50, 100, 200),
        lambda n: _pair(overlaps, _contains(n, 7), _contains(n, 8)),
        100,
        {200: 1.7},
    ),
    Case(
        "covers_not_equal",
        (8, 16, 24),
        lambda n: _pair(covers, _unequal(n, 1), _unequal(n, 2)),
        100,
        {16: 0.01},
    ),
    Case("covers_cutters", (18, 36, 72), _cutters, 200),
    Case("merge_boxes", (8, 16, 32), _merge, 200, {32: 15.0}),
    Case("mics_cells", (16, 32, 64), _cells, 50, {64: 1.3}),
    Case("route_levels", (1_000, 10_000, 59_049), hostile_routing.levels, 5, {59_049: 0.73}),
    *(
        case
        for model in ("covering", "merging", "negative")
        for case in (
            Case(f"{model}_cutters", (18, 36, 72), _table(model, hostile_routing.cutters), 100),
            Case(
                f"{model}_patterns",
                (60, 120, 250),
                _table(model, hostile_routing.unions_of_patterns),
                150,
                _slow(model, 250),
            ),
            Case(f"{model}_boxes", (30, 60, 125), _table(model, hostile_routing.boxes), 150),
        )
    ),
)
