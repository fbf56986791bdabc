"""The command line: `weft`, or `python -m weft`."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from weft.cli.app import main as run  # it loads the commands of other packages, which import modules of this one

    run()
