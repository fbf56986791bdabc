"""`weft pub`: publish events from files and pipes. An event that cannot be published is reported with its place, and
all others are published in their order.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from weft.cli.connection import LOCAL, BrokerOptions, connected
from weft.cli.profiles import PUBLISHER, publish_region
from weft.cli.shell import AsJson, SchemaFile, emit, read_schema, say

_LISTED = 1_000  # events that were not published, in JSON
_PATIENCE = 30  # seconds in which an advertisement reaches every broker


@connected
def pub(  # noqa: PLR0913, PLR0917 - a command has its options
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Events: JSON or CloudEvents, one per line; .json with one event or an array; .csv; .parquet. "
            "Default: -, standard input.",
            show_default=False,
        ),
    ] = None,
    connection: BrokerOptions = LOCAL,
    name: Annotated[
        str,
        typer.Option(
            "--name",
            metavar="NAME",
            help="A name for this publisher. If the connection breaks, events that are sent again are stored once.",
        ),
    ] = "",
    loose: Annotated[
        bool, typer.Option("--not-durable", help="Do not store the events; only connected subscribers get them.")
    ] = False,
    ttl: Annotated[
        float | None,
        typer.Option(
            "--ttl", metavar="SECONDS", min=0.001, help="The events expire after this time.", show_default=False
        ),
    ] = None,
    advertised: Annotated[
        list[str] | None,
        typer.Option(
            "--advertise",
            metavar="FILTER",
            help="Advertise the events that match this filter first, for brokers that require it. May be repeated.",
            show_default=False,
        ),
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="NAME",
            help="Publish the pairs [low, high] of this attribute as ranges, NAME.low and NAME.high. May be repeated.",
            show_default=False,
        ),
    ] = None,
    map_events: Annotated[
        bool,
        typer.Option("--map-events", help="Map the events here, which saves brokers with the model mics or dls work."),
    ] = False,
    region: Annotated[
        str,
        typer.Option(
            "--region",
            metavar="FILTER",
            help="Publish a profile instead: an event that is this region, and lasts as long as --expires says.",
            show_default=False,
        ),
    ] = "",
    lasting: Annotated[
        str, typer.Option("--expires", metavar="TIME", help="How long a profile lasts: 90s, 30m, 2h or 7d.")
    ] = "",
    profile_id: Annotated[
        str,
        typer.Option("--id", metavar="ID", help="The id of a profile; publishing the same id again replaces it."),
    ] = "",
    payload: Annotated[str, typer.Option("--payload", metavar="TEXT", help="The payload of a profile.")] = "",
    schema: SchemaFile = None,
    as_json: AsJson = False,
) -> None:
    """Publish events, and wait until the broker has stored them.

    A line that is not an event is reported with its number, and so is an event that the broker refuses: the first 20 of
    each, and with --json the first 1,000. All others are published. The exit code is 1 if any event was not published.

    \b
    Example:
      $ echo '{"magnitude": 6.1, "place": "Chile"}' | weft pub
      $ weft pub quakes.csv --name importer
      $ echo '{"kind": "storm", "wind": [30, 45]}' | weft pub --range wind
      $ weft pub --region "lat BETWEEN 40 AND 45" --expires 2h --name station --id storm --payload "stay inside"
    """
    if region or lasting or profile_id or payload:
        if not region or not lasting or files or advertised or ttl is not None or ranges:
            raise typer.BadParameter("a profile takes --region and --expires; of the rest only --name, --id, --payload")
        with connection.client(name or PUBLISHER) as client:
            publish_region(client, region, lasting, profile_id, payload, as_json)
        return
    from weft.cli.event_source import REPORTED, EventSource
    from weft.cli.progress import bar
    from weft.errors import BrokerError, PublishError

    source = EventSource(files or ["-"], sys.stdin.buffer, read_schema(schema), ranges=ranges or ())
    refused: list[tuple[str, str]] = []
    stored = 0
    with connection.client(name, map_events) as client, bar() as report:

        def events() -> Iterator[object]:
            for count, event in enumerate(source):
                if not count % 1000:
                    report(f"{count:,} events", 0, 0)
                yield event

        for promised in advertised or []:
            try:
                client.advertise(promised, timeout=_PATIENCE)
            except TimeoutError:
                missing = f"the advertisement did not reach every broker within {_PATIENCE} s"
                raise BrokerError(f"{missing}; nothing is published; `weft status` shows the links") from None
        try:
            stored = client.publish_many(events(), durable=not loose, ttl=ttl)  # type: ignore[arg-type]
        except PublishError as error:
            refused = [(source.place(at), reason) for at, reason in sorted(error.refused.items())]
            stored = source.count - len(refused)
    missed = source.refused + len(refused)
    if as_json:
        bad = [{"place": place, "reason": reason} for place, reason in [*source.bad, *refused][:_LISTED]]
        emit({"published": stored, "not_published": missed, "bad": bad})
    else:
        for place, reason in refused[:REPORTED]:
            say(f"weft: {place}: {reason}", stderr=True)
        silent = max(0, source.refused - REPORTED) + max(0, len(refused) - REPORTED)
        if silent:
            say(f"weft: {silent:,} more are not shown", stderr=True)
        rest = f", {missed:,} not" if missed else ""
        say(f"{stored:,} event{'' if stored == 1 else 's'} published{rest}", stderr=True)
    if missed:
        raise typer.Exit(1)
