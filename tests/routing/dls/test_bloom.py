"""Counting filters and exact counts against plain counters, a peer, and themselves without a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probables import CountingBloomFilter

from strategies import thorough
from weft.kernels import hashing
from weft.routing.dls.structure import CountingFilter, FilterShape, LabelCounts

LABELS = st.lists(st.sampled_from([0, 1, 2, 3, 5, 8, 1 << 31, (1 << 32) + 1, (1 << 62) - 1]), max_size=40)
SHAPES = st.builds(
    FilterShape,
    st.sampled_from((4, 8, 16, 256)),
    hashes=st.integers(1, 4),
    bits=st.sampled_from((4, 8)),
    seed=st.sampled_from((0, 7, (1 << 32) - 1)),
)
CHANGES = st.lists(st.tuples(st.booleans(), LABELS), max_size=12)


class PlainFilter:
    """The oracle: a list of counters, and the rules in words."""

    def __init__(self, shape: FilterShape) -> None:
        self.shape, self.counters, self.full = shape, [0] * shape.size, (1 << shape.bits) - 1

    def places(self, label: int) -> list[int]:
        first, second = hashing.two(label, self.shape.seed)
        return [(first + i * second) % self.shape.size for i in range(self.shape.hashes)]

    def change(self, label: int, by: int) -> None:
        for place in self.places(label):
            if self.counters[place] < self.full:
                self.counters[place] += by

    def count(self, label: int) -> int:
        return min(self.counters[place] for place in self.places(label))


@given(SHAPES, CHANGES)
@thorough(150)
def test_a_filter_counts_as_plain_counters_do(shape: FilterShape, changes: list[tuple[bool, list[int]]]) -> None:
    made, plain, held = CountingFilter(shape), PlainFilter(shape), Counter[int]()
    for out, some in changes:
        labels = [*(Counter(some) & held).elements()] if out else some
        if out:
            made.remove(labels)
            held.subtract(labels)
        else:
            made.add(labels)
            held.update(labels)
        for label in labels:
            plain.change(label, -1 if out else 1)
        asked = [*range(10), *held]
        assert made.counts(asked).tolist() == [plain.count(label) for label in asked]
        assert made.contains([label for label, count in held.items() if count]).all(), "a label is lost"
    assert len(made) == held.total()
    assert made.saturated == sum(count == plain.full for count in plain.counters)
    assert CountingFilter.from_bytes(made.to_bytes()) == made


@given(CHANGES)
@thorough(150)
def test_exact_counts_are_those_of_a_counter(changes: list[tuple[bool, list[int]]]) -> None:
    made, held = LabelCounts(slots=2), Counter[int]()
    for out, some in changes:
        labels = [*(Counter(some) & held).elements()] if out else some
        before = +held
        if out:
            changed = made.remove(labels)
            held.subtract(labels)
            assert sorted(changed.tolist()) == sorted(set(before) - set(+held))
        else:
            changed = made.add(labels)
            held.update(labels)
            assert sorted(changed.tolist()) == sorted(set(+held) - set(before))
        made.check()
        assert made.labels().tolist() == sorted(+held)
        assert made.counts(range(10)).tolist() == [held[label] for label in range(10)]


@pytest.mark.parametrize("size", [4, 64])
def test_hashes_of_one_label_are_all_different(size: int) -> None:
    for label in range(200):
        first, second = hashing.two(label, 3)
        assert len({(first + i * second) % size for i in range(4)}) == 4


@pytest.mark.parametrize("seed", [0, 1])
def test_the_rate_is_the_expected_one_and_no_worse_than_a_peers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.choice(1 << 20, 3_000, replace=False)  # dense, as labels are
    inside, outside = labels[:1_000], labels[1_000:]
    peer = CountingBloomFilter(est_elements=1_000, false_positive_rate=0.05)
    made = CountingFilter(FilterShape(1 << 13, hashes=peer.number_hashes, seed=seed))
    made.add(inside)
    for label in inside.tolist():
        peer.add(str(label))
    assert made.contains(inside).all()
    assert all(peer.check(str(label)) for label in inside.tolist())
    measured = float(made.contains(outside).mean())
    theirs = float(np.mean([peer.check(str(label)) > 0 for label in outside.tolist()]))
    spread = 4 * (made.shape.rate(1_000) / len(outside)) ** 0.5
    assert abs(measured - made.shape.rate(1_000)) <= spread
    assert abs(made.likely - made.shape.rate(1_000)) <= spread
    assert theirs > 0.02  # the peer has fewer counters for the same labels
    assert measured <= theirs
    made.remove(inside[:500])
    for label in inside[:500].tolist():
        peer.remove(str(label))
    assert made.contains(inside[500:]).all()
    assert all(peer.check(str(label)) for label in inside[500:].tolist())
    assert made.contains(outside).mean() < measured


def test_kernels_run_without_a_compiler() -> None:
    root = Path(__file__).parents[3]
    files = [
        __file__,
        *(str(root / "tests" / each) for each in ("routing/dls/test_labels.py", "routing/dls/test_label_table.py")),
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k"]
    paths = os.pathsep.join([str(root / "src"), str(root / "tests")])
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": paths}
    asked = "not compiler and (counts or counter or figure or brute or goldens or trickle)"
    ran = subprocess.run([*command, asked], env=environment, cwd=root, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_goldens_of_the_hashes() -> None:
    """Filters travel between machines, so the hashes must never change."""
    found = [hashing.two(label, seed) for label in (0, 1, (1 << 62) - 1) for seed in (0, (1 << 32) - 1)]
    assert [tuple(map(int, each)) for each in found] == GOLDEN


GOLDEN = [
    (0, 4229064327),
    (4153963261, 3164487439),
    (2559824526, 3021643789),
    (3789430214, 1145327569),
    (1390959478, 4205120571),
    (2282358389, 1316110621),
]
