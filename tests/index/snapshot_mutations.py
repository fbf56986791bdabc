"""Snapshots changed at random, each opened and searched in a child process. Law: a child ends well, or with an error
that Weft raised on purpose; what it finds is what the filters that the snapshot says it holds mean.

Run as a program: `python snapshot_mutations.py FOLDER FIRST COUNT` prints a line for each child that ended badly.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import struct
import sys
import traceback
import zlib
from pathlib import Path
from typing import Any

from weft.errors import WeftError
from weft.index import TreeIndex
from weft.index.segment import TreeShape
from weft.language.meaning import matches

SECONDS = 20.0  # of processor time that a child may take

_CODES = {"int32": "i", "uint32": "I", "uint16": "H", "int64": "q", "uint8": "B", "float64": "d"}
_HEAD = 64
_ODD_NUMBERS = (-(2**31), -2, -1, 0, 1, 2, 3, 7, 8, 31, 32, 33, 64, 255, 256, 65535, 65536, 2**20, 2**31 - 1)


def texts() -> list[str]:
    """Filters of every kind that a snapshot stores otherwise."""
    rng = random.Random(5)
    plain = []
    for n in range(160):
        low = rng.randrange(1000)
        plain.append(
            rng.choice(
                [
                    f"x BETWEEN {low} AND {low + rng.randrange(40)} AND y > {rng.randrange(100)}",
                    f"y BETWEEN {low} AND {low + 5}.5 OR x = {low}",
                    f"s = 'w{n % 30}' AND x < {low}",
                    f"x IN ({low}, {low + 3}, {low + 9}) AND s != 'w{n % 7}'",
                    f"s LIKE '%{n % 10}' AND x > {low}",
                    f"s LIKE 'w%{n % 10}%' OR y = {low}",
                    f"s LIKE '%{n % 10}%' AND s LIKE '%w%' AND y > {low}",
                    f"s NOT LIKE '%{n % 5}%' AND s ILIKE '%W{n % 4}%' AND x < 500",
                    "s = 'w1' AND x < 700",
                    f"x > y AND x < {low}",
                    f"t > TIMESTAMP '2018-01-{1 + n % 28:02}' AND x IS NOT NULL",
                ]
            )
        )
    return [*plain, "x = 9007199254740993 OR x IN (1, 5)", "b AND x > 3", "x IS NULL", "TRUE", "FALSE"]


def base(folder: Path) -> Path:
    """A snapshot to be changed: a tree with inner nodes, columns of several widths, and all kinds of filters."""
    index = TreeIndex(shape=TreeShape(leaf=8, alpha=1.0))
    some = texts()
    index.add_texts(range(100, 100 + len(some)), some)
    index.snapshot(folder / "base")
    return folder / "base"


def events() -> list[dict[str, Any]]:
    """Events that meet many of the filters."""
    rng = random.Random(6)
    made: list[dict[str, Any]] = [{}, {"x": 9007199254740993}, {"x": 9007199254740992.0}, {"x": "w1", "s": 5}]
    for n in range(30):
        event: dict[str, Any] = {
            "x": rng.choice([rng.randrange(1000), rng.uniform(0, 1000), float(rng.randrange(1000))])
        }
        if n % 2:
            event["y"] = float(rng.randrange(1000))
        if n % 3:
            event["s"] = f"w{rng.randrange(35)}"
        if n % 5 == 0:
            event["b"] = bool(n % 2)
        made.append(event)
    return made


# -- changes -----------------------------------------------------------------------------------------


def change(folder: Path, rng: random.Random) -> str:
    """Change a snapshot; returns what was done."""
    how = rng.random()
    if how < 0.35:
        return _flip(folder, rng)
    if how < 0.40:
        return _odd_file(folder, rng)
    sealed = json.loads((folder / "index.json").read_text())
    meta = json.loads(sealed["index"])
    said = _change_meta(meta, rng) if how < 0.55 else _change_arrays(folder, meta, rng)
    text = json.dumps(meta, ensure_ascii=False)
    (folder / "index.json").write_text(
        json.dumps({"checksum": zlib.crc32(text.encode()), "index": text}, ensure_ascii=False)
    )
    return said


def _flip(folder: Path, rng: random.Random) -> str:
    """Bytes changed, added or cut off; the checksums stay."""
    victim = rng.choice(sorted(folder.iterdir()))
    whole = bytearray(victim.read_bytes())
    for _ in range(rng.choice((1, 1, 1, 4, 64))):
        whole[rng.randrange(len(whole))] = rng.randrange(256)
    if rng.random() < 0.2:
        whole = whole[: rng.randrange(len(whole))]
    elif rng.random() < 0.2:
        whole += whole[: rng.randrange(len(whole))]
    victim.write_bytes(whole)
    return f"bytes of {victim.name}"


def _odd_file(folder: Path, rng: random.Random) -> str:
    """A file that is none: a link, a FIFO, a directory, or not there."""
    victim = rng.choice(sorted(folder.iterdir()))
    victim.unlink()
    how = rng.randrange(5)
    if how == 0:
        victim.symlink_to("/dev/zero")
    elif how == 1:
        os.mkfifo(victim)
    elif how == 2:
        victim.mkdir()
    elif how == 3:
        victim.symlink_to(folder.parent / "base" / victim.name)
    return f"{victim.name} as ({'/dev/zero', 'a FIFO', 'a directory', 'a link', 'nothing'})[{how}]"


def _change_arrays(folder: Path, meta: Any, rng: random.Random) -> str:
    """Numbers of arrays changed, and all checksums made anew."""
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        name = rng.choice(sorted(meta["files"]))
        said, place = meta["files"][name], folder / f"{name}.bin"
        code = _CODES[said["type"]]
        data = place.read_bytes()[_HEAD:]
        values = list(struct.unpack(f"<{said['length']}{code}", data))
        for _ in range(rng.choice((1, 1, 2, 16))):
            _change_list(values, rng, code)
        head = f"weft array {said['type']} {len(values)}".encode().ljust(_HEAD - 1) + b"\n"
        whole = head + struct.pack(f"<{len(values)}{code}", *(_fitting(value, code) for value in values))
        place.write_bytes(whole)
        said["length"], said["checksum"] = len(values), zlib.crc32(whole)
        done.append(name)
    return f"numbers of {', '.join(done)}"


def _change_list(values: list[Any], rng: random.Random, code: str) -> None:
    how = rng.random()
    if not values or how < 0.08:
        values.insert(rng.randrange(len(values) + 1), rng.choice(_ODD_NUMBERS))
        return
    at = rng.randrange(len(values))
    if how < 0.16:
        del values[at]
    elif how < 0.4:
        values[at] = values[rng.randrange(len(values))]
    elif how < 0.6:
        values[at] += rng.choice((-1, 1, -32, 32, 0.5 if code == "d" else 8))
    elif how < 0.7:
        other = rng.randrange(len(values))
        values[at], values[other] = values[other], values[at]
    elif how < 0.75 and code == "d":
        values[at] = rng.choice((float("nan"), float("inf"), -0.0, 1e308))
    else:
        values[at] = rng.choice(_ODD_NUMBERS)


def _fitting(value: Any, code: str) -> Any:
    if code == "d":
        return float(value)
    size = 8 * struct.calcsize(f"<{code}")
    wrapped = int(value) % 2**size
    return wrapped - 2**size if code in "iq" and wrapped >= 2 ** (size - 1) else wrapped


def _change_meta(meta: Any, rng: random.Random) -> str:
    """Something in the JSON changed, and its checksum made anew."""
    places: list[tuple[Any, Any]] = []
    waiting = [meta]
    while waiting:
        node = waiting.pop()
        for key, below in list(node.items()) if isinstance(node, dict) else list(enumerate(node)):
            places.append((node, key))
            if isinstance(below, dict | list):
                waiting.append(below)
    for _ in range(rng.choice((1, 1, 2))):
        node, key = rng.choice(places)
        other = rng.choice(places)
        try:
            old = node[key]
            if rng.random() < 0.2:
                del node[key]
            else:
                node[key] = rng.choice(
                    [
                        None,
                        -1,
                        0,
                        1,
                        10**30,
                        1.5,
                        "",
                        "x",
                        "../outside",
                        "\ud800",
                        [],
                        {},
                        True,
                        other[0][other[1]],
                        old + 1 if isinstance(old, int) else old,
                        old[::-1] if isinstance(old, str | list) else old,
                    ]
                )
        except (KeyError, IndexError):
            continue
        try:
            json.dumps(meta, ensure_ascii=False).encode()
        except (ValueError, RecursionError):  # it holds itself, or is no text: cannot be written
            node[key] = old
    return "the JSON"


# -- children ----------------------------------------------------------------------------------------


def look(folder: Path) -> None:
    """Open and search a snapshot, compare, change it and look again; errors of Weft's own are fine."""
    try:
        index = TreeIndex.open(folder)
    except WeftError:
        return
    some = events()
    _compare(index, some)
    index.check()
    index.add(-5, "x > 500")
    index.discard(int(index._version.views[0].segment.rows.subs[0]) if len(index) > 1 else 7)
    _compare(index, some[:8])
    index.snapshot(folder.parent / f"again-{os.getpid()}")
    _compare(TreeIndex.open(folder.parent / f"again-{os.getpid()}"), some[:8])


