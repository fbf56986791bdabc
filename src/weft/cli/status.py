"""`weft status`: the state of a broker, once or again and again, with the rates between two answers."""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.connection import LOCAL, BrokerOptions, connected
from weft.cli.shell import AsJson, console, emit
from weft.errors import OptionError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from weft.protocol.questions import BrokerSummary, OrderNode
    from weft.protocol.status import BrokerStatus

_APART = 0.5  # seconds between two answers


@connected
def status(  # noqa: PLR0913, PLR0917 - a command has its options
    connection: BrokerOptions = LOCAL,
    live: Annotated[bool, typer.Option("--live", help="Refresh until interrupted.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.1, help="Refresh this often, with --live.")
    ] = 1.0,
    queues: Annotated[
        int, typer.Option("--queues", metavar="N", min=0, max=200, help="Show the N queues that are furthest behind.")
    ] = 20,
    roots: Annotated[
        int,
        typer.Option(
            "--roots", metavar="N", min=0, help="Show the N filters that match most, of those that no other one covers."
        ),
    ] = 0,
    network: Annotated[
        bool, typer.Option("--network", help="Show all brokers of the network, and the links between them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the state of a broker: links, queues, lags, rates; or all brokers of its network.

    With --network the exit code is 1 if a broker did not answer.

    \b
    Example:
      $ weft status
      $ weft status --broker weft://localhost:7000 --live
      $ weft status --json --queues 100
      $ weft status --roots 10
      $ weft status --network
    """
    from heapq import nlargest

    from msgspec import to_builtins
    from rich.live import Live

    if roots and live:
        raise OptionError("--roots is for one answer; leave out --live")
    with connection.client() as client:
        if network:
            _show_network(client.overlay(), as_json)
            return
        before = client.status(queues=queues)
        sleep(every if live else _APART)
        after = client.status(queues=queues)
        busiest = nlargest(roots, client.order(), key=lambda each: each.rate) if roots else []
        if as_json:
            answer = to_builtins(after) | {"rates": _rates(before, after)}
            emit(answer | ({"roots": [to_builtins(each) for each in busiest]} if roots else {}))
            return
        output = console()
        if not live:
            output.print(_view(after, _rates(before, after)))
            if busiest:
                output.print(_roots(busiest))
            return
        with Live(_view(after, _rates(before, after)), console=output, screen=output.is_terminal) as shown:
            while True:
                sleep(every)
                before, after = after, client.status(queues=queues)
                shown.update(_view(after, _rates(before, after)))


def _show_network(brokers: tuple[BrokerSummary, ...], as_json: bool) -> None:
    from msgspec import to_builtins
    from rich.table import Table

    from weft.cli.terminal import cell

    if as_json:
        emit([to_builtins(each) for each in brokers])
    else:
        table = Table(title="brokers", title_justify="left", box=None)
        for name in ("broker", "behind", "sessions", "connected", "subscriptions", "events", "links"):
            table.add_column(name, justify="left" if name in ("broker", "behind", "links") else "right")
        for each in brokers:
            down = [f"{link.peer} is down" for link in each.links if not link.connected]
            state = cell(each.problem, "red") if each.problem else cell(", ".join(down) or "up", "red" if down else "")
            numbers = each.sessions, each.connections, each.subscriptions, each.end - each.first
            known = [""] * 4 if each.problem else [f"{number:,}" for number in numbers]
            table.add_row(cell(each.name or "-"), cell(each.before), *known, state)
        console().print(table)
    if any(each.problem for each in brokers):
        raise typer.Exit(1)


def _rates(before: BrokerStatus, after: BrokerStatus) -> dict[str, float]:
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


def _view(status: BrokerStatus, speed: dict[str, float]) -> RenderableType:
    """Tables of a status."""
    from rich.console import Group
    from rich.text import Text

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
        "clients": f"{status.connections:,} connected, {status.sessions:,} sessions{_moving(status)}",
        "subscriptions": f"{status.subscriptions:,} in {status.queues:,} queues; routing model {_model(status)}",
        "unsent": f"{driver['bytes unsent']:,} bytes",
    }
    living, queries = (status.counts.get(name, 0) for name in ("profiles living", "queries for profiles"))
    if living or queries:
        facts["profiles"] = f"{living:,} living, {queries:,} subscriptions to them"
    facts |= {name: f"{value:,.1f}" for name, value in speed.items()}
    facts |= {f"{name}/s, a minute": f"{value:,.1f}" for name, value in driver.get("averages", {}).items()}
    return _pairs("broker", facts)


def _moving(status: BrokerStatus) -> str:
    """The sessions that come to the broker and leave it."""
    what = {"sessions asked for": "asked for", "sessions arriving": "arriving", "sessions leaving": "leaving"}
    found = [f"{status.counts[name]:,} {text}" for name, text in what.items() if status.counts.get(name)]
    return f" ({', '.join(found)})" if found else ""


def _model(status: BrokerStatus) -> str:
    """The model, with the options that differ from their defaults."""
    return ", ".join([status.model, *(f"{name} = {value}" for name, value in status.options.items())])


def _pairs(title: str, facts: dict[str, str]) -> Table:
    from rich.table import Table

    from weft.cli.terminal import cell

    table = Table(title=title, title_justify="left", box=None, show_header=False)
    for name, value in facts.items():
        table.add_row(cell(name, "dim"), cell(value))
    return table


def _links(links: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    from weft.cli.terminal import cell

    table = Table(title="links", title_justify="left", box=None)
    for name in ("peer", "role", "state", "behind", "to tell", "heard", "why"):
        table.add_column(name, justify="left" if name in ("peer", "role", "state", "why") else "right")
    for link in links:
        state = "warm" if link["warm"] else "connected" if link["connected"] else "down"
        table.add_row(
            cell(str(link["peer"])),
            str(link["role"]),
            cell(state, "green" if state == "warm" else "red"),
            f"{link['lag']:,}",
            f"{link['waiting_control']:,}",
            f"{link['heard']:,}",
            cell(link["reason"]),
        )
    return table


def _roots(found: list[OrderNode]) -> Table:
    from rich.table import Table

    from weft.cli.terminal import cell

    table = Table(title="busiest roots of the covering order", title_justify="left", box=None)
    for name in ("per second", "subscriptions", "filters below", "filter"):
        table.add_column(name, justify="left" if name == "filter" else "right")
    for each in found:
        table.add_row(f"{each.rate:,.2f}", f"{each.holders:,}", f"{each.size - 1:,}", cell(each.filter))
    return table


def _queues(status: BrokerStatus) -> Table:
    from rich.table import Table

    from weft.cli.terminal import cell

    table = Table(title=f"queues that are furthest behind, of {status.queues:,}", title_justify="left", box=None)
    for name in ("session", "queue", "kind", "behind", "open", "subscriptions", "connected"):
        table.add_column(name, justify="right" if name in ("behind", "open", "subscriptions", "queue") else "left")
    for queue in status.furthest:
        kind = "shared" if queue.share else "durable" if queue.durable else "not durable"
        table.add_row(
            cell(queue.share or queue.session or "-"),
            str(queue.queue),
            kind,
            f"{queue.behind:,}",
            f"{queue.open:,}",
            f"{queue.subscriptions:,}",
            "yes" if queue.connected else "no",
        )
    return table
