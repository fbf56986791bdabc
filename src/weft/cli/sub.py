"""`weft sub`: show events as they come. Law: an event is acknowledged when it is written out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.broker_options import Authority, Brokers, Certificate, TokenFile, client_of
from weft.cli.shell import AsJson, say

if TYPE_CHECKING:
    from datetime import datetime


def sub(  # noqa: PLR0913, PLR0917 - a command has its options
    filter: Annotated[str, typer.Argument(metavar="FILTER", help="Which events to show; TRUE means all.")] = "TRUE",
    brokers: Brokers = None,
    name: Annotated[
        str,
        typer.Option("--name", metavar="NAME", help="Durable: continue where the last one of this name stopped."),
    ] = "",
    shared: Annotated[
        bool, typer.Option("--shared", help="Share the events with other subscribers of this name.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="OFFSET|TIME", help="Begin with older events; 0 means all.", show_default=False
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", min=1, help="Exit after N events.", show_default=False)
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="SECONDS", help="Exit if no event arrives for this long.", show_default=False
        ),
    ] = None,
    token_file: TokenFile = None,
    authority: Authority = None,
    certificate: Certificate = None,
    as_json: AsJson = False,
) -> None:
    """Show the events that match a filter, as a table or, with --json, one JSON object per line.

    Stop it with Ctrl-C. With --name no event is lost between runs: events that were not shown are delivered next time.

    \b
    Example:
      $ weft sub "magnitude >= 5" --name alerts
      $ weft sub "type = 'quake'" --since 2026-11-01 --json | jq .attributes.place
    """
    from weft.cli.event_rows import EventRows, json_line

    rows = EventRows()
    with (
        client_of(brokers, token_file, authority, certificate) as client,
        client.subscribe(filter, name=name, shared=shared, since=_since(since)) as events,
    ):
        if sys.stderr.isatty():
            say(f"waiting for events from {client.address}; stop with Ctrl-C", "dim", stderr=True)
        for _ in iter(int, 1) if count is None else range(count):
            try:
                event = events.receive(timeout)
            except (TimeoutError, StopIteration):
                break
            lines = [json_line(event)] if as_json else rows.lines(event)
            for line in lines:
                typer.echo(line)
            event.ack()


def _since(text: str | None) -> int | datetime | None:
    from weft.model.value import from_micros, parse_timestamp

    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    try:
        return from_micros(parse_timestamp(text))
    except ValueError:
        raise typer.BadParameter(f"--since is an offset or a time such as 2026-11-16T12:00, not {text!r}") from None
