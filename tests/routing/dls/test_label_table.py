"""Exact counts and filters of labels at work: what the printed algorithm loses, and what ours does not."""

from __future__ import annotations

import tracemalloc
import zlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import EVENTS, filters, thorough
from weft import Schema
from weft.algebra.normalize import normalize
from weft.errors import LabelError
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.routing.dls.incoming import HeardLabels
from weft.routing.dls.items import LabelSet, Switch
from weft.routing.dls.outgoing import BundleChange, LabelBundles, ToldLabels
from weft.routing.dls.printed import FilterBroker, FilterReceiver
from weft.routing.dls.space import LabelSpace
from weft.routing.dls.structure import MOST_COUNTERS, CountingFilter, FilterShape, LabelCounts, TwinFilter
from weft.space.grid import Grid


class PrintedEnd:
    """A broker as printed with one client, and its neighbour: the filter is the truth."""

    def __init__(self, shape: FilterShape) -> None:
        self.broker: FilterBroker[str] = FilterBroker(shape, shape)
        self.ert = FilterReceiver(shape)

    def subscribe(self, label: int) -> None:
        self.ert.change(*self.broker.subscribe("client", [label]))

    def unsubscribe(self, label: int) -> None:
        self.ert.change(*self.broker.unsubscribe("client", [label]))


class OurEnd:
    """Exact counts decide what is told; the neighbour has the same filter."""

    def __init__(self, shape: FilterShape) -> None:
        self.needs, self.ert = LabelCounts(), CountingFilter(shape)

    def subscribe(self, label: int) -> None:
        self.ert.add(self.needs.add([label]))

    def unsubscribe(self, label: int) -> None:
        self.ert.remove(self.needs.remove([label]))


def lost(end: PrintedEnd | OurEnd, seed: int, labels: int = 60) -> int:
    """How many wanted labels the neighbour does not know, at the worst, while subscriptions come and go."""
    rng = np.random.default_rng(seed)
    held: Counter[int] = Counter()
    worst = 0
    for _ in range(6 * labels):
        if held and rng.random() < 0.5:
            label = int(rng.choice(sorted(held.elements())))
            end.unsubscribe(label)
            held[label] -= 1
            held += Counter()
        else:
            label = int(rng.integers(labels))
            end.subscribe(label)
            held[label] += 1
        if held:
            worst = max(worst, int((~end.ert.contains(list(held))).sum()))
    return worst


@pytest.mark.parametrize("size", [16, 32, 64])
def test_the_printed_deletion_loses_events_and_ours_does_not(size: int) -> None:
    shapes = [FilterShape(size, hashes=2, bits=8, seed=seed) for seed in range(10)]
    assert sum(lost(PrintedEnd(shape), seed) for seed, shape in enumerate(shapes)) > 0
    assert sum(lost(OurEnd(shape), seed) for seed, shape in enumerate(shapes)) == 0


def test_a_full_counter_is_never_counted_down() -> None:
    made = CountingFilter(FilterShape(8, hashes=2))
    made.add([5] * 20)
    assert made.saturated == 2
    made.remove([5] * 20)
    assert made.contains([5]).all()  # a false positive for ever, rather than a loss
    assert made.saturated == 2
    assert len(made) == 0


def test_a_trickle_of_labels_past_the_top_loses_nothing() -> None:
    """Forty labels on eight counters of 4 bits: taking thirty out must not take the others with them."""
    made = CountingFilter(FilterShape(8, hashes=2))
    made.add(range(40))
    made.remove(range(30))
    assert made.contains(range(30, 40)).all()
    assert made.saturated > 0


def test_removing_is_all_or_none() -> None:
    made = CountingFilter(FilterShape(1 << 12))
    made.add([1, 2])
    before = made.to_bytes()
    with pytest.raises(LabelError, match="label 3 "):
        made.remove([1, 3, 2])
    assert made.to_bytes() == before
    counts = LabelCounts()
    counts.add([1, 1, 2])
    with pytest.raises(LabelError, match="label 2 "):
        counts.remove([1, 2, 2])
    assert counts.counts([1, 2]).tolist() == [2, 1]


