"""`weft explain`: where an event would go, and why. No logic of its own: `weft.net.client_sync` has it."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.broker_options import Authority, Brokers, Certificate, TokenFile, client_of
from weft.cli.shell import AsJson, SchemaFile, emit, read_schema, say


def explain(  # noqa: PLR0913, PLR0917 - a command has its options
    event: Annotated[
        str, typer.Argument(metavar="JSON|@FILE", help="An event as a JSON object, or @FILE.", show_default=False)
    ],
    brokers: Brokers = None,
    schema: SchemaFile = None,
    token_file: TokenFile = None,
    authority: Authority = None,
    certificate: Certificate = None,
    as_json: AsJson = False,
) -> None:
    """Show where an event would go if it were published at a broker, and why.

    Each broker on its way says which subscriptions of its clients match (*), to which neighbours the event goes and
    because of what they want (>), and to which it does not go (x). Nothing is published. The exit code is 1 if a
    broker did not answer.

    \b
    Example:
      $ weft explain '{"magnitude": 6.1}'
      $ weft explain @event.json --broker weft://localhost:7000 --json
    """
    from weft.cli.arguments import read_event

    happened = read_event(event, read_schema(schema))
    with client_of(brokers, token_file, authority, certificate) as client:
        found = client.explain(happened)
    if as_json:
        from msgspec import to_builtins

        emit(to_builtins(found) | {"brokers": found.brokers, "matched": found.matched, "whole": found.is_whole})
    else:
        for line in found.lines():
            say(line)
    if not found.is_whole:
        raise typer.Exit(1)
