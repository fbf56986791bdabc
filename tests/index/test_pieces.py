"""Substrings: what an automaton finds is what patterns mean, in every index, for every form of text."""

from __future__ import annotations

import pickle
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measured_work import measured
from strategies import thorough
from weft.algebra.box import Box
from weft.index import CountingIndex, ScanIndex, TreeIndex, snapshot
from weft.index.pieces import LONGEST, MOST_NEEDS, Need, Piece, Pieces, fitting, pieces_of
from weft.index.segment import TreeShape
from weft.language.meaning import matches
from weft.language.pattern import Pattern
from weft.language.text import parse

LETTERS = "abA"
TEXTS = ["".join(letters) for size in range(5) for letters in product(LETTERS, repeat=size)]


def quoted(text: str) -> str:
    return text.replace("'", "''")


words = st.text(LETTERS, min_size=1, max_size=3)
patterns = st.lists(st.one_of(words, st.just("%"), st.just("_")), min_size=1, max_size=5).map("".join)
likes = st.builds(
    lambda name, negated, operator, pattern: f"{name} {negated}{operator} '{pattern}'",
    st.sampled_from("st"),
    st.sampled_from(["", "NOT "]),
    st.sampled_from(["LIKE", "LIKE", "ILIKE"]),
    st.one_of(words.map(lambda word: f"%{word}%"), patterns),
)
filters = st.lists(st.one_of(likes, st.sampled_from(["x > 1", "x = 2", "s IS NULL"])), min_size=1, max_size=3).flatmap(
    lambda tests: st.sampled_from([" AND ", " OR "]).map(lambda junction: junction.join(tests))
)


def agree(indexes: list[TreeIndex | CountingIndex], filters: dict[int, str], events: list[dict[str, object]]) -> None:
    parsed = {sub: parse(text) for sub, text in filters.items()}
    wanted = [sorted(sub for sub, each in parsed.items() if matches(each, event)) for event in events]
    for index in indexes:
        assert [sorted(ids.tolist()) for ids in index.match_batch(events)] == wanted
        assert [sorted(index.match(event).tolist()) for event in events] == wanted  # type: ignore[arg-type]
        assert index.count_batch(events).tolist() == [len(ids) for ids in wanted]
        assert index.any_batch(events).tolist() == [bool(ids) for ids in wanted]
        index.check()


@given(st.lists(filters, min_size=1, max_size=12), st.lists(st.sampled_from(TEXTS), min_size=1, max_size=8), st.data())
@thorough(150)
def test_patterns_match_as_they_mean(some: list[str], texts: list[str], data: st.DataObject) -> None:
    events: list[dict[str, object]] = [{"s": text, "t": text[::-1], "x": len(text)} for text in texts]
    events += [{"s": None, "t": "a"}, {"s": 3, "t": True}, {}]
    tree = TreeIndex(tail=data.draw(st.sampled_from([0, 1000])), fan=2, shape=TreeShape(leaf=2, alpha=1.0))
    counting = CountingIndex()
    held = dict(enumerate(some))
    for index in (tree, counting):
        index.add_texts(held, some)
    agree([tree, counting], held, events)
    for sub in data.draw(st.sets(st.sampled_from(range(len(some))))):
        tree.discard(sub)
        counting.discard(sub)
        del held[sub]
    more = {100 + n: text for n, text in enumerate(data.draw(st.lists(filters, max_size=3)))}
    for sub, text in more.items():
        tree.add(sub, text)
        counting.add(sub, text)
    agree([tree, counting, pickle.loads(pickle.dumps(tree))], held | more, events)


@given(st.sets(st.text("ab\u00e9\u4e2d", min_size=1, max_size=4), min_size=1, max_size=12), st.text("ab\u00e9\u4e2d"))
@thorough(200)
def test_the_automaton_finds_what_a_text_contains(some: set[str], text: str) -> None:
    pieces = Pieces([Piece("s", False, each.encode()) for each in sorted(some)])
    found = pieces.find_one({"s": text}).numbers.tolist()
    assert len(found) == len(set(found))
    assert sorted(found) == [n for n, each in enumerate(sorted(some)) if each in text]


