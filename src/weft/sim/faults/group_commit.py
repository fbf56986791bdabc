"""How a simulated process commits groups: written, then synced, then the core is told, with time between the three.

Law: groups are committed in order, and a process that crashes in between tells nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from weft.broker.core import Core
from weft.broker.effects import Effect, Now, Persist
from weft.errors import LogFailedError, LogFullError
from weft.log.memory import MemoryLog
from weft.sim.engine import Engine, Scheduled
from weft.sim.faults.oracle import Oracle
from weft.sim.faults.trace import RunTrace

_LAZY = 40_000  # microseconds that a group which is not urgent waits at most


class Committing(Protocol):
    """The process whose groups are committed."""

    name: str
    log: MemoryLog
    core: Core | None
    oracle: Oracle

    @property
    def now(self) -> Now:
        """The time as the process sees it."""

    def perform(self, effects: list[Effect]) -> None:
        """Carry effects out."""

    def failed(self) -> None:
        """A sync failed: the process ends, and starts again later."""


class GroupCommit:
    """The groups of one process that wait, or are being committed."""

    def __init__(self, process: Committing, engine: Engine, rng: Random, trace: RunTrace) -> None:
        self.busy = False  # written, and the core is not told yet
        self.sync_within = 1_500  # microseconds that a sync takes, at most
        self._process, self._engine, self._rng, self._trace = process, engine, rng, trace
        self._waiting: list[Persist] = []
        self._next: Scheduled | None = None

    def add(self, group: Persist) -> None:
        """A group is to be committed."""
        self._waiting.append(group)
        self._plan()

    def stop(self) -> None:
        """The process has ended."""
        if self._next is not None:
            self._next.cancel()
        self._next, self.busy = None, False
        self._waiting.clear()

    def _plan(self) -> None:
        """Commit soon if somebody waits for it, else later; a commit that is under way comes first."""
        if self.busy or not self._waiting:
            return
        urgent = any(waiting.urgent for waiting in self._waiting)
        due = self._engine.now + (1 + self._rng.randrange(800) if urgent else _LAZY)
        if self._next is None or due < self._next.time:
            if self._next is not None:
                self._next.cancel()
            self._next = self._engine.at(due, self._write)

    def _write(self) -> None:
        process = self._process
        taken, self._waiting = self._waiting, []
        self._next = None
        try:
            process.log.write([persist.group for persist in taken])
        except LogFullError as error:
            self._trace.count("fault: commit refused")
            if process.log.quota is not None and "quota" in str(error):
                self._trace.count("fault: quota reached")
            self._trace.say(self._engine.now, process.name, f"log full: {error}")
            assert process.core is not None
            process.perform(process.core.rejected(taken[0].ticket, str(error), process.now))
            return
        self.busy = True
        self._then(self.sync_within, lambda: self._sync(taken))

    def _sync(self, taken: list[Persist]) -> None:
        try:
            self._process.log.sync()
        except LogFailedError:
            self._trace.count("fault: sync failed")
            self._process.failed()
            return
        self._process.oracle.committed([persist.group for persist in taken])
        self._then(200, lambda: self._told(taken))

    def _told(self, taken: list[Persist]) -> None:
        self._next, self.busy = None, False
        process = self._process
        for persist in taken:
            if process.core is not None:
                process.perform(process.core.committed(persist.ticket, process.now))
        self._plan()

    def _then(self, within: int, action: Callable[[], None]) -> None:
        self._next = self._engine.after(1 + self._rng.randrange(within), action)
