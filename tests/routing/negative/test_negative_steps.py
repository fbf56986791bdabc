"""Negative space within bounds: after every step what is told covers what is wanted, and in the end little is told."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.models import minimal_cover
from routing.negative.test_negative_space import LIMITS, SMALL, paper, rectangles, schema, steps_of
from strategies import EVENTS, filters, thorough
from weft import parse
from weft.algebra.box import Box
from weft.algebra.normalize import normalize
from weft.algebra.relate import Region, covers
from weft.errors import OptionError
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.model.change import Change
from weft.routing.negative.structure import Limit, NegativeSpace
from weft.routing.negative.tiles import Tiles

ODD = [f"name LIKE '%{letters}%'" for letters in ("a", "b", "ab", "c", "abc", "bc", "d", "cd", "e", "f", "g", "h")]


def lagging() -> st.SearchStrategy[NegativeSpace[int]]:
    """Empty spaces of every kind that leave nearly everything to their steps."""
    return st.builds(
        lambda limit, most, once, make: NegativeSpace(limit=limit, most_boxes=most, at_once=once, make_tiles=make),
        st.sampled_from(LIMITS),
        st.sampled_from([None, 1, 7, 40]),
        st.sampled_from([0, 0, 1]),
        st.sampled_from([Tiles, SMALL]),
    )


class Neighbour:
    """One who is told every change; with the events that are wanted and told."""

    def __init__(self, space: NegativeSpace[int]) -> None:
        self.space = space
        self.held: dict[int, Region] = {}
        self.told: dict[int, Region] = {}

    def change(self, add: dict[int, Region], drop: list[int]) -> None:
        old = dict(self.held)
        for key in drop:
            del self.held[key]
        self.held.update(add)
        self.hear(self.space.change(add, drop), {**old, **self.held})

    def hear(self, change: Change[list[int], list[int]], known: dict[int, Region] | None = None) -> None:
        for key in change.drop:
            del self.told[key]  # only what is told is withdrawn
        for key in change.add:
            assert key not in self.told, "told once"
            self.told[key] = (known or self.held)[key]
        assert self.told.keys() == set(self.space.told)
        assert {*self.space.active, *self.space.passive} == self.held.keys()

    def settle(self) -> None:
        while self.space.pending:
            self.hear(self.space.step(1))
        assert self.told.keys() == set(self.space.active)

    def audit(self) -> None:
        self.space.check()
        for event in EVENTS[::2]:
            if any(matches(wanted, event) for wanted in self.held.values()):  # type: ignore[arg-type]
                assert any(matches(each, event) for each in self.told.values()), event  # type: ignore[arg-type]


def drive(space: NegativeSpace[int], steps: list[Any]) -> Neighbour:
    """Change a space at random and step now and then, looking at it each time."""
    there = Neighbour(space)
    for key, (what, number) in enumerate(steps):
        gone = [sorted(there.held)[number % len(there.held)]] if there.held and number % 3 < 2 else []
        if isinstance(what, str):
            there.hear(space.rebuild() if what == "rebuild" and number % 2 else space.step(number % 3))
        elif not normalize(what) or number % 3 == 0:
            there.change({}, gone)
        else:
            there.change({gone[0] if gone and number % 2 else key: what}, gone)  # often under the same key
        there.audit()
    return there


@given(lagging(), steps_of(filters(4)))
@thorough(40)
def test_no_event_is_lost_after_any_step(space: NegativeSpace[int], steps: list[Any]) -> None:
    there = drive(space, steps)
    there.settle()
    there.audit()


# -- pairwise covering -------------------------------------------------------------------------------


@given(lagging(), steps_of(filters(4)))
@thorough(20)
def test_nothing_is_told_that_an_earlier_one_covers(space: NegativeSpace[int], steps: list[Any]) -> None:
    there = drive(space, steps)
    there.settle()
    active = [made.form for made in space._cover.active._active.values()]  # in the order in which they became so
    for at, form in enumerate(active):
        assert not any(covers(other, form, None) for other in active[:at])


@given(lagging(), st.lists(filters(4), min_size=1, max_size=10))
@thorough(20)
def test_rebuilt_covering_saves_nothing_more(space: NegativeSpace[int], several: list[Filter]) -> None:
    forms = {key: form for key, each in enumerate(several) if (form := normalize(each))}
    space.change(forms)
    space.rebuild()
    assert not space.pending
    assert minimal_cover({key: forms[key] for key in space.active}) == set(space.active)
    space.check()


@given(lagging(), st.lists(rectangles(), min_size=1, max_size=14))
@thorough(20)
def test_of_boxes_no_more_are_told_than_by_covering(space: NegativeSpace[int], boxes: list[Box]) -> None:
    there = Neighbour(space)
    for key, box in enumerate(boxes):
        there.change({key: box}, [])
    there.settle()
    there.hear(space.rebuild())
    assert len(there.told) <= len(minimal_cover({key: made.form for key, made in space._subscriptions.items()}))


@pytest.mark.parametrize("limit", [None, Limit(0), Limit(2)], ids=str)
def test_a_disjunction_is_covered_by_a_disjunction_in_any_space(limit: Limit | None) -> None:
    space = NegativeSpace[int](limit=limit, most_boxes=1)
    assert space.add(1, parse("x BETWEEN 0 AND 5 OR x BETWEEN 4 AND 9"))
    assert not space.add(2, parse("x BETWEEN 3 AND 7"))  # in neither part, but in both together
    assert not space.add(3, parse("x IN (1, 8)"))
    assert space.discard(1) == Change(drop=[1], add=[2, 3])


def test_a_filter_of_very_many_boxes_is_a_bounded_number_of_rows() -> None:
    space = NegativeSpace[int](limit=Limit(0))
    parts = [f"(x IN ({', '.join(map(str, range(at, at + 40, 2)))}) AND y > {at})" for at in range(0, 1000, 50)]
    wide = parse(" OR ".join(parts))
    space.add(1, wide)
    made = space._subscriptions[1]
    assert (made.products.exact, len(made.products.around), made.whole) == (120, 129, False)
    assert not space.add(2, wide)
    assert not space.add(3, parse("x IN (900, 902) AND y > 900"))  # beyond the rows, but covered
    space.check()


# -- the bound ---------------------------------------------------------------------------------------


def mixed(count: int, attributes: int = 8, seed: int = 1) -> list[Filter]:
    """Filters of one to four tests of several kinds on some of the attributes."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        tests = []
        for name in rng.choice(attributes, int(rng.integers(1, 5)), replace=False):
            low, width = rng.random() * 100, rng.random() * 60
            kinds = (f"BETWEEN {low} AND {low + width}", f"> {low}", f"< {low}", f"IN ({low:.0f}, {low + width:.0f})")
            tests.append(f"a{name} {kinds[int(rng.integers(4))]}")
        found.append(parse(" AND ".join(tests)))
    return found