def test_merging_filters_is_adding_their_labels() -> None:
    for bits in (4, 8):
        shape = FilterShape(64, bits=bits, seed=3)  # type: ignore[arg-type]
        one, other = CountingFilter.of(shape, [range(30)]), CountingFilter.of(shape, [range(20, 50)])
        one.merge(other)
        assert one == CountingFilter.of(shape, [range(30), range(20, 50)])
    for stranger in (FilterShape(128, seed=3), FilterShape(64, seed=4), FilterShape(64, hashes=3, seed=3)):
        with pytest.raises(LabelError, match="the same shape"):
            CountingFilter(FilterShape(64, seed=3)).merge(CountingFilter(stranger))


def test_torn_bytes_are_refused() -> None:
    data = CountingFilter.of(FilterShape(16), [[1, 2]]).to_bytes()
    for torn in (b"", data[:10], data[:-1], data + b"\0", data[:30] + bytes([data[30] ^ 1]) + data[31:]):
        with pytest.raises(LabelError):
            CountingFilter.from_bytes(torn)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: FilterShape(100), "power of two"),
        (lambda: FilterShape(2, hashes=3), "hashes"),
        (lambda: FilterShape(64, hashes=0), "hashes"),
        (lambda: FilterShape(64, bits=5), "4 or 8"),  # type: ignore[arg-type]
        (lambda: FilterShape(64, seed=-1), "seed"),
        (lambda: FilterShape.fitting(5, 0), "rate"),
        (lambda: LabelCounts(slots=3), "slots"),
        (lambda: LabelCounts().add([-1]), "negative"),
        (lambda: LabelCounts().add([1.5]), "integers"),
    ],
)
def test_bad_shapes_say_what_to_do(make: object, says: str) -> None:
    with pytest.raises(LabelError, match=says):
        make()  # type: ignore[operator]


def test_a_fitting_shape_fits() -> None:
    for labels in (0, 1, 100, 5_000):
        shape = FilterShape.fitting(labels, 0.01)
        assert shape.rate(labels) <= 0.01
        if shape.size > 2:
            half = FilterShape(shape.size // 2, min(shape.hashes, shape.size // 2))
            assert half.rate(labels) > 0.005


def test_a_filter_grows_and_shrinks_and_does_not_swing() -> None:
    twin = TwinFilter(FilterShape(16, 4), 0.01)
    sizes = []
    for labels in (1, 2, 3, 20, 200, 199, 150, 199, 40, 3, 0):
        if (switch := twin.due(labels)) is not None:
            twin.switch(switch, np.arange(labels))
        assert twin.held.shape.rate(labels) <= 0.01
        sizes.append((twin.number, twin.held.shape.size))
    assert sizes[:5] == [(0, 16), (1, 32), (2, 64), (3, 256), (4, 4096)]
    assert sizes[5:8] == [(4, 4096)] * 3  # half of it would do, and that is no reason
    assert sizes[8:] == [(5, 512), (6, 64), (7, 16)]


def test_a_filter_grows_to_a_bound() -> None:
    twin = TwinFilter(FilterShape(16, 4), 0.01)
    assert twin.due(1 << 40) == Switch(1, MOST_COUNTERS)


@pytest.mark.parametrize(
    ("switch", "says"),
    [(Switch(2, 32), "follow"), (Switch(0, 32), "follow"), (Switch(1, 8), "16"), (Switch(1, 48), "power of two")],
)
def test_a_switch_that_cannot_be_is_refused(switch: Switch, says: str) -> None:
    with pytest.raises(LabelError, match=says):
        TwinFilter(FilterShape(16, 4), 0.01).admit(switch, fresh=False)
    with pytest.raises(LabelError, match="cannot switch"):
        TwinFilter(FilterShape(16, 4), 0.01).admit(Switch(9, 2 * MOST_COUNTERS), fresh=True)
    TwinFilter(FilterShape(16, 4), 0.01).admit(Switch(9, 64), fresh=True)


def test_a_switch_to_the_same_size_is_only_made_where_it_frees_counters() -> None:
    twin = TwinFilter(FilterShape(8, 2), 1.0)
    twin.change(NONE, np.arange(60))
    assert twin.held.saturated > 0
    assert twin.renewal(np.arange(60)) is None
    twin.change(np.arange(50), NONE)
    assert twin.renewal(np.arange(50, 60)) == Switch(1, 8)


SCHEMA = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 2]} for name in ("a", "b")}})
SPACE = LabelSpace([Grid.uniform(SCHEMA, cells=8)], most=5, parts=3)
NONE = np.zeros(0, np.int64)
LOOKED_UP = [(None, 1.0), (FilterShape(4, 2), 1.0), (FilterShape(16, 3), 0.3), (FilterShape(2, 1, bits=8), 0.1)]


