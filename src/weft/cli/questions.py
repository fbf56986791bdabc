"""`weft sessions`, `weft why`, `weft search` and `weft relate`: questions to a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.connection import LOCAL, BrokerOptions, connected
from weft.cli.shell import AsJson, Commands, Since, console, emit, say, say_aside

if TYPE_CHECKING:
    from rich.table import Table

    from weft.protocol.questions import SubscriptionFacts, WhyReport

At = Annotated[
    str,
    typer.Option("--at", metavar="NAME", help="Ask another broker of the network, by its name.", show_default=False),
]
_MOST = 1_000  # rows that are shown unless more are asked for


class _Listing(Commands):
    """Commands of which `list` is meant where none is named: `weft sessions` and `weft sessions alerts`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the command in front of its arguments."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


sessions = typer.Typer(cls=_Listing)


@sessions.command("list")
@connected
def list_sessions(  # noqa: PLR0913, PLR0917 - a command has its options
    text: Annotated[
        str, typer.Argument(metavar="[TEXT]", help="Show the sessions whose names contain this.", show_default=False)
    ] = "",
    with_subscriptions: Annotated[
        bool, typer.Option("--with-subscriptions", help="Show the subscriptions of these sessions, too.")
    ] = False,
    away: Annotated[bool, typer.Option("--away", help="Show only sessions without a connection.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Show at most N.")] = _MOST,
    at: At = "",
    connection: BrokerOptions = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Show the sessions of a broker, and how many events wait for each.

    Without the right `status` they are your own.

    \b
    Example:
      $ weft sessions
      $ weft sessions alerts --with-subscriptions
      $ weft sessions --away --json
    """
    from itertools import islice

    from msgspec import to_builtins

    with connection.client() as client:
        rows = [*islice(client.sessions(text, connected=False if away else None, broker=at), limit + 1)]
        more, rows = len(rows) > limit, rows[:limit]
        subs: dict[str, list[SubscriptionFacts]] = {}
        if with_subscriptions:
            subs = {row.name: [*client.subscriptions(row.name, broker=at)] for row in rows if row.name}
    if as_json:
        listed = [to_builtins(row) | _listed(subs.get(row.name)) for row in rows]
        emit({"sessions": listed, "more": more})
        return
    if not rows:
        say(f"no session has {text!r} in its name" if text else "there are no sessions")
        return
    table = _table("session", "owner", "connected", "+subscriptions", "+behind", "+advertisements", "+published")
    for row in rows:
        numbers = row.subscriptions, row.behind, row.advertisements, row.published
        _add(table, row.name or "-", row.owner or "-", "yes" if row.connected else "no", *(f"{n:,}" for n in numbers))
    console().print(table)
    for name, listed in subs.items():
        if listed:
            say("")
            console().print(_subscriptions(name, listed))
    if more:
        say(f"and more: show them with --limit {10 * limit}", "dim")


@sessions.command("move")
@connected
def move_session(
    names_and_address: Annotated[
        list[str],
        typer.Argument(metavar="[NAME]... ADDRESS", help="The sessions, and the broker that takes them over."),
    ],
    everything: Annotated[bool, typer.Option("--all", help="All sessions with a name: drain the broker.")] = False,
    at: At = "",
    connection: BrokerOptions = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Move sessions to another broker of the network, with their clients, while events flow.

    Needs the right `operate`. The command returns when the other broker was asked; `weft status` shows how many
    sessions are still arriving and leaving. A session that the other broker does not take stays.

    \b
    Example:
      $ weft sessions move alerts weft://other
      $ weft sessions move --all weft://other
    """
    from weft.errors import OptionError, WeftError

    *names, address = names_and_address
    if everything == bool(names):
        raise OptionError("give the names of sessions and the address of a broker, or --all and the address")
    failures: dict[str, str] = {}
    with connection.client() as client:
        chosen = names or [each.name for each in client.sessions(broker=at) if each.name]
        for name in chosen:
            try:
                client.move_session(name, address, broker=at)
            except WeftError as error:
                if len(names) == 1:
                    raise
                failures[name] = str(error)
    moved = [name for name in chosen if name not in failures]
    if as_json:
        emit({"moving": moved, "failed": failures})
    else:
        say(f"{len(moved)} session{'' if len(moved) == 1 else 's'} asked to move to {address}")
        for name, why in failures.items():
            say(f"{name}: {why}")
    if failures:
        raise typer.Exit(1)


@connected
def balance(
    switch: Annotated[
        str, typer.Argument(metavar="[on|off]", help="Begin or stop to balance, at all brokers.", show_default=False)
    ] = "",
    connection: BrokerOptions = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Show the load of each broker of a network, or let them balance it by moving sessions.

    The load is the number of events per second that sessions publish and that their subscriptions match. A broker with
    much more than the mean moves sessions to those with less. `on` and `off` need the right `operate`, and hold until
    a broker is started again; `[balance]` in the settings is for good.

    \b
    Example:
      $ weft balance
      $ weft balance on
    """
    from msgspec import to_builtins

    from weft.errors import OptionError

    if switch not in ("", "on", "off"):
        raise OptionError(f"{switch!r} is neither on nor off")
    with connection.client() as client:
        if switch:
            for broker in client.overlay():
                client.set_balance(switch == "on", broker=broker.name)
        report = client.balance()
    if as_json:
        emit(to_builtins(report))
        return
    mean = sum(each.load for each in report.brokers) / max(1, len(report.brokers))
    table = _table("broker", "+events/s", "+of the mean", "+sessions", "address")
    for each in report.brokers:
        ratio = f"{each.load / mean:.2f}" if mean else "-"
        _add(table, each.broker, f"{each.load:,.1f}", ratio, f"{each.sessions:,}", each.address)
    if report.brokers:
        console().print(table)
    state = f"balancing is {'on' if report.enabled else 'off'}"
    say(f"{state}; this broker has moved {report.moved:,} sessions away" if report.moved else state)


def _listed(subs: list[SubscriptionFacts] | None) -> dict[str, Any]:
    from msgspec import to_builtins

    return {} if subs is None else {"subscriptions": [to_builtins(each) for each in subs]}


def _subscriptions(name: str, subs: list[SubscriptionFacts]) -> Table:
    table = _table(
        "+number", "+matched", "+per second", "last match", "+behind", "filter", title=f"subscriptions of {name}"
    )
    for each in subs:
        last = _second(each.matched_at) if each.matched_at else "never"
        _add(
            table,
            str(each.number),
            f"{each.matched:,}",
            f"{each.rate or 0:,.2f}",
            last,
            f"{each.behind:,}",
            each.filter,
        )
    return table


@connected
def why(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name of the subscription or session.", show_default=False)
    ],
    number: Annotated[
        int | None,
        typer.Option("--number", metavar="N", min=0, help="One subscription of the session.", show_default="all"),
    ] = None,
    at: At = "",
    connection: BrokerOptions = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Find out why a subscription gets nothing, or less than expected.

    Each finding has a fact, evidence and advice. Every broker of the network is asked. The exit code is 1 if something
    was found.

    \b
    Example:
      $ weft why alerts
      $ weft why alerts --at north --json
    """
    from msgspec import to_builtins

    with connection.client() as client:
        report = client.why(name, number, broker=at)
    if as_json:
        emit(to_builtins(report) | {"healthy": report.is_healthy})
    else:
        _show_report(name, report)
    if not report.is_healthy:
        raise typer.Exit(1)


def _show_report(name: str, report: WhyReport) -> None:
    from weft.cli.terminal import shown

    for each in report.subscriptions:
        last = f", the last at {_second(each.matched_at)}" if each.matched_at else ""
        say(shown(f"{name} {each.number}: {each.filter}"))
        say(f"  {each.matched:,} events have matched{last}; {each.behind:,} are not acknowledged", "dim")
    if report.is_healthy:
        say("nothing is wrong: it is connected, every broker knows it, and events match")
        return
    for finding in report.findings:
        say("")
        say(shown(f"{finding.fact} ({finding.cause})"), "bold")
        say(shown(f"  {finding.evidence}"))
        say(shown(f"  > {finding.advice}"))


@connected
def search(  # noqa: PLR0913, PLR0917 - a command has its options
    filter: Annotated[
        str, typer.Argument(metavar="FILTER", help="Which events to look for.", show_default=False)
    ] = "TRUE",
    since: Since = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="OFFSET|TIME|AGE", help="Stop there.", show_default="the newest event"),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Show at most N.")] = 100,
    at: At = "",
    connection: BrokerOptions = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Search the events that a broker has stored, and say how far the search got.

    With --json each event is one line on stdout. The last line of stderr says how many events were looked at.

    \b
    Example:
      $ weft search "magnitude >= 6" --since 2h
      $ weft search "type = 'quake'" --since 2026-11-01 --limit 1000 --json
    """
    from weft.cli.arguments import read_position
    from weft.cli.event_rows import EventRows, json_line
    from weft.cli.progress import bar

    first, last = read_position(since, "--since"), read_position(until, "--until")
    rows, found, scanned, total, following = EventRows(), 0, 0, 0, 0
    with connection.client() as client, bar() as progress:
        for page in client.search(filter, since=first, until=last, broker=at):
            for event in page.events[: limit - found]:
                for line in [json_line(event)] if as_json else rows.of(event.offset, event.attributes):
                    typer.echo(line)
            found += len(page.events[: limit - found])
            scanned, total, following = page.scanned, page.total, page.next
            progress(f"{found:,} found", scanned, total)
            if found >= limit:
                break
    end = "" if scanned >= total else f"; go on with --since {following}, or a larger --limit"
    say_aside(f"{found:,} found in {scanned:,} of {total:,} events{end}")


@connected
def relate(
    filter: Annotated[str, typer.Argument(metavar="FILTER", help="A filter.", show_default=False)],
    at: At = "",
    connection: BrokerOptions = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Show which subscriptions of a broker equal, cover, are covered by or overlap a filter.

    It also shows what each neighbour would be sent if somebody subscribed to the filter. Without the right `status`,
    your own subscriptions are compared.

    \b
    Example:
      $ weft relate "magnitude >= 5 AND type = 'quake'"
    """
    from msgspec import to_builtins

    from weft.cli.progress import bar
    from weft.cli.terminal import shown

    with connection.client() as client, bar() as progress:
        found = client.relate(filter, broker=at, progress=lambda done, of: progress("compared", done, of))
    if as_json:
        subs, sends = [to_builtins(each) for each in found.subscriptions], [to_builtins(each) for each in found.sends]
        emit({"counts": found.counts, "compared": found.compared, "subscriptions": subs, "sends": sends})
        return
    words = {"equal": "equal it", "covers": "cover it", "covered": "are covered by it", "overlaps": "overlap it"}
    counts = ", ".join(f"{found.counts[kind]:,} {word}" for kind, word in words.items() if found.counts[kind])  # type: ignore[index]
    say(f"of {found.compared:,} subscriptions, {counts or 'none has an event in common with it'}")
    if found.subscriptions:
        table = _table("it is", "session", "+number", "filter")
        for each in found.subscriptions:
            sub = each.subscription
            _add(table, _IS[each.relationship], sub.share or sub.session or "-", str(sub.number), sub.filter)
        console().print(table)
        if sum(found.counts.values()) > len(found.subscriptions):
            say(f"and {sum(found.counts.values()) - len(found.subscriptions):,} more", "dim")
    for send in found.sends:
        say(shown(f"{send.link} would be sent {'it' if send.sent else 'nothing'}: {send.reason}"))


_IS = {"equal": "equal to", "covers": "covered by", "covered": "wider than", "overlaps": "overlapping"}


def _table(*names: str, title: str | None = None) -> Table:
    """A table; numbers are in columns whose names begin with +."""
    from weft.tables import plain_table

    table = plain_table(title)
    for name in names:
        table.add_column(name.removeprefix("+"), justify="right" if name.startswith("+") else "left", overflow="fold")
    return table


def _add(table: Table, *texts: str) -> None:
    from weft.cli.terminal import cell

    table.add_row(*map(cell, texts))


def _second(seconds: int) -> str:
    from weft.model.value import from_micros

    return f"{from_micros(seconds * 1_000_000):%Y-%m-%d %H:%M:%S}"
