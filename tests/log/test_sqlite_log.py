"""The log on disk: locks, quota, failures, copies, formats and schemas."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from log.log_cases import events, group, plain
from log.log_drivers import SqliteDriver
from weft.errors import LogError, LogFailedError, LogFullError
from weft.log.base import AdvertRow, Group, MoveFloor, Offset, Put, SeatId, SessionId, SubRow
from weft.log.opening import LogOptions, open_log
from weft.log.schema import DATABASE, FORMAT, check_format, open_writer, upgrade
from weft.log.sqlite import SqliteLog
from weft.log.tools import back_up, verify
from weft.model.schema import Schema


def sub(seat: int, text: str = "x > 5", floor: int = 1) -> SubRow:
    return SubRow(SeatId(seat), SessionId(5), 1, text, b"", Offset(1), Offset(floor))


def everything(log: SqliteLog):
    return plain(list(log.read(Offset(1), 1 << 30)))


def filled(directory: Path, number: int = 5) -> SqliteLog:
    log = open_log(directory).log
    log.commit([group(1, changes=[Put(sub(3)), Put(AdvertRow(1, SessionId(5), "x > 5"))])])
    for first in range(1, number + 1):
        log.commit([group(first, first, [3])])
    return log


# -- one process -------------------------------------------------------------------------------------


def test_a_directory_is_locked_and_the_holder_is_named(tmp_path):
    log = filled(tmp_path)
    with pytest.raises(LogError, match=f"in use by process {os.getpid()};"):
        open_log(tmp_path)
    log.close()
    open_log(tmp_path).log.close()


def test_a_log_that_cannot_be_opened_is_not_locked(tmp_path):
    (tmp_path / DATABASE).write_bytes(b"this is not a database at all" * 100)
    for _ in range(2):
        with pytest.raises(LogError, match="not a database"):
            open_log(tmp_path)


def test_an_old_sqlite_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.log.schema.OLDEST", (99, 0, 0))
    with pytest.raises(LogError, match=r"needs SQLite 3.37"):
        open_log(tmp_path)


def test_a_file_is_not_a_directory(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LogError, match="not a directory"):
        open_log(tmp_path / "file")


def test_closing_twice_does_nothing_and_using_it_afterwards_fails(tmp_path):
    log = filled(tmp_path)
    log.close()
    log.close()
    with pytest.raises(LogFailedError, match="closed"):
        log.restore()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["identity", "lock", DATABASE]


# -- failures ----------------------------------------------------------------------------------------


def test_a_full_disk_stores_nothing_and_the_log_goes_on(tmp_path):
    driver = SqliteDriver(tmp_path)
    driver.log.commit([group(1, 1, [3], changes=[Put(sub(3))])])
    with driver.full_disk(), pytest.raises(LogFullError, match="nothing was stored"):
        driver.log.commit([group(2, 2, [3], changes=[MoveFloor(SeatId(3), Offset(2))])])
    assert driver.log.restore().subs[3].floor == 1
    driver.log.commit([group(2, 2, [4])])
    driver.crash(0)
    assert [each[-1] for each in everything(driver.log)] == [[3], [4]]
    driver.end()


def test_a_failed_sync_is_never_retried(tmp_path):
    driver = SqliteDriver(tmp_path)
    driver.log.commit([group(1, 1, [3])])
    with driver.failing_sync(), pytest.raises(LogFailedError, match="SQLITE_IOERR_FSYNC"):
        driver.log.commit([group(2, 2, [3])])
    for use in (
        lambda: driver.log.commit([]),
        lambda: driver.log.trim(Offset(1)),
        lambda: [*driver.log.read(Offset(1), 1)],
        lambda: driver.log.find(0),
        lambda: driver.log.find_size(0),
        lambda: driver.log.dead(SeatId(1), Offset(0), 1),
        driver.log.size,
        driver.log.restore,
        driver.log.checkpoint,
    ):
        with pytest.raises(LogFailedError, match="SQLITE_IOERR_FSYNC"):
            use()
    wal = (tmp_path / f"{DATABASE}-wal").read_bytes()
    driver.log.close()
    assert (tmp_path / f"{DATABASE}-wal").read_bytes() == wal, "no checkpoint either, which would sync again"
    driver.reopen()
    assert len(everything(driver.log)) == 1
    driver.end()


def test_a_failed_checkpoint_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.log.sqlite.CHECKPOINT", 1 << 40)
    driver = SqliteDriver(tmp_path)
    driver.log.commit([group(1, 1, [3])])
    monkeypatch.setattr("weft.log.sqlite.CHECKPOINT", 1)
    database = str(tmp_path / DATABASE)
    handles = [int(name) for name in os.listdir("/proc/self/fd") if _target(name) == database]
    kept = [(handle, os.dup(handle)) for handle in handles]
    broken = os.open("/dev/full", os.O_RDWR)
    for handle in handles:
        os.dup2(broken, handle)
    with pytest.raises(LogFailedError):
        driver.log.commit([group(2, 2, [3])])
    for handle, copy in kept:
        os.dup2(copy, handle)
        os.close(copy)
    os.close(broken)
    driver.crash(0)
    assert len(everything(driver.log)) == 2, "the WAL has it"
    driver.end()


def test_a_checkpoint_between_commits_moves_events_to_the_database_once_there_are_enough(tmp_path, monkeypatch):
    driver = SqliteDriver(tmp_path)
    driver.log.checkpoint()
    before = (tmp_path / DATABASE).read_bytes()
    driver.log.commit([group(1, 1, [3])])
    driver.log.checkpoint()
    assert (tmp_path / DATABASE).read_bytes() == before, "too little to be worth it"
    monkeypatch.setattr("weft.log.sqlite.EARLY", 1)
    driver.log.checkpoint()
    assert (tmp_path / DATABASE).read_bytes() != before
    assert len(everything(driver.log)) == 1
    driver.end()


def _target(handle: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return ""


def test_at_the_quota_events_are_refused_and_acknowledgements_are_not(tmp_path):
    log = open_log(tmp_path, LogOptions(quota=1 << 20)).log
    log.commit([group(1, changes=[Put(sub(3))])])
    first, full = 1, ""
    while not full:
        try:
            log.commit([Group(first, events(first, [3], [3], payload=bytes(20_000)))])
            first += 2
        except LogFullError as error:
            full = str(error)
    assert "quota of 1,048,576 bytes" in full
    stored = everything(log)
    for step in range(200):
        log.commit([group(first, changes=[MoveFloor(SeatId(3), Offset(first), bytes(step))])])
    assert everything(log) == stored
    assert log.size() <= 1 << 20
    assert log.trim(Offset(first)) > 0
    log.commit([Group(first, events(first, [3], [3], payload=bytes(20_000)))])
    log.close()
    assert (tmp_path / DATABASE).stat().st_size <= 1 << 20
    assert not verify(tmp_path).problems


def test_the_page_limit_of_sqlite_is_a_full_disk(tmp_path):
    log = filled(tmp_path)
    log._connection.execute("PRAGMA max_page_count=1")  # as many as there are
    with pytest.raises(LogFullError):
        log.commit([Group(9, events(9, [3], [3], payload=bytes(1 << 20)))])
    log._connection.execute("PRAGMA max_page_count=100000")
    log.commit([group(9, 9, [3])])
    assert len(everything(log)) == 6
    log.close()


# -- space -------------------------------------------------------------------------------------------


def test_space_comes_back(tmp_path):
    log = open_log(tmp_path).log
    for first in range(1, 400, 2):
        log.commit([Group(first, events(first, [3], [3], payload=bytes(20_000)))])
    before = log.size()
    log.close()
    log = open_log(tmp_path).log
    full = (tmp_path / DATABASE).stat().st_size
    while log.trim(Offset(381), most=50):
        pass
    for _ in range(full // 8192 // 256 + 1):
        log.trim(Offset(1))  # some pages at a time
    assert log.size() < before / 10
    assert len(everything(log)) == 20
    log.close()
    assert (tmp_path / DATABASE).stat().st_size < full / 5
    assert not verify(tmp_path).problems


def test_a_log_on_a_read_only_disk_can_be_looked_at(tmp_path, monkeypatch):
    filled(tmp_path).close()
    files = sorted(path.name for path in tmp_path.iterdir())
    monkeypatch.setattr("weft.log.schema.os.access", lambda path, mode: False)
    assert verify(tmp_path).events == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == files


# -- copies ------------------------------------------------------------------------------------------


def opened_id(directory: Path, **options: bool) -> tuple[str, str, int]:
    opened = open_log(directory, LogOptions(**options))
    opened.log.close()
    return opened.log.log_id, opened.copied, opened.log.incarnation


def test_the_id_stays_and_the_incarnation_grows(tmp_path):
    first = opened_id(tmp_path)
    second = opened_id(tmp_path)
    assert (first[0], first[1:], second[1:]) == (second[0], ("", 1), ("", 2))


def test_a_directory_that_was_moved_keeps_its_id(tmp_path):
    before, _, _ = opened_id(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    assert opened_id(tmp_path / "there")[:2] == (before, "")


def test_a_copied_directory_gets_a_new_id(tmp_path):
    filled(tmp_path / "here").close()
    before, _, _ = opened_id(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    after, why, incarnation = opened_id(tmp_path / "there")
    assert (why, incarnation) == ("the database is another file than before", 3)
    assert after != before
    assert opened_id(tmp_path / "there")[:2] == (after, ""), "once"
    assert opened_id(tmp_path / "here")[:2] == (before, ""), "the original keeps its own"


def test_a_database_without_its_identity_gets_a_new_id(tmp_path):
    before, _, _ = opened_id(tmp_path)
    (tmp_path / "identity").unlink()
    after, why, _ = opened_id(tmp_path)
    assert after != before
    assert "identity" in why


def test_an_identity_of_another_log_gives_a_new_id(tmp_path):
    before, _, _ = opened_id(tmp_path / "here")
    opened_id(tmp_path / "there")
    shutil.copy(tmp_path / "there" / "identity", tmp_path / "here" / "identity")
    after, why, _ = opened_id(tmp_path / "here")
    assert after != before
    assert "another log" in why


def test_an_older_database_is_refused_unless_it_is_restored(tmp_path):
    filled(tmp_path, 3).close()
    old = (tmp_path / DATABASE).read_bytes()
    log = open_log(tmp_path).log
    log.commit([group(9, 4, [3])])
    log.close()
    (tmp_path / DATABASE).write_bytes(old)  # in place: the same inode
    with pytest.raises(LogError, match="weft log restore"):
        open_log(tmp_path)
    assert "up to offset 4 were acknowledged" in verify(tmp_path).problems[0]
    before = log.log_id
    after, why, _ = opened_id(tmp_path, restore=True)
    assert (after != before, why) == (True, "it is restored")
    assert opened_id(tmp_path)[:2] == (after, "")


def test_a_back_up_is_made_of_a_running_log_and_gets_a_new_id(tmp_path):
    log = filled(tmp_path / "here")
    back_up(tmp_path / "here", tmp_path / "copy")
    log.commit([group(9, 6, [3])])
    opened = open_log(tmp_path / "copy")
    assert opened.copied == "it was written as a backup"
    assert opened.log.log_id != log.log_id
    assert everything(opened.log) == everything(log)[:5]
    assert opened.log.restore().subs == log.restore().subs
    opened.log.close()
    log.close()
    assert opened_id(tmp_path / "copy")[1] == "", "once"


def test_a_back_up_restored_in_place_gets_a_new_id(tmp_path):
    log = filled(tmp_path / "here")
    back_up(tmp_path / "here", tmp_path / "copy")
    log.commit([group(9, 6, [3])])
    log.close()
    (tmp_path / "here" / DATABASE).write_bytes((tmp_path / "copy" / DATABASE).read_bytes())
    after, why, _ = opened_id(tmp_path / "here")
    assert (after != log.log_id, why) == (True, "it was written as a backup")


def test_a_back_up_overwrites_nothing(tmp_path):
    filled(tmp_path).close()
    with pytest.raises(LogError, match="already has a log"):
        back_up(tmp_path, tmp_path)
    with pytest.raises(LogError, match="has no log"):
        back_up(tmp_path / "nothing", tmp_path / "copy")


# -- formats -----------------------------------------------------------------------------------------


def test_a_newer_format_is_refused(tmp_path):
    filled(tmp_path).close()
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        connection.execute(f"PRAGMA user_version={FORMAT + 1}")
    connection.close()
    for use in (open_log, verify):
        with pytest.raises(LogError, match=r"newer Weft.*update"):
            use(tmp_path)


def test_another_database_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        connection.execute("CREATE TABLE notes(text)")
    connection.close()
    with pytest.raises(LogError, match="not a Weft log"):
        open_log(tmp_path)


def test_formats_are_upgraded_step_by_step_and_a_step_that_fails_is_undone(tmp_path):
    filled(tmp_path).close()
    connection = open_writer(tmp_path / DATABASE)
    done = []

    def add(name):
        def step(connection):
            connection.execute(f"CREATE TABLE {name}(x)")
            done.append(name)

        return step

    def broken(connection):
        connection.execute("CREATE TABLE lost(x)")
        raise LogError("no")

    with pytest.raises(LogError, match="no"):
        upgrade(connection, {FORMAT: add("one"), FORMAT + 1: broken}, FORMAT + 2)
    assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT + 1,)
    assert upgrade(connection, {FORMAT + 1: add("two")}, FORMAT + 2) == 1
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    assert {"one", "two"} <= tables
    assert "lost" not in tables
    with pytest.raises(LogError, match="newer"):
        check_format(connection, tmp_path)
    connection.close()


# -- event schemas -----------------------------------------------------------------------------------


def test_another_schema_is_refused_unless_migrated(tmp_path):
    old, new = Schema.of(x="float", y="int"), Schema.of(x="string", y="int")
    log = open_log(tmp_path, LogOptions(schema=old)).log
    rows = [sub(1, "x > 5"), sub(2, "y = 1"), sub(3, "y = 1 AND y = 2"), sub(4, "is_a(y, 'z')")]
    log.commit([group(1, changes=[*map(Put, rows), Put(AdvertRow(9, SessionId(5), "x < 5 OR y < 2"))])])
    log.close()
    open_log(tmp_path, LogOptions(schema=Schema.of(y="int", x="float"))).log.close()
    for wrong in (new, None):
        with pytest.raises(LogError, match=r"another event schema.*migrate"):
            open_log(tmp_path, LogOptions(schema=wrong))
    open_log(tmp_path, LogOptions(any_schema=True)).log.close()
    opened = open_log(tmp_path, LogOptions(schema=new, migrate=True))
    assert [(each.kind, each.id, each.reason) for each in opened.affected] == [
        ("subscription", 1, "'x' was float and is string; it matches nothing under the new schema"),
        ("subscription", 3, "it matches nothing under the new schema"),
        ("subscription", 4, opened.affected[2].reason),
        ("advertisement", 9, "'x' was float and is string"),
    ]
    assert "cannot be used" in opened.affected[2].reason
    state = opened.log.restore()
    assert (list(state.subs), list(state.adverts)) == ([1, 2, 3, 4], [9]), "none is dropped"
    opened.log.close()
    assert open_log_and_close(tmp_path, new).affected == ()


def open_log_and_close(directory: Path, schema: Schema):
    opened = open_log(directory, LogOptions(schema=schema))
    opened.log.close()
    return opened


# -- groups ------------------------------------------------------------------------------------------


def test_large_groups_and_many_groups_come_back(tmp_path):
    log, wanted = open_log(tmp_path).log, []
    rng = np.random.default_rng(1)
    first = 1
    for step in range(30):
        number = int(rng.integers(1, 60))
        groups = [Group(step, events(first, *[[3, 4]] * number, payload=rng.bytes(500)))]
        log.commit(groups)
        wanted += plain(groups)
        first += number + step % 3
    assert everything(log) == wanted
    assert plain(list(log.read(Offset(100), 7))) == [each for each in wanted if each[1] >= 100][:7]
    log.close()


def test_reading_goes_on_while_groups_are_committed_and_trimmed(tmp_path):
    log = filled(tmp_path, 200)
    reading = log.read(Offset(1), 1000)
    assert next(reading).events.first == 1
    log.commit([group(300, 201, [3])])
    log.trim(Offset(150))
    found = [each.events.first for each in reading]
    assert found == sorted(found)
    assert found[-1] == 201
    log.close()
