"""What may be trimmed, and searching stored events by filter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec import msgpack

from log.log_cases import events, group
from weft import matches, parse
from weft.log.base import Events, Group, LinkRow, Log, Offset, Put, SeatId, SessionId, SubRow
from weft.log.memory import MemoryLog
from weft.log.opening import open_log
from weft.log.retention import Retention, beyond_lag, floors, trim_point
from weft.log.tools import read_matching


@pytest.fixture(params=["memory", "sqlite"])
def log(request, tmp_path: Path):
    made: Log = MemoryLog() if request.param == "memory" else open_log(tmp_path).log
    yield made
    made.close()


def sub(seat: int, floor: int) -> SubRow:
    return SubRow(SeatId(seat), SessionId(5), 1, "x > 5", b"", Offset(1), Offset(floor))


def fill(log: Log, groups: int = 10) -> None:
    """Groups of two events, one a millisecond."""
    for at in range(groups):
        log.commit([Group(at * 1000, events(1 + 2 * at, [1], [1]))])


def test_events_older_than_the_limit_go_unless_a_floor_needs_them(log):
    fill(log)
    old = Retention(age=4000, size=None)
    assert trim_point(log, [], 9000, old) == 11
    assert trim_point(log, [Offset(15), Offset(20)], 9000, old) == 11
    assert trim_point(log, [Offset(4), Offset(20)], 9000, old) == 4
    assert trim_point(log, [], 1 << 60, old) == 21
    assert trim_point(log, [], 0, old) == 1
    assert log.trim(trim_point(log, [Offset(4)], 9000, old)) == 2, "whole groups only"
    assert next(iter(log.read(Offset(1), 1))).events.first == 3


def test_events_beyond_the_size_go_unless_a_floor_needs_them(log):
    fill(log)
    for kept in range(11):
        first = 21 - 2 * kept
        size = sum(_size(each.events) for each in log.read(Offset(first), 99))
        assert trim_point(log, [], 0, Retention(None, size)) == first
        if kept:
            assert trim_point(log, [], 0, Retention(None, size - 1)) == first + 2
        assert trim_point(log, [Offset(2)], 0, Retention(None, size)) == min(2, first)


def _size(stored: Events) -> int:
    return 4 + 36 * len(stored) + 4 * len(stored.seats) + sum(map(len, [*stored.heads, *stored.payloads]))


def test_nothing_goes_without_a_limit(log):
    fill(log)
    assert trim_point(log, [Offset(9)], 1 << 60, Retention(None, None)) == 0
    assert log.trim(Offset(0)) == 0


def test_the_floors_of_subscriptions_and_links_count(log):
    link = LinkRow(SeatId(3), "north", "peer", "", 0, Offset(2))
    log.commit([group(0, changes=[Put(sub(1, 8)), Put(sub(2, 5)), Put(link)])])
    assert floors(log.restore()) == {1: 8, 2: 5, 3: 2}


def test_seats_that_lag_too_far_behind_are_named_with_their_gap(log):
    fill(log)
    found = beyond_lag(log, {SeatId(2): Offset(3), SeatId(1): Offset(15), SeatId(3): Offset(1)}, 9000, Retention(4000))
    assert found == {2: (3, 11), 3: (1, 11)}


def test_offsets_are_not_used_again_after_everything_was_trimmed(log):
    fill(log)
    while log.trim(Offset(21), most=3):
        pass
    state = log.restore()
    assert (state.first, state.next) == (21, 21)
    assert (log.find(0), log.find_size(100)) == (21, 21)


# -- by filter ---------------------------------------------------------------------------------------

FILTER = parse("x > 5 AND kind = 'a'")


def attributes(offset: int) -> dict[str, object]:
    return {"x": offset % 11, "kind": "ab"[offset % 2]}


def fill_with_attributes(log: Log, number: int) -> list[int]:
    for first in range(1, number + 1, 10):
        heads = [msgpack.encode(attributes(offset)) for offset in range(first, first + 10)]
        none = np.zeros(0, np.uint32)
        made = Events(Offset(first), np.zeros((10, 3), np.int64), heads, heads, np.zeros(11, np.uint32), none)
        log.commit([Group(first, made)])
    return [offset for offset in range(1, number + 1) if matches(FILTER, attributes(offset))]


def test_exactly_the_events_that_match_are_found(log):
    wanted = fill_with_attributes(log, 300)
    assert [each.offset for each in read_matching(log, FILTER, msgpack.decode)] == wanted
    found = list(read_matching(log, FILTER, msgpack.decode, Offset(100), 5))
    assert [each.offset for each in found] == [offset for offset in wanted if offset >= 100][:5]
    assert [each.attributes for each in found] == [attributes(each.offset) for each in found]
    assert list(read_matching(log, FILTER, msgpack.decode, Offset(1), 0)) == []
    assert list(read_matching(log, parse("FALSE"), msgpack.decode)) == []
