"""The work on a broker's log: commits of the driver's groups, and trimming between commits.

One thread does it. One commit runs at a time, and the driver learns its outcome in the loop before the next one begins.
A commit begins as soon as there is something to store and nothing else is going on. Under load commits begin at least
WINDOW apart, so that each stores many groups: a commit costs much the same however many groups it has. A group that is
not urgent is stored with the next one that is, or after LAZY. The log's own work, which would delay a commit, is done
once the outcome of the commit before it is known.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from weft.broker.driver import CommitOutcome, Driver, store
from weft.broker.effects import Persist
from weft.errors import LogFailedError, WeftError
from weft.log.base import Group, Log
from weft.log.retention import Retention, trim_point
from weft.server.clock import PreciseTimer

if TYPE_CHECKING:
    from weft.server.node import BrokerNode

WINDOW = 0.002  # seconds between the beginnings of two commits under load
LAZY = 0.010  # seconds that a group waits that is not urgent
EAGER = 4 << 20  # bytes that are committed at once, whatever the window says
_QUIET = 2  # groups of a commit that are no load
STEP = 50  # groups that are trimmed between two commits

R = TypeVar("R")


class Committer:
    """Commits the groups that wait in a driver.

    With `threaded` a thread of its own waits for the disk; otherwise commits run in the loop, which is right for logs
    in memory. The owner is called in the thread of the loop.
    """

    def __init__(self, log: Log, driver: Driver, owner: BrokerNode, *, threaded: bool = True) -> None:
        self._log = log
        self._driver = driver
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._urgent = False  # whether a group that waits is urgent
        self._since = 0.0  # when the first group that waits came
        self._begun = 0.0  # when the last commit began
        self._last = 0  # groups of the last commit
        self._busy = False
        self._ended = False
        self._timer = PreciseTimer(self.go)
        self._jobs: SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]] | None] = SimpleQueue()
        self._thread: Thread | None = None
        if threaded:
            self._thread = Thread(target=self._work, name="weft-committer", daemon=True)
            self._thread.start()
        self.bytes = 0  # that wait, or are being committed
        self._in_flight = 0  # of these, those that are being committed
        self._works: deque[Callable[[], None]] = deque()  # what else is to be done to the log
        self.commits = 0
        self.groups = 0
        self.seconds = 0.0  # spent in commits

    # -- groups ----------------------------------------------------------------------------------------

    def add(self, persist: Persist) -> None:
        """Note a group that waits in the driver; `go` begins a commit."""
        if len(self._driver.waiting) == 1:
            self._since = self._loop.time()
        self._urgent |= persist.urgent
        self.bytes += weight(persist.group)

    def go(self) -> None:
        """Begin a commit if it is time, or set the timer for it."""
        if self._busy or self._ended or not self._driver.waiting:
            return
        now = self._loop.time()
        if not self._urgent:
            due = self._since + LAZY
        elif self._last <= _QUIET or self.bytes >= EAGER:
            due = now
        else:
            due = self._begun + WINDOW
        if due <= now:
            if self._timer.due is not None:
                self._timer.cancel()
            groups = self._driver.begin_commit()
            self._urgent, self._busy, self._in_flight = False, True, self.bytes
            self._begun, self._last = now, len(groups)
            self._start(self._commit, groups)
        elif self._timer.due is None or due < self._timer.due:
            self._timer.set(due)

    def hurry(self) -> None:
        """Begin as soon as possible, urgent or not."""
        self._urgent = True
        self._last = 0
        self.go()

    @property
    def idle(self) -> bool:
        """Whether everything is stored."""
        return not self._busy and not self._driver.waiting

    def _commit(self, groups: Sequence[Persist]) -> None:
        outcome = store(self._log.commit, groups)
        self._report(self._stored, outcome)
        self._log.checkpoint()

    def _stored(self, outcome: CommitOutcome) -> None:
        self._busy = False
        self.bytes -= self._in_flight
        self._in_flight = 0
        self.commits += 1
        self.groups += outcome.stored
        self.seconds += self._loop.time() - self._begun
        self._driver.end_commit(outcome)
        if outcome.full:  # the driver has forgotten groups
            waiting = self._driver.waiting
            self.bytes = sum(weight(each.group) for each in waiting)
            self._urgent = any(each.urgent for each in waiting)
        self._owner.stored(outcome)
        if self._works and not self._busy and not self._ended:
            self._next()
        self.go()

    # -- other work on the log -------------------------------------------------------------------------

    def between(self, work: Callable[[], R]) -> asyncio.Future[R]:
        """Do something else to the log, after the commit that is running and before the next but one.

        The future gets what `work` raises, except a failure of the log, which ends the node.
        """
        done: asyncio.Future[R] = self._loop.create_future()

        def job() -> None:
            try:
                result = work()
            except LogFailedError:
                raise
            except WeftError as error:
                self._report(self._ran, done, None, error)
            else:
                self._report(self._ran, done, result, None)

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
        self._owner.worked()
        self.go()
        if self._works and not self._busy and not self._ended:
            self._next()

    def _next(self) -> None:
        self._busy = True
        self._start(self._works.popleft())

    # -- the thread ------------------------------------------------------------------------------------

    def _start(self, job: Callable[..., None], *args: Any) -> None:
        if self._thread is not None:
            self._jobs.put((job, args))
        else:
            self._loop.call_soon(self._try, job, args)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._try(*job)

    def _try(self, job: Callable[..., None], args: tuple[Any, ...]) -> None:
        try:
            job(*args)
        except Exception as error:  # a broker that cannot store must not go on
            self._ended = True
            self._report(self._owner.failed, error)

    def _report(self, call: Callable[..., None], *args: Any) -> None:
        """Call something in the loop's thread."""
        if self._thread is None:
            call(*args)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)

    def close(self) -> None:
        """End the thread, after the commit that is running; what waits is not stored."""
        self._ended = True
        self._timer.close()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None


def weight(group: Group) -> int:
    """The approximate size of a group in memory, in bytes."""
    events = group.events
    if events is None:
        return 256
    return sum(map(len, events.heads)) + sum(map(len, events.payloads)) + 128 * len(events.heads)


class Trimmer:
    """Trims the log of a node now and then, and when it is full.

    In a round, the core stores the position of every queue. When that is committed, the groups that neither a queue nor
    the retention needs are removed, some at a time, between commits.
    """

    def __init__(self, node: BrokerNode, retention: Retention, every: float) -> None:
        self._node = node
        self._retention = retention
        self._every = every
        self._wake = asyncio.Event()
        self.removed = 0  # events

    def hurry(self) -> None:
        """Trim now, because the log is full."""
        self._wake.set()

    async def run(self) -> None:
        """Trim again and again."""
        while True:
            try:
                async with asyncio.timeout(self._every):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self.round()
            except LogFailedError:
                raise  # the node ends
            except WeftError as error:
                self._node.lines.warning("not trimmed", reason=error)

    async def round(self) -> int:
        """Remove what may be removed. Returns the number of events."""
        node, log = self._node, self._node.log
        node.driver.do(node.core.store_floors)
        await node.settled()
        limit = await node.committer.between(lambda: trim_point(log, (), node.core.time, self._retention))
        total = 0
        while removed := await node.committer.between(lambda: log.trim(min(limit, node.core.needed), STEP)):
            total += removed
        if total:
            self.removed += total
            node.driver.do(node.core.trimmed, log.find(0))
        return total
