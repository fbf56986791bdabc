"""The cost of a group in the log, compared with a plain file that is synced. Both write the same bytes in the same run,
in turns, on the same disk. What was stored is read back and compared.

CPU is that of the process. A wall time is mostly the disk's, so the two are measured group by group in turn.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from weft.log.base import (
    Events,
    Group,
    MoveFloor,
    MovePublisher,
    Offset,
    Put,
    SeatId,
    SessionId,
    SessionRow,
    StateChange,
    SubRow,
)
from weft.log.codec import encode_group
from weft.log.opening import open_log
from weft.log.sqlite import SqliteLog
from weft.log.tools import verify
from weftlab.bench.report import Progress, Result

IDS = 10  # seats of an event
HEAD, PAYLOAD = 96, 120  # bytes; 216 in all, as in the figures of other brokers
PUBLISHERS = 4
CPU_GOAL = 3.0  # microseconds an event
WALL_GOAL = 1.7  # times a plain synced file
SEED = 7


def unseen(_: str) -> None:
    """A progress that is not shown."""


def log_results(quick: bool, progress: Progress = unseen, size: int | None = None) -> list[Result]:
    """All figures of the log; with a size, tiny ones of that many groups and subscriptions."""
    groups, subscriptions = (size, size) if size is not None else (100, 100_000) if quick else (400, 100_000)
    results: list[Result] = []
    with _directory() as place:
        for number, some in ((500, groups), (16, groups), (1, groups)):
            progress(f"groups of {number} in the log")
            results += _appended(place / f"groups-{number}", number, some)
        progress("acknowledgements in the log")
        results += _acknowledged(place / "floors", groups)
        progress("reading the log")
        results += _read(place / "groups-500")
        progress("trimming the log")
        results += _trimmed(place / "groups-500", groups)
        progress(f"{subscriptions:,} stored subscriptions")
        results += _restored(place / "rows", subscriptions)
    return results


@contextmanager
def _directory() -> Iterator[Path]:
    """Where the log is measured: WEFT_BENCH_DIR, or where temporary files are."""
    with tempfile.TemporaryDirectory(prefix="weft-log-", dir=os.environ.get("WEFT_BENCH_DIR")) as place:
        yield Path(place)


def _events(first: int, number: int, rng: np.random.Generator) -> Events:
    data = rng.bytes((HEAD + PAYLOAD) * number)
    parts = [data[at : at + HEAD + PAYLOAD] for at in range(0, len(data), HEAD + PAYLOAD)]
    origins = np.empty((number, 3), np.int64)
    origins[:, 0] = rng.integers(1, 1 << 62, PUBLISHERS)[np.arange(number) % PUBLISHERS]
    origins[:, 1] = 1
    origins[:, 2] = np.arange(first, first + number)
    return Events(
        Offset(first),
        origins,
        [part[:HEAD] for part in parts],
        [part[HEAD:] for part in parts],
        np.arange(0, IDS * number + 1, IDS, dtype=np.uint32),
        rng.integers(1, 10_000, IDS * number).astype(np.uint32),
    )


def _group(first: int, number: int, rng: np.random.Generator) -> Group:
    moved = tuple(MovePublisher(SessionId(1 + each), 1, first + number - 1) for each in range(PUBLISHERS))
    return Group(first, _events(first, number, rng), moved)


def _appended(place: Path, number: int, groups: int) -> list[Result]:
    """Groups one by one, in turn with a plain file that gets the same bytes."""
    rng = np.random.default_rng(SEED)
    log = open_log(place).log
    sessions = [SessionRow(SessionId(1 + each), f"session {each}", "", 1, 1, 0) for each in range(PUBLISHERS)]
    log.commit([Group(0, changes=tuple(map(Put, sessions)))])
    empty = log.size()
    made = [_group(1 + at * number, number, rng) for at in range(groups)]
    plain = os.open(place / "plain", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    cpu = plain_wall = wall = 0.0
    stored = 0
    try:
        for group in made:
            assert group.events is not None
            start = perf_counter()
            data = b"".join(encode_group(group.at, group.events, 0)[6:])
            os.write(plain, data)
            os.fsync(plain)
            plain_wall += perf_counter() - start
            stored += len(data)
            start, begun = perf_counter(), process_time()
            log.commit([group])
            wall, cpu = wall + perf_counter() - start, cpu + process_time() - begun
    finally:
        os.close(plain)
    _check(log, made)
    size, events = log.size() - empty, groups * number
    log.close()
    cpu_goal, wall_goal = (CPU_GOAL, WALL_GOAL) if number == 500 else (None, None)
    return [
        Result(f"log/{number}/cpu_per_event", cpu / events * 1e6, "us", cpu_goal, "lower"),
        Result(f"log/{number}/wall_vs_plain_file", wall / plain_wall, "x", wall_goal, "lower"),
        Result(f"log/{number}/wall_per_commit", wall / groups * 1e3, "ms", None, "lower"),
        Result(f"log/{number}/bytes_per_event", size / events, "bytes", None, "lower"),
    ]


def _check(log: SqliteLog, made: list[Group]) -> None:
    """What was stored is what was given."""
    for group, found in zip(made, log.read(Offset(1), 1 << 40), strict=True):
        events, stored = group.events, found.events
        assert events is not None
        if list(stored.heads) != list(events.heads) or list(stored.payloads) != list(events.payloads):
            raise AssertionError(f"the group at offset {events.first} is not what was stored")
        if not np.array_equal(stored.seats, events.seats) or not np.array_equal(stored.origins, events.origins):
            raise AssertionError(f"the group at offset {events.first} is not what was stored")


def _acknowledged(place: Path, groups: int) -> list[Result]:
    """Commits of floors alone: 100 seats each."""
    log = open_log(place).log
    log.commit([Group(0, changes=tuple(map(Put, _subscriptions(10_000))))])
    rng = np.random.default_rng(SEED)
    begun = process_time()
    for at in range(groups):
        seats = rng.choice(10_000, 100, replace=False).tolist()
        moves: tuple[StateChange, ...] = tuple(MoveFloor(SeatId(1 + seat), Offset(at), b"12345678") for seat in seats)
        log.commit([Group(at, changes=moves)])
    cpu = process_time() - begun
    log.close()
    return [Result("log/100/cpu_per_floor", cpu / groups / 100 * 1e6, "us", None, "lower")]


def _read(place: Path) -> list[Result]:
    """Reading and checking all events."""
    log = open_log(place).log
    begun = process_time()
    events = sum(len(group.events) for group in log.read(Offset(1), 1 << 40))
    read = process_time() - begun
    begun = process_time()
    after = log.seek(np.array([10_000], np.uint32), Offset(1), 1 << 40)  # a seat that gets nothing
    sought = process_time() - begun
    if after != log.restore().next:
        raise AssertionError(f"the seat gets no event, but one was found at {after}")
    log.close()
    begun = process_time()
    report = verify(place)
    checked = process_time() - begun
    if report.problems or report.events != events:
        raise AssertionError(f"the log is damaged: {report}")
    return [
        Result("log/500/cpu_per_event_read", read / events * 1e6, "us", None, "lower"),
        Result("log/500/cpu_per_event_sought", sought / events * 1e6, "us", None, "lower"),
        Result("log/500/cpu_per_event_verified", checked / events * 1e6, "us", None, "lower"),
    ]


def _trimmed(place: Path, groups: int) -> list[Result]:
    log = open_log(place).log
    begun, removed = process_time(), 0
    while found := log.trim(Offset(1 + 500 * groups), most=100):
        removed += found
    cpu = process_time() - begun
    log.close()
    return [Result("log/500/cpu_per_event_trimmed", cpu / removed * 1e6, "us", None, "lower")]


def _subscriptions(number: int) -> list[SubRow]:
    return [
        SubRow(
            SeatId(1 + at),
            SessionId(1 + at // 100),
            at % 100,
            f"symbol = 'S{at % 1000}' AND price BETWEEN {at % 97} AND {at % 97 + 5}",
            b"options",
            Offset(1),
            Offset(1),
        )
        for at in range(number)
    ]


def _restored(place: Path, number: int) -> list[Result]:
    """Rows only: opening the log after a clean stop, and reading every row back."""
    log = open_log(place).log
    rows = _subscriptions(number)
    sessions = [SessionRow(SessionId(1 + at), f"session {at}", "", 1, 1, 0) for at in range(1 + number // 100)]
    begun = process_time()
    log.commit([Group(0, changes=(*map(Put, sessions), *map(Put, rows)))])
    stored, size = process_time() - begun, log.size()
    log.close()
    begun = process_time()
    log = open_log(place).log
    state = log.restore()
    restored = process_time() - begun
    log.close()
    if list(state.subs.values()) != rows:
        raise AssertionError("the subscriptions are not what was stored")
    return [
        Result(f"log/{number}/cpu_per_row_stored", stored / number * 1e6, "us", None, "lower"),
        Result(f"log/{number}/seconds_to_restore_rows", restored, "s", None, "lower"),
        Result(f"log/{number}/bytes_per_subscription", size / number, "bytes", None, "lower"),
    ]