def test_four_hundred_mixed_subscriptions_stay_within_the_bound() -> None:
    space = NegativeSpace[int]()
    for key, each in enumerate(mixed(400)):
        space.add(key, each)
    assert len(space._cover.tiles) <= space.most_boxes == 1 << 17  # type: ignore[operator]
    assert space.nbytes < 80e6
    assert not space.exact
    small = NegativeSpace[int](most_boxes=500)
    small.change(dict(enumerate(mixed(60))))
    small.check()
    assert len(small._cover.tiles) <= 500
    assert small.nbytes < 300e3


def test_past_the_bound_a_space_is_approximate_until_it_is_rebuilt_with_room() -> None:
    free, bound = NegativeSpace[int](schema(3), most_boxes=None), NegativeSpace[int](schema(3), most_boxes=60)
    for key, box in enumerate(paper(40, 3)):
        free.add(key, box)
        bound.add(key, box)
    assert free.exact
    assert not bound.exact
    assert set(bound.passive) < set(free.passive)
    assert bound.volume() > free.volume()
    bound.check()
    for key in range(3, 40):
        bound.discard(key)
    assert not bound.exact
    bound.rebuild()
    assert bound.exact
    bound.change({}, list(range(3)))
    assert (bound.exact, bound.boxes) == (True, 1)


def test_a_limit_that_keeps_nothing_from_being_subtracted_is_exact() -> None:
    space = NegativeSpace[int](limit=Limit(50))
    space.change({1: parse("x BETWEEN 0 AND 5"), 2: parse("x BETWEEN 3 AND 9")})
    assert space.exact
    space.discard(1)  # what the other covers of it stays negative (figure 9)
    assert not space.exact