def test_overlapping_pieces_cost_no_more_than_the_text() -> None:
    """All of 'a', 'aa', 'aaa'... end at every place of the text; each is found once."""
    pieces = Pieces([Piece("s", False, b"a" * n) for n in range(1, 33)])
    assert len(pieces.find_one({"s": "a" * 1_000_000}).numbers) == 32


def test_long_and_many_pieces_are_exact() -> None:
    long = "x" * LONGEST
    more = "".join(f"{n:04d}" for n in range(LONGEST))
    texts = {
        0: f"s LIKE '%{long}y%'",
        1: f"s LIKE '%{long}z%'",
        2: f"s LIKE '%{long}%'",
        3: " AND ".join(f"s LIKE '%<{n}>%'" for n in range(MOST_NEEDS + 5)),
        4: " AND ".join(f"s NOT LIKE '%<{n}>%'" for n in range(MOST_NEEDS + 5)),
        5: f"s ILIKE '%{'ß' * LONGEST}%' AND s NOT LIKE '%{long}%'",
        6: "s LIKE '%" + "é" * LONGEST + "%'",
        7: f"s LIKE '%{more}%' AND s NOT LIKE '%{more}!%'",
    }
    every = "".join(f"<{n}>" for n in range(MOST_NEEDS + 5))
    some = [long, long + "y", long + "z", every, every.replace("<12>", "<2>"), "é" * LONGEST, "SS" * LONGEST, "", "<3>"]
    some += [more, more + "!", more[1:], more[:-1], "?" + more + "?"]
    index, counting = TreeIndex(tail=0), CountingIndex()
    for each in (index, counting):
        each.add_texts(texts, texts.values())
    agree([index, counting], texts, [{"s": text} for text in some])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_columns_of_arrow_are_read_where_they_are(kind: pa.DataType) -> None:
    texts = {
        0: "s LIKE '%ab%'",
        1: "s LIKE '%b%' AND s NOT LIKE '%c%'",
        2: "s ILIKE '%AB%'",
        3: "s IS NULL",
        4: "x > 3",
    }
    some = ["ab", None, "", "xbx", "abc", "b", "AB", None, "zzab"]
    index, oracle = TreeIndex(tail=0), ScanIndex()
    for each in (index, oracle):
        each.add_texts(texts, texts.values())
    array: pa.Array = pa.array(some, kind)
    for first, size in ((0, 9), (2, 5), (1, 1), (4, 0)):
        batch = pa.record_batch({"s": array.slice(first, size), "x": np.arange(size)})
        wanted = [sorted(oracle.match(row).tolist()) for row in batch.to_pylist()]
        assert [sorted(ids.tolist()) for ids in index.match_batch(batch)] == wanted
    assert [sorted(ids.tolist()) for ids in index.match_batch(pa.record_batch({"x": [9]}))] == [[3, 4]]
    nothing = pa.record_batch({"s": pa.array([None, None], pa.string())})
    assert [sorted(ids.tolist()) for ids in index.match_batch(nothing)] == [[3], [3]]


def test_exact_substrings_never_evaluate_a_box(tmp_path: Path) -> None:
    index = TreeIndex(tail=0)
    index.add_texts(
        range(3),
        ["s LIKE '%a%' AND x > 5", "s LIKE '%a%' AND s LIKE '%b%' AND s NOT LIKE '%c%'", "s ILIKE '%a%' OR x = 1"],
    )
    index.snapshot(tmp_path / "index")
    for each in (index, TreeIndex.open(tmp_path / "index")):
        rows = each._version.views[0].segment.rows
        assert not rows.boxes
        assert len(rows.pieces) == 4
    index.add_texts([3], ["s LIKE '%a%b%'"])
    assert any(view.segment.rows.boxes for view in index._version.views)


