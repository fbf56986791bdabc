"""A broker rehearses before it opens: a core in memory takes subscriptions and events, and two tables tell each other
what they want, so that whatever is loaded or compiled at first use is there when the first client comes. Law: nothing
of it is left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from weft.broker.codec import encode_all
from weft.broker.core import Core
from weft.broker.effects import ConnectionId, Effect, Now, Persist, SetTimer
from weft.broker.messages import Ack, Hello, Publish, QueueNumber, SubNumber, Subscribe
from weft.index.base import SubId
from weft.kernels.jit import load
from weft.language.ast import Filter
from weft.language.text import parse_many
from weft.log.base import Offset
from weft.log.memory import MemoryLog
from weft.routing.adverts import Advertised
from weft.routing.table import ClientId, Link, RoutingTable, Tell

SUBSCRIPTIONS, EVENTS = 300, 100  # enough for the indexes to leave their first, small forms
_TEXTS = [f"kind = 'k{n % 7}' AND size >= {n} AND size < {n + 20}" for n in range(SUBSCRIPTIONS)]
_EVENTS = [{"kind": f"k{n % 7}", "size": 1.5 * n} for n in range(EVENTS)]


def rehearse(make: Callable[[], RoutingTable]) -> int:
    """Run a broker for a moment, and two neighbours. `make` makes their tables. Returns how many events were routed."""
    load()  # small work would run as plain Python, and leave kernels to be loaded later
    _serve(make())
    return _link(make(), make())


def _serve(table: RoutingTable) -> int:
    log, ids = MemoryLog("rehearsal"), count(1)
    core = Core(log, log.restore(), table, draw=lambda: next(ids))
    now, who = Now(0, 1), ConnectionId("c")

    def run(effects: list[Effect]) -> None:
        due = False
        for effect in effects:
            if isinstance(effect, Persist):
                log.commit([effect.group])
                run(core.committed(effect.ticket, now))
            elif isinstance(effect, SetTimer):
                due = effect.at <= now.monotonic
            elif hasattr(effect, "messages"):
                encode_all(effect.messages)
        if due:  # a call handles some of the messages
            run(core.tick(now))

    run(core.connected(who, now))
    run(core.receive(who, [Hello(session="s")], now))
    run(core.receive(who, [Subscribe(SubNumber(n), text) for n, text in enumerate(_TEXTS)], now))
    run(core.receive(who, [Publish.of(n + 1, event, b"...") for n, event in enumerate(_EVENTS)], now))
    run(core.receive(who, [Ack(QueueNumber(0), Offset(EVENTS + 1))], now))
    return core.end - 1


def _link(one: RoutingTable, other: RoutingTable) -> int:
    """Let one table tell the other what it wants; how many events the other then routes."""
    link = Link("neighbour")  # for either of them, the other

    def tell(tells: Iterable[Tell], table: RoutingTable, from_: RoutingTable) -> None:
        for each in tells:
            tell(table.learn(link, each.update), from_, table)
        while from_.pending:
            tell(from_.step(SUBSCRIPTIONS), table, from_)

    first, second = one.attach(link), other.attach(link)
    tell(first, other, one)
    tell(second, one, other)
    if isinstance(other, Advertised):
        every: dict[SubId, Filter] = dict(enumerate(parse_many(["size >= 0"])))  # type: ignore[arg-type]
        tell(other.advertise(ClientId("c"), every, ()), one, other)
    filters = {SubId(n): each for n, each in enumerate(parse_many(_TEXTS))}
    tell(one.change(filters, ()), other, one)
    tell(one.change({}, [*filters][::2]), other, one)
    other.route(_EVENTS[0], None)
    return sum(map(len, other.route_batch(_EVENTS, None).values()))
