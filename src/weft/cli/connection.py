"""The connection of a command to a broker: its options, each defined once. A token is never part of a command line.

A command that asks a broker has a parameter `connection` and the decorator `connected`, which turns the parameter into
the options --broker, --token-file, --ca and --cert.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """How a command reaches its broker."""

    brokers: BrokerArguments = None
    token_file: TokenFile = None
    authority: Authority = None
    certificate: Certificate = None

    def client(self, name: str = "", map_events: bool = False) -> SyncClient:
        """A client with these options; to be used in `with`. Raises OptionError."""
        from weft.client.sync import connect_sync

        return connect_sync(
            self.brokers or "weft://localhost",
            name=name,
            token=token_of(self.token_file),
            ca=None if self.authority is None else str(self.authority),
            certificate=None if self.certificate is None else (str(self.certificate), str(self.certificate)),
            map_events=map_events,
        )


LOCAL = BrokerOptions()  # a broker on this machine
_OPTIONS = [each.name for each in fields(BrokerOptions)]


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `connection` is given by the options of a connection."""
    own = inspect.signature(command, eval_str=True)
    types = inspect.get_annotations(BrokerOptions, eval_str=True)
    options = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=types[name])
        for name in _OPTIONS
    ]
    parameters: list[inspect.Parameter] = []
    for each in own.parameters.values():
        parameters += options if each.name == "connection" else [each]

    @wraps(command)
    def run(**given: Any) -> None:
        command(connection=BrokerOptions(**{name: given.pop(name) for name in _OPTIONS}), **given)

    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": None}
    return run


def token_of(token_file: Path | None) -> str | None:
    """The token in a file; without one, that of the environment. Raises OptionError."""
    if token_file is None:
        return os.environ.get("WEFT_TOKEN") or None
    try:
        return token_file.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise OptionError(f"{token_file} is not a token: it is not text") from None
