"""Filters of many boxes with attributes of their own: no array has an entry for each box and attribute."""

from __future__ import annotations

import random

import pytest

from weft.algebra.normalize import normalize
from weft.index import ScanIndex, TreeIndex
from weft.index.filter_columns import columns_of_filters
from weft.language.text import parse

OWN = " OR ".join(f"(a{n} > {n} AND b{n} < 5)" for n in range(250))
WIDE = " OR ".join(f"(x > {n} AND y < {n} AND z = {n % 7})" for n in range(200))
FEW = "x BETWEEN 3 AND 5 AND y > 2 OR z = 1"


def test_boxes_that_share_no_attributes_stay_out_of_the_arrays() -> None:
    columns = columns_of_filters([normalize(parse(text)).boxes for text in (OWN, FEW)])
    assert {name for name, _ in columns.columns} == {"x", "y", "z"}
    assert len(columns.odd) == 250
    assert columns.owners.tolist() == [0] * 250 + [1] * 2


@pytest.mark.parametrize("texts", [[OWN], [WIDE], [OWN, FEW, WIDE]])
def test_they_match_like_any_other(texts: list[str]) -> None:
    tree, scan = TreeIndex(tail=0), ScanIndex()
    forms = [normalize(parse(text)) for text in texts]
    tree.add_forms(range(len(texts)), forms)
    for sub, text in enumerate(texts):
        scan.add(sub, text)
    tree.check()
    rng = random.Random(1)
    for _ in range(300):
        n = rng.randrange(260)
        event = {f"a{n}": rng.randrange(400), f"b{n}": rng.randrange(10), "x": rng.randrange(210)}
        event |= {"y": rng.randrange(210), "z": rng.randrange(8)}
        assert sorted(tree.match(event).tolist()) == sorted(scan.match(event).tolist())


def test_a_large_filter_is_not_joined_with_others_for_a_few_events() -> None:
    index = TreeIndex(tail=0)
    index.add_forms([1], [normalize(parse(WIDE))])
    index.add_forms([2], [normalize(parse(WIDE))])
    for _ in range(50):
        index.match({"x": 1})
    index.settle()
    assert index.stats().segments == 2
    for _ in range(1_000):
        index.match({"x": 1})
    index.settle()
    assert index.stats().segments == 1
