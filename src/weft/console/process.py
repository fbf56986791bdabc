"""The gateway with a console, as a process that a broker starts."""

from __future__ import annotations

from weft.console.app import Console
from weft.gateway import process


def run_child() -> None:
    """Run a gateway with a console that a broker has started."""
    process.run_child(Console)
