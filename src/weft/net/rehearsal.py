"""A broker rehearses before it opens: a core in memory takes subscriptions and events, so that whatever is loaded or
compiled at first use is there when the first client comes. Law: nothing of it is left behind.
"""

from __future__ import annotations

from itertools import count

from weft.broker.codec import encode_all
from weft.broker.core import Core
from weft.broker.effects import ConnectionId, Effect, Now, Persist
from weft.broker.messages import Ack, Hello, Publish, QueueNumber, SubNumber, Subscribe
from weft.log.base import Offset
from weft.log.memory import MemoryLog
from weft.routing.table import RoutingTable

SUBSCRIPTIONS, EVENTS = 200, 100  # enough for the index to leave its first, small form


def rehearse(table: RoutingTable) -> int:
    """Run a broker for a moment, with a table of its own. Returns how many bytes it sent."""
    log, ids = MemoryLog("rehearsal"), count(1)
    core = Core(log, log.restore(), table, draw=lambda: next(ids))
    now, who, sent = Now(0, 1), ConnectionId("c"), 0

    def run(effects: list[Effect]) -> None:
        nonlocal sent
        for effect in effects:
            if isinstance(effect, Persist):
                log.commit([effect.group])
                run(core.committed(effect.ticket, now))
            elif hasattr(effect, "messages"):
                sent += len(encode_all(effect.messages))

    run(core.connected(who, now))
    run(core.receive(who, [Hello(session="s")], now))
    filters = [f"kind = 'k{n % 7}' AND size >= {n} AND size < {n + 20}" for n in range(SUBSCRIPTIONS)]
    run(core.receive(who, [Subscribe(SubNumber(n), text) for n, text in enumerate(filters)], now))
    events = [Publish.of(n + 1, {"kind": f"k{n % 7}", "size": 1.5 * n}, b"...") for n in range(EVENTS)]
    run(core.receive(who, events, now))
    run(core.receive(who, [Ack(QueueNumber(0), Offset(EVENTS + 1))], now))
    return sent
