"""The commands `weft sim`, `weft bench` and `weft demo`."""

from __future__ import annotations

import typer

from weftlab.commands.bench import bench
from weftlab.commands.demo import demo
from weftlab.commands.sim import sim


def register(app: typer.Typer) -> None:
    """Add the commands to `weft`."""
    app.add_typer(sim, name="sim", help="Simulate networks of brokers.")
    app.command()(demo)
    app.command()(bench)
