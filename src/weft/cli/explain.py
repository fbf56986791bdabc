"""`weft explain`: where an event would go, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.connection import LOCAL, BrokerOptions, connected
from weft.cli.questions import At
from weft.cli.shell import AsJson, SchemaFile, emit, read_schema, say

_ANSWERS = {True: "matches", False: "does not match"}


@connected
def explain(  # noqa: PLR0913, PLR0917 - a command has its options
    event: Annotated[
        str, typer.Argument(metavar="JSON|@FILE", help="An event as a JSON object, or @FILE.", show_default=False)
    ],
    name: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="NAME",
            help="Show the truth of each part of this subscription's filter, too.",
            show_default=False,
        ),
    ] = "",
    number: Annotated[
        int | None,
        typer.Option("--number", metavar="N", min=0, help="Which one of the session NAME.", show_default="the first"),
    ] = None,
    at: At = "",
    connection: BrokerOptions = LOCAL,
    schema: SchemaFile = None,
    as_json: AsJson = False,
) -> None:
    """Show where an event would go if it were published at a broker, and why.

    Each broker on its way says which subscriptions of its clients match (*), to which neighbours the event goes and
    because of what they want (>), and to which it does not go (x). Nothing is published. With --for, each part of a
    subscription's filter is true (+), false (-) or unknown, because an attribute is absent (?); --at names its broker,
    if that is another one. The exit code is 1 if a broker did not answer.

    \b
    Example:
      $ weft explain '{"magnitude": 6.1}'
      $ weft explain @event.json --broker weft://localhost:7000 --json
      $ weft explain '{"magnitude": 6.1}' --for alerts
    """
    from weft.cli.arguments import read_event
    from weft.cli.terminal import shown
    from weft.language.trace import trace_lines

    happened = read_event(event, read_schema(schema))
    with connection.client() as client:
        found = client.explain(happened)
        traced = client.trace(happened, name, number, broker=at) if name else None
    if as_json:
        from msgspec import to_builtins

        facts = to_builtins(found) | {"brokers": found.brokers, "matched": found.matched, "whole": found.is_whole}
        if traced is not None:
            facts["trace"] = to_builtins(traced) | {"matches": traced.matches}
        emit(facts)
    else:
        for line in found.lines():
            say(shown(line))
        if traced is not None:
            say(f"subscription {traced.number} of {shown(traced.session)} {_ANSWERS[traced.matches]}:")
            for line in trace_lines(traced.trace, 1):
                say(shown(line))
    if not found.is_whole:
        raise typer.Exit(1)
