"""Fuzzing for cost: `make fuzz`, or `python fuzz/cost.py -max_total_time=60`. Law: no legal filter, pair of filters or
event takes more work than the limits allow, and no operation of a routing table on such filters.

An input is a recipe for a filter, a pair, an event, or a table of some model: a few tests, each repeated often. Work is
counted in steps, which the budget counts, and in lines of Python, which also finds what forgets to spend. The fuzzer is
guided by both: each power of the fourth root of two that they reach is a branch of its own, so that more work is new
coverage.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from tempfile import gettempdir
from typing import Any

import atheris

import weft.kernels

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # where work is measured
for kernels in iter_modules(weft.kernels.__path__):  # before anything is instrumented, which numba could not compile
    import_module(f"weft.kernels.{kernels.name}")

with atheris.instrument_imports(include=["weft"]):
    import weft.algebra.columns  # with numpy: importing it is not the work of a filter
    from weft.algebra.budget import Budget
    from weft.algebra.normalize import normalize
    from weft.algebra.relate import covers, overlaps
    from weft.algebra.stored import from_stored, to_stored
    from weft.errors import WeftError
    from weft.kernels.jit import load
    from weft.language.text import parse
    from weft.model.event import Event
    from weft.model.limits import LIMITS
    from weft.routing.registry import MODELS

    from measured_work import measured  # isort: skip
    from table_work import ALLOWED, table_work  # isort: skip

LINES_A_STEP = 25  # lines of Python that a step may take, over a whole operation
FREE_LINES = 400_000  # lines that take no steps: reading a long text takes as many

NAMES = ("a", "b", "s", "x{n}", "a{m}", "b{k}")
BOUNDED = ("x", "y", "z", "n", "s", "a{m}")  # with the attributes of the schema of tables of cells
NUMBERS = ("{n}", "{m}", "1", "{n}.5", "-{k}")
WORDS = (
    *("a{n}", "%{n}%", "%a%{n}%", "a%{n}", "%{n}_z%", "_{n}%", "%ab%ab%{n}%", "%{m}b%{n}a%", "%a_%", "%a%a%a%a{m}%"),
    *("%0000000000000000{n}%0000000000000000", "%{n}" + "a_%" * 600),
)
TESTS = (
    "{name} = {number}",
    "{name} != {number}",
    "{name} < {number}",
    "{name} BETWEEN {number} AND 999",
    "{name} IN ({number}, 3, 7)",
    "{name} NOT IN ({number}, 'b')",
    "{name} LIKE '{word}'",
    "{name} NOT LIKE '{word}'",
    "{name} ILIKE '{word}'",
    "{name} NOT ILIKE '{word}'",
    "cidr({name}, '10.{{k}}.0.0/16')",
    "NOT cidr({name}, '10.{{m}}.{{k}}.0/24')",
    "time_like({name}, '{word}')",
    "NOT time_like({name}, '{word}')",
    "{name} < {other}",
    "{name} IS NULL",
    "{name}",
)
TIMES = (1, 2, 3, 5, 8, 20, 60, 200, 250, 1000, 4000)
WRAPS = ("({})", "NOT ({})", "({}) IS NULL", "(({}) IS NOT TRUE)")
SEEDS = (
    b"\0\1\1\5\0\0\0\1\0\7\0",
    b"\1\1\2\6\2\1\2\3\0\7\1\1\1\2\6\2\1\2\3\0\7\0",
    b"\2\5\40\3\7",
    b"\0\2\3\7\2\0\2\0\1\11\1\0",
    *(bytes((3, model, 1, 0, 2, 3, 0, 0, 0, 0, 3, 1, 1, 0, 0, 3, 2, 2, 0, 0, 0, 1, 7, 0)) for model in range(9)),
)


class Recipe:
    """Bytes that choose, one after the other; when they end, the first choice is taken."""

    def __init__(self, data: bytes) -> None:
        self._data = iter(data)

    def choose(self, among: tuple[Any, ...]) -> Any:
        """One of some."""
        return among[next(self._data, 0) % len(among)]

    def number(self, most: int) -> int:
        """A number from 0 to less than `most`."""
        return next(self._data, 0) % most


def filter_text(recipe: Recipe, names: tuple[str, ...] = NAMES) -> str:
    """A legal text, or one that is too long and is cut."""
    parts = []
    for _ in range(1 + recipe.number(3)):
        unit = []
        for _ in range(1 + recipe.number(3)):
            test = recipe.choose(TESTS)
            name, other = recipe.choose(names), recipe.choose(names)
            unit.append(test.format(name=name, other=other, number=recipe.choose(NUMBERS), word=recipe.choose(WORDS)))
        inner, outer = recipe.choose((" AND ", " OR ")), recipe.choose((" AND ", " OR "))
        group, times = inner.join(unit), recipe.choose(TIMES)
        many = [f"({group.format(n=n, m=n % 7, k=n % 50)})" for n in range(times)]
        while sum(map(len, many)) + 6 * len(many) > LIMITS.text // 3:
            many = many[: len(many) * 3 // 4]
        parts.append(recipe.choose(WRAPS).format(outer.join(many)))
    return str(recipe.choose((" AND ", " OR ")).join(parts))


def event_of(recipe: Recipe) -> dict[str, Any]:
    """A nested mapping with long names and texts."""
    inner: Any = {f"k{n}": "x" * (1 << recipe.number(12)) for n in range(1 << recipe.number(13))}
    for level in range(recipe.number(110)):
        inner = {f"{level}" + "n" * (1 << recipe.number(12)): inner}
    return {"top": inner}


def _reaching(name: str) -> Callable[[float], int]:
    """A function with a branch for each level of work that is reached."""
    source = f"def {name}(amount):\n    level = 0\n"
    for level in range(100):
        source += f"    if amount > {2 ** (level / 4)}:\n        level = {level}\n"
    found: dict[str, Any] = {}
    exec(source, found)
    reached: Callable[[float], int] = atheris.instrument_func(found[name])
    return reached


TABLES = tuple(MODELS)
REACHED = {
    name: (_reaching(f"steps_{at}"), _reaching(f"lines_{at}"))
    for at, name in enumerate(
        ("admission", "pair", "event", *(f"{model}, {operation}" for model in TABLES for operation in ALLOWED))
    )
}


def count(
    name: str,
    steps: int,
    lines: int,
    most: tuple[int, int] = (LIMITS.steps + 1, FREE_LINES + LINES_A_STEP * LIMITS.steps),
) -> None:
    """Tell the fuzzer how much work it was; fail above the budget."""
    for reached, amount in zip(REACHED[name], (steps, lines), strict=True):
        reached(amount)
    assert steps <= most[0], f"{name}: {steps} steps"
    assert lines <= most[1], f"{name}: {lines} lines for {steps} steps"


def admitted(text: str) -> Any:
    """The normal form of a text, or None if it is refused."""
    tree, _, lines = measured(lambda: parse(text))
    assert lines <= 2 * FREE_LINES, f"reading takes {lines} lines"
    if isinstance(tree, Exception):
        return None
    budget = Budget()
    form, _, lines = measured(lambda: normalize(tree, budget=budget))
    count("admission", budget.used, lines)
    return None if isinstance(form, Exception) else form


def one_input(data: bytes) -> None:
    """Measure one recipe; its first byte says what it is for."""
    recipe = Recipe(data[1:])
    kind = data[0] % 4 if data else 0
    if kind == 3:
        one_table(recipe)
        return
    if kind == 2:
        given = event_of(recipe)
        made, _, lines = measured(lambda: Event.of(given))
        count("event", 0, lines)
        assert isinstance(made, Exception) or len(made.attributes) <= LIMITS.attributes
        return
    form = admitted(filter_text(recipe))
    if form is None:
        return
    if kind == 0:
        again = from_stored(to_stored(form))
        assert all((event in form) == (event in again) for event in ({}, {"a": 1, "s": "a1b"}, {"x1": 3, "b": "ab1"}))
        return
    other = admitted(filter_text(recipe))
    if other is None:
        return
    for relate in (covers, overlaps):
        budget = Budget()
        lines = measured(lambda relate=relate, budget=budget: relate(form, other, budget=budget)).lines  # type: ignore[misc]
        count("pair", min(budget.used, LIMITS.steps), lines)


def one_table(recipe: Recipe) -> None:
    """Measure every operation of a table of some model with a few filters."""
    model = recipe.choose(TABLES)
    filters = []
    for _ in range(1 + recipe.number(3)):
        try:
            filters.append(parse(filter_text(recipe, BOUNDED)))
        except WeftError:
            continue
    for name, (_, steps, lines) in table_work(model, filters):
        count(f"{model}, {name}", steps, lines, ALLOWED[name])


def main() -> None:
    """Run until told to stop, from the seeds and what earlier runs found, or on the files the command line names."""
    given = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    corpus = Path(gettempdir(), "weft-fuzz-cost")
    corpus.mkdir(exist_ok=True)
    for number, seed in enumerate(SEEDS):
        (corpus / f"seed{number}").write_bytes(seed)
    load()  # compiling is not the work of a filter
    atheris.Setup(sys.argv if given else [*sys.argv, str(corpus)], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
