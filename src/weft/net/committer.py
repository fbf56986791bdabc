"""Groups go to the log. Laws: they are committed in order, by one thread; what became of them is told in the loop, in
order; one commit runs at a time, and nothing is handed over before the outcome of the last one is known.

A commit begins as soon as there is something to store and nothing else is going on. Under load commits begin at least
WINDOW apart, so that each stores many groups: a commit costs much the same however many groups it has. What nobody
waits for is stored with the next group that somebody waits for, or after LAZY. The log's own work, which would delay a
commit, is done once the outcome of the commit before it has been told.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, Protocol, TypeVar

from weft.broker.effects import Persist
from weft.errors import LogFailedError, LogFullError, WeftError
from weft.log.base import Group, Log
from weft.net.precise_timer import PreciseTimer

WINDOW = 0.002  # seconds between the beginnings of two commits under load
LAZY = 0.010  # seconds that a group waits for which nobody waits
EAGER = 4 << 20  # bytes that are committed at once, whatever the window says
_QUIET = 2  # groups of a commit that are no load

Job = Callable[[], None]
R = TypeVar("R")


class Outcome(NamedTuple):
    """What became of the groups of one commit: the first `stored` are durable; `full` says why any others are not."""

    persists: Sequence[Persist]
    stored: int
    full: str = ""


class Told(Protocol):
    """Whoever is told, in the loop's thread."""

    def stored(self, outcome: Outcome) -> None:
        """A commit has ended."""

    def worked(self) -> None:
        """Other work on the log has ended."""

    def failed(self, error: Exception) -> None:
        """It is unknown what is stored, or something broke: nothing is committed any more."""


def commit(log: Log, persists: Sequence[Persist]) -> Outcome:
    """Commit groups. If they do not fit, those before the first that does not fit are stored one by one."""
    groups = [persist.group for persist in persists]
    try:
        log.commit(groups)
    except LogFullError as error:
        if len(groups) == 1:
            return Outcome(persists, 0, str(error))
        for stored, group in enumerate(groups):
            try:
                log.commit([group])
            except LogFullError as full:
                return Outcome(persists, stored, str(full))
    return Outcome(persists, len(groups))


class Committer:
    """Decides when groups are committed, and has them committed.

    With `threaded` a thread of its own waits for the disk; otherwise commits run in the loop, which is right for logs
    in memory.
    """

    def __init__(self, log: Log, told: Told, *, threaded: bool = True) -> None:
        self._log = log
        self._told = told
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Persist] = []
        self._urgent = False  # somebody waits for one of them
        self._since = 0.0  # when the first of them came
        self._begun = 0.0  # when the last commit began
        self._last = 0  # groups of the last commit
        self._busy = False
        self._ended = False
        self._timer = PreciseTimer(self.go)
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: Thread | None = None
        if threaded:
            self._thread = Thread(target=self._work, name="weft-committer", daemon=True)
            self._thread.start()
        self.bytes = 0  # that wait, or are being committed
        self._flying = 0  # of these, those that are being committed
        self._works: deque[Job] = deque()  # what else is to be done to the log
        self.added = self.settled = 0  # groups that came, and those that were stored or given up
        self.commits = 0
        self.groups = 0
        self.seconds = 0.0  # spent in commits

    # -- groups ----------------------------------------------------------------------------------------

    def add(self, persist: Persist) -> None:
        """A group that is to be committed after those before it; `go` begins."""
        if not self._waiting:
            self._since = self._loop.time()
        self._waiting.append(persist)
        self.added += 1
        self._urgent |= persist.urgent
        self.bytes += weight(persist.group)

    def go(self) -> None:
        """Begin a commit if it is time, or see to it that one begins in time."""
        if self._busy or self._ended or not self._waiting:
            return
        now = self._loop.time()
        if not self._urgent:
            due = self._since + LAZY
        elif self._last <= _QUIET or self.bytes >= EAGER:
            due = now
        else:
            due = self._begun + WINDOW
        if due <= now:
            self._begin(now)
        elif self._timer.due is None or due < self._timer.due:
            self._timer.set(due)

    def forget(self) -> None:
        """Give up every group that waits: the log was full, and the core has forgotten them, too."""
        self.settled += len(self._waiting)
        self._waiting, self._urgent, self.bytes = [], False, 0

    def hurry(self) -> None:
        """Somebody waits for everything: begin as soon as possible."""
        self._urgent = True
        self._last = 0
        self.go()

    @property
    def idle(self) -> bool:
        """Whether everything is stored."""
        return not self._busy and not self._waiting

    def _begin(self, now: float) -> None:
        self._timer.cancel()
        taken, self._waiting = self._waiting, []
        self._urgent, self._busy, self._flying = False, True, self.bytes
        self._begun, self._last = now, len(taken)

        def job() -> None:
            outcome = commit(self._log, taken)
            self._tell(lambda: self._stored(outcome))
            self._log.checkpoint()

        self._start(job)

    def _stored(self, outcome: Outcome) -> None:
        self._busy = False
        self.bytes -= self._flying
        self._flying = 0
        self.commits += 1
        self.groups += outcome.stored
        self.seconds += self._loop.time() - self._begun
        self.settled += len(outcome.persists)
        self._told.stored(outcome)
        if not self._busy and not self._ended:
            self._next()
        self.go()

    # -- other work on the log -------------------------------------------------------------------------

    def between(self, work: Callable[[], R]) -> asyncio.Future[R]:
        """Do something else to the log, after the commit that is running and before the next but one.

        What `work` raises is raised there, but for a failure of the log, which is everybody's.
        """
        done: asyncio.Future[R] = self._loop.create_future()

        def job() -> None:
            try:
                result = work()
            except LogFailedError:
                raise
            except WeftError as error:
                failure = error
                self._tell(lambda: self._ran(done, None, failure))
            else:
                self._tell(lambda: self._ran(done, result, None))

        self._works.append(job)
        if not self._busy and not self._ended:
            self._next()
        return done

    def _ran(self, done: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        self._busy = False
        if not done.done():
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)
        self._told.worked()
        self.go()
        if not self._busy and not self._ended:
            self._next()

    def _next(self) -> None:
        if self._works:
            self._busy = True
            self._start(self._works.popleft())

    # -- the thread ------------------------------------------------------------------------------------

    def _start(self, job: Job) -> None:
        if self._thread is not None:
            self._jobs.put(job)
        else:
            self._loop.call_soon(self._try, job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._try(job)

    def _try(self, job: Job) -> None:
        try:
            job()
        except Exception as error:  # a broker that cannot store must not go on
            failure = error
            self._tell(lambda: self._fail(failure))

    def _tell(self, what: Callable[[], None]) -> None:
        if self._thread is None:
            what()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what)

    def _fail(self, error: Exception) -> None:
        self._ended = True
        self._told.failed(error)

    def close(self) -> None:
        """End the thread, after the commit that is running; what waits is not stored."""
        self._ended = True
        self._timer.close()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None


def weight(group: Group) -> int:
    """About how many bytes a group takes in memory."""
    events = group.events
    if events is None:
        return 256
    return sum(map(len, events.heads)) + sum(map(len, events.payloads)) + 128 * len(events.heads)
