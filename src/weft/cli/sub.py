"""`weft sub`: show events as they come. An event is acknowledged when it is written out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.connection import LOCAL, BrokerOptions, connected
from weft.cli.shell import AsJson, Since, say_aside
from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.language.ast import Filter


@connected
def sub(  # noqa: PLR0913, PLR0917 - a command has its options
    filter: Annotated[str, typer.Argument(metavar="FILTER", help="Which events to show; TRUE means all.")] = "TRUE",
    connection: BrokerOptions = LOCAL,
    name: Annotated[
        str,
        typer.Option("--name", metavar="NAME", help="Durable: continue where the last one of this name stopped."),
    ] = "",
    shared: Annotated[
        bool, typer.Option("--shared", help="Share the events with other subscribers of this name.")
    ] = False,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="Show also events that lack some of the attributes that the filter tests."),
    ] = False,
    ranges: Annotated[
        str,
        typer.Option(
            "--ranges",
            metavar="covering|overlap",
            help="Show also events with ranges, such as price.low and price.high: all of a range must match the "
            "filter, or some of it.",
            show_default=False,
        ),
    ] = "",
    topic: Annotated[
        str,
        typer.Option("--topic", metavar="NAME", help="The attribute that --general is about.", show_default=False),
    ] = "",
    general: Annotated[
        list[str] | None,
        typer.Option(
            "--general",
            metavar="NAME=TOPIC,TOPIC",
            help="A general topic: filters that name it match the topics below it, and the other way round. "
            "May be repeated.",
            show_default=False,
        ),
    ] = None,
    since: Since = None,
    rate: Annotated[
        str,
        typer.Option(
            "--rate",
            metavar="N/UNIT",
            help="At most so many events, such as 10/s or 100/min; the broker suppresses the others.",
            show_default=False,
        ),
    ] = "",
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", min=1, help="Exit after N events.", show_default=False)
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            help="Exit if no event arrives for this long; with code 1 if none came at all, or fewer than --count.",
            show_default=False,
        ),
    ] = None,
    move_to: Annotated[
        str,
        typer.Option("--move-to", metavar="ADDRESS", help="Move to another broker of the network, and go on there."),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show the events that match a filter, as a table or, with --json, one JSON object per line.

    Stop it with Ctrl-C. With --name no event is lost between runs: events that were not shown are delivered next time.

    \b
    Example:
      $ weft sub "magnitude >= 5" --name alerts
      $ weft sub "type = 'quake'" --since 2026-11-01 --json | jq .attributes.place
      $ weft sub "magnitude >= 5" --name alerts --broker weft://old --move-to weft://new
      $ weft sub "kind = 'sport'" --topic kind --general sport=tennis,chess
      $ weft sub "price > 100" --ranges overlap
      $ weft sub "price > 100" --rate 10/s
    """
    from weft.cli.arguments import read_position
    from weft.cli.event_rows import EventRows, json_line

    if move_to and (shared or not name):
        raise typer.BadParameter("only a subscription with a --name that is not --shared moves to another broker")
    if bool(general) != bool(topic):
        raise typer.BadParameter("--topic NAME and --general NAME=TOPIC,TOPIC belong together")
    wanted = _meaning(filter, partial, ranges, topic, general or []) if partial or ranges or general else filter
    rows = EventRows()
    with (
        connection.client() as client,
        client.subscribe(
            wanted, name=name, shared=shared, since=read_position(since, "--since"), rate=rate or None
        ) as events,
    ):
        if move_to:
            client.move(move_to)
        if sys.stderr.isatty():
            say_aside(f"waiting for events from {client.address}; stop with Ctrl-C")
        received = 0
        while count is None or received < count:
            try:
                event = events.receive(timeout)
            except StopIteration:
                break
            except TimeoutError:
                if count is not None or not received:
                    wanted = "" if count is None else f"; {received:,} of {count:,} events came"
                    raise WeftError(f"no event arrived for {timeout:g} s{wanted}") from None
                break
            received += 1
            lines = [json_line(event)] if as_json else rows.lines(event)
            for line in lines:
                typer.echo(line)
            event.ack()


def _meaning(text: str, partial: bool, ranges: str, topic: str, general: list[str]) -> Filter:
    """The filter that means what the options say."""
    from weft.algebra.profile import Meeting
    from weft.language.text import parse
    from weft.ring.filter_semantics import general_filter, partial_filter, range_filter
    from weft.server.ring_config import topic_tree

    if partial and ranges:
        raise typer.BadParameter("--partial and --ranges cannot be combined")
    if ranges and ranges not in set(Meeting):
        raise typer.BadParameter(f"--ranges is {' or '.join(Meeting)}, not {ranges!r}")
    wanted = parse(text)
    if general:
        wanted = general_filter(wanted, topic, topic_tree(general))
    if ranges:
        wanted = range_filter(wanted, Meeting(ranges))
    return partial_filter(wanted) if partial else wanted
