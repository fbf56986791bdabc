"""Snapshots as data from elsewhere: changed, torn, linked, hostile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from functools import partial
from pathlib import Path

import pytest

from weft import normalize, to_filter
from weft.errors import FilterTooComplexError, SnapshotError
from weft.index import TreeIndex
from weft.language.meaning import matches
from weft.language.text import parse

MUTATIONS = Path(__file__).with_name("snapshot_mutations.py")


def hammered(folder: Path, first: int, count: int) -> str:
    """What went wrong when so many changed snapshots were opened; one process makes all the children."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(MUTATIONS), str(folder), str(first), str(count)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode or done.stdout else ""


def test_no_changed_snapshot_crashes_hangs_or_answers_wrongly(tmp_path: Path) -> None:
    assert hammered(tmp_path, 0, 60) == ""


@pytest.mark.slow
def test_ten_thousand_changed_snapshots(tmp_path: Path) -> None:
    assert hammered(tmp_path, 1_000_000, 10_000) == ""


PLANTED = """
import os, signal, sys
from pathlib import Path
from index import snapshot_mutations as mutations

real = mutations.look
def look(folder):
    real(folder) if folder.name == "base" else exec(sys.argv[2])
mutations.look, mutations.SECONDS = look, 0.2
print(mutations.hammer(Path(sys.argv[1]), 0, 1))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "noticed"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "ended by signal 11"),
        ("while True: pass", "ended by signal"),
        ("signal.pause()", "ended by signal 14"),
        ("assert False", "an error or a wrong answer"),
        ("os._exit(3)", "an error or a wrong answer"),
        ("pass", "[]"),
    ],
)
def test_a_child_that_crashes_hangs_or_fails_is_noticed(tmp_path: Path, fault: str, noticed: str) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PLANTED, str(tmp_path), fault]
    assert noticed in subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


def pairs_of_patterns(many: int) -> str:
    """A filter whose normal form has 2 ** many terms, each with a long text."""
    pairs = (f"(s LIKE '%a{n}%' OR s LIKE '%b{n}%')" for n in range(many))
    return " AND ".join(pairs) + f" AND s LIKE '%{'c' * 3_000}%'"


HOSTILE = [
    "x IN (" + ", ".join(str(2 * n) for n in range(9000)) + ")",
    "x IN (9007199254740993, " + ", ".join(str(2 * n) for n in range(3000)) + ")",
    pairs_of_patterns(4),
    " AND ".join(f"a{n} >= {n}" for n in range(500)),
    " OR ".join(f"(a{n} IN (1, 3) AND b{n} IN (1, 3) AND c{n} IN (1, 3) AND x != {n})" for n in range(150)),
    "x NOT IN (" + ", ".join(map(str, range(3000))) + ") AND s NOT LIKE '%z%z%' AND (t > u) IS NOT FALSE",
]
EVENTS = [
    {},
    {"x": 400},
    {"x": 401},
    {"x": 9007199254740993},
    {"x": 17_998.0, "s": "a"},
    {"s": "".join(f"a{n}" for n in range(8)) + "c" * 3_000},
    {f"a{n}": n for n in range(2000)},
    {"a7": 3, "b7": 1, "c7": 3, "x": 8},
    {"x": -5, "s": "zz", "t": 2, "u": 1},
    {"x": -5, "s": "q", "t": 2, "u": 1},
]


@pytest.mark.parametrize("tail", [0, 128])
def test_what_was_admitted_is_read_back(tmp_path: Path, tail: int) -> None:
    index = TreeIndex(tail=tail)
    for sub, text in enumerate([*HOSTILE, "x > 5"]):
        index.add(sub, text)
    index.snapshot(tmp_path / "index")
    opened = TreeIndex.open(tmp_path / "index")
    trusted = TreeIndex.open(tmp_path / "index", trusted=True)
    meant = [[matches(parse(text), event) for event in EVENTS] for text in [*HOSTILE, "x > 5"]]
    for sub, truths in enumerate(meant):
        shown = opened.filter(sub)
        assert shown == index.filter(sub)
        assert [matches(shown, event) for event in EVENTS] == truths
    for at, event in enumerate(EVENTS):
        wanted = [sub for sub, truths in enumerate(meant) if truths[at]]
        for each in (index, opened, trusted):
            assert sorted(each.match(event).tolist()) == wanted
            assert sorted(each.match_batch([event])[0].tolist()) == wanted
    opened.check()


@pytest.mark.parametrize("text", ["a = '' OR a > b", "a LIKE '' OR a LIKE '%x_y%'", "a IN ('', 'x') OR a > b"])
def test_the_empty_string_is_the_bottom_of_its_axis(tmp_path: Path, text: str) -> None:
    index = TreeIndex(tail=0)
    index.add(1, text)
    index.snapshot(tmp_path / "index")
    opened = TreeIndex.open(tmp_path / "index")
    for event in ({"a": ""}, {"a": "x"}, {"a": "xzy"}, {"a": 2, "b": 1}, {"a": 1}, {}):
        assert opened.match(event).tolist() == index.match(event).tolist() == [1] * matches(parse(text), event)


def test_what_could_not_be_read_back_is_refused_and_the_rest_is_saved(tmp_path: Path) -> None:
    index = TreeIndex()
    index.add(1, "x > 5")
    with pytest.raises(FilterTooComplexError):
        index.add(2, pairs_of_patterns(8))
    index.snapshot(tmp_path / "index")
    assert len(TreeIndex.open(tmp_path / "index")) == len(index) == 1


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    index = TreeIndex(tail=0)
    index.add_texts([1, 2, 3], ["x > 5", "s LIKE '%a%b'", "x IN (1, 5, 9)"])
    index.snapshot(tmp_path / "saved")
    return tmp_path / "saved"


def test_only_regular_files_of_the_directory_are_read(saved: Path) -> None:
    for victim in (saved / "index.json", saved / "tree_nodes.bin"):
        whole = victim.read_bytes()
        outside = saved.parent / victim.name
        outside.write_bytes(whole)
        for make, argument in (
            (victim.symlink_to, "/dev/zero"),
            (victim.symlink_to, outside),
            (partial(os.mkfifo, victim), 0o600),
            (victim.mkdir, 0o700),
        ):
            victim.unlink()
            make(argument)
            with pytest.raises(SnapshotError, match=victim.name):
                TreeIndex.open(saved)
        victim.rmdir()
        victim.write_bytes(whole)
    assert len(TreeIndex.open(saved)) == 3


def test_a_trusted_snapshot_is_not_read_but_has_its_size(saved: Path) -> None:
    changed = saved / "rows_lows.bin"
    whole = changed.read_bytes()
    changed.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])  # of the first line, which nobody needs
    with pytest.raises(SnapshotError, match="checksum"):
        TreeIndex.open(saved)
    assert TreeIndex.open(saved, trusted=True).match({"x": 9}).tolist() == [1, 3]
    changed.write_bytes(whole[:-1])
    with pytest.raises(SnapshotError, match=r"rows_lows\.bin is damaged"):
        TreeIndex.open(saved, trusted=True)


def test_files_are_found_by_their_names_alone(saved: Path) -> None:
    """What a snapshot says of its files cannot lead elsewhere: there is nothing to say but sizes and checksums."""
    sealed = json.loads((saved / "index.json").read_text())
    meta = json.loads(sealed["index"])
    meta["files"]["../outside"] = meta["files"]["tree_nodes"]
    meta["files"]["tree_nodes"] = meta["files"].pop("tree_ids")
    text = json.dumps(meta)
    (saved / "index.json").write_text(json.dumps({"checksum": zlib.crc32(text.encode()), "index": text}))
    with pytest.raises(SnapshotError, match=r"tree_nodes\.bin"):
        TreeIndex.open(saved)


@pytest.mark.parametrize("key", ["axes", "cuts", "numbers", "strings", "shape", "schema", "files", "version"])
@pytest.mark.parametrize("wrong", [["x"], {"x": 1}, "x", 5, [[1]], [None, {}], None])
def test_json_that_says_anything_else_is_refused(saved: Path, key: str, wrong: object) -> None:
    sealed = json.loads((saved / "index.json").read_text())
    meta = json.loads(sealed["index"])
    before = meta[key]
    meta[key] = wrong
    text = json.dumps(meta)
    (saved / "index.json").write_text(json.dumps({"checksum": zlib.crc32(text.encode()), "index": text}))
    if before == wrong or (key, wrong) == ("version", 5):  # an older one, which can be read
        assert len(TreeIndex.open(saved)) == 3
        return
    if key == "numbers" and wrong == {"x": 1}:  # no dimension is named so, and it has nothing to say
        assert len(TreeIndex.open(saved)) == 3
        return
    with pytest.raises(SnapshotError):
        TreeIndex.open(saved)


def test_a_filter_that_cannot_be_read_is_named(saved: Path) -> None:
    place = saved / "sources.bin"
    whole = bytearray(place.read_bytes())
    for at in range(64, len(whole)):
        whole[at] = 0xC1  # no MessagePack
    place.write_bytes(whole)
    sealed = json.loads((saved / "index.json").read_text())
    meta = json.loads(sealed["index"])
    meta["files"]["sources"]["checksum"] = zlib.crc32(bytes(whole))
    text = json.dumps(meta)
    (saved / "index.json").write_text(json.dumps({"checksum": zlib.crc32(text.encode()), "index": text}))
    with pytest.raises(SnapshotError, match="subscription 2"):
        TreeIndex.open(saved)


def test_a_filter_that_is_not_the_one_of_the_rows_is_refused(saved: Path) -> None:
    """The stored filter says x IN (1, 5, 9) and the rows say otherwise: `verify` derives them again."""
    place = saved / "sources.bin"
    whole = bytearray(place.read_bytes())
    at = whole.rindex(b"\x05\x01")
    whole[at] = 6
    whole[whole.rindex(b"\x05\x00", 0, at + 1)] = 6
    place.write_bytes(whole)
    sealed = json.loads((saved / "index.json").read_text())
    meta = json.loads(sealed["index"])
    meta["files"]["sources"]["checksum"] = zlib.crc32(bytes(whole))
    text = json.dumps(meta)
    (saved / "index.json").write_text(json.dumps({"checksum": zlib.crc32(text.encode()), "index": text}))
    with pytest.raises(SnapshotError, match="subscription 3 is not the one stored"):
        TreeIndex.open(saved)
    assert str(TreeIndex.open(saved, verify=False).filter(3)) == "x IN (1, 6, 9)"


WIDENED = [  # filters of several rows, some of whose tests no row makes: their ranges are widened to the whole axis
    "(a > 1 AND b > 1 AND c > 1) IS NULL",
    "(a > 1 AND b > 1 AND c > 1 AND d > 1) IS NULL",
    "(y = 1 AND z = 2 AND u = 3) IS NOT FALSE",
    "(t IN ('a', 'b', 'c', 'd') AND g IN (1, 2, 3, 4)) IS NULL",
    "(t IN ('a', 'b', 'c', 'd') AND g IN (1, 2, 3, 4) AND t != 'x' AND c IS NOT NULL) IS NULL",
    "t IN ('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i') AND g IN (1, 3, 5, 7, 9, 11, 13, 15)",
    "x != 3 AND y != 3 AND z != 3 AND w != 3 AND v != 3 AND u != 3 AND q != 3",
]


@pytest.mark.parametrize("text", WIDENED)
@pytest.mark.parametrize("others", [["s IN ('q', 'a', 'w', 'e')", "c != -19.0"], [f"k = {i}" for i in range(131)]])
@pytest.mark.parametrize("options", [{}, {"tail": 1, "fan": 2, "large": 50}, {"tail": 0, "fan": 2}])
def test_an_index_whose_segments_were_joined_can_be_opened_again(tmp_path, text, others, options):
    index = TreeIndex(**options)
    for number, each in enumerate([text, *others]):
        index.add(number, each)
    index.snapshot(tmp_path / "index")
    opened = TreeIndex.open(tmp_path / "index")
    for event in ({}, {"a": 2}, {"t": "a", "g": 3}, {"x": 4, "y": 1}, {"k": 7, "c": -19.0}):
        assert sorted(opened.match(event)) == sorted(index.match(event))


def test_a_snapshot_without_lists_has_the_older_format_and_one_with_lists_is_read_back(tmp_path):
    texts = [("x > 5", 6), ("tags HAS 'a' AND x > 5", 7), ("NOT tags HAS 'a'", 7), ("tags HAS LIKE 'a%'", 7)]
    texts += [("x HAS > 5", 7), ("tags NOT HAS (> 'a' AND < 'c') OR x HAS cidr('10.0.0.0/8')", 7)]
    for at, (text, version) in enumerate(texts):
        index = TreeIndex()
        index.add(1, text)
        index.snapshot(tmp_path / str(at))
        sealed = json.loads((tmp_path / str(at) / "index.json").read_text())
        assert json.loads(sealed["index"])["version"] == version
        opened = TreeIndex.open(tmp_path / str(at))
        for event in ({"tags": ["b", "a"], "x": 7}, {"tags": "a", "x": 7}, {"tags": ["b"]}, {"x": 7}):
            assert opened.match(event).tolist() == index.match(event).tolist()
        assert str(opened.filter(1)) == str(index.filter(1)) == str(to_filter(normalize(text)))
