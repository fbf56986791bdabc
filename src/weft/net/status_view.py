"""A broker's status for people: facts, links, queues, and rates between two answers. Law: nothing is computed that the
answers do not say.
"""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft.broker.status import BrokerStatus


def rates(before: BrokerStatus, after: BrokerStatus) -> dict[str, float]:
    """What happened in a second, between two answers of the same process; empty if a restart lies between them."""
    seconds: float = (after.driver["uptime"] - before.driver["uptime"]) / 1e6
    if seconds <= 0 or before.driver["process"] != after.driver["process"]:
        return {}

    def rate(now: float, then: float) -> float:
        return round((now - then) / seconds, 1)

    a, b = after.driver, before.driver
    return {
        "events in/s": rate(a["counts"]["events received"], b["counts"]["events received"]),
        "events stored/s": rate(after.end, before.end),
        "deliveries/s": rate(a["counts"]["events delivered"], b["counts"]["events delivered"]),
        "MiB in/s": round(rate(a["bytes received"], b["bytes received"]) / (1 << 20), 3),
        "MiB out/s": round(rate(a["bytes sent"], b["bytes sent"]) / (1 << 20), 3),
        "commits/s": rate(a["commits"], b["commits"]),
    }


def view(status: BrokerStatus, speed: dict[str, float]) -> RenderableType:
    """Tables of a status."""
    parts: list[RenderableType] = [_facts(status, speed)]
    if status.driver["links"]:
        parts += [Text(), _links(status.driver["links"])]
    if status.furthest:
        parts += [Text(), _queues(status)]
    if status.counts:
        parts += [Text(), _pairs("happened", {name: f"{times:,}" for name, times in status.counts.items()})]
    return Group(*parts)


def _facts(status: BrokerStatus, speed: dict[str, float]) -> Table:
    driver = status.driver
    facts = {
        "name": driver["name"] or "-",
        "listens at": ", ".join(driver["addresses"]),
        "up": f"{driver['uptime'] / 3.6e9:.2f} h, incarnation {status.incarnation} of log {status.log_id[:8]}",
        "events kept": f"{status.end - status.first:,} (offsets {status.first:,} to {status.end - 1:,})",
        "log": f"{driver['log bytes'] / (1 << 20):,.1f} MiB, {driver['bytes waiting']:,} bytes waiting",
        "clients": f"{status.connections:,} connected, {status.sessions:,} sessions",
        "subscriptions": f"{status.subscriptions:,} in {status.queues:,} queues; routing model {status.model}",
        "unsent": f"{driver['bytes unsent']:,} bytes",
    }
    facts |= {name: f"{value:,.1f}" for name, value in speed.items()}
    return _pairs("broker", facts)


def _pairs(title: str, facts: dict[str, str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, show_header=False)
    for name, value in facts.items():
        table.add_row(Text(name, "dim"), Text(value))
    return table


def _links(links: list[dict[str, Any]]) -> Table:
    table = Table(title="links", title_justify="left", box=None)
    for name in ("peer", "role", "state", "behind", "to tell", "heard", "why"):
        table.add_column(name, justify="left" if name in ("peer", "role", "state", "why") else "right")
    for link in links:
        state = "warm" if link["warm"] else "connected" if link["connected"] else "down"
        table.add_row(
            Text(str(link["peer"])),
            str(link["role"]),
            Text(state, "green" if state == "warm" else "red"),
            f"{link['lag']:,}",
            f"{link['waiting_control']:,}",
            f"{link['heard']:,}",
            Text(link["reason"]),
        )
    return table


def _queues(status: BrokerStatus) -> Table:
    table = Table(title=f"queues that are furthest behind, of {status.queues:,}", title_justify="left", box=None)
    for name in ("session", "queue", "kind", "behind", "open", "subscriptions", "connected"):
        table.add_column(name, justify="right" if name in ("behind", "open", "subscriptions", "queue") else "left")
    for queue in status.furthest:
        kind = "shared" if queue.share else "durable" if queue.durable else "not durable"
        table.add_row(
            Text(queue.share or queue.session or "-"),
            str(queue.queue),
            kind,
            f"{queue.behind:,}",
            f"{queue.open:,}",
            f"{queue.subscriptions:,}",
            "yes" if queue.connected else "no",
        )
    return table