def test_pieces_that_no_subscription_needs_are_forgotten() -> None:
    index = TreeIndex()
    index.add_texts(range(3_000), [f"s LIKE '%piece {n} of many%' AND x > {n}" for n in range(3_000)])
    before = index.stats().bytes_for_matching
    index.discard_many(range(20, 3_000))
    index.settle()
    assert index.stats().bytes_for_matching < before / 20
    assert index.match({"s": "this is piece 7 of many", "x": 9}).tolist() == [7]


def test_large_portions_are_searched_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.index.lookup._MOST_CODES", 20)
    texts = {n: f"s LIKE '%{letters}%' AND x > {n % 3}" for n, letters in enumerate(TEXTS[1:])}
    texts |= {1000: "x > 2", 1001: "s LIKE '%a%b%'"}
    index = TreeIndex(tail=0)
    index.add_texts(texts, texts.values())
    agree([index], texts, [{"s": "abAb" * size, "x": size} for size in range(6)])


def test_of_a_pattern_with_many_chunks_only_the_longest_are_looked_for() -> None:
    pattern = Pattern.of(f"%{'%'.join('ab' * (n % 9) + str(n) for n in range(8_000))}%")
    found = pieces_of("s", pattern)
    assert len(found) <= MOST_NEEDS + 1
    every = {Piece("s", False, chunk.encode()) for segment in pattern.segments[1:-1] for chunk in segment}
    assert fitting(Need(piece, True) for piece in found) == fitting(Need(piece, True) for piece in every)


def test_a_chunk_that_comes_again_and_again_is_looked_for_once() -> None:
    pattern = Pattern.of(f"a%{'b%' * 5_000}c%")
    found, _, lines = measured(lambda: pieces_of("s", pattern))
    assert [piece.data for piece in found] == [b"b", b"c"]
    assert lines < 100


def test_rows_with_many_needs_match_as_they_mean() -> None:
    """From no need besides the anchor to as many as a row may have, wanted or not."""
    rng = np.random.default_rng(5)
    words = ["".join(letters) for letters in product(LETTERS, repeat=2)]
    texts = {}
    for sub in range(300):
        chosen = rng.permutation(words)[: rng.integers(1, MOST_NEEDS + 1)]
        tests = [f"s {'NOT ' if rng.random() < 0.3 else ''}LIKE '%{word}%'" for word in chosen]
        texts[sub] = " AND ".join([*tests, *(["x > 3"] if rng.random() < 0.3 else [])])
    assert {text.count("LIKE") for text in texts.values()} == set(range(1, MOST_NEEDS + 1))
    index = TreeIndex()
    index.add_texts(texts, texts.values())
    events: list[dict[str, object]] = [
        {"s": "".join(rng.choice(list(LETTERS), int(rng.integers(0, 30)))), "x": int(rng.integers(0, 8))}
        for _ in range(60)
    ]
    agree([index], texts, events)


class _Evaluated:
    """Counts the boxes that are evaluated."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.boxes = 0
        admits = Box.admits

        def counted(box: Box, values: Any) -> bool:
            self.boxes += 1
            return admits(box, values)

        monkeypatch.setattr(Box, "admits", counted)


LONG_PATH = "/".join(f"{n:x}" for n in range(150))
COMMON = {
    "beginning": "https://shop.example.com/products/{:06d}",
    "end": "{:06d}.pictures.shop.example.com/products/index.html",
    "both": "https://shop.example.com/products/{:06d}/pictures/of/all/our/customers/index.html",
    "long beginning": LONG_PATH + "/{:06d}",
    "long end": "{:06d}/" + LONG_PATH,
    "long both": LONG_PATH + "/{:06d}/" + LONG_PATH,
}


@pytest.mark.parametrize("like", ["LIKE", "ILIKE"])
@pytest.mark.parametrize("shape", COMMON.values(), ids=COMMON.keys())
@pytest.mark.parametrize("step", [20, 500])
def test_what_substrings_have_in_common_is_not_evaluated(
    shape: str, like: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 500 URLs, an event has one. Whatever else they share, a bounded number of filters is evaluated."""
    index = TreeIndex(tail=0)
    for first in range(0, 500, step):
        subs = range(first, first + step)
        index.add_texts(subs, [f"url {like} '%{shape.format(n)}%'" for n in subs])
    index.settle()
    evaluated = _Evaluated(monkeypatch)
    assert index.match({"url": f"GET {shape.format(77)}?q=1"}).tolist() == [77]
    found = index.match_batch([{"url": shape.format(n)} for n in (3, 499, 600)])
    assert [each.tolist() for each in found] == [[3], [499], []]
    assert evaluated.boxes <= (3 if len(shape) > LONGEST else 0)


