"""The clocks of a broker, and a timer that is exact to some ten microseconds.

The timers of asyncio on Linux are late by up to a millisecond, because epoll counts whole ones. The kernel's own timers
are not, and a loop can wait for them as for a socket. Where there are none, the loop's timers are used.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from time import monotonic_ns, time_ns

from weft.broker.effects import Now


def clock() -> Now:
    """The time, in microseconds."""
    return Now(monotonic_ns() // 1_000, time_ns() // 1_000)


_MONOTONIC, _CLOSED_ON_EXEC, _NOT_BLOCKING, _ABSOLUTE = 1, 0o2000000, 0o4000, 1


class _TimerSetting(ctypes.Structure):
    """`struct itimerspec`: the interval of a repeated timer, and when it is due."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "due_s", "due_ns")]


def _timer_calls() -> ctypes.CDLL | None:
    """The C library, if it has kernel timers."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "timerfd_create") else None


class PreciseTimer:
    """Calls `callback` in the loop, once for each time that it was set, never early. It can be set again and again."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self.due: float | None = None  # when it calls back, by `loop.time()`; None if it is not set
        self._handle: asyncio.TimerHandle | None = None
        self._file = -1
        self._calls = _timer_calls()
        if self._calls is not None:
            self._file = self._calls.timerfd_create(_MONOTONIC, _CLOSED_ON_EXEC | _NOT_BLOCKING)
        if self._file >= 0:
            self._setting = _TimerSetting()
            self._loop.add_reader(self._file, self._over)

    def set(self, due: float) -> None:
        """Call back at this time of the loop's clock, and not when it was set to before."""
        self.due = due
        if self._file >= 0:
            self._arm(due)
        else:
            if self._handle is not None:
                self._handle.cancel()
            self._handle = self._loop.call_at(due, self._over)

    def cancel(self) -> None:
        """Do not call back."""
        if self.due is None:
            return
        self.due = None  # what is under way then finds nothing due
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self, due: float) -> None:
        assert self._calls is not None
        nanoseconds = max(1, int(due * 1e9))
        self._setting.due_s, self._setting.due_ns = divmod(nanoseconds, 1_000_000_000)
        self._calls.timerfd_settime(self._file, _ABSOLUTE, ctypes.byref(self._setting), None)

    def _over(self) -> None:
        if self._file >= 0:
            try:
                os.read(self._file, 8)
            except BlockingIOError:
                return  # it was set again meanwhile
        if self.due is None:
            return
        if self._file >= 0 and self._loop.time() < self.due:
            self._arm(self.due)  # set to a later time while this one was under way
            return
        self.due = None
        self._callback()

    def close(self) -> None:
        """Never call back again, and release the kernel's timer."""
        self.cancel()
        if self._file >= 0:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1
