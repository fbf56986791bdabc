"""Recordings of simulated runs: a file per run (`NAME.weftrun`), which a player reads step by step.

A recording is an SQLite file. `run` has what is known beforehand, `step` what happened, and `keyframe` the state after
every 256th step. Bodies are MessagePack: messages `[from, to, kind, about]`, changes of tables (drop and add, by
table), streams (where each client is), states (of brokers, nodes and links), assertions, figures, notes. The same run
gives the same rows.

A table is named `PLANE/BROKER/LINK/subscriptions` or `.../advertisements`: what a broker has received from a neighbour.
`local/BROKER` and `local/BROKER/CLIENT` are subscriptions of its own clients. A stream is the position of a client's
broker in the list of brokers, or -1 while the client is nowhere.

The state at a step is the keyframe before it and the steps since: what the simulator's own tables had then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from weft.errors import WeftError

KEYFRAME_EVERY = 256
_SCHEMA = """
CREATE TABLE run(meta BLOB NOT NULL);
CREATE TABLE step(n INTEGER PRIMARY KEY, at INTEGER NOT NULL, phase TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE keyframe(n INTEGER PRIMARY KEY, state BLOB NOT NULL);
"""
_PACK = msgspec.msgpack.Encoder().encode


class RunState(NamedTuple):
    """What a player shows: the items of each table, where each client is, and the state of everything else by name."""

    tables: dict[str, dict[int, str]]
    streams: dict[str, int]
    states: dict[str, str]


class RunStep(NamedTuple):
    """What happened at a time, in microseconds."""

    number: int
    at: int
    phase: str
    body: dict[str, Any]


def _apply(state: RunState, body: Mapping[str, Any]) -> None:
    for name, change in body.get("tables", {}).items():
        held = state.tables.setdefault(name, {})
        for number in change["drop"]:
            held.pop(int(number), None)
        held |= {int(number): item for number, item in change["add"].items()}
        if not held:
            del state.tables[name]
    state.streams.update(body.get("streams", {}))
    for name, now in body.get("states", {}).items():
        if now is None:
            state.states.pop(name, None)
        else:
            state.states[name] = now


def no_state() -> RunState:
    """The state before the first step."""
    return RunState({}, {}, {})


class RunRecorder:
    """Writes a recording; a context manager. Replaces the file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "small.weftrun"
    >>> with RunRecorder(path, {"kind": "example"}) as recorder:
    ...     recorder.step(5, "", {"tables": {"a": {"drop": [], "add": {1: "x > 5"}}}})
    >>> Recording(path).state(1)
    RunState(tables={'a': {1: 'x > 5'}}, streams={}, states={})
    """

    def __init__(self, path: Path, meta: Mapping[str, Any], every: int = KEYFRAME_EVERY) -> None:
        path.unlink(missing_ok=True)
        self._rows = sqlite3.connect(path)
        self._rows.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _SCHEMA)
        self._rows.execute("INSERT INTO run VALUES (?)", (_PACK(meta),))
        self._state = no_state()
        self._number, self._every = 0, every

    def step(self, at: int, phase: str, body: Mapping[str, Any]) -> None:
        """Something happened."""
        self._number += 1
        packed = _PACK(body)
        self._rows.execute("INSERT INTO step VALUES (?, ?, ?, ?)", (self._number, at, phase, packed))
        _apply(self._state, body)
        if self._number % self._every == 0:
            self._rows.execute("INSERT INTO keyframe VALUES (?, ?)", (self._number, _PACK(self._state._asdict())))

    def observe(  # noqa: PLR0913 - a state has three parts
        self,
        at: int,
        phase: str,
        body: Mapping[str, Any],
        *,
        tables: Mapping[str, Mapping[int, str]] | None = None,
        streams: Mapping[str, int] | None = None,
        states: Mapping[str, str] | None = None,
        whole: bool = False,
    ) -> bool:
        """Write what has changed since the last step; returns False if nothing has, and the body is empty.

        `tables`, `streams` and `states` are contents as they are now, an empty table being gone. What is not mentioned
        stays, unless the state is `whole`: then tables and states that are not mentioned are gone.
        """
        before, made = self._state, dict(body)
        now = dict(tables or {})
        if whole:
            now = {**{name: {} for name in before.tables}, **now}
        changes = {}
        for name, items in now.items():
            held = before.tables.get(name, {})
            if held != items:
                drop = [number for number in held if number not in items]
                add = {number: item for number, item in items.items() if held.get(number) != item}
                changes[name] = {"drop": drop, "add": add}
        if changes:
            made["tables"] = changes
        if moved := {name: place for name, place in (streams or {}).items() if before.streams.get(name) != place}:
            made["streams"] = moved
        other: dict[str, str | None] = {
            name: new for name, new in (states or {}).items() if before.states.get(name) != new
        }
        if whole:
            other |= dict.fromkeys((name for name in before.states if name not in (states or {})), None)
        if other:
            made["states"] = other
        if made:
            self.step(at, phase, made)
        return bool(made)

    def __enter__(self) -> RunRecorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rows.commit()
        self._rows.close()


class Recording:
    """Reads a recording. Raises WeftError if the file is not one."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise WeftError(f"there is no recording {path}")
        self._rows = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            (meta,) = self._rows.execute("SELECT meta FROM run").fetchone()
            self.meta: dict[str, Any] = msgspec.msgpack.decode(meta)
            (self.size,) = self._rows.execute("SELECT count(*) FROM step").fetchone()
        except (sqlite3.DatabaseError, TypeError, msgspec.DecodeError):
            raise WeftError(f"{path} is not a recording; record a run with weft sim ... --record FILE") from None

    def steps(self, after: int = 0, until: int | None = None) -> Iterator[RunStep]:
        """The steps after a number, up to another one."""
        last = self.size if until is None else until
        rows = self._rows.execute(
            "SELECT n, at, phase, body FROM step WHERE n > ? AND n <= ? ORDER BY n", (after, last)
        )
        for number, at, phase, body in rows:
            yield RunStep(number, at, phase, msgspec.msgpack.decode(body, strict=False))

    def state(self, number: int) -> RunState:
        """The state after a step; 0 is before the first. Cost: O(256)."""
        if not 0 <= number <= self.size:
            raise WeftError(f"there is no step {number}; the recording has {self.size}")
        query = "SELECT n, state FROM keyframe WHERE n <= ? ORDER BY n DESC LIMIT 1"
        row = self._rows.execute(query, (number,)).fetchone()
        begin, state = 0, no_state()
        if row is not None:
            begin, packed = row
            found = msgspec.msgpack.decode(packed, type=dict[str, Any], strict=False)
            tables = {name: {int(key): item for key, item in held.items()} for name, held in found["tables"].items()}
            state = RunState(tables, found["streams"], found.get("states", {}))
        for step in self.steps(begin, number):
            _apply(state, step.body)
        return state
