"""Old events are removed from the log while the broker runs. Laws: nothing that somebody may still need is removed; no
commit waits for more than one small step.

A round: the core stores how far every queue is; when that is committed, the groups that neither a queue nor the
retention needs are removed, some at a time, between commits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from weft.errors import LogFailedError, WeftError
from weft.log.retention import Retention, trim_point
from weft.net.clock import clock

if TYPE_CHECKING:
    from weft.net.node import BrokerNode

STEP = 50  # groups that are removed between two commits


class Trimmer:
    """Trims the log of a node every so often, and when it is full."""

    def __init__(self, node: BrokerNode, retention: Retention, every: float) -> None:
        self._node = node
        self._retention = retention
        self._every = every
        self._wake = asyncio.Event()
        self.removed = 0  # events

    def hurry(self) -> None:
        """The log is full: trim now."""
        self._wake.set()

    async def run(self) -> None:
        """Trim for ever."""
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
        """Remove what may be removed now. Returns the number of events."""
        node, log = self._node, self._node.log
        await node.store_floors()
        utc = clock().utc
        limit = await node.committer.between(lambda: trim_point(log, (), utc, self._retention))
        total = 0
        while removed := await node.committer.between(lambda: log.trim(min(limit, node.core.needed), STEP)):
            total += removed
        if total:
            self.removed += total
            node.trimmed(log.find(0))
        return total
