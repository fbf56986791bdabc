"""`weft gateway`: run an HTTP gateway for a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from weft.cli.connection import Authority, BrokerArguments
from weft.cli.shell import SchemaFile


def gateway(  # noqa: PLR0913, PLR0917 - a command has its options
    brokers: BrokerArguments = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen; a bare port is on this machine only.")
    ] = "127.0.0.1:9380",
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host", metavar="NAME", help="A name by which clients reach it; may be repeated.", show_default=False
        ),
    ] = None,
    origins: Annotated[
        list[str] | None,
        typer.Option(
            "--origin",
            metavar="URL",
            help="A web site whose pages may use it, such as https://app.example; may be repeated.",
            show_default=False,
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--cert", metavar="FILE", help="Its certificate, and perhaps key, in PEM.", show_default=False),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="The certificate's key, in PEM.", show_default=False)
    ] = None,
    plain_text: Annotated[
        bool, typer.Option("--plain-text", help="Allow clients on other machines without encryption.")
    ] = False,
    authority: Authority = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys",
            metavar="FILE",
            help="The keys that verify tokens. The broker verifies them, too; with this, bad ones never reach it.",
            show_default=False,
        ),
    ] = None,
    audience: Annotated[
        str, typer.Option("--audience", metavar="NAME", help="With --keys: the name of the broker in tokens.")
    ] = "",
    schema: SchemaFile = None,
    console: Annotated[bool, typer.Option("--console/--no-console", help="Serve the web console, too.")] = True,
    nice: Annotated[
        int, typer.Option("--nice", metavar="N", min=0, max=19, help="Leave processor time to others, as nice(1) does.")
    ] = 10,
    runs: Annotated[
        Path,
        typer.Option("--runs", metavar="DIR", help="The directory of recorded simulations that the console plays."),
    ] = Path("runs"),
    ring: Annotated[
        str, typer.Option("--ring", metavar="HOST:PORT", help="A node of a ring that the console shows.")
    ] = "",
    ring_key: Annotated[
        Path | None, typer.Option("--ring-key", metavar="FILE", help="The secret that the nodes of that ring share.")
    ] = None,
    log_format: Annotated[
        Literal["text", "json"], typer.Option("--log-format", help="How log lines are written.")
    ] = "text",
) -> None:
    """Run an HTTP gateway: publish and subscribe with curl, a browser, or any language.

    It is an ordinary client of the broker, and passes on the tokens of its own clients. `weft serve --gateway 9380`
    runs one beside a broker.

    \b
    Example:
      $ weft gateway --broker weft+tls://broker.example --listen 9380
      $ curl -N 'localhost:9380/events?where=magnitude>=5'
    """
    from weft.client.tls import TlsConfig
    from weft.console.app import Console
    from weft.errors import OptionError
    from weft.gateway.process import GatewayOptions, serve_gateway
    from weft.pipeline.predicate_settings import environment_predicates
    from weft.server.config import GatewayConfig
    from weft.server.log_lines import LogLines
    from weft.server.security.tokens import TokenPolicy

    config = GatewayConfig(listen, tuple(hosts or ()), tuple(origins or ()), console, runs, ring, ring_key, nice)
    if not config.is_local and certificate is None and not plain_text:
        raise OptionError(
            f"{listen} would send everything in plain text to other machines: pass --cert or --plain-text"
        )
    options = GatewayOptions(
        config,
        tuple(brokers or ("weft://localhost",)),
        authority=authority,
        schema=schema,
        predicates=environment_predicates(),
        tls=TlsConfig(certificate, key),
        keys=keys,
        policy=TokenPolicy(audience),
    )
    serve_gateway(options, LogLines(log_format), Console)