@given(st.lists(filters(4), min_size=1, max_size=8), st.data(), st.sampled_from(LOOKED_UP))
@thorough(120)
def test_no_event_is_lost_after_random_unsubscriptions(
    wanted: list[Filter], data: st.DataObject, how: tuple[FilterShape | None, float]
) -> None:
    shape, rate = how
    told, heard, live = ToldLabels(3, shape, rate), HeardLabels(SPACE, shape, rate), {}
    held: set[LabelSet] = set()

    def tell(change: BundleChange) -> None:
        held.difference_update(change.drop)
        assert held.isdisjoint(change.add)
        held.update(change.add)
        drop, add = (np.array([x for each in some for x in each.labels], np.int64) for some in change)
        heard.change(drop, add)
        for switch in told.notes():
            heard.switch(switch, told.needs.labels())
        if told.twin is not None:
            assert heard.twin is not None
            assert (told.twin.number, told.twin.held) == (heard.twin.number, heard.twin.held), "the ends differ"

    for number, each in enumerate(wanted):
        form = normalize(each)
        if form:
            live[number] = each, SPACE.labels(form)
            tell(told.change(NONE, live[number][1]))
    for number in data.draw(st.lists(st.sampled_from([*live]), unique=True)) if live else ():
        tell(told.change(live.pop(number)[1], NONE))
    if data.draw(st.booleans()):
        tell(told.improve())
    needs = told.needs
    told.check(np.concatenate([NONE, *(labels for _, labels in live.values())]))
    heard.check(needs.labels())
    found = heard.match_batch(EVENTS)
    for at, event in enumerate(EVENTS):
        if any(matches(each, event) for each, _ in live.values()):
            assert found[at], "an event is lost"
    assert [heard.matches(event) for event in EVENTS[::7]] == found[::7].tolist()
    if shape is None:
        levels = SPACE.of_events(EVENTS, heard.levels)
        assert np.array_equal(found, np.isin(levels, needs.labels()).any(axis=1))


@given(st.lists(st.tuples(st.sets(st.integers(0, 12)), st.booleans()), max_size=12))
@thorough(100)
def test_bundles_hold_each_label_once(changes: list[tuple[set[int], bool]]) -> None:
    bundles, labels, told = LabelBundles(most=3), set[int](), set[LabelSet]()
    for some, renew in changes:
        gone, new = bundles.revise(sorted(some & labels), sorted(some - labels))
        labels ^= some
        for drop, add in ((gone, new), bundles.renew() if renew else ((), ())):
            assert told.issuperset(drop)
            told.difference_update(drop)
            assert told.isdisjoint(add)
            told.update(add)
        bundles.check()
        assert told == set(bundles.bundles())
        assert sorted(label for each in told for label in each.labels) == sorted(labels) == sorted(bundles)
        assert not (renew and bundles.scattered)


def test_a_short_text_makes_no_large_filter() -> None:
    small = CountingFilter(FilterShape(16)).to_bytes()
    body = small[:12] + (1 << 32).to_bytes(8, "little") + small[20:-4]
    tracemalloc.start()
    try:
        with pytest.raises(LabelError, match="cannot have"):
            CountingFilter.from_bytes(body + zlib.crc32(body).to_bytes(4, "little"))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
