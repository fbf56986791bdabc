"""Garbage collection in the process of a broker. Laws: while the broker is busy, no collection looks at more than some
thousand objects; what ended connections leave behind is freed.

What a broker drops is freed at once, because its objects form no cycles. Two things do form cycles: errors with their
tracebacks, which are young when they become garbage, and asyncio's transports, which may be old. So young objects are
collected often and few at a time, and old ones only when many connections have ended, in a quiet moment.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.net.node import BrokerNode

_YOUNG, _MIDDLE = 2_000, 5  # new objects, and such collections, after which some 2,000 and 10,000 objects are looked at
_OLD = 10_000  # collections of 10,000: a last resort, after a hundred million new objects
_MANY, _TOO_MANY = 1_000, 50_000  # ended connections, of some 2 KiB each
_EVERY, _QUIET = 10.0, 0.1  # seconds


def keep_pauses_short() -> None:
    """Apply the policy to this process, when everything is there that lives as long as the process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)


class GarbageRounds:
    """Full collections of a node: after `many` connections have ended, when nothing is received for `quiet` seconds;
    after `too_many` in any case.
    """

    def __init__(self, node: BrokerNode, many: int = _MANY, too_many: int = _TOO_MANY, quiet: float = _QUIET) -> None:
        self._node = node
        self._many, self._too_many, self._quiet = many, too_many, quiet
        self._ended = self._count()

    def _count(self) -> int:
        return self._node.counts["connections"] - len(self._node.connections)

    async def run(self) -> None:
        """Collect for ever."""
        while True:
            await asyncio.sleep(_EVERY)
            await self.round()

    async def round(self) -> bool:
        """Collect if it is time; whether it was."""
        ended = self._count() - self._ended
        if ended < self._many:
            return False
        before = self._node.bytes_received
        await asyncio.sleep(self._quiet)
        if self._node.bytes_received != before and ended < self._too_many:
            return False
        self._ended = self._count()
        gc.collect()
        return True