def _compare(index: TreeIndex, some: list[dict[str, Any]]) -> None:
    version = index._version
    subs = [*version.tail]
    for view in version.views:
        alive = view.alive.copy()
        alive[list(view.dead)] = False
        subs += view.segment.rows.subs[alive].tolist()
    try:
        known = {sub: index.filter(sub) for sub in subs}
    except WeftError:
        return
    wanted = [sorted(sub for sub, held in known.items() if matches(held, event)) for event in some]
    found = [sorted(ids.tolist()) for ids in index.match_batch(some)]
    one = [sorted(index.match(event).tolist()) for event in some]
    assert found == wanted, "a batch is answered wrongly"
    assert one == wanted, "an event is answered wrongly"
    assert index.count_batch(some).tolist() == [len(ids) for ids in wanted]


def hammer(folder: Path, first: int, count: int) -> list[str]:
    """Change and look at so many snapshots, one for each seed; returns what went wrong."""
    start = base(folder)
    look(start)  # everything is compiled and loaded before the first child is made
    wrong = []
    for seed in range(first, first + count):
        victim = folder / "victim"
        shutil.copytree(start, victim)
        said = change(victim, random.Random(seed))
        child = os.fork()
        if child == 0:
            _child(victim)
        _, status = os.waitpid(child, 0)
        if status:
            wrong.append(f"seed {seed}, {said}: {_reason(status)}")
        shutil.rmtree(victim)
        for left in folder.glob("again-*"):
            shutil.rmtree(left, ignore_errors=True)
    return wrong


def _child(victim: Path) -> None:
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # SIGPROF ends what runs for ever
    signal.setitimer(signal.ITIMER_REAL, 10 * SECONDS)  # and SIGALRM what waits for ever
    try:
        look(victim)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _reason(status: int) -> str:
    return f"ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "an error or a wrong answer"


if __name__ == "__main__":
    for line in hammer(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])):
        print(line)
