"""The notice that a kernel is being compiled. A listener is called once in a process; without one, it is logged.

Compiled kernels are cached, so that this happens once on a machine. Importing this module imports no compiler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

LOGGER = logging.getLogger("weft")
NOTICE = "compiling kernels, once on this machine: up to 20 seconds of processor time; `weft warm` does it ahead"

_listeners: list[Callable[[], None]] = []
_is_noticed = False


def listen(tell: Callable[[], None]) -> None:
    """Call `tell` when the first kernel of this process is about to be compiled."""
    _listeners.append(tell)


def compiling() -> None:
    """A kernel is about to be compiled: tell those who listen, and forget them."""
    global _is_noticed  # noqa: PLW0603 - once in a process
    if not _is_noticed and not _listeners:
        LOGGER.warning(NOTICE)
    _is_noticed = True
    while _listeners:
        _listeners.pop(0)()
