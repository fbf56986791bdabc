"""The notice that a kernel is being compiled. A listener is called once in a process; without one, nothing happens.

Compiled kernels are cached, so that this happens once on a machine. Importing this module imports no compiler.
"""

from __future__ import annotations

from collections.abc import Callable

_listeners: list[Callable[[], None]] = []


def listen(tell: Callable[[], None]) -> None:
    """Call `tell` when the first kernel of this process is about to be compiled."""
    _listeners.append(tell)


def compiling() -> None:
    """A kernel is about to be compiled: tell those who listen, and forget them."""
    while _listeners:
        _listeners.pop(0)()
