"""`weft serve`: run a broker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.cli.shell import AsJson, console, emit, say, say_notes


def serve(  # noqa: PLR0913, PLR0917 - a command has its options
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Settings, in TOML.", show_default=False),
    ] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            "--listen",
            metavar="ADDRESS",
            help="Where to listen: weft://host:port, weft+tls://host:port or weft+unix:///path; may be repeated.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The directory of the log.", show_default=False)
    ] = None,
    memory: Annotated[bool, typer.Option("--memory", help="Store nothing on disk: for tests.")] = False,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="The name of this broker among its neighbours.", show_default=False
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="Serve /metrics and /health here.", show_default=False),
    ] = None,
    gateway: Annotated[
        str | None,
        typer.Option(
            "--gateway",
            metavar="HOST:PORT",
            help="Run the HTTP gateway here: publish and subscribe with curl. A bare port is on this machine only.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", min=1, help="Run N processes.", show_default=False)
    ] = None,
    load: Annotated[
        Path | None,
        typer.Option(
            "--load",
            metavar="FOLDER",
            help="Begin with the subscriptions that `weft aggregate` has written here; once is enough.",
            show_default=False,
        ),
    ] = None,
    tuning: Annotated[
        Path | None,
        typer.Option(
            "--tuning",
            metavar="FILE",
            help="The parameters of the routing table that `weft tune` has written; set model, too.",
            show_default=False,
        ),
    ] = None,
    plain_text: Annotated[
        bool, typer.Option("--plain-text", help="Allow clients on other machines without encryption.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any other setting, such as log.quota='10 GiB'.", show_default=False
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Check and show the settings, then exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a broker until it is interrupted.

    Settings come from the file, from environment variables such as WEFT_LOG_QUOTA, and from options; options override
    variables, and variables override the file. By default the broker listens on this machine only.

    \b
    Example:
      $ weft serve
      $ weft serve --config weft.toml --check
      $ weft serve --gateway 9380
      $ weft serve --load reduced --tuning tuning.json --set model=mics
      $ weft serve --listen weft://127.0.0.1:7000 --data /var/lib/weft --http 9339
    """
    from weft.server.config import load_config

    flags = {"listen": listen, "data": data, "memory": memory or None, "name": name, "http": http, "workers": workers}
    flags |= {"gateway.listen": gateway}
    flags |= {"plain_text": plain_text or None, "load": load, "tuning": tuning}
    given: dict[str, Any] = {path: value for path, value in flags.items() if value is not None}
    loaded = load_config(config, os.environ, given | dict(map(_setting, settings or ())))
    say_notes(loaded.notes)
    if check:
        _show(loaded.config, loaded.sources, as_json)
        return
    from weft.server.serve import serve as run

    run(loaded.config)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--set takes NAME=VALUE, not {text!r}")
    return name.strip(), value.strip()


def _show(config: Any, sources: Any, as_json: bool) -> None:
    """The settings that hold, and where those come from that were given."""
    from rich.table import Table

    from weft.server.config import UNITS
    from weft.server.serve import check_files
    from weft.server.settings import leaves

    check_files(config)
    rows = leaves(config, UNITS)
    if as_json:
        emit({"settings": {path: _plain(value) for path, value, _ in rows}, "sources": dict(sources)})
        return
    table = Table(box=None)
    for title in ("setting", "value", "from"):
        table.add_column(title)
    for path, _, written in rows:
        source = sources.get(path, "")
        table.add_row(path, written, source or "default", style="" if source else "dim")
    console().print(table)
    say("the settings are valid")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
