"""The command line. It has no logic of its own. The exit code is 0 for success, 1 for a failure that is explained in
one sentence, 2 for wrong usage and 130 after Ctrl-C.

Heavy modules are imported by the commands that need them, so that `weft --version` is quick.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer

from weft import __version__
from weft.cli.access import access
from weft.cli.console import console
from weft.cli.dead import dead
from weft.cli.explain import explain
from weft.cli.filter_relations import filters
from weft.cli.gateway import gateway
from weft.cli.install import version, warm
from weft.cli.log import log
from weft.cli.models import interest, models
from weft.cli.order import order
from weft.cli.pipeline import match
from weft.cli.profiles import profiles
from weft.cli.pub import pub
from weft.cli.questions import balance, relate, search, sessions, why
from weft.cli.retune import retune
from weft.cli.ring import app as ring
from weft.cli.serve import serve
from weft.cli.shell import INTERRUPTED, Program, is_quiet
from weft.cli.status import status
from weft.cli.stream import stream
from weft.cli.sub import sub
from weft.cli.subscription_sets import aggregate, demand, profile, tune
from weft.cli.token import token
from weft.kernels.compile_notice import NOTICE, listen

PANELS = {  # of the list of commands
    "Rules and files": ("filter", "order", "match", "stream", "aggregate", "tune", "demand", "profile"),
    "Publish and subscribe": ("pub", "sub", "profiles", "dead", "explain", "why", "search", "relate"),
    "Run brokers": (
        *("serve", "gateway", "console", "ring", "status", "sessions", "balance", "retune"),
        *("log", "token", "access", "warm", "version"),
    ),
    "Research": ("interest", "models", "sim", "bench", "lab", "demo"),
}


class Panels(Program):
    """The commands of the program, in panels."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the program."""
        for panel, names in PANELS.items():
            for name in names:
                if name in self.commands:
                    self.commands[name].rich_help_panel = panel  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


app = typer.Typer(
    cls=Panels,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_show_locals=False,
)
app.add_typer(filters, name="filter", help="Check, lint, explain, compare and merge filters.")
app.add_typer(order, name="order", help="Show filters in their covering order, and compare data structures for it.")
app.add_typer(models, name="models", help="Show routing models and their options, and compare them on your own data.")
app.add_typer(interest, name="interest", hidden=True)
app.add_typer(ring, name="ring", help="Run brokers that form a ring, and show their load.")
app.add_typer(log, name="log", help="Inspect and maintain the durable log of a broker.")
app.add_typer(token, name="token", help="Create and check keys and tokens for a broker's clients.")
app.add_typer(access, name="access", help="Check files of access rules.")
app.add_typer(sessions, name="sessions", help="Show the sessions of a broker, and move them to another one.")
app.add_typer(dead, name="dead", help="List, retry and drop events that a subscriber failed to handle.")
app.add_typer(profiles, name="profiles", help="List, withdraw and watch events that last: profiles of an area.")
for command in (
    serve,
    gateway,
    console,
    status,
    balance,
    why,
    explain,
    search,
    relate,
    pub,
    sub,
    retune,
    match,
    stream,
    aggregate,
    tune,
    demand,
    version,
    warm,
):
    app.command()(command)
app.command("profile", hidden=True)(profile)
for plugin in entry_points(group="weft.commands"):  # of packages beside this one: `weftlab` adds sim, bench and demo
    plugin.load()(app)


def main() -> None:
    """Run the command line."""
    for output in (sys.stdout, sys.stderr):
        if hasattr(output, "reconfigure"):
            output.reconfigure(errors="backslashreplace")  # an output that is not UTF-8 is no reason to fail
    listen(lambda: None if is_quiet() else typer.echo(f"weft: {NOTICE}", err=True))
    logging.disable(logging.CRITICAL)  # a failure is one sentence; when Spark is interrupted, Py4J logs tracebacks
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that temporary files are removed
    try:
        app()
    except KeyboardInterrupt:  # before or after the command itself
        sys.exit(INTERRUPTED)
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:  # or the interpreter complains when it flushes at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"weft {__version__}")
        raise typer.Exit


@app.callback()
def weft(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Content-based publish/subscribe: filters, their algebra, and fast matching.

    Exit codes: 0 success, 1 failure (explained on stderr), 2 wrong usage, 130 interrupted.
    """
