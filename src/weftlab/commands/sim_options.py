"""Options that several simulators have, each defined once."""

from __future__ import annotations

from typing import Annotated, Any

import typer

FirstSeed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The first seed, or the only one.")]
Seeds = Annotated[int, typer.Option("--seeds", metavar="N", min=1, help="How many seeds to run.")]


def plot_option(help: str) -> Any:
    """The option for a chart that a command draws beside its answer."""
    return typer.Option("--plot", metavar="PATH", help=help, show_default=False)


def record_option(what: str) -> Any:
    """The option for a recording of a run."""
    text = f"Record the run of {what} (.weftrun), for the console."
    return typer.Option("--record", metavar="FILE", help=text, show_default=False)
