"""`weft bench`: Weft measured against its goals and against other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from weft.cli.shell import (
    AsJson,
    Overwrite,
    check_outputs,
    console,
    emit,
    out_option,
    progress_console,
    say,
    say_aside,
    say_notes,
)


def bench(  # noqa: PLR0913, PLR0917 - a command has its options
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="What to measure: language, hostile, match, order, routing, mics, negative, dls, tune, core, links, "
            "broker, gateway, moves, ring, mobility, spark or streaming.",
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: ends within two minutes.")] = False,
    out: Annotated[Path | None, out_option("Also write the figures to this file, .json.")] = None,
    size: Annotated[
        int | None,
        typer.Option(
            "--size",
            metavar="N",
            min=1,
            help="For match, routing, ring and streaming: this many subscriptions only; for mobility: moves.",
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
    as_json: AsJson = False,
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
    from weftlab.bench import BENCHES, OPTIONS
    from weftlab.bench.report import as_json as facts_of
    from weftlab.bench.report import show, write

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
    check_outputs(overwrite, out)
    notes: list[str] = []
    if "note" in taken:
        options["note"] = notes.append
    screen = progress_console()
    with screen.status("") as status:

        def progress(what: str) -> None:
            if screen.is_terminal:
                status.update(f"measuring {what}")
            else:
                say_aside(f"measuring {what}")

        results = BENCHES[name]()(quick, progress, **options)
    say_notes(notes)
    if out is not None:
        write(out, name, results)
    if as_json:
        emit(facts_of(name, results))
        return
    show(name, results, console())
    if out is not None:
        say(f"written: {out}")


def _workloads(names: str) -> list[str]:
    from weft.workloads import WORKLOADS
    from weftlab.bench.match import OTHERS

    known = [*WORKLOADS, *OTHERS]
    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in known:
            raise typer.BadParameter(f"there is no workload {name!r}: choose one of {', '.join(known)}")
    return chosen
