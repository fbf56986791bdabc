"""Garbage collection as in the process of a broker. No full collection falls into what is measured.

A full collection looks at every object of the process, those of numba and of earlier benchmarks included. It takes
40 ms or more, which would be counted as part of whatever is measured then.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from weft.server.process import keep_pauses_short


@contextmanager
def short_pauses() -> Iterator[None]:
    """Collect garbage as a broker does, until the end of the block."""
    before = gc.get_threshold()
    keep_pauses_short()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
