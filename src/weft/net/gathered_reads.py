"""What connections said, handed to the core in turns. Laws: each connection is heard in order; nothing waits longer
than WINDOW, and nothing at all waits while the thread has time to spare.

A turn that stores events costs some half of a millisecond, however few they are: matching, a commit, and a write for
each connection that gets any. So when the thread is busy, such turns begin at most every WINDOW, with all events that
were read meanwhile, and all acknowledgements, for which nobody waits. Whatever else is read is handed on at once, with
what came at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import thread_time
from typing import TYPE_CHECKING, NamedTuple

from weft.broker.link_messages import IncomingMessage, LinkEvents
from weft.broker.messages import Ack, Publish
from weft.net.precise_timer import PreciseTimer

if TYPE_CHECKING:
    from weft.net.server_connection import ServerConnection

WINDOW = 0.003  # seconds between the beginnings of two turns that store events, under load
EAGER = 256 << 10  # bytes that are handed on at once, whatever the window says
_LOOK = 0.010  # seconds over which the load is measured
_BUSY, _IDLE = 0.5, 0.25  # parts of a processor: above, turns become rarer; below, more frequent

_ASK_NOTHING = frozenset({Publish, LinkEvents, Ack})


class Read(NamedTuple):
    """What one read of a connection brought; never nothing."""

    connection: ServerConnection
    messages: Sequence[IncomingMessage]

    @property
    def stores(self) -> bool:
        """Whether it begins with an event that is to be stored."""
        first = self.messages[0]
        return type(first) is LinkEvents or (type(first) is Publish and first.sequence > 0)

    @property
    def asks(self) -> bool:
        """Whether it asks for anything: it has more than events and acknowledgements."""
        return not _ASK_NOTHING.issuperset(map(type, self.messages))

    @property
    def acknowledges(self) -> bool:
        """Whether it has nothing but acknowledgements."""
        return all(type(message) is Ack for message in self.messages)


class GatheredReads:
    """Reads that wait for their turn; `handle` is called with those of a turn, in the loop."""

    def __init__(self, handle: Callable[[list[Read]], None]) -> None:
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._now: list[Read] = []  # that are handed on in this turn of the loop
        self._soon: asyncio.Handle | None = None
        self._later: list[Read] = []  # that wait for the timer
        self._late: set[ServerConnection] = set()  # whose reads these are
        self._bytes = 0  # of these
        self._timer = PreciseTimer(self.take)
        self._begun = 0.0  # when events were last handed on
        self._window = 0.0  # seconds between two turns that store events
        self._looked = self._spent = 0.0  # when the load was last measured, and the thread's processor time then

    def add(self, read: Read, size: int) -> None:
        """A read of so many bytes."""
        if read.connection in self._late or (self._must_wait() if read.stores else self._later and read.acknowledges):
            self._later.append(read)
            self._late.add(read.connection)
            self._bytes += size
            if self._bytes >= EAGER:
                self.take()
            return
        self._now.append(read)
        if self._soon is None:
            self._soon = self._loop.call_soon(self._take_now)

    def _must_wait(self) -> bool:
        """Whether the next turn that stores events is still to come; else it begins now."""
        if self._later:
            return True
        now = self._loop.time()
        if now - self._looked >= _LOOK:
            self._measure(now)
        due = self._begun + self._window
        if due > now:
            self._timer.set(due)
            return True
        self._begun = now
        return False

    def _measure(self, now: float) -> None:
        """Wait longer if the thread was busy, and less if it was not."""
        spent = thread_time()
        busy = (spent - self._spent) / (now - self._looked)
        self._looked, self._spent = now, spent
        if busy > _BUSY:
            self._window = min(WINDOW, self._window + WINDOW / 4)
        elif busy < _IDLE:
            self._window = max(0.0, self._window - WINDOW / 4)

    def _take_now(self) -> None:
        self._soon = None
        reads, self._now = self._now, []
        if reads:
            self._handle(reads)

    def take(self) -> None:
        """Hand on whatever waits."""
        self._timer.cancel()
        reads, self._now = [*self._now, *self._later], []
        if self._later:
            self._begun = self._loop.time()
            self._later, self._late, self._bytes = [], set(), 0
        if reads:
            self._handle(reads)

    def close(self) -> None:
        """Forget what waits, and hand on nothing any more."""
        self._now.clear()
        self._later.clear()
        self._timer.close()
