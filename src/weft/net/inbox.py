"""What has arrived for one subscription, between the network thread and the application. Laws: what the application has
acknowledged is not shown again; after a negative acknowledgement in an ordered queue nothing is shown before the queue
begins again there; whatever the application does, the inbox holds a bounded number of events.

The broker bounds what a durable subscription holds: the window. Any other subscription drops its oldest events.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from weft.broker.messages import Deliver
from weft.errors import WeftError
from weft.net.waiters import Waiter, wake


class Settlement:
    """What the application decided since the network thread last asked."""

    __slots__ = ("acks", "nacks")

    def __init__(self, acks: list[int], nacks: list[tuple[int, int, str]]) -> None:
        self.acks = acks
        self.nacks = nacks


class Inbox:
    """The events of one subscription. `decided` is called in the application's thread when there is a decision, with
    whether it is urgent.
    """

    def __init__(
        self, *, durable: bool, ordered: bool, most: int, most_bytes: int, decided: Callable[[bool], None]
    ) -> None:
        self.durable = durable
        self.dropped = 0  # events that were not durable, and for which there was no room
        self.gaps: list[tuple[int, int]] = []  # ranges of offsets that the broker gave up
        self._ordered = ordered
        self._most, self._most_bytes = most, most_bytes
        self._decided = decided
        self._lock = threading.Lock()
        self._events: deque[Deliver] = deque()
        self._bytes = 0
        self._acks: list[int] = []
        self._nacks: list[tuple[int, int, str]] = []  # offsets, attempts, reasons
        self._again = False  # whether anything may have been delivered more than once
        self._held = False  # the queue is about to go back
        self._waiter: Waiter | None = None
        self._is_over = False
        self._error: WeftError | None = None

    # -- the network thread -----------------------------------------------------------------------------------

    def put(self, messages: Sequence[Deliver]) -> None:
        """Some have arrived."""
        with self._lock:
            self._events.extend(messages)
            if not self.durable:
                self._make_room(messages)
            waiter = None if self._held else self._take_waiter()
        if waiter is not None:
            wake([waiter])

    def _make_room(self, messages: Sequence[Deliver]) -> None:
        events = self._events
        self._bytes += sum(map(_size, messages))
        while len(events) > self._most or (self._bytes > self._most_bytes and len(events) > 1):
            self._bytes -= _size(events.popleft())
            self.dropped += 1

    def lost(self) -> None:
        """The connection is gone: what is durable comes again."""
        with self._lock:
            if self.durable:
                self._events.clear()
            self._again = True

    def settle(self, apply: Callable[[Settlement], set[int]]) -> None:
        """Hand the decisions over. `apply` returns what must not be shown any more."""
        with self._lock:
            settlement = Settlement(self._acks, self._nacks)
            self._acks, self._nacks = [], []
            withdrawn = apply(settlement)
            if self._again and settlement.acks:
                withdrawn = withdrawn | set(settlement.acks)
            if withdrawn:
                self._again = True
                self._events = deque(each for each in self._events if each.offset not in withdrawn)
            self._held = False
            waiter = self._take_waiter() if self._events else None
        if waiter is not None:
            wake([waiter])

    def end(self, error: WeftError | None) -> None:
        """Nothing more comes."""
        with self._lock:
            if self._is_over:
                return
            self._is_over, self._error = True, error
            waiter = self._take_waiter()
        if waiter is not None:
            wake([waiter])

    def _take_waiter(self) -> Waiter | None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.finish()
        return waiter

    # -- the application ----------------------------------------------------------------------------------------

    def pop(self) -> Deliver | None:
        """The next event, or None if there is none now. Raises StopIteration at the end, or why it ended."""
        with self._lock:
            if not self._held:
                while self._events:
                    message = self._events.popleft()
                    if not self.durable:
                        self._bytes -= _size(message)
                    elif self._again and message.offset and message.offset in self._acks:
                        continue
                    return message
            if self._is_over:
                if self._error is not None:
                    raise self._error
                raise StopIteration
            return None

    def wait(self, waiter: Waiter) -> bool:
        """Finish the waiter when there may be something to pop; False if that is now."""
        with self._lock:
            if self._is_over or (self._events and not self._held):
                return False
            self._waiter = waiter
            return True

    def forget_waiter(self, waiter: Waiter) -> None:
        """Nobody waits any more."""
        with self._lock:
            if self._waiter is waiter:
                self._waiter = None

    def ack(self, offset: int) -> None:
        """The application is done with an event."""
        with self._lock:
            first = not self._acks
            self._acks.append(offset)
        if first:
            self._decided(False)

    def nack(self, offset: int, attempt: int, reason: str) -> None:
        """The application failed to handle an event."""
        with self._lock:
            self._nacks.append((offset, attempt, reason))
            self._held = self._held or self._ordered
        self._decided(True)

    def __len__(self) -> int:
        return len(self._events)


def _size(message: Deliver) -> int:
    return len(memoryview(message.head)) + len(message.payload)
