"""Negative space: the worked example, its tiles after every change, and no event lost, exact and approximate."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import EVENTS, filters, number_filters, thorough
from weft import Schema, parse
from weft.algebra.box import Box, NormalForm
from weft.algebra.measure import volume
from weft.algebra.normalize import normalize
from weft.algebra.relate import covers, overlaps
from weft.algebra.valueset import ValueSet
from weft.errors import FilterError, LocalProtocolError, OptionError, SchemaError
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.model.change import Change
from weft.routing.negative.structure import MOST_BOXES, Limit, NegativeSpace
from weft.routing.negative.tiles import SplitChoice, SplitOrder, Tiles

SQUARE = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 1000]} for name in "xy"}})
S1 = parse("x BETWEEN 175 AND 510 AND y BETWEEN 180 AND 680")
S2 = parse("x BETWEEN 405 AND 840 AND y BETWEEN 110 AND 540")
S3 = parse("x BETWEEN 380 AND 720 AND y BETWEEN 230 AND 495")

SMALL = partial(Tiles, most_axes=2, most_rows=6, reach=1 << 7, spare=4, patience=2)  # every branch within ten boxes
LIMITS = [
    None,
    Limit(0),
    Limit(2),
    Limit(3, choice=SplitChoice.BENEFIT),
    Limit(3, choice=SplitChoice.COST),
    Limit(1, dynamic=True),
]


def spaces() -> st.SearchStrategy[NegativeSpace[int]]:
    """Empty spaces of every kind."""
    return st.builds(
        lambda limit, most, order, make: NegativeSpace(limit=limit, most_boxes=most, order=order, make_tiles=make),
        st.sampled_from(LIMITS),
        st.sampled_from([MOST_BOXES, MOST_BOXES, 1, 12]),
        st.sampled_from(SplitOrder),
        st.sampled_from([Tiles, SMALL]),
    )


# -- the paper's example (acceptance, 001) -----------------------------------------------------------


@pytest.mark.parametrize("order", SplitOrder)
def test_the_worked_example(order: SplitOrder) -> None:
    space = NegativeSpace[str](SQUARE, order=order)
    assert space.boxes == 1
    assert space.volume() == 1_000_000
    assert space.add("s1", S1)
    assert space.boxes == 4
    met = [box for box in space.negative() if overlaps(box, S2, SQUARE)]
    assert len(met) == 2
    assert space.add("s2", S2)
    assert space.boxes == 7
    assert space.volume() == 683_250
    assert not covers(S1, S3, SQUARE)
    assert not covers(S2, S3, SQUARE)
    assert space.subsumes(S3)
    assert not space.add("s3", S3)
    assert (list(space.active), list(space.passive)) == (["s1", "s2"], ["s3"])
    assert space.boxes == 7
    space.check()


def test_an_unsubscription_brings_back_what_it_had_subsumed() -> None:
    space = NegativeSpace[str](SQUARE)
    space.change({"s1": S1, "s2": S2, "s3": S3})
    assert space.discard("s3") == Change([], [])
    assert not space.add("s3", S3)
    assert space.discard("s1") == Change(drop=["s1"], add=["s3"])
    assert space.volume() == 1_000_000 - volume(S2, SQUARE) - (405 - 380) * (495 - 230)
    space.change({}, ["s2", "s3"])
    assert (space.boxes, space.volume()) == (1, 1_000_000)


def test_a_full_domain_range_does_not_hold_the_absent() -> None:
    space = NegativeSpace[str](SQUARE)
    assert space.add("wide", parse("x BETWEEN 0 AND 10 AND y BETWEEN 0 AND 1000"))
    assert space.add("narrow", parse("x BETWEEN 2 AND 5"))  # the event {x: 3} matches only this (errata, MICS 6)
    assert not space.add("inside", parse("x BETWEEN 3 AND 4 AND y IS NULL"))


def test_a_split_makes_at_most_one_box_a_face() -> None:
    names = "abcde"
    space = NegativeSpace[int]()
    space.add(0, parse(" AND ".join(f"{name} BETWEEN 2 AND 5" for name in names)))
    assert space.boxes == 2 * len(names)  # 2 d - 1 more (proposition 2)


def test_ranges_on_one_line_make_few_parts() -> None:
    space = NegativeSpace[int]()
    for n in range(20):
        space.add(n, parse(f"x BETWEEN {7 * n % 20 * 10} AND {7 * n % 20 * 10 + 5}"))
    assert space.boxes == 21
    assert len(space._cover.tiles) == 2 * 20 + 1  # proposition 3


# -- bad input ---------------------------------------------------------------------------------------


def test_a_filter_that_matches_nothing_is_refused_and_changes_nothing() -> None:
    space = NegativeSpace[int]()
    space.add(1, parse("x > 5"))
    with pytest.raises(FilterError, match="never matches"):
        space.change({2: parse("y > 5"), 3: parse("x > 5 AND x < 3")}, [1])
    assert list(space.active) == [1]
    space.check()


def test_unknown_and_known_keys_are_refused() -> None:
    space = NegativeSpace[int]()
    space.add(1, parse("x > 5"))
    with pytest.raises(LocalProtocolError, match="no subscription 2"):
        space.discard(2)
    with pytest.raises(LocalProtocolError, match="1 already exists"):
        space.add(1, parse("x > 6"))
    assert space.change({1: parse("x > 6")}, [1]) == Change([1], [1])
    with pytest.raises(OptionError, match="0 or more"):
        Limit(-1)
    with pytest.raises(SchemaError, match="schema with bounds"):
        space.volume()


# -- what no box expresses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["x > y", "name LIKE '%b%'", "name LIKE 'a%' AND NOT name LIKE '%c'", "x > y OR x = 5"]
)
def test_what_no_box_expresses_is_told_once_and_subtracts_nothing(text: str) -> None:
    space = NegativeSpace[str]()
    assert space.add("odd", parse(text))
    assert not space.add("again", parse(text))
    assert space.add("all", parse("TRUE"))
    assert not space.add("odd too", parse(text))
    assert not space.add("plain", parse("x = 7"))
    assert space.discard("odd") == Change(drop=["odd"], add=[])
    assert space.discard("all") == Change(drop=["all"], add=["again", "plain"])
    assert list(space.passive) == ["odd too"]
    space.check()


def test_of_six_odd_ones_two_are_told_as_by_covering() -> None:
    texts = ["x > y", "name LIKE '%b%'"] * 3
    for limit in LIMITS:
        space = NegativeSpace[int](limit=limit)
        assert space.change({key: parse(text) for key, text in enumerate(texts)}) == Change(drop=[], add=[0, 1])
        assert space.discard(1) == Change(drop=[1], add=[3])
        space.check()


def test_what_is_odd_is_covered_together_by_what_is_around_it() -> None:
    space = NegativeSpace[str]()
    assert space.change({"low": parse("x <= 5"), "high": parse("x > 5")}).add == ["low", "high"]
    assert not space.add("odd", parse("x > y AND x > 1"))
    assert not space.add("pattern", parse("x > 3 AND name LIKE '%b%'"))
    assert space.discard("high") == Change(drop=["high"], add=["odd", "pattern"])


def test_the_boxes_of_a_filter_with_an_odd_part_cover() -> None:
    space = NegativeSpace[str]()
    space.add("partly odd", parse("x BETWEEN 0 AND 9 OR name LIKE '%b%'"))
    assert not space.add("in the box", parse("x = 4"))


def test_too_many_axes_or_products_are_forwarded_too() -> None:
    space = NegativeSpace[int](make_tiles=SMALL)
    assert space.add(1, parse("a > 0 AND b > 0"))
    assert space.add(2, parse("c > 0"))  # a third axis
    assert not space.add(3, parse("c > 1"))  # but one covers it
    assert space.add(7, parse("c <= 0"))
    assert space.add(8, parse("c BETWEEN -5 AND 5"))  # two do, which no tile says
    boxes = space.boxes
    assert space.add(4, parse("a IN (-1, -3, -5) AND b IN (1, 3, 5)"))  # nine products
    assert space.boxes == boxes
    assert not space.add(5, parse("a IN (-1, -3, -5) AND b IN (1, 3)"))
    assert space.add(9, parse("a IN (-1, -3, -7) AND b IN (1, 3)"))
    assert not space.add(6, parse("a = -7 AND b = 1"))
    space.check()


def test_a_question_widens_nothing() -> None:
    space = NegativeSpace[int](make_tiles=SMALL)
    space.add(1, parse("a > 0"))
    assert space.subsumes(parse("a > 1 AND z = 3"))
    assert not space.subsumes(parse("z = 3"))
    assert space.subsumes(parse("a > 1 AND z LIKE '%b'"))
    assert not space.subsumes(parse("a > -1 AND z LIKE '%b'"))
    assert list(space._cover.axes) == ["a"]


# -- the laws ----------------------------------------------------------------------------------------


def drive(space: NegativeSpace[int], steps: list[Any], audit: Any) -> None:
    """Add and drop and rebuild at random; what is told to a neighbour is always the active set; `audit` each time."""
    held: dict[int, Filter] = {}
    told: set[int] = set()
    for key, (what, number) in enumerate(steps):
        if isinstance(what, str):
            if what == "rebuild":
                change = space.rebuild()
            else:
                change, before = Change[list[int], list[int]]([], []), space.boxes
                saved = space.coalesce(number * 10)
                assert space.boxes == before - saved <= before
        elif number % 3 == 0 and held:
            gone = sorted(held)[number % len(held)]
            del held[gone]
            change = space.discard(gone)
        elif number % 3 == 1 and held:
            gone = sorted(held)[number % len(held)]
            del held[gone]
            change = space.change({key: what} if normalize(what) else {}, [gone])
            held.update({key: what} if normalize(what) else {})
        elif normalize(what):
            change = space.change({key: what})
            held[key] = what
        else:
            continue
        assert set(change.drop) <= told, "only what is told is withdrawn"
        assert told - set(change.drop) == told - set(change.drop) - set(change.add), "told once"
        told = told - set(change.drop) | set(change.add)
        assert told == set(space.active)
        assert {*space.active, *space.passive} == held.keys()
        audit(held, told)


def steps_of(some: st.SearchStrategy[Filter]) -> st.SearchStrategy[list[Any]]:
    what = st.one_of(some, some, some, some, st.sampled_from(["rebuild", "coalesce"]))
    return st.lists(st.tuples(what, st.integers(0, 30)), min_size=1, max_size=12)


@given(spaces(), steps_of(filters(4)))
@thorough(150)
def test_no_event_is_lost_and_the_tiles_hold(space: NegativeSpace[int], steps: list[Any]) -> None:
    def audit(held: dict[int, Filter], told: set[int]) -> None:
        space.check()
        for event in EVENTS:
            if any(matches(wanted, event) for wanted in held.values()):
                assert any(matches(held[key], event) for key in told), event

    drive(space, steps, audit)


@given(spaces(), steps_of(filters(3)))
@thorough(60)
def test_every_event_is_in_one_tile(space: NegativeSpace[int], steps: list[Any]) -> None:
    """The negative set and the CoveredBy sets partition the events, each in what its owner wants."""

    def audit(held: dict[int, Filter], told: set[int]) -> None:
        negative, covered = space.negative(), {key: space.covered_by(key) for key in held}
        assert not any(covered[key] for key in held if key not in told)
        for event in EVENTS[::3]:
            owners = [key for key in held for box in covered[key] if event in box]
            assert len(owners) + sum(event in box for box in negative) == 1
            assert all(matches(held[key], event) for key in owners)
            if space.exact and not owners:
                odd = [key for key in told if matches(held[key], event)]
                assert all(not space._subscriptions[key].whole for key in odd), "exact: what is covered is not negative"

    drive(space, steps, audit)


@given(st.sampled_from(SplitOrder), st.lists(number_filters(4), min_size=1, max_size=9), st.booleans())
@thorough(150)
def test_exact_finds_exactly_what_is_subsumed(order: SplitOrder, several: list[Filter], again: bool) -> None:
    space = NegativeSpace[int](order=order)
    for key, wanted in enumerate(several):
        form = normalize(wanted)
        if not form:
            continue
        union = NormalForm(tuple(box for k in space.active for box in space._subscriptions[k].form.boxes))
        assert space.add(key, form) is not covers(union, form)
    if again and len(space):
        space.discard(next(iter(space.active)))
        union = NormalForm(tuple(box for k in space.active for box in space._subscriptions[k].form.boxes))
        assert all(covers(union, space._subscriptions[key].form) for key in space.passive)


SIDE = 7
GRID = Schema.from_dict({"attributes": {name: {"type": "int", "bounds": [0, SIDE - 1]} for name in "ab"}})
CELLS = [{"a": a, "b": b} for a, b in product([None, *range(-1, SIDE + 1)], repeat=2)]


@st.composite
def rectangles(draw: st.DrawFn) -> Box:
    sets = {}
    for name in draw(st.sampled_from(["ab", "ab", "a", "b"])):
        low = draw(st.integers(0, SIDE - 1))
        sets[name] = ValueSet(numbers=((low, 0), (draw(st.integers(low + 1, SIDE)), 0)))
    return Box(sets)


@pytest.mark.parametrize(
    ("limit", "most"), [*((limit, None) for limit in LIMITS), (None, 1), (None, 9), (LIMITS[2], 9)]
)
@given(st.lists(st.tuples(rectangles(), st.integers(0, 40)), min_size=1, max_size=14))
@thorough(25)
def test_tiles_partition_a_small_grid(limit: Limit | None, most: int | None, steps: list[tuple[Box, int]]) -> None:
    """By volume, and cell by cell, out of bounds and absent ones included."""
    space = NegativeSpace[int](GRID, limit, most_boxes=most, make_tiles=SMALL)
    held: dict[int, Box] = {}
    for key, (box, number) in enumerate(steps):
        if number % 3 == 0 and held:
            gone = sorted(held)[number % len(held)]
            del held[gone]
            space.discard(gone)
        else:
            held[key] = box
            space.add(key, box)
        negative, covered = space.negative(), [each for k in space.active for each in space.covered_by(k)]
        assert most is None or len(negative) + len(covered) <= most
        assert limit is not None or most is not None or space.exact
        assert sum(volume(each, GRID) for each in negative + covered) == SIDE**2
        positive = {at for at, cell in enumerate(CELLS) if any(cell in held[k] for k in space.active)}
        found = [sum(cell in each for each in negative) for cell in CELLS]
        assert [sum(cell in each for each in covered) + n for cell, n in zip(CELLS, found, strict=True)] == [1] * len(
            CELLS
        )
        if space.exact:
            assert {at for at, n in enumerate(found) if not n} == positive
            assert space.volume() == sum(
                all(0 <= (v or 0) < SIDE and v is not None for v in c.values()) for c in CELLS
            ) - len({at for at in positive if all(v is not None and 0 <= v < SIDE for v in CELLS[at].values())})
        else:
            assert {at for at, n in enumerate(found) if not n} <= positive


# -- limits, choices and order -----------------------------------------------------------------------


def paper(count: int, dims: int, seed: int = 1) -> list[Box]:
    """Boxes as the paper draws them."""
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 100, (count, dims)) * rng.integers(0, 11, (count, dims)).astype(float)
    high = low + rng.random((count, dims)) * (1000 - low)
    return [
        Box({f"a{n}": ValueSet(numbers=((a[n], 0), (b[n], 1))) for n in range(dims)})
        for a, b in zip(low.tolist(), high.tolist(), strict=True)
    ]


def schema(dims: int) -> Schema:
    return Schema.from_dict({"attributes": {f"a{n}": {"type": "float", "bounds": [0, 1000]} for n in range(dims)}})


@pytest.mark.parametrize("choice", SplitChoice)
def test_a_limit_is_never_passed(choice: SplitChoice) -> None:
    space = NegativeSpace[int](schema(3), Limit(5, choice=choice))
    dynamic = NegativeSpace[int](schema(3), Limit(5, dynamic=True, choice=choice))
    for key, box in enumerate(paper(60, 3)):
        before = space.boxes
        space.add(key, box)
        assert space.boxes <= before + 5
        dynamic.add(key, box)
        assert dynamic.boxes <= 5 * len(dynamic.active) + 1
    assert space.boxes > 20
    space.check()
    dynamic.check()


def test_with_a_limit_of_none_only_what_costs_nothing_is_taken() -> None:
    space = NegativeSpace[int](SQUARE, Limit(0))
    space.add(1, parse("x < 10 OR x IS NULL"))  # one piece is left of the one box
    assert (space.boxes, space.subsumes(parse("x < 3"))) == (1, True)
    space.add(2, parse("x BETWEEN 20 AND 30"))  # two would be
    space.add(3, parse("x BETWEEN 28 AND 40"))
    assert (space.boxes, space.subsumes(parse("x BETWEEN 25 AND 35"))) == (1, False)
    assert space.subsumes(parse("x = 25"))  # one covers it
    space.add(4, parse("x >= 10"))
    assert space.boxes == 0
    assert space.volume() == 0


def test_with_a_limit_what_one_covers_is_passive_as_long_as_one_does() -> None:
    space = NegativeSpace[int](SQUARE, Limit(0))
    space.change({1: S1, 2: parse("x > 100 AND y > 100"), 3: parse("x > 0 AND y > 0")})
    assert list(space.active) == [1, 2, 3]
    assert not space.add(4, parse("x BETWEEN 200 AND 300 AND y BETWEEN 200 AND 300"))
    assert [space.discard(key).add for key in (3, 1, 2)] == [[], [], [4]]


def test_exact_finds_more_than_a_limit_and_a_limit_more_than_pairs() -> None:
    exact, limited = NegativeSpace[int](schema(3)), NegativeSpace[int](schema(3), Limit(10))
    boxes = paper(300, 3)
    pairs, active = 0, list[Box]()
    for key, box in enumerate(boxes):
        exact.add(key, box)
        limited.add(key, box)
        covered = any(other.covers(box) for other in active)
        pairs += covered
        active += [] if covered else [box]
    assert len(exact.passive) > len(limited.passive) > pairs


def test_rebuilding_and_coalescing_make_fewer_boxes() -> None:
    space = NegativeSpace[int](schema(3), order=SplitOrder.GIVEN)
    for key, box in enumerate(paper(60, 3)):
        space.add(key, box)
    before, actives = space.boxes, len(space.active)
    negative = space.volume()
    assert space.coalesce(0) == 0
    assert space.coalesce(10**6, stop=lambda: True) == 0
    saved = space.coalesce(10**6)
    assert saved > 0
    assert space.boxes == before - saved
    assert space.volume() == pytest.approx(negative)
    space.check()
    told = set(space.active)
    change = space.rebuild()
    assert told - set(change.drop) | set(change.add) == set(space.active)
    assert len(space.active) < actives
    assert space.volume() == pytest.approx(negative)
    space.check()
    for key in range(60):
        space.discard(key)
    assert space.coalesce(10**6) >= 0
    assert (space.boxes, len(space)) == (1, 0)


def test_coalescing_keeps_owners_apart() -> None:
    space = NegativeSpace[int]()
    space.change({1: parse("x >= 0 AND x < 5"), 2: parse("x >= 5 AND x < 10"), 3: parse("x >= 2 AND x < 12")})
    assert space.coalesce(1000) == 0
    space.check()
    assert [len(space.covered_by(key)) for key in (1, 2, 3)] == [1, 1, 1]
    space.discard(2)
    assert not space.add(4, parse("x = 7"))


@pytest.mark.parametrize("limit", [None, Limit(3)], ids=str)
def test_spreading_labels_again_moves_no_box(limit: Limit | None) -> None:
    space = NegativeSpace[int](limit=limit, make_tiles=partial(Tiles, reach=1 << 9))
    for key in range(20):
        space.add(key, parse(f"x BETWEEN {2.0**-key} AND {3 * 2.0**-key} AND y < {key % 5}"))
        space.check()
    assert space.subsumes(parse("x BETWEEN 0.5 AND 0.75 AND y < 1"))
    assert not space.subsumes(parse("x BETWEEN 0 AND 0.75 AND y < 1"))


def test_cutting_first_where_most_remains_makes_the_fewest_boxes() -> None:
    sizes = {}
    for order in SplitOrder:
        space = NegativeSpace[int](schema(3), order=order)
        for key, box in enumerate(paper(200, 3)):
            space.add(key, box)
        sizes[order] = space.boxes
    assert min(sizes, key=lambda order: sizes[order]) is SplitOrder.MOST_OUTSIDE