@given(
    st.lists(st.text("ab", min_size=1, max_size=14), min_size=1, max_size=10),
    st.lists(st.text("ab", max_size=20), min_size=1, max_size=6),
    st.sampled_from([1, 3, 5]),
    st.booleans(),
)
@thorough(100)
def test_texts_that_are_cut_match_as_they_mean(some: list[str], texts: list[str], longest: int, negated: bool) -> None:
    """With pieces of few bytes, cut after one, all branches are reached by short texts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("weft.index.pieces.LONGEST", longest)
        patch.setattr("weft.index.alternatives.LONGEST", longest)
        patch.setattr("weft.index.pieces.LEAST", 1)
        held = {at: f"s {'NOT ' * (negated and at % 2)}LIKE '%{text}%'" for at, text in enumerate(some)}
        index = TreeIndex(tail=0)
        index.add_texts(held, held.values())
        agree([index], held, [{"s": text} for text in texts])


def test_parts_of_a_long_text_cover_it() -> None:
    """As many bytes as a row has pieces; of longer ones the beginning, the end, and some between."""
    for size in (LONGEST + 1, 2 * LONGEST, 5 * LONGEST + 3, MOST_NEEDS * LONGEST, 40 * LONGEST):
        text = bytes(np.random.default_rng(size).integers(97, 123, size, np.uint8)).decode()
        found = [piece.data.decode() for piece in pieces_of("s", Pattern.of(f"%{text}%"))]
        assert len(found) <= MOST_NEEDS
        assert all(len(part) == LONGEST for part in found)
        places = [text.index(part) for part in found]
        assert places[0] == 0
        assert places[-1] == size - LONGEST
        if size <= MOST_NEEDS * LONGEST:
            assert all(later - place <= LONGEST for place, later in pairwise(places))


def test_snapshots_of_shorter_pieces_are_opened(tmp_path: Path) -> None:
    """Format 5 kept the first 32 bytes of a text. Its filters are read, and looked for as they are now."""
    shape = COMMON["beginning"]
    texts = {n: f"url LIKE '%{shape.format(n // 2)}%' AND x > {n % 3}" for n in range(40)}
    texts |= {100: "x > 1", 101: "y BETWEEN 2 AND 3", 102: f"url NOT LIKE '%{shape.format(3)}%'", 103: texts[7]}
    old = tmp_path / "index"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("weft.index.pieces.LONGEST", 32)
        patch.setattr("weft.index.alternatives.LONGEST", 32)
        patch.setattr("weft.index.pieces._parts", lambda data: [data[:32]])
        patch.setattr(snapshot, "_WITHOUT_LISTS", 5)
        index = TreeIndex()
        index.add_texts(texts, texts.values())
        assert index._version.views[0].segment.rows.boxes
        index.snapshot(old)
    events: list[dict[str, object]] = [{"url": shape.format(n), "x": n % 4, "y": n} for n in range(22)]
    for arguments in ({}, {"verify": False}, {"trusted": True}):
        opened = TreeIndex.open(old, **arguments)
        agree([opened], texts, events)
        assert [str(opened.filter(sub)) for sub in texts] == [str(index.filter(sub)) for sub in texts]
        assert not opened._version.views[0].segment.rows.boxes
        opened.snapshot(tmp_path / "new")
        agree([TreeIndex.open(tmp_path / "new")], texts, events)
