"""Both logs against lists and dicts: random groups, reads, trims, refusals, failures and crashes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import astuple, replace

from log.log_cases import plain
from log.log_drivers import MemoryDriver, SqliteDriver
from strategies import thorough
from weft.errors import LogError, LogFailedError, LogFullError
from weft.log.base import (
    KEYS,
    AdvertRow,
    DeadRow,
    Events,
    Group,
    HeardRow,
    LinkRow,
    MoveFloor,
    MoveGot,
    MovePublisher,
    MoveRow,
    Offset,
    ProfileRow,
    Put,
    Remove,
    SessionRow,
    SetMeta,
    ShownRow,
    SubRow,
)

few = st.integers(1, 4)
name = st.sampled_from(["a", "b", "ö", "'; --"])
blob = st.binary(max_size=3)
big = st.sampled_from([0, 1, 7, (1 << 63) - 1])

ROWS = st.one_of(
    st.builds(SessionRow, few, name, name, big, big, big),
    st.builds(SubRow, few, few, few, name, blob, big, big, blob, blob),
    st.builds(AdvertRow, few, few, name),
    st.builds(LinkRow, st.integers(3, 6), name, name, name, big, big),
    st.builds(HeardRow, few, st.integers(-1, 1), few, blob, st.integers(0, 1)),
    st.builds(DeadRow, few, few, big, name, big, blob),
    st.builds(MoveRow, few, st.integers(0, 3), few, name, big, big, big, blob),
    st.builds(ProfileRow, few, few, name, name, big, big, big, blob),
    st.builds(ShownRow, few, big, name, name, big, big, big),
)
REMOVALS = st.sampled_from(list(KEYS)).flatmap(
    lambda table: st.builds(Remove, st.just(table), st.tuples(*[st.integers(1, 6)] * len(KEYS[table])))
)
CHANGES = st.one_of(
    st.builds(Put, ROWS),
    REMOVALS,
    st.builds(MoveFloor, st.integers(1, 6), big, blob, blob),
    st.builds(MovePublisher, few, big, big),
    st.builds(MoveGot, st.integers(3, 6), big),
    st.builds(SetMeta, name, blob),
)
EVENTS = st.lists(st.tuples(blob, blob, st.lists(st.integers(1, 9), max_size=3)), min_size=1, max_size=4)
GROUPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.none() | EVENTS, st.lists(CHANGES, max_size=5)), max_size=3
)


class Model:
    """What a log must hold, as plainly as possible."""

    def __init__(self) -> None:
        self.groups: list[tuple[int, int, list[Any]]] = []  # at, bytes, events as `plain` shows them
        self.rows: dict[tuple[type, tuple[int, ...]], Any] = {}
        self.meta: dict[str, bytes] = {}
        self.next = 1
        self.next_seat = 1
        self.at = 0

    def copy(self) -> Model:
        twin = Model()
        twin.__dict__ = {k: v.copy() if isinstance(v, list | dict) else v for k, v in vars(self).items()}
        return twin

    def apply(self, groups: list[Group]) -> bool:
        """Whether the groups are acceptable; if not, this model is spoilt."""
        for group in groups:
            self.at = group.at
            if group.events is not None:
                self._append(group)
            for change in group.changes:
                if not self._change(change):
                    return False
        return True

    def _append(self, group: Group) -> None:
        events = group.events
        size = sum(len(h) + len(p) for h, p in zip(events.heads, events.payloads, strict=True))
        size += (24 + 4 + 4 + 4) * len(events) + 4 + 4 * len(events.seats)
        self.groups.append((group.at, size, plain([group])))
        self.next = events.first + len(events)
        self.next_seat = max([self.next_seat, *(events.seats + 1).tolist()])

    def _change(self, change: Any) -> bool:
        rows = self.rows
        if isinstance(change, Put):
            row = change.row
            key = tuple(getattr(row, field) for field in KEYS[type(row)])
            for (kind, other), stored in rows.items():
                if kind is type(row) and other != key:
                    if kind is SessionRow and stored.name == row.name:
                        return False
                    if kind is LinkRow and stored.peer == row.peer:
                        return False
            seats = {SubRow: LinkRow, LinkRow: SubRow}
            if type(row) in seats:
                if (seats[type(row)], key) in rows:
                    return False
                self.next_seat = max(self.next_seat, row.seat + 1)
            rows[type(row), key] = row
        elif isinstance(change, Remove):
            rows.pop((change.table, change.key), None)
        elif isinstance(change, SetMeta):
            self.meta[change.key] = change.value
        elif isinstance(change, MoveFloor):
            fields = {"floor": change.floor, "above": change.above, "attempts": change.attempts}
            self._move(SubRow, change.seat, **fields)
            self._move(LinkRow, change.seat, floor=change.floor)
        elif isinstance(change, MovePublisher):
            self._move(SessionRow, change.session, pub_epoch=change.pub_epoch, pub_seq=change.pub_seq)
        else:
            self._move(LinkRow, change.link, got=change.got)
        return True

    def _move(self, kind: type, key: int, **fields: Any) -> None:
        if (kind, (key,)) in self.rows:
            self.rows[kind, (key,)] = replace(self.rows[kind, (key,)], **fields)

    def events(self) -> list[Any]:
        return [event for _, _, events in self.groups for event in events]

    def of(self, kind: type) -> dict[Any, Any]:
        found = {key if len(key) > 1 else key[0]: row for (each, key), row in self.rows.items() if each is kind}
        return dict(sorted(found.items()))


QUICK = next((place for place in ("/dev/shm",) if Path(place).is_dir()), None)  # a sync costs nothing there


class LogMachine(RuleBasedStateMachine):
    driver_type: type = MemoryDriver

    @initialize()
    def start(self) -> None:
        self.driver = self.driver_type(Path(tempfile.mkdtemp(dir=QUICK)))
        self.model = Model()
        self.incarnation = 1

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.end()

    def made(self, drawn: list[Any]) -> list[Group]:
        groups, after, at = [], self.model.next, self.model.at
        for skipped, later, events, changes in drawn:
            at += later
            made = None
            if events:
                first = after + skipped
                after = first + len(events)
                starts = np.cumsum([0, *(len(seats) for _, _, seats in events)], dtype=np.uint32)
                ids = np.array([seat for _, _, seats in events for seat in seats], np.uint32)
                origins = np.array([(at, -at, first)] * len(events), np.int64)
                heads, payloads = [head for head, _, _ in events], [payload for _, payload, _ in events]
                made = Events(Offset(first), origins, heads, payloads, starts, ids)
            groups.append(Group(at, made, tuple(changes)))
        return groups

    @rule(drawn=GROUPS)
    def commit(self, drawn: list[Any]) -> None:
        groups, after = self.made(drawn), self.model.copy()
        if after.apply(groups):
            self.driver.log.commit(groups)
            self.model = after
        else:
            with pytest.raises(LogError) as caught:
                self.driver.log.commit(groups)
            assert type(caught.value) is LogError

    @precondition(lambda self: self.model.groups)
    @rule(drawn=GROUPS)
    def commit_in_the_past(self, drawn: list[Any]) -> None:
        now, self.model = self.model, Model()
        groups = self.made(drawn)
        self.model = now
        if any(group.at < now.at or (group.events and group.events.first < now.next) for group in groups):
            with pytest.raises(LogError):
                self.driver.log.commit(groups)

    @rule(drawn=GROUPS)
    def full_disk(self, drawn: list[Any]) -> None:
        groups, after = self.made(drawn), self.model.copy()
        if after.apply(groups) and any(group.events is not None for group in groups):
            with self.driver.full_disk(), pytest.raises(LogFullError):
                self.driver.log.commit(groups)

    @rule(drawn=GROUPS, seed=st.integers(0, 9))
    def failed_sync(self, drawn: list[Any], seed: int) -> None:
        groups, after = self.made(drawn), self.model.copy()
        if not after.apply(groups) or not any(group.events is not None for group in groups):
            return
        with self.driver.failing_sync(), pytest.raises(LogFailedError):
            self.driver.log.commit(groups)
        with pytest.raises(LogFailedError):
            self.driver.log.commit([])
        self.crash(seed)
        if self.driver.log.restore().next != self.model.next:  # whole or not at all; the invariant looks
            self.model = after

    @rule(seed=st.integers(0, 9))
    def crash(self, seed: int) -> None:
        self.driver.crash(seed)
        self.incarnation += 1

    @rule()
    def reopen(self) -> None:
        self.driver.reopen()
        self.incarnation += 1

    @rule(below=st.integers(0, 30), most=st.integers(0, 3))
    def trim(self, below: int, most: int) -> None:
        removed = taken = 0
        while self.model.groups and taken < most and self.model.groups[0][2][-1][1] < below:
            removed += len(self.model.groups.pop(0)[2])
            taken += 1
        assert self.driver.log.trim(Offset(below), most) == removed

    @rule(first=st.integers(0, 30), limit=st.integers(0, 9))
    def read(self, first: int, limit: int) -> None:
        found = plain(list(self.driver.log.read(Offset(first), limit)))
        assert found == [event for event in self.model.events() if event[1] >= first][:limit]

    @rule(at=st.integers(0, 9), size=st.integers(0, 600))
    def find(self, at: int, size: int) -> None:
        late = [events[0][1] for time, _, events in self.model.groups if time >= at]
        assert self.driver.log.find(at) == (late or [self.model.next])[0]
        point, left = self.model.next, size
        for _, taken, events in reversed(self.model.groups):
            left -= taken
            if left < 0:
                break
            point = events[0][1]
        assert self.driver.log.find_size(size) == point

    @rule(seats=st.lists(st.integers(1, 9), max_size=3), first=st.integers(0, 30), limit=st.integers(0, 9))
    def seek(self, seats: list[int], first: int, limit: int) -> None:
        looked_at = [event for event in self.model.events() if event[1] >= first][:limit]
        wanted = [event[1] for event in looked_at if set(event[-1]) & set(seats)]
        if limit == 0:
            answer = first
        elif wanted:
            answer = wanted[0]
        else:
            answer = looked_at[-1][1] + 1 if len(looked_at) == limit else self.model.next
        assert self.driver.log.seek(np.array(seats, np.uint32), Offset(first), limit) == answer

    @rule(seat=few, after=st.integers(0, 4), limit=st.integers(0, 3))
    def dead(self, seat: int, after: int, limit: int) -> None:
        wanted = [row for (s, offset), row in self.model.of(DeadRow).items() if s == seat and offset > after]
        assert self.driver.log.dead(seat, Offset(after), limit) == wanted[:limit]

    @invariant()
    def holds_what_it_should(self) -> None:
        if not hasattr(self, "driver"):
            return
        state, model = self.driver.log.restore(), self.model
        assert plain(list(self.driver.log.read(Offset(1), 1000))) == model.events()
        assert (state.log_id, state.incarnation) == ("0" * 32, self.incarnation)
        assert (state.next, state.at, state.next_seat) == (model.next, model.at, model.next_seat)
        assert state.first == (model.events()[0][1] if model.groups else model.next)
        assert state.meta == model.meta
        for kind, found in (
            (SessionRow, state.sessions),
            (SubRow, state.subs),
            (AdvertRow, state.adverts),
            (LinkRow, state.links),
            (HeardRow, state.heard),
            (MoveRow, state.moves),
            (ProfileRow, state.profiles),
            (ShownRow, state.shown),
        ):
            assert list(map(astuple, found.values())) == list(map(astuple, model.of(kind).values()))
            assert list(found) == list(model.of(kind))
        counts: dict[int, int] = {}
        for seat, _ in model.of(DeadRow):
            counts[seat] = counts.get(seat, 0) + 1
        assert state.dead == counts


class SqliteLogMachine(LogMachine):
    driver_type = SqliteDriver


TestMemoryLog = LogMachine.TestCase
TestMemoryLog.settings = settings(thorough(40), stateful_step_count=25)
TestSqliteLog = SqliteLogMachine.TestCase
TestSqliteLog.settings = settings(thorough(20), stateful_step_count=20)
