"""No legal filter costs more than its limits allow: by steps, which are the same on every machine, never by time."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import pytest

from measured_work import measured
from weft import Schema, covers, matches, normalize, overlaps, parse
from weft.algebra.box import Box, NormalForm
from weft.algebra.budget import Budget
from weft.algebra.measure import volume
from weft.algebra.merge import merge, merge_bounding
from weft.algebra.relate import as_form, covers_within, intersect
from weft.algebra.stored import from_stored, to_stored
from weft.algebra.subtract import subtract
from weft.errors import FilterSyntaxError, FilterTooComplexError
from weft.language.dialects import from_json, to_json
from weft.language.pattern import Pattern
from weft.model.limits import LIMITS


def words(number: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [f"{rng.getrandbits(32):08x}" for _ in range(number)]


def contains(number: int, seed: int) -> NormalForm:
    return normalize(parse(" OR ".join(f"s LIKE '%{word}%'" for word in words(number, seed))))


def unequal(boxes: int, attributes: int, seed: int) -> NormalForm:
    rng = random.Random(seed)
    tests = (" AND ".join(f"a{n} != {rng.randrange(10**6)}" for n in range(attributes)) for _ in range(boxes))
    return normalize(parse(" OR ".join(f"({some})" for some in tests)))


def random_boxes(number: int, seed: int, schema: Schema | None = None) -> NormalForm:
    rng = random.Random(seed)
    boxes = []
    for _ in range(number):
        lows = [rng.uniform(0, 800) for _ in range(5)]
        tests = (f"x{n} BETWEEN {low:.3f} AND {low + rng.uniform(50, 400):.3f}" for n, low in enumerate(lows))
        boxes.append(f"({' AND '.join(tests)})")
    return normalize(parse(" OR ".join(boxes)), schema)


BOUNDED = Schema.from_dict({"attributes": {f"x{n}": {"type": "float", "bounds": [0, 1000]} for n in range(5)}})

PAIRS: dict[str, Callable[[], tuple[NormalForm, NormalForm]]] = {
    "unions of patterns": lambda: (contains(200, 1), contains(200, 2)),
    "unions of 250 patterns": lambda: (contains(250, 1), contains(250, 2)),
    "boxes of !=": lambda: (unequal(LIMITS.sets // 26, 26, 1), unequal(LIMITS.sets // 26, 26, 2)),
    "boxes in five dimensions": lambda: (random_boxes(LIMITS.sets // 5, 1), random_boxes(LIMITS.sets // 5, 2)),
    "many attributes": lambda: (unequal(LIMITS.sets // 50, 50, 1), unequal(2, LIMITS.sets // 2, 2)),
    "long lists": lambda: (
        normalize(parse(f"x IN ({','.join(map(str, range(0, 12_000, 2)))})")),
        normalize(parse(f"x IN ({','.join(map(str, range(1, 12_000, 2)))})")),
    ),
    "stairs": lambda: (
        normalize(parse(" OR ".join(f"(a > {n} AND b < {n})" for n in range(250)))),
        normalize(parse(" OR ".join(f"(a >= {n} AND b <= {n})" for n in range(250)))),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_relations_of_hostile_pairs_stay_within_the_budget(name: str) -> None:
    one, other = PAIRS[name]()
    for relate in (covers, overlaps):
        for first, second in ((one, other), (other, one), (one, one)):
            budget = Budget()
            relate(first, second, budget=budget)
            assert budget.used <= LIMITS.steps + 20_000  # a step that is too large ends the work
    assert covers(one, one)
    assert overlaps(one, one)


def test_when_the_budget_is_used_up_the_safe_side_is_taken() -> None:
    wide, narrow = normalize(parse("a > 0 OR b > 0")), normalize(parse("a > 1 AND c = 1 OR b > 1 AND c = 2"))
    assert covers(wide, narrow)
    assert not covers(wide, narrow, budget=Budget(1))
    apart = normalize(parse("a < 0 AND b < 0 AND c = 1 OR a < -1 AND b < -1"))
    assert not overlaps(wide, apart)
    assert overlaps(wide, apart, budget=Budget(0))
    with pytest.raises(FilterTooComplexError, match="more than 3 steps"):
        normalize(parse("a > 0 OR b > 0"), budget=Budget(3))
    with pytest.raises(FilterTooComplexError):
        subtract(narrow.boxes[0], wide.boxes, budget=Budget(1))
    with pytest.raises(FilterTooComplexError):
        intersect(wide, narrow, budget=Budget(1))
    with pytest.raises(FilterTooComplexError):
        volume(random_boxes(8, 1, BOUNDED), BOUNDED, Budget(10))


def test_patterns_take_the_safe_side_too() -> None:
    one, other = contains(30, 1), normalize(parse(" OR ".join(f"s LIKE '%{word}x%'" for word in words(30, 1))))
    assert covers(one, other)
    assert not covers(one, other, budget=Budget(20))
    disjoint = normalize(parse("s LIKE 'a%x' OR s LIKE 'b%x'")), normalize(parse("s LIKE 'c%y' OR s LIKE 'd%y'"))
    assert not overlaps(*disjoint)
    assert overlaps(*disjoint, budget=Budget(0))


@pytest.mark.parametrize("number", [8, 16, 32])
def test_a_merger_of_many_boxes_is_measured(number: int) -> None:
    forms = [random_boxes(number, seed, BOUNDED) for seed in (1, 2)]
    merger = merge(forms, BOUNDED)
    assert merger.added is not None
    assert all(covers(merger.form, form, BOUNDED) for form in forms)


def test_a_merger_that_takes_too_long_to_measure_adds_an_unknown_volume(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = [random_boxes(16, seed, BOUNDED) for seed in (1, 2)]
    monkeypatch.setattr(LIMITS, "steps", 200)
    assert merge_bounding(forms, BOUNDED).added is None
    assert merge(forms, BOUNDED).rule == "bounding"


def steps_of(text: str) -> int:
    budget = Budget(10**9)
    normalize(parse(text), budget=budget)
    return budget.used


@pytest.mark.parametrize(
    "make",
    [
        lambda n: " AND ".join(f"x != {3 * value}" for value in range(n)),
        lambda n: " OR ".join(f"x = {3 * value}" for value in range(n)),
        lambda n: " OR ".join(f"x LIKE 'a{value}%'" for value in range(n)),
        lambda n: " AND ".join(f"x NOT LIKE 'a{value}%'" for value in range(n)),
        lambda n: f"x IN ({', '.join(map(str, range(0, 2 * n, 2)))})",
        lambda n: f"x NOT IN ({', '.join(map(str, range(0, 2 * n, 2)))}) AND x > 5",
        lambda n: " OR ".join(f"x BETWEEN {2 * value} AND {2 * value + 1}" for value in range(n)),
        lambda n: " AND ".join(f"x{value} > 1" for value in range(n)),
    ],
)
def test_long_chains_take_steps_in_proportion_to_their_length(make: Callable[[int], str]) -> None:
    few, many = steps_of(make(125)), steps_of(make(500))
    assert many < 6 * few
    assert many < LIMITS.steps


REFUSED = {
    "patterns of patterns": " AND ".join(f"s LIKE '%{word}{'ab%' * 300}'" for word in words(20, 3))
    + " AND ("
    + " OR ".join(f"s LIKE '%{word}{'ab%' * 300}'" for word in words(20, 4))
    + ")",
    "a list against boxes": f"x IN ({','.join(map(str, range(5_000)))}) AND "
    + f"({' OR '.join(f'x > {n} AND y{n} = 1' for n in range(100))})",
    "not stairs": f"NOT ({' OR '.join(f'(a > {n} AND b < {n})' for n in range(250))})",
    "many comparisons of attributes": " AND ".join(f"a{n} < b{n}" for n in range(3_000)),
    "too long to write": f'"{"n" * 1000}" IN ({",".join(["1", "y"] * 3_500)})',
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_takes_too_many_steps_is_refused_when_it_is_admitted(name: str) -> None:
    budget = Budget()
    with pytest.raises((FilterTooComplexError, FilterSyntaxError)):
        normalize(parse(REFUSED[name]), budget=budget)
    assert budget.used < 4 * LIMITS.steps


def test_limits_can_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    stairs = parse(f"NOT ({' OR '.join(f'(a > {n} AND b < {n})' for n in range(20))})")
    monkeypatch.setattr(LIMITS, "steps", 1_000)
    with pytest.raises(FilterTooComplexError, match="more than 1,000 steps"):
        normalize(stairs)
    monkeypatch.setattr(LIMITS, "steps", 20_000)
    assert len(normalize(stairs).boxes) == 21
    monkeypatch.setattr(LIMITS, "boxes", 20)
    with pytest.raises(FilterTooComplexError, match="more than 20 boxes"):
        normalize(stairs)
    monkeypatch.setattr(LIMITS, "text", 100)
    with pytest.raises(ValueError, match="longer than 100 bytes"):
        parse("x = 1 OR " * 20 + "y = 1")


MOMENTS = [f"TIMESTAMP '2018-01-01T00:{n // 60:02}:{n % 60:02}Z'" for n in range(500)]

ADMITTED = {
    "a list": f"x IN ({','.join(map(str, range(0, 10_000, 2)))})",
    "a list of floats": f"x IN ({','.join(f'1e{n % 16}' for n in range(4_000))})",
    "no list": f"x NOT IN ({','.join(map(str, range(0, 4_000, 2)))}) AND x > 7",
    "no strings": f"x NOT IN ({','.join(repr(str(n)) for n in range(2_000))}) AND x LIKE '%a%'",
    "pairs of patterns": " AND ".join(f"(s LIKE '%a{n}%' OR s LIKE '%b{n}{'c' * 200}%')" for n in range(6)),
    "unions of patterns": " OR ".join(f"s LIKE '%a{n}%' AND s NOT LIKE '%b{n}''%'" for n in range(200)),
    "a long name": " OR ".join(f'"{"name" * 100}" BETWEEN {3 * n} AND {3 * n + 1}' for n in range(100)),
    "products": " AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(6)),
    "moments": f"t NOT IN ({','.join(MOMENTS)})",
    "comparisons": " AND ".join(f"a{n} < b{n}" for n in range(100)),
    "a long pattern": f"s LIKE '{'%a_' * 5_000}'",
}


@pytest.mark.parametrize("name", ADMITTED)
def test_whatever_was_admitted_is_written_and_read_again(name: str) -> None:
    tree = parse(ADMITTED[name])
    form = normalize(tree)
    again = from_stored(to_stored(form))
    assert again.boxes == form.boxes or (covers(again, form) and covers(form, again))
    assert parse(str(tree), limit=LIMITS.stored_text) == tree
    assert from_stored(str(tree)).boxes == form.boxes
    back = from_json(to_json(tree), limit=LIMITS.stored_text)
    for value in (None, 8, "a1b", "b1"):
        event = {"x": value, "s": value, "a0": 1, "b1": 2}
        assert matches(back, event) == matches(tree, event) == (event in form)


# -- what was found to cost more than it spent -------------------------------------------------------

MISCHARGED = {
    "NOT LIKE of many attributes": " AND ".join(f"a{n} NOT LIKE '%a%'" for n in range(LIMITS.names)),
    "a list of strings and patterns": f"s IN ({','.join(repr(format(n, 'x')) for n in range(6_000))}) AND ("
    + " OR ".join(f"s LIKE '%{chr(97 + n % 6)}{n}%'" for n in range(20))
    + ")",
    "patterns of many segments": " AND ".join(f"s LIKE '{'%a' * 20 + chr(98 + n)}%'" for n in range(24))
    + " AND ("
    + " OR ".join(f"s LIKE '{'%b' * 20 + chr(98 + n)}%'" for n in range(24))
    + ")",
    "tests that are NULL": " AND ".join(f"(a{n} > 0) IS NULL" for n in range(LIMITS.names)),
    "tests that are not TRUE": " AND ".join(f"(a{n} > 0) IS NOT TRUE" for n in range(LIMITS.names)),
    "a wide product": " AND ".join(f"a{n} > 5" for n in range(LIMITS.names - 2))
    + " AND ("
    + " OR ".join(f"b = {n} AND c > {n}" for n in range(20))
    + ")",
    "pairs of patterns": " AND ".join(f"(s NOT LIKE '%a{n}%' OR s NOT LIKE '%b{n}%')" for n in range(8)),
    "intervals left out": " AND ".join(f"x NOT BETWEEN {3 * n} AND {3 * n + 1}" for n in range(LIMITS.tests)),
    "unions of wide boxes": " OR ".join(
        "(" + " AND ".join(f"a{n} > {(7 * n + 11 * k) % 10}" for n in range(40)) + ")" for k in range(38)
    ),
}


@pytest.mark.parametrize("name", MISCHARGED)
def test_a_step_is_no_more_work_than_it_should_be(name: str) -> None:
    """Counted in calls of Python functions: at most three a step, and some that reading takes."""
    tree, budget, calls = parse(MISCHARGED[name]), Budget(), 0

    def counted(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(counted)
    try:
        normalize(tree, budget=budget)
    except FilterTooComplexError:
        pass
    finally:
        sys.setprofile(None)
    assert budget.used <= LIMITS.steps + 1
    assert calls <= 20_000 + 3 * budget.used, f"{calls} calls for {budget.used} steps"


def test_many_attributes_are_refused_when_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "names", 1_000)
    names = [f"a{n}" for n in range(1_001)]
    assert parse(" AND ".join(names[1:])) is not None
    for text in (" AND ".join(names), " OR ".join(f"{name} > 1" for name in names)):
        with pytest.raises(FilterTooComplexError, match="more than 1,000 attributes"):
            parse(text)
        tree = parse(text, limit=LIMITS.stored_text)  # what Weft wrote is read, whatever it is
        with pytest.raises(FilterTooComplexError):
            normalize(tree)


def test_comparing_two_boxes_takes_one_budget_for_all_attributes() -> None:
    def boxes(seed: int) -> NormalForm:
        unions = (" OR ".join(f"s{n} LIKE '%{word}%'" for word in words(50, seed + n)) for n in range(20))
        return normalize(parse(" AND ".join(f"({union})" for union in unions)))

    (wide,), (narrow,) = boxes(0).boxes, boxes(100).boxes
    for relate in (wide.covers, wide.overlaps):
        budget = Budget()
        relate(narrow, budget)
        assert budget.used <= LIMITS.steps + 2_000
    assert wide.covers(wide)
    assert not wide.covers(narrow)
    assert wide.overlaps(narrow)
    assert wide.overlaps(narrow, Budget(0))
    assert not wide.covers(narrow, Budget(0))


def test_comparisons_of_one_search_share_a_budget() -> None:
    one, other = contains(200, 1), contains(200, 2)
    budget = Budget(8_000)
    for _ in range(100):
        assert not covers_within(one, other, None, budget)
    assert budget.used <= 8_000 + 100 * 10
    small = normalize(parse("s LIKE '%a%'")), normalize(parse("s LIKE '%ab%'"))
    assert covers_within(*small, None, Budget(1_000))
    assert not covers_within(*small, None, Budget(0))


def test_comparing_predicates_takes_steps_by_the_length_of_their_arguments() -> None:
    """Patterns of timestamps that almost cover each other: each comparison goes through both."""
    calls = [f"time_like(t, '%{'0' * (20 + n % 9)}{n:03}%{'0' * 25}')" for n in range(60)]
    budget = Budget()
    normalize(parse(" AND ".join(calls[:3])), budget=budget)
    one, short = budget.used, Budget()
    normalize(parse(" AND ".join(f"time_like(t, '%{n}')" for n in range(3))), budget=short)
    assert one > 3 * short.used
    with pytest.raises(FilterTooComplexError):
        normalize(parse(" AND ".join(f"NOT {call}" for call in calls)))


def test_a_filter_that_goes_into_an_index_and_a_table_is_normalized_once() -> None:
    tree, schema = parse("x > 1 OR y < 2"), Schema.of(x="int", y="int")
    form = as_form(tree)
    assert as_form(tree) is form == normalize(tree)
    assert as_form(tree, schema) == normalize(tree, schema) != form
    assert as_form(parse("x > 1")) == normalize("x > 1")


def test_long_patterns_of_both_kinds_are_compared_by_their_ends() -> None:
    """Folding them as a whole for each comparison would take longer than all the rest."""
    long = [Pattern.of(f"%{n}{'a_%' * 650}", ignore_case=bool(n % 2)) for n in range(31)]
    assert not any(one.folds_with(other) or one.disjoint(other) for one in long for other in long)
    assert Pattern.of(f"x{'a_%' * 650}").disjoint(Pattern.of(f"Y{'a_%' * 650}", ignore_case=True))
    assert Pattern.of("ab").disjoint(Pattern.of("A_C", ignore_case=True))
    form = normalize(parse(" OR ".join(f"s {'I' * (n % 2)}LIKE '%{n}{'a_%' * 650}'" for n in range(31))))
    budget = Budget()
    assert covers(form, form, budget=budget)
    assert budget.used <= LIMITS.steps


def test_the_anchors_of_long_patterns_take_steps() -> None:
    """Unions of patterns with thousands of chunks: the search for a term that may cover goes through few of them."""
    one, other = (
        normalize(parse(" OR ".join(f"s LIKE '%{word}{'a_%' * 600}'" for word in words(30, seed)))) for seed in (1, 2)
    )
    budget = Budget()
    covered, _, lines = measured(lambda: covers(one, other, budget=budget))
    assert not covered
    assert 30 * 600 // 8 < budget.used <= LIMITS.steps + 1
    assert lines < 8 * budget.used


@pytest.mark.parametrize("differ", [0, 1, 199])
def test_comparing_boxes_with_long_lists_takes_steps(differ: int) -> None:
    """Thirty boxes with a list each; the lists differ at one place only, or are the same."""

    def box(number: int) -> str:
        values = [str(1000 + number if at == differ and differ else 3 * at) for at in range(200)]
        return f"(x IN ({','.join(values)}) AND q{number} = 1 AND y IN ({','.join(values)}))"

    tree, budget = parse(" OR ".join(map(box, range(30)))), Budget()
    form, _, lines = measured(lambda: normalize(tree, budget=budget))
    assert len(form.boxes) == 30
    assert lines <= 100_000 + 12 * budget.used, f"{lines} lines for {budget.used} steps"
    one, other = (Box({"x": form.boxes[at].sets["x"]}) for at in (0, 1))
    assert one.covers(one, Budget(0))
    assert other.covers(Box(dict(other.sets)), Budget(1_000))
    if differ:
        assert not one.covers(other, Budget(0))
        assert one.overlaps(other, Budget(0))  # not disproved