def test_bounds_are_checked() -> None:
    with pytest.raises(OptionError, match="most_boxes is 0; give 1 or more"):
        NegativeSpace[int](most_boxes=0)
    with pytest.raises(OptionError, match="at_once is -1; give 0 or more"):
        NegativeSpace[int](at_once=-1)


# -- steps -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, Limit(4)], ids=str)
def test_one_that_covered_many_is_withdrawn_last(limit: Limit | None) -> None:
    space = NegativeSpace[int](limit=limit, at_once=5)
    space.add(0, parse("x >= 0"))
    for key in range(1, 41):
        assert not space.add(key, parse(f"x BETWEEN {key} AND {key + 0.5}"))
    first = space.discard(0)
    assert first == Change(drop=[], add=[1, 2, 3, 4, 5])
    assert space.pending
    assert set(space.told) == {0, *first.add}
    changes = []
    while space.pending:
        changes.append(space.step(10))
    assert [key for change in changes for key in change.add] == list(range(6, 41))
    assert all(len(change.add) <= 10 for change in changes)
    assert [change.drop for change in changes] == [[]] * (len(changes) - 1) + [[0]]
    assert space.step(10) == Change([], [])
    space.check()


def test_what_comes_and_goes_meanwhile_is_told_at_once() -> None:
    space = NegativeSpace[int](at_once=0)
    space.change({0: parse("x >= 0")})
    space.change({key: parse(f"x BETWEEN {key} AND {key + 0.5}") for key in range(1, 9)})
    assert space.change({}, [0]) == Change([], [])
    assert space.change({20: parse("x < -5")}) == Change([], [20])
    assert space.change({}, [3, 20]) == Change([20], [])
    assert space.step(2) == Change([], [1, 2])
    assert space.change({}, [1]) == Change([1], [])
    assert space.step(100) == Change([0], [4, 5, 6, 7, 8])


def test_a_key_that_returns_is_settled_at_once() -> None:
    space = NegativeSpace[int](at_once=0)
    space.change({0: parse("x >= 0")})
    space.change({1: parse("x = 1"), 2: parse("x = 2")})
    assert space.change({0: parse("x >= 2")}, [0]) == Change([0], [0, 1])
    space.change({}, [0])
    assert set(space.told) == {0, 1}
    assert space.change({0: parse("x = 9")}) == Change([0], [0, 2])
    assert not space.pending


def test_comparing_with_many_goes_on_in_steps_and_meanwhile_it_is_told() -> None:
    space = NegativeSpace[int](at_once=0)
    for key, text in enumerate(ODD):
        assert space.change({key: parse(text)}).add == [key]
        while space.pending:
            space.step(1)
    told = set(space.told)
    assert {ODD[key] for key in told} == {f"name LIKE '%{letter}%'" for letter in "abcdefgh"}
    assert space.change({90: parse("name LIKE '%xaxx%'"), 91: parse("name LIKE '%zz%'")}).add == [90, 91]
    assert space.change({92: parse("name LIKE '%azza%'")}).add == [92]  # it waits for the others
    found = [space.step(1) for _ in range(20) if space.pending]
    assert [each.drop for each in found if each.drop] == [[90], [92]]
    assert set(space.told) == {*told, 91}
    space.check()


def test_rebuilding_settles_everything() -> None:
    space = NegativeSpace[int](at_once=0)
    space.change({0: parse("x >= 0")})
    space.change({1: parse("x BETWEEN 11 AND 12"), 2: parse("x BETWEEN 10 AND 20"), 3: parse("x = 14 AND x > y")})
    space.change({}, [0])
    assert space.pending
    assert space.rebuild() == Change([0], [2])
    assert not space.pending
    space.check()


def test_emptying_withdraws_all_that_is_told() -> None:
    space = NegativeSpace[int](at_once=0, make_tiles=partial(Tiles, reach=1 << 9))
    space.change({0: parse("x >= 0")})
    space.change({1: parse("x = 1"), 2: parse("x = 2")})
    space.change({}, [0])
    assert space.change({}, [1, 2]) == Change([0], [])
    assert (space.pending, len(space), space.boxes) == (False, 0, 1)
