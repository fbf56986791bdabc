"""What an application waits for while the network thread works. Law: a waiter is finished once, with a value or an
error; whoever waits in an event loop is woken in that loop, once for all that finished in one turn of the network.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any


class Waiter:
    """One result that the network thread hands over. `loop` is where it is awaited; None for a thread that blocks."""

    __slots__ = ("_event", "error", "future", "is_done", "loop", "value")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop
        self.future: asyncio.Future[Any] | None = None if loop is None else loop.create_future()
        self._event = threading.Event() if loop is None else None
        self.is_done = False
        self.value: Any = None
        self.error: Exception | None = None

    def finish(self, value: Any = None, error: Exception | None = None) -> bool:
        """Set the result; whether this was the first. `wake` must follow."""
        if self.is_done:
            return False
        self.value, self.error, self.is_done = value, error, True
        return True

    def wait(self, timeout: float | None = None) -> Any:
        """Block until it is finished. Raises its error, or TimeoutError."""
        assert self._event is not None
        if not self._event.wait(timeout):
            raise TimeoutError(f"nothing arrived within {timeout:g} s")
        if self.error is not None:
            raise self.error
        return self.value

    def _resolve(self) -> None:
        future = self.future
        assert future is not None
        if not future.done():
            if self.error is None:
                future.set_result(self.value)
            else:
                future.set_exception(self.error)


class Receipt(Waiter):
    """The outcome of events that were published together. `total` is how many; None while there may be more."""

    __slots__ = ("codes", "refused", "stored", "total")

    def __init__(self, loop: asyncio.AbstractEventLoop | None, total: int | None = 1) -> None:
        super().__init__(loop)
        self.total = total
        self.stored = 0
        self.refused: dict[int, str] = {}  # the reason, by position
        self.codes: dict[int, str] = {}

    @property
    def is_settled(self) -> bool:
        """Whether each event was stored or refused."""
        return self.stored + len(self.refused) == self.total


def wake(finished: Iterable[Waiter]) -> None:
    """Wake whoever waits for these."""
    loops: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for waiter in finished:
        if waiter.loop is None:
            assert waiter._event is not None
            waiter._event.set()
        else:
            loops.setdefault(waiter.loop, []).append(waiter)
    for loop, waiters in loops.items():
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(_resolve, waiters)


def _resolve(waiters: list[Waiter]) -> None:
    for waiter in waiters:
        waiter._resolve()
