"""The command line. Laws: no logic of its own; the exit code is 0 for success, 1 for a failure that is said in one
sentence, 2 for wrong usage and 130 after Ctrl-C.

Heavy modules are imported by the commands that need them, so that `weft --version` is quick.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from weft import __version__
from weft.cli.access import access
from weft.cli.dead import dead
from weft.cli.explain import explain
from weft.cli.filter_relations import filters
from weft.cli.interest import interest
from weft.cli.log import log
from weft.cli.order import order
from weft.cli.pipeline import match
from weft.cli.pub import pub
from weft.cli.ring import app as ring
from weft.cli.serve import serve
from weft.cli.shell import INTERRUPTED, AsJson, Commands, Overwrite, check_outputs, console, emit, say, say_notes
from weft.cli.sim import sim
from weft.cli.status import status
from weft.cli.stream import stream
from weft.cli.sub import sub
from weft.cli.subscription_sets import aggregate, profile, tune
from weft.cli.token import token
from weft.kernels.compile_notice import listen

COMPILING = "weft: compiling kernels, once on this machine; this takes about 20 seconds of processor time"

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_show_locals=False,
)
app.add_typer(filters, name="filter", help="Check, lint, explain, compare and merge filters.")
app.add_typer(sim, name="sim", help="Simulate networks of brokers.")
app.add_typer(order, name="order", help="Show filters in their covering order, and compare data structures for it.")
app.add_typer(interest, name="interest", help="Compare routing models on your own subscriptions and events.")
app.add_typer(ring, name="ring", help="Run brokers that form a ring, and show their load.")
app.add_typer(log, name="log", help="Inspect and maintain the durable log of a broker.")
app.add_typer(token, name="token", help="Create and check keys and tokens for a broker's clients.")
app.add_typer(access, name="access", help="Check files of access rules.")
app.add_typer(dead, name="dead", help="List, retry and drop events that a subscriber failed to handle.")
for command in (serve, status, explain, pub, sub, match, stream, aggregate, tune, profile):
    app.command()(command)


def main() -> None:
    """Run the command line."""
    for output in (sys.stdout, sys.stderr):
        if hasattr(output, "reconfigure"):
            output.reconfigure(errors="backslashreplace")  # an output that is not UTF-8 is no reason to fail
    listen(lambda: typer.echo(COMPILING, err=True))
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


# -- weft demo ---------------------------------------------------------------------------------------


@app.command()
def demo(
    once: Annotated[
        bool, typer.Option("--once", envvar="WEFT_DEMO_ONCE", help="Exit when everything has been shown.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what Weft does, on a week of real seismic events and a day of flights.

    In a terminal, a broker stays up at the end and replays the events until Ctrl-C.

    \b
    Example:
      $ weft demo --once
    """
    from rich.console import Console

    from weft.demo.tour import tour

    shown = Console(quiet=as_json)
    facts = tour(shown)
    if as_json:
        emit(facts)
    elif shown.is_terminal and not once:
        from weft.demo.tour import stay

        stay(shown)


# -- weft bench --------------------------------------------------------------------------------------


@app.command()
def bench(  # noqa: PLR0913, PLR0917 - a command has its options
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="What to measure: language, hostile, match, order, routing, mics, negative, dls, tune, core, links, "
            "broker, ring, spark or streaming.",
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: ends within two minutes.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures to this file.")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            "--size", metavar="N", min=1, help="For match, routing, ring and streaming: this many subscriptions only."
        ),
    ] = None,
    workloads: Annotated[
        str | None, typer.Option("--workloads", metavar="W1,W2", help="For match: these workloads only.")
    ] = None,
    soak: Annotated[
        float | None,
        typer.Option("--soak", metavar="SECONDS", min=1, help="For broker: only a load of this length; what grows?"),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Measure Weft against its goals, and against other tools in the same run.

    The exit code is 0 whatever the figures are. Tools that are not installed are named, and so are the plans that query
    engines chose.

    \b
    Example:
      $ weft bench language --quick
      $ weft bench match --size 100000 --workloads W1,W3
      $ weft bench broker --soak 600
    """
    from weft.bench import BENCHES, OPTIONS
    from weft.bench.report import show, write

    if name not in BENCHES:
        raise typer.BadParameter(f"there is no bench {name!r}: choose one of {', '.join(BENCHES)}")
    options: dict[str, Any] = {}
    if size is not None:
        options["size"] = size
    if workloads is not None:
        options["workloads"] = _workloads(workloads)
    if soak is not None:
        options["soak"] = soak
    taken = OPTIONS.get(name, frozenset())
    if options.keys() - taken:
        raise typer.BadParameter(f"the bench {name!r} has no option --{min(options.keys() - taken)}")
    check_outputs(overwrite, json_file)
    notes: list[str] = []
    if "note" in taken:
        options["note"] = notes.append
    screen = console(stderr=True)
    with screen.status("") as status:

        def progress(what: str) -> None:
            if screen.is_terminal:
                status.update(f"measuring {what}")
            else:
                say(f"measuring {what}", stderr=True)

        results = BENCHES[name]()(quick, progress, **options)
    say_notes(notes)
    show(name, results, console())
    if json_file is not None:
        write(json_file, name, results)
        say(f"written: {json_file}")


def _workloads(names: str) -> list[str]:
    from weft.bench.match import TITLES
    from weft.workloads import WORKLOADS

    known = [*WORKLOADS, TITLES]
    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in known:
            raise typer.BadParameter(f"there is no workload {name!r}: choose one of {', '.join(known)}")
    return chosen
