"""Damaged files and bytes: found by verify, refused by open, and never an error other than LogError."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from log.log_cases import events, group, plain
from strategies import thorough
from weft.errors import LogError
from weft.log.base import (
    AdvertRow,
    DeadRow,
    Group,
    HeardRow,
    LinkRow,
    Offset,
    ProfileRow,
    Put,
    SeatId,
    SessionId,
    SessionRow,
    SetMeta,
    ShownRow,
    SubRow,
)
from weft.log.codec import _NUMBERS, GroupRow, _checksum, decode_group, encode_group
from weft.log.opening import open_log
from weft.log.schema import DATABASE
from weft.log.sqlite import SqliteLog
from weft.log.tools import verify

ROWS = [
    *(SubRow(SeatId(seat), SessionId(5), 1, f"x > {seat}", b"o", Offset(1), Offset(2)) for seat in range(1, 40)),
    *(SessionRow(SessionId(at), f"name {at}", "owner", 1, 1, 9) for at in range(5, 25)),
    AdvertRow(1, SessionId(5), "x > 5"),
    LinkRow(SeatId(50), "north", "peer", "f" * 32, 7, Offset(3)),
    *(HeardRow(SeatId(50), 0, at, b"item", at % 2) for at in range(30)),
    ProfileRow(60, SessionId(5), "7", "x > 5", 3, 9, 1, b"payload"),
    ShownRow(SeatId(1), 8, "source", "7", 3, 9, 5),
    DeadRow(SeatId(1), Offset(1), 5, "no", 9, b"body"),
]


def fill(directory: Path) -> None:
    log = open_log(directory).log
    log.commit([group(1, changes=[*map(Put, ROWS), SetMeta("key", b"value")])])
    for first in range(1, 100, 4):
        log.commit([Group(first, events(first, [1], [2, 3], [], [50], payload=b"payload" * 90))])
    log.close()


def contents(log: SqliteLog) -> tuple[object, ...]:
    state = asdict(log.restore())
    del state["incarnation"], state["log_id"]
    found = plain(list(log.read(Offset(1), 1 << 30)))
    return state, found, log.dead(SeatId(1), Offset(0), 9), log.find(50), log.find_size(10_000)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    fill(directory)
    log = open_log(directory).log
    known = contents(log)
    log.close()
    return directory, {path.name: path.read_bytes() for path in directory.iterdir()}, known


def put_back(directory: Path, files: dict[str, bytes]) -> None:
    for path in directory.iterdir():
        if path.name not in files:
            path.unlink()
    for name, data in files.items():
        (directory / name).write_bytes(data)


def looked_at(directory: Path, known: tuple[object, ...]) -> str:
    """What a damaged log does: found, or harmless."""
    try:
        found = bool(verify(directory).problems)
    except LogError:
        found = True
    try:
        log = open_log(directory).log
        try:
            same = contents(log) == known
        finally:
            log.close()
    except LogError:
        return "refused" if found else "refused, but verify found nothing"
    if same:
        return "found" if found else "harmless"
    return "wrong contents" if not found else "wrong contents, but found"


@pytest.mark.parametrize(("flips", "seed"), [(120, 7), pytest.param(2000, 8, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_found_or_harmless(whole, flips, seed):
    directory, files, known = whole
    rng = np.random.default_rng(seed)
    size = len(files[DATABASE])
    outcomes: dict[str, int] = {}
    for at in [*range(0, 100, 3), *rng.integers(0, size, flips).tolist()]:
        data = bytearray(files[DATABASE])
        data[at] ^= 1 << int(rng.integers(8))
        put_back(directory, files | {DATABASE: bytes(data)})
        outcome = looked_at(directory, known)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        assert outcome in ("refused", "found", "harmless"), (at, outcome)
    assert outcomes["refused"] > 30
    assert outcomes["harmless"] > 1
    put_back(directory, files)


def test_a_truncated_database_is_refused(whole):
    directory, files, known = whole
    size = len(files[DATABASE])
    for left in (0, 1, 99, 100, 8191, 8192, 8192 * 3, size // 2, size - 8192, size - 1):
        put_back(directory, files | {DATABASE: files[DATABASE][:left]})
        assert looked_at(directory, known) == "refused", left
    put_back(directory, {name: data for name, data in files.items() if name != DATABASE})
    with pytest.raises(LogError, match="is missing"):
        open_log(directory)
    with pytest.raises(LogError, match="has no log"):
        verify(directory)
    put_back(directory, files)


def test_a_lost_wal_is_noticed(tmp_path):
    log = open_log(tmp_path).log
    for first in range(1, 6):
        log.commit([group(first, first, [3])])
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir() if not path.name.endswith("-shm")}
    log.close()
    wal = left.pop(f"{DATABASE}-wal")
    flipped = bytearray(wal)
    flipped[len(wal) // 2] ^= 1
    for found in (b"", wal[: len(wal) // 2], bytes(flipped)):
        put_back(tmp_path, left | ({f"{DATABASE}-wal": found} if found else {}))
        assert verify(tmp_path).problems
        with pytest.raises(LogError):
            open_log(tmp_path)
        assert (tmp_path / f"{DATABASE}-wal").read_bytes() == found, "what may still be of use stays"
    put_back(tmp_path, left | {f"{DATABASE}-wal": wal})
    opened = open_log(tmp_path)
    assert opened.checked.events == 5, "recovery has looked at what was stored since the clean stop"
    opened.log.close()


def test_recovery_looks_at_what_was_stored_since_the_clean_stop(tmp_path):
    log = open_log(tmp_path).log
    log.commit([group(1, 1, [3])])
    log.close()
    log = open_log(tmp_path).log
    log.commit([group(2, 2, [3])])
    log._connection.execute("UPDATE grp SET heads = zeroblob(length(heads)) WHERE first = 2")
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir() if not path.name.endswith("-shm")}
    log.close()
    put_back(tmp_path, left)
    with pytest.raises(LogError, match="the group at offset 2 is damaged"):
        open_log(tmp_path)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM grp WHERE first = 5", "groups before it are missing"),
        ("DELETE FROM seat WHERE id = 3", "seat 3 is damaged"),
        ("DELETE FROM sub WHERE seat = 3", "the table 'seat' is damaged"),
        ("DELETE FROM publisher WHERE session = 5", "'publisher'"),
        ("DELETE FROM got", "'got'"),
        ("UPDATE seat SET floor = 4 WHERE id = 3", "'seat' is damaged"),
        ("UPDATE seat SET kind = 2 WHERE id = 3", "kind is 2"),
        ("UPDATE sub SET filter = 'x > 99' WHERE seat = 3", "'sub' is damaged"),
        ("UPDATE dead SET body = x'00'", "'dead' is damaged"),
        ("UPDATE heard SET body = x'00' WHERE item = 3", "'heard' is damaged"),
        ("UPDATE meta SET value = x'00' WHERE key = 'key'", "'meta' is damaged"),
        ("UPDATE tip SET next_seat = 4", "'tip' is damaged"),
        ("UPDATE grp SET at = at + 1 WHERE first = 5", "offset 5 is damaged: its checksum is wrong"),
        ("UPDATE grp SET first = 2 WHERE first = 5", "offset 2 is damaged"),
    ],
)
def test_verify_says_what_is_damaged(whole, statement, problem):
    directory, files, _ = whole
    log = open_log(directory).log
    log._connection.execute(statement)
    log.close()
    problems = verify(directory).problems
    put_back(directory, files)
    assert any(problem in each for each in problems), problems
    assert not verify(directory).problems


# -- groups as bytes ---------------------------------------------------------------------------------

ROW = encode_group(9, events(7, [1], [2, 3], []), 100)
COLUMNS = ("seats", "origins", "heads", "payloads")


def sealed(row: GroupRow) -> GroupRow:
    """The row with the checksum that its contents have."""
    numbers = _NUMBERS.pack(row.first, row.n, row.at, row.total)
    crc = _checksum(crc32(numbers), row.seats)
    return row._replace(crc=crc, body_crc=_checksum(crc, row.origins, row.heads, row.payloads))


def test_a_group_comes_back():
    assert sealed(ROW) == ROW
    assert plain([decode_group(ROW)]) == plain([Group(9, events(7, [1], [2, 3], []))])


@thorough(200)
@given(
    st.sampled_from(COLUMNS),
    st.tuples(st.integers(0, 60), st.integers(0, 60)),
    st.binary(max_size=9),
    st.integers(-1, 9),
    st.booleans(),
)
def test_fuzzed_groups_raise_log_error_and_nothing_else(column, place, piece, number, resealed):
    data, (begin, end) = getattr(ROW, column), place
    changed = ROW._replace(**{column: data[:begin] + piece + data[end:]}, n=number)
    if changed == ROW:
        return
    if resealed:
        changed = sealed(changed)
        try:
            stored = decode_group(changed).events
        except LogError:
            return
        assert len(stored.heads) == len(stored.payloads) == number
        assert stored.starts[-1] == len(stored.seats)
    else:
        with pytest.raises(LogError):
            decode_group(changed)


@pytest.mark.parametrize("wrong", [None, "text", 5, 1.5, 1 << 70])
@pytest.mark.parametrize("field", GroupRow._fields)
def test_values_of_other_types_raise_log_error(field, wrong):
    with pytest.raises(LogError):
        decode_group(ROW._replace(**{field: wrong}))
