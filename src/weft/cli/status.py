"""`weft status`: the state of a broker. No logic of its own: `weft.net` has it."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from weft.cli.broker_options import Authority, Certificate, TokenFile
from weft.cli.shell import AsJson, console, emit
from weft.errors import OptionError


def status(  # noqa: PLR0913, PLR0917 - a command has its options
    broker: Annotated[
        str,
        typer.Option(
            "--broker",
            metavar="ADDRESS",
            envvar="WEFT_BROKER",
            help="The broker: weft://host:port, weft+tls://host:port or weft+unix:///path.",
        ),
    ] = "weft://localhost",
    live: Annotated[bool, typer.Option("--live", help="Refresh until interrupted.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.1, help="Refresh this often, with --live.")
    ] = 1.0,
    queues: Annotated[
        int, typer.Option("--queues", metavar="N", min=0, max=200, help="Show the N queues that are furthest behind.")
    ] = 20,
    token_file: TokenFile = None,
    authority: Authority = None,
    certificate: Certificate = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of a broker: links, queues, lags, rates.

    \b
    Example:
      $ weft status
      $ weft status --broker weft://localhost:7000 --live
      $ weft status --json --queues 100
    """
    from weft.net.status_watch import watch_status

    try:
        token = token_file.read_bytes().strip() if token_file is not None else os.environ.get("WEFT_TOKEN", "").encode()
    except OSError as error:
        raise OptionError(f"{token_file} cannot be read: {error.strerror}") from None
    watch_status(
        broker,
        credentials=token,
        files=(authority, certificate),
        queues=queues,
        every=every if live else None,
        emit=emit if as_json else None,
        console=console(),
    )
