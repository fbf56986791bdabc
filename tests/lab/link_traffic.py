"""The traffic of links, compared with what tables alone would exchange.

Without faults both send the same items and the same events; a link adds only its handshake and its acknowledgements.

The same requests are made of a network of brokers on simulated wires and of `weft.network.tables.TableNetwork`, where
tables exchange updates directly. Each request spreads until nothing is left to do before the next is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import numpy as np

from weft.client.subscription import SubscriptionOptions
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.language.text import parse
from weft.network.tables import BrokerId, TableNetwork
from weft.protocol.messages import SubNumber
from weft.routing.table import About, ClientId
from weftlab.faults.plan import Plan
from weftlab.faults.shape import Shape
from weftlab.faults.steps import FILTERS, draw_event
from weftlab.faults.violation import require
from weftlab.faults.world import World

_TURN = 50_000  # simulated microseconds between two looks whether all is done
_TURNS = 2_000
_NEVER = 1 << 40


class TrafficCounts(NamedTuple):
    """What has passed over all links."""

    added: int
    dropped: int
    events: int


class _Request(NamedTuple):
    """One thing that a client asks for."""

    what: str  # subscribe, replace, unsubscribe or publish
    client: int
    number: int
    filter: str
    event: dict[str, object]


Promises = dict[int, dict[int, Filter]]  # advertisements, by client and number


def compare_traffic(
    seed: int, shape: Shape, clients: int = 4, requests: int = 30
) -> tuple[TrafficCounts, TrafficCounts]:
    """What brokers sent each other, and what tables alone would have.

    With advertisements, clients make them first, as in any run, and publish only what lies within them.
    """
    # without idle time, in which a table could tell the same in fewer items
    world = World(
        Plan(seed, clients, frozenset(), (), shape), heartbeat=_NEVER, link_silence=_NEVER, link_control=_NEVER
    )
    _settle(world)
    adverts = {
        at: {number: advert.filter for number, advert in client.views.adverts.items()}
        for at, client in enumerate(world.clients)
    }
    asked = [each for each in _requests(Random(seed), clients, requests) if not shape.advertised or _may(each, adverts)]
    return _brokers(world, asked), _tables(seed, shape, clients, asked, adverts)


def _may(request: _Request, adverts: Promises) -> bool:
    promised = adverts[request.client].values()
    return request.what != "publish" or any(matches(each, request.event) for each in promised)  # type: ignore[arg-type]


def _requests(rng: Random, clients: int, many: int) -> Iterator[_Request]:
    live: dict[int, int] = {}  # subscription -> client
    for number in range(1, many + 1):
        what = rng.choice(("subscribe", "subscribe", "replace", "unsubscribe", "publish", "publish"))
        if what in ("replace", "unsubscribe") and not live:
            what = "subscribe"
        client, wanted, event = rng.randrange(clients), rng.choice(FILTERS), draw_event(rng)
        about = number
        if what == "subscribe":
            live[number] = client
        elif what != "publish":
            about = rng.choice(sorted(live))
            client = live[about] if what == "replace" else live.pop(about)
        yield _Request(what, client, about, wanted, event)


def _brokers(world: World, asked: list[_Request]) -> TrafficCounts:
    for at, (what, client, number, wanted, event) in enumerate(asked):
        to = world.clients[client]
        match what:
            case "subscribe":
                to.subscribe(SubNumber(number), wanted, SubscriptionOptions(durable=not to.anonymous))
            case "replace":
                to.process.ask(SubNumber(number), "replace", wanted)
            case "unsubscribe":
                to.unsubscribe(SubNumber(number))
            case _:
                world.network.published(to, f"e{at}", event)
                to.publish((f"e{at}", event))
        _settle(world)
    counts = world.trace.counts
    return TrafficCounts(counts["link: items added"], counts["link: items dropped"], counts["link: events"])


def _settle(world: World) -> None:
    """Run until nothing is left to do."""
    for _ in range(_TURNS):
        world.engine.run(until=world.engine.now + _TURN)
        if not world.unfinished():
            return
    require(False, f"something is not done: {world.unfinished()}")


def _tables(seed: int, shape: Shape, clients: int, asked: list[_Request], adverts: Promises) -> TrafficCounts:
    names = [BrokerId(name) for name in shape.names]
    overlay = TableNetwork(names, shape.make_table, np.random.default_rng(seed))
    for near, far, role in shape.links:
        overlay.attach(names[near], names[far], role.converse)
    overlay.settle()
    homes = [names[shape.homes[client % len(shape.homes)]] for client in range(clients)]
    for client, promised in adverts.items():
        for number, promise in promised.items():
            overlay.advertise(homes[client], SubId(number), promise, ClientId(str(client)))
            overlay.settle()
    for what, client, number, wanted, event in asked:
        home, sub = homes[client], SubId(number)
        match what:
            case "subscribe":
                overlay.subscribe(home, sub, parse(wanted))
            case "replace":
                overlay.replace(home, sub, parse(wanted))
            case "unsubscribe":
                overlay.unsubscribe(home, sub)
            case _:
                overlay.publish(home, event, ClientId(str(client)))
        overlay.settle()
    counters = overlay.counters
    added, dropped = (sum(per[about] for about in About) for per in (counters.items_added, counters.items_dropped))
    return TrafficCounts(added, dropped, counters.events)
