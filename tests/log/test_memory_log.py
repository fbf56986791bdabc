"""The log in memory: what a crash keeps, and failures on demand."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from log.log_cases import events, group, plain
from weft.errors import LogError, LogFailedError, LogFullError
from weft.log.base import Group, Offset, Put, SeatId, SessionId, SubRow
from weft.log.memory import MemoryLog


def sub(seat: int, floor: int = 1) -> SubRow:
    return SubRow(SeatId(seat), SessionId(5), 1, "x > 5", b"", Offset(1), Offset(floor))


def everything(log: MemoryLog):
    return plain(list(log.read(Offset(1), 1000)))


def test_a_crash_keeps_what_was_committed():
    log = MemoryLog()
    log.commit([group(1, 1, [3], [], [3, 4], changes=[Put(sub(3))])])
    before, state = everything(log), log.restore()
    log = log.crash()
    assert everything(log) == before
    after = log.restore()
    assert after.incarnation == state.incarnation + 1
    assert (after.subs, after.next, after.next_seat) == (state.subs, 4, 5)


def test_a_crash_loses_what_was_not_synced():
    log = MemoryLog()
    log.commit([group(1, 1, [3])])
    log.write([group(2, 2, [3], changes=[Put(sub(3))])])
    assert len(everything(log)) == 1, "not read before it is synced"
    assert log.find(2) == 2
    log = log.crash()
    state = log.restore()
    assert (state.next, state.subs, state.at) == (2, {}, 1)
    log.commit([group(2, 2, [4])])
    assert everything(log)[1][-1] == [4]


def test_a_crash_may_keep_the_first_of_several_unsynced_transactions():
    found = set()
    for seed in range(30):
        log = MemoryLog()
        for at in range(1, 4):
            log.write([group(at, at, [3])])
        found.add(len(everything(log.crash(np.random.default_rng(seed)))))
    assert found == {0, 1, 2, 3}


def test_a_commit_that_fails_stores_nothing_and_the_log_goes_on():
    log = MemoryLog()
    log.fail_commits()
    with pytest.raises(LogFullError):
        log.commit([group(1, 1, [3], changes=[Put(sub(3))])])
    assert log.restore().next == 1
    log.commit([group(1, 1, [3])])
    assert len(everything(log)) == 1


def test_after_a_failed_sync_the_log_refuses_everything():
    log = MemoryLog()
    log.fail_syncs()
    with pytest.raises(LogFailedError):
        log.commit([group(1, 1, [3])])
    for use in (lambda: log.commit([]), log.restore, lambda: list(log.read(Offset(1), 1)), log.sync, log.close):
        with pytest.raises(LogFailedError):
            use()
    assert len(everything(log.crash())) == 0


def test_at_the_quota_events_are_refused_and_acknowledgements_are_not():
    log = MemoryLog(quota=400)
    log.commit([group(1, 1, [3])])
    with pytest.raises(LogFullError):
        log.commit([group(2, 2, *[[3]] * 20)])
    log.commit([group(2, changes=[Put(sub(3, floor=2))])])
    assert log.trim(Offset(2)) == 1
    assert log.size() < 200


def test_a_back_up_has_its_own_id_and_its_own_future():
    log = MemoryLog("one")
    log.commit([group(1, 1, [3], changes=[Put(sub(3))])])
    copy = log.backup("two")
    log.commit([group(2, 2, [3], changes=[Put(sub(4))])])
    assert (copy.restore().log_id, copy.restore().next, len(copy.restore().subs)) == ("two", 2, 1)
    log.write([group(3, 3, [3])])
    with pytest.raises(LogError, match="sync"):
        log.backup("three")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"origins": np.zeros((2, 2), np.int64)}, "origins must be an int64 array of shape (events, 3)"),
        ({"origins": np.zeros((2, 3), np.int32)}, "origins must be an int64 array of shape (events, 3)"),
        ({"starts": np.array([0, 2, 1], np.uint32)}, "starts must increase from 0 to the number of seats"),
        ({"starts": np.array([1, 1, 1], np.uint32)}, "starts must increase from 0 to the number of seats"),
        ({"starts": np.array([0, 1], np.uint32)}, "starts and seats must be uint32 arrays"),
        ({"payloads": [b""]}, "2 events have 1 payloads"),
    ],
)
def test_columns_of_another_shape_are_refused(wrong: dict[str, object], text: str):
    log = MemoryLog()
    with pytest.raises(LogError) as caught:
        log.commit([Group(1, msgspec.structs.replace(events(1, [3], []), **wrong))])
    assert str(caught.value).startswith(text)
    assert log.restore().next == 1
