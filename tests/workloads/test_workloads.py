"""Workloads are what reference/workloads.md says, and the same for the same seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import isnan

import numpy as np
import pyarrow as pa
import pytest

from weft import matches, parse
from weft.errors import SchemaError
from weft.workloads import WORKLOADS, Workload, mixed, titles
from weft.workloads.titles import w7

NAMES = list(WORKLOADS)
PUBLISHED = {"W1": 0.37, "W2": 118, "W3": 73, "W4": 86, "W5": 331}  # matches per event at 100,000
EVENTS = {"W1": 3_000, "W2": 4_000, "W3": 4_000, "W4": 300, "W5": 300}  # enough for a steady mean


def scan(workload: Workload) -> Iterator[np.ndarray]:
    """For each event, which subscriptions match by the definition of bounds."""
    columns = []
    for name, column in workload.bounds.items():
        values = workload.table.column(name)
        if isinstance(column, tuple):
            columns.append((*column, values.to_numpy()))
        else:  # strings as numbers, so that a scan of many events is quick
            number = {word: float(at) for at, word in enumerate({*column.to_pylist(), *values.to_pylist()} - {None})}
            codes = np.array([number.get(word, np.nan) for word in column.to_pylist()])
            columns.append((codes, codes, np.array([number[word] for word in values.to_pylist()])))
    for at in range(workload.table.num_rows):
        rows = np.ones(len(workload), bool)
        for low, high, values in columns:
            rows &= ~((values[at] < low) | (values[at] > high))
        yield rows


def inside(workload: Workload, row: int) -> dict[str, object]:
    """Values of the attributes that a subscription names, as it wants them."""
    wanted = {}
    for name, column in workload.bounds.items():
        if not isinstance(column, tuple):
            wanted[name] = column[row].as_py()
        else:
            wanted[name] = None if isnan(column[0][row]) else float(column[0][row])
    return {name: value for name, value in wanted.items() if value is not None}


@pytest.mark.parametrize("name", NAMES)
def test_sizes_are_as_asked(name: str) -> None:
    workload = WORKLOADS[name](70, 30)
    assert (workload.name, len(workload), workload.table.num_rows) == (name, 70, 30)
    assert list(workload.bounds) == workload.table.schema.names
    assert len(workload.texts()) == 70
    assert workload.texts(20) == workload.texts()[:20]
    assert [batch.num_rows for batch in workload.batches(20)] == [20, 10]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_workload(name: str) -> None:
    one, same, other = (WORKLOADS[name](40, 20, seed) for seed in (3, 3, 4))
    assert one.texts() == same.texts()
    assert one.table.equals(same.table)
    assert one.texts() != other.texts()
    assert not one.table.equals(other.table)


@pytest.mark.parametrize("name", NAMES)
def test_subscriptions_and_events_do_not_depend_on_each_others_number(name: str) -> None:
    few, many = WORKLOADS[name](40, 20), WORKLOADS[name](40, 500)
    assert few.texts() == many.texts()
    assert few.table.equals(WORKLOADS[name](900, 20).table)


@pytest.mark.parametrize("name", PUBLISHED)
def test_matches_per_event_are_the_published_ones(name: str) -> None:
    workload = WORKLOADS[name](100_000, EVENTS[name])
    found = sum(int(rows.sum()) for rows in scan(workload))
    assert found / EVENTS[name] == pytest.approx(PUBLISHED[name], rel=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_texts_mean_what_bounds_mean(name: str) -> None:
    workload = WORKLOADS[name](150, 40)
    filters = [parse(text) for text in workload.texts()]
    events = workload.table.to_pylist()
    for row in range(0, 150, 5):  # an event inside a subscription, so that there are matches
        events.append(events[row % 40] | inside(workload, row))
    workload = replace(workload, table=pa.RecordBatch.from_pylist(events))
    found = [[matches(each, event) for each in filters] for event in events]
    assert found == [rows.tolist() for rows in scan(workload)]
    assert sum(map(sum, found)) >= 30


def test_the_predicates_are_the_described_ones() -> None:
    w1 = WORKLOADS["W1"](20_000, 2_000)
    for low, high in w1.bounds.values():
        assert (low.min(), low.max(), high.max()) == (0, 255, 255)
        assert ((high - low == 3) | (high == 255)).all()
    w2 = WORKLOADS["W2"](20_000, 2_000)
    lows = np.bincount(w2.bounds["x"][0].astype(int))
    assert lows[0] / lows[1] == pytest.approx(2, rel=0.1)
    w3 = WORKLOADS["W3"](20_000, 2_000)
    assert len(set(w3.bounds["symbol"].to_pylist())) > 900
    assert np.isnan(w3.bounds["volume"][1]).all()
    w4 = WORKLOADS["W4"](20_000, 10)
    named = np.array([~np.isnan(low) for low, _ in w4.bounds.values()])
    assert (named.sum(axis=0) == 3).all()
    assert named.mean(axis=1) == pytest.approx(np.full(10, 0.3), rel=0.05)
    w5 = WORKLOADS["W5"](20_000, 1_000)
    named = np.array([~np.isnan(b[0]) if isinstance(b, tuple) else b.is_valid() for b in w5.bounds.values()])
    assert set(named.sum(axis=0)) == set(range(2, 9))
    assert named.mean(axis=1) == pytest.approx(np.full(20, 0.25), rel=0.1)
    assert [len(set(w5.bounds[f"c{n}"].to_pylist()) - {None}) for n in (0, 3, 7)] == [5, 20, 100]
    widths = w5.bounds["n0"][1] - w5.bounds["n0"][0]
    assert np.nanmax(widths) < 5_000


def test_a_mixed_market_differs_in_every_tenth_filter() -> None:
    market = mixed(300, 400)
    odd = [row for row in range(300) if market.texts[row] != market.plain[row]]
    assert odd == list(range(9, 300, 10))
    for kind in (" LIKE '%", "price > volume", "volume IS NULL"):
        assert sum(kind in text for text in market.texts) == 10
    for text in market.texts:
        parse(text)
    assert 5 < market.table.column("volume").null_count < 50
    assert market.table.equals(mixed(300, 400).table)


def test_odd_names_values_and_missing_sides_become_texts() -> None:
    nan = np.nan
    bounds = {"a b": (np.array([1.5, nan, nan]), np.array([nan, -2.0, nan])), "k": pa.array([None, "it's", None])}
    workload = Workload("odd", bounds, pa.record_batch({"a b": [2.0], "k": ["it's"]}))
    assert workload.texts() == ['"a b" >= 1.5', "\"a b\" <= -2 AND k = 'it''s'", "TRUE"]
    assert [matches(parse(text), workload.table.to_pylist()[0]) for text in workload.texts()] == [True, False, True]


def test_columns_of_unlike_lengths_are_refused() -> None:
    with pytest.raises(SchemaError, match="same number of bounds"):
        Workload("bad", {"x": (np.zeros(2), np.zeros(2)), "k": pa.array(["a"])}, pa.record_batch({"x": [1.0]}))


def test_w6_has_few_filters_and_popular_ones() -> None:
    workload = WORKLOADS["W6"](10_000, 10)
    texts = Counter(workload.texts())
    assert len(texts) <= 200
    assert texts.most_common(1)[0][1] > 1_000


def test_w7_is_as_described_and_the_same_for_the_same_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(titles, "WORDS", 2_000)
    one, same, other = (w7(300, 100, seed) for seed in (3, 3, 4))
    assert one.texts() == same.texts() != other.texts()
    assert one.table.equals(same.table)
    assert not one.table.equals(other.table)
    assert {len(words) for words in one.words} == {1, 2, 3}
    assert {len(title.split()) for title in one.table.column("title").to_pylist()} == set(range(5, 16))
    assert one.texts(7) == one.texts()[:7]
    assert [batch.num_rows for batch in one.batches(60)] == [60, 40]
    filters = [parse(text) for text in one.texts()]
    for event in one.table.to_pylist()[:20]:
        wanted = [
            low <= event["price"] <= high and all(word in event["title"] for word in words)
            for words, low, high in zip(one.words, one.low, one.high, strict=True)
        ]
        assert [matches(each, event) for each in filters] == wanted
