"""Legal texts of filters that repeat a few tests very often, with other constants and other names each time."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from strategies import EXAMPLES
from weft.model.limits import LIMITS

searching = settings(
    max_examples=15 * EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=EXAMPLES == 1,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target],  # shrinking what is slow takes for ever
)

NAMES = ("a", "b", "s", "x{n}", "a{m}")
BOUNDED = ("x", "y", "z", "n", "s", "a{m}")  # with the attributes of `bounded_schema`
NUMBERS = ("{n}", "{m}", "1", "{n}.5")
WORDS = (
    *("a{n}", "%{n}%", "%a%{n}%", "a%{n}", "%{n}_z%", "_{n}%", "%ab%ab%{n}%", "{n}", "%{m}b%{n}a%", "%a_%", "w{m}%"),
    "%{n}" + "a_%" * 600,
)
LISTS = tuple(", ".join(str(step * n) for n in range(many)) for step, many in ((8, 120), (1, 900), (3, 9_000)))


def tests_of(names: Sequence[str]) -> st.SearchStrategy[str]:
    """One test of an attribute; `{n}` and `{m}` in it are numbered later."""
    name, number, word = st.sampled_from(names), st.sampled_from(NUMBERS), st.sampled_from(WORDS)
    return st.one_of(
        st.builds("{} {} {}".format, name, st.sampled_from(["=", "!=", "<", ">=", ">"]), number),
        st.builds("{} LIKE '{}'".format, name, word),
        st.builds("{} NOT LIKE '{}'".format, name, word),
        st.builds("{} ILIKE '{}'".format, name, word),
        st.builds("{} NOT ILIKE '{}'".format, name, word),
        st.builds("{} BETWEEN {} AND {}".format, name, number, number),
        st.builds("{} BETWEEN {{n}} AND {{n}}{}".format, name, st.sampled_from(["9", ".5"])),
        st.builds("{} IN ({}, {}, 7)".format, name, number, number),
        st.builds("{} IN ({}, {})".format, name, number, st.sampled_from(LISTS)),
        st.builds("{} NOT IN ({}, {})".format, name, number, number),
        st.builds("{} < {}".format, name, name),
        st.builds("{} IS NULL".format, name),
        st.builds("cidr({}, '10.{{m}}.0.0/{}')".format, name, st.integers(8, 16)),
        st.builds("NOT cidr({}, '10.{{m}}.0.0/{}')".format, name, st.integers(8, 16)),
        st.builds("time_like({}, '{}')".format, name, word),
        st.builds("NOT time_like({}, '{}')".format, name, word),
    )


@st.composite
def filter_texts(draw: st.DrawFn, names: Sequence[str] = NAMES) -> str:
    """A text that is as long as is legal, or shorter; one whose tests alone are longer is refused when it is read."""
    connectives = st.sampled_from((" AND ", " OR "))
    parts = []
    many = draw(st.integers(1, 3))
    for _ in range(many):
        unit = draw(st.lists(tests_of(names), min_size=1, max_size=4))
        inner, outer = draw(connectives), draw(connectives)
        group = inner.join(unit)
        times = draw(st.sampled_from((1, 2, 5, 8, 20, 60, 200, 1000)))
        wrap = draw(st.sampled_from(("({})", "NOT ({})", "({}) IS NULL", "(({}) IS NOT TRUE)")))
        parts.append(wrap.format(_repeated(group, outer, times, LIMITS.text // many - 100)))
    return draw(connectives).join(parts)


def _repeated(group: str, between: str, times: int, room: int) -> str:
    """A group with other numbers each time, as often as there is room for it."""
    kept: list[str] = []
    for n in range(times):
        part = f"({group.format(n=n, m=n % 7)})"
        room -= len(part) + len(between)
        if room < 0 and kept:
            break
        kept.append(part)
    return between.join(kept)
