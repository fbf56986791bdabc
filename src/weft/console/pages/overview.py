"""The overview: the tree of brokers and its links, rates, queues that are furthest behind, and alarms in words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from weft.console.drawings import place_tree
from weft.console.page import ConsoleCall, ConsolePage, ConsoleServices, TopicWatch, get
from weft.gateway.clients import PrincipalClient
from weft.protocol.questions import BrokerSummary
from weft.protocol.status import BrokerStatus
from weft.server.clock import clock

EVERY = 1.0  # seconds between two looks
_BEHIND = 1_000  # events of a queue or link beyond which it is an alarm
_WIDTH = 190.0  # of a broker's box


class OverviewAlarm(NamedTuple):
    """Something that an operator should look at."""

    level: str  # error or warning
    text: str
    page: str  # where to look, below /ui


async def overview(call: ConsoleCall) -> dict[str, Any]:
    """The state of the whole network, and the samples of the last ten minutes."""
    client, services = call.client, call.services
    found = await _state(client, services)
    asked = found["brokers"][0]["name"]
    series = {name: services.samples.recent(client.principal, asked, name) for name in SERIES}
    return found | {"series": series}


SERIES = ("stored events/s", "published events/s", "deliveries/s")


async def overlay_topic(watch: TopicWatch) -> AsyncIterator[dict[str, Any]]:
    """The state of the whole network, every second."""
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        yield await _state(watch.client, watch.services)
        await asyncio.sleep(max(EVERY - (loop.time() - began), EVERY / 2))


async def _state(client: PrincipalClient, services: ConsoleServices) -> dict[str, Any]:
    brokers, status = await asyncio.gather(client.client.overlay(), client.client.status(queues=10))
    at = clock().utc / 1e6
    rates = _rates(client.principal, services, brokers, status, at)
    rows = []
    for each in brokers:
        links = [
            {
                "peer": link.peer,
                "role": link.role,
                "connected": link.connected,
                "synced": link.synced,
                "lag": link.lag,
                "reason": link.reason,
            }
            for link in each.links
        ]
        rows.append(
            {
                "name": each.name,
                "before": each.before,
                "problem": each.problem,
                "sessions": each.sessions,
                "connections": each.connections,
                "subscriptions": each.subscriptions,
                "stored": each.end - each.first,
                "end": each.end,
                "model": each.model,
                "rate": rates.get(each.name),
                "links": links,
            }
        )
    driver = status.driver
    return {
        "at": at,
        "brokers": rows,
        "drawing": place_tree([each.name for each in brokers], [each.before for each in brokers], _WIDTH),
        "alarms": [each._asdict() for each in alarms(brokers, status)],
        "rates": {
            name: value for name in SERIES if (value := _last(services, client, brokers[0].name, name)) is not None
        },
        "queues": [
            {
                "session": each.session,
                "share": each.share,
                "queue": each.queue,
                "behind": each.behind,
                "open": each.open,
                "connected": each.connected,
                "durable": each.durable,
            }
            for each in status.furthest
            if each.behind or each.open
        ],
        "log": {"bytes": driver.get("log bytes", 0), "first": status.first, "end": status.end, "needed": status.needed},
        "uptime": driver.get("uptime", 0) / 1e6,
        "incarnation": status.incarnation,
    }


def _last(services: ConsoleServices, client: PrincipalClient, broker: str, series: str) -> float | None:
    known = services.samples.recent(client.principal, broker, series)
    return known[-1][1] if known else None


def _rates(
    principal: str, services: ConsoleServices, brokers: Sequence[BrokerSummary], status: BrokerStatus, at: float
) -> dict[str, float]:
    """Events per second that each broker has stored since the last look; the samples remember it."""
    counts = status.driver.get("counts", {})
    found = {}
    for each in brokers:
        if each.problem:
            continue
        totals = {"stored events/s": each.end}
        if each is brokers[0]:
            totals["published events/s"] = counts.get("events received", 0)
            totals["deliveries/s"] = counts.get("events delivered", 0)
        rates = services.samples.rates(principal, each.name, at, totals)
        if rates:
            services.samples.add(principal, each.name, at, rates)
        known = services.samples.recent(principal, each.name, "stored events/s")
        if known:
            found[each.name] = known[-1][1]
    return found


def alarms(brokers: Sequence[BrokerSummary], status: BrokerStatus) -> list[OverviewAlarm]:
    """What an operator should look at, the worst first."""
    found = []
    for each in brokers:
        where = f"/brokers/{each.name}"
        if each.problem:
            found.append(OverviewAlarm("error", f"{each.name or 'A broker'} does not answer: {each.problem}.", where))
        for link in each.links:
            name = f"The link from {each.name} to {link.peer}"
            behind = f"; {link.peer} is {link.lag:,} events behind" if link.lag else ""
            if not link.connected:
                reason = f": {link.reason}" if link.reason else ""
                found.append(OverviewAlarm("error", f"{name} is down{reason}{behind}.", where))
            elif not link.synced:
                found.append(OverviewAlarm("warning", f"{name} is up, but not yet synchronised{behind}.", where))
            elif link.lag >= _BEHIND:
                found.append(OverviewAlarm("warning", f"{link.peer} is {link.lag:,} events behind {each.name}.", where))
    for queue in status.furthest:
        if queue.behind >= _BEHIND:
            whose = queue.share or queue.session or "a session without a name"
            away = "" if queue.connected else " and nobody is connected who reads it"
            where = f"/sessions/{queue.session}" if queue.session else "/sessions"
            found.append(OverviewAlarm("warning", f"{whose} is {queue.behind:,} events behind{away}.", where))
    if status.driver.get("stopping"):
        found.append(OverviewAlarm("warning", "This broker is stopping.", "/"))
    return sorted(found, key=lambda each: each.level)


PAGE = ConsolePage(
    "overview",
    "Overview",
    "Operate",
    "The whole network: brokers, links, rates, queues and alarms",
    (get("/overview", overview),),
    {"overlay": overlay_topic},
)
