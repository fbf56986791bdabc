"""The command line: `weft`, or `python -m weft`."""

from weft.cli.app import main as main
