"""Memory that Python and numpy allocate, measured by tracemalloc. Every benchmark measures it here.

CPython crashes if tracemalloc stops while another thread allocates without the interpreter's lock, and an index
rebuilds its parts in such a thread, within compiled kernels. So all indexes of the process are waited for first, also
those that a benchmark before has left behind.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from types import TracebackType

from weft.index import settle_all


class TracedMemory:
    """Measures what is allocated in a `with` block. `settle` are called before the end, to wait for threads other than
    those of indexes.

    >>> with TracedMemory() as traced:
    ...     kept = bytearray(100_000)
    >>> 100_000 <= traced.kept < 110_000, traced.peak >= traced.kept
    (True, True)
    """

    def __init__(self, *settle: Callable[[], None]) -> None:
        self._settle = [*settle]
        self.kept = 0  # bytes that were allocated in the block and are still in use at its end
        self.peak = 0  # the most bytes that were in use at once

    def wait_for(self, settle: Callable[[], None]) -> None:
        """Call a function before the end, which waits for the threads of something that was made in the block."""
        self._settle.append(settle)

    def peak_so_far(self) -> int:
        """The most bytes that were in use at once until now."""
        return tracemalloc.get_traced_memory()[1]

    def __enter__(self) -> TracedMemory:
        settle_all()
        gc.collect()
        tracemalloc.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            for settle in self._settle:
                settle()
            settle_all()
            gc.collect()
            self.kept, self.peak = tracemalloc.get_traced_memory()
        finally:
            settle_all()
            tracemalloc.stop()
