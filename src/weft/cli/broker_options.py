"""The options by which commands reach a broker. A token is never part of a command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.errors import OptionError

if TYPE_CHECKING:
    from weft.client.sync import SyncClient

BrokerArguments = Annotated[
    list[str] | None,
    typer.Option(
        "--broker",
        metavar="ADDRESS",
        envvar="WEFT_BROKER",
        help="The broker: weft://host:port, weft+tls://host:port or weft+unix:///path. May be repeated, for several "
        "addresses of one broker, which are tried in turn.",
        show_default="weft://localhost",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A file with your token. Default: the environment variable WEFT_TOKEN.",
        show_default=False,
    ),
]
Authority = Annotated[
    Path | None,
    typer.Option("--ca", metavar="FILE", help="For weft+tls: the authorities to trust, in PEM.", show_default=False),
]
Certificate = Annotated[
    Path | None,
    typer.Option("--cert", metavar="FILE", help="Your certificate and key, in PEM.", show_default=False),
]


def token_of(token_file: Path | None) -> str | None:
    """The token in a file; without one, that of the environment. Raises OptionError."""
    if token_file is None:
        return os.environ.get("WEFT_TOKEN") or None
    try:
        return token_file.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise OptionError(f"{token_file} is not a token: it is not text") from None


def client_of(
    brokers: list[str] | None,
    token_file: Path | None,
    authority: Path | None,
    certificate: Path | None,
    name: str = "",
) -> SyncClient:
    """A client with these options; to be used in `with`. Raises OptionError."""
    from weft.client.sync import connect_sync

    return connect_sync(
        brokers or "weft://localhost",
        name=name,
        token=token_of(token_file),
        ca=None if authority is None else str(authority),
        certificate=None if certificate is None else (str(certificate), str(certificate)),
    )
