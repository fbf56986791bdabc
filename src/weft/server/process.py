"""The process of a broker: how many files it may open, short garbage collections, and a warm-up.

While the broker is busy, no garbage collection examines more than some thousand objects. Only errors with their
tracebacks, which are young when they become garbage, and asyncio's transports, which may be old, form cycles. So young
objects are collected often and few at a time, and old ones when many connections have ended, in a quiet moment.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.broker.delivery_run import encode_all
from weft.broker.effects import Outgoing
from weft.index.base import SubId
from weft.kernels.jit import load
from weft.language.text import parse, parse_many
from weft.log.base import Offset
from weft.network.cores import MemoryBroker
from weft.network.tables import BrokerId, TableNetwork
from weft.protocol.messages import Ack, ClientMessage, Publish, QueueNumber, SubNumber, Subscribe
from weft.routing.adverts import Advertised
from weft.routing.table import RoutingTable

if TYPE_CHECKING:
    from weft.server.node import BrokerNode

SPARE = 128  # files besides connections: the log, listeners, links, libraries

_YOUNG, _MIDDLE = 2_000, 5  # new objects, and such collections, after which some 2,000 and 10,000 objects are examined
_OLD = 10_000  # collections of 10,000: a last resort, after a hundred million new objects
_MANY, _TOO_MANY = 1_000, 50_000  # ended connections, of some 2 KiB each
_EVERY, _QUIET = 10.0, 0.1  # seconds

SUBSCRIPTIONS, EVENTS = 300, 100  # enough for the indexes to leave their first, small forms
_TEXTS = [f"kind = 'k{n % 7}' AND size >= {n} AND size < {n + 20}" for n in range(SUBSCRIPTIONS)]
_EVENTS = [{"kind": f"k{n % 7}", "size": 1.5 * n} for n in range(EVENTS)]


def room_for(connections: int) -> tuple[int, str]:
    """Raise the limit on open files. Returns how many connections are possible, and a warning if these are fewer."""
    try:
        import resource
    except ImportError:  # Windows
        return connections, ""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections, ""
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # macOS refuses more than kern.maxfilesperproc, whatever `hard` says
        most = soft
    if most >= wanted:
        return connections, ""
    fewer = max(1, most - SPARE)
    return fewer, (
        f"this process may open {most:,} files, enough for {fewer:,} connections; for {connections:,} raise the limit "
        f"to {wanted:,} (ulimit -Hn, or LimitNOFILE= in a systemd unit), or lower connections.max"
    )


def keep_pauses_short() -> None:
    """Apply the policy to this process, once everything that lives as long as the process is loaded."""
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
        """Collect again and again."""
        while True:
            await asyncio.sleep(_EVERY)
            await self.round()

    async def round(self) -> bool:
        """Collect if it is time. Returns whether it was."""
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


# -- the warm-up -------------------------------------------------------------------------------------


def is_cold() -> bool:
    """Whether kernels must be compiled, which takes some 15 seconds of processor time, and not only loaded."""
    load()
    from weft.kernels.compiler import uncached  # loaded by now

    return bool(uncached())


def warm_up(make: Callable[[], RoutingTable]) -> int:
    """Run a broker and two neighbours in memory briefly, so that whatever is loaded or compiled at first use is there
    when the first client comes. `make` makes their tables. Returns the number of events routed.
    """
    load()  # small work would run as plain Python, and leave kernels to be loaded later
    _serve(make)
    return _link(make)


def _serve(make: Callable[[], RoutingTable]) -> None:
    broker = MemoryBroker(make=make, executor=None, recorded=False)
    broker.hello("c", answer=_encode)
    broker.say("c", *(Subscribe(SubNumber(n), text) for n, text in enumerate(_TEXTS)))
    broker.say("c", *(Publish.of(n + 1, event, b"...") for n, event in enumerate(_EVENTS)))
    broker.say("c", Ack(QueueNumber(0), Offset(EVENTS + 1)))


def _encode(messages: list[Outgoing]) -> list[ClientMessage]:
    """A client that never answers."""
    encode_all(messages)
    return []


def _link(make: Callable[[], RoutingTable]) -> int:
    """Let one table send its interest to another; returns how many events the other then routes."""
    one, other = BrokerId("one"), BrokerId("other")
    network = TableNetwork((one, other), make, matcher=None, pieces=SUBSCRIPTIONS)
    network.attach(one, other)
    network.settle()
    table = network.table(other)
    if isinstance(table, Advertised):
        network.advertise(other, SubId(0), parse("size >= 0"))
        network.settle()
    filters = {SubId(n): each for n, each in enumerate(parse_many(_TEXTS))}
    network.change(one, filters)
    network.settle()
    network.change(one, {}, [*filters][::2])
    network.settle()
    table.route(_EVENTS[0], None)
    return sum(map(len, table.route_batch(_EVENTS, None).values()))
