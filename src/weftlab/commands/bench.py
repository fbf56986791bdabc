"""`weft bench`: Weft measured against its goals and against other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from weft.cli.shell import Overwrite, check_outputs, console, say, say_notes


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
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures to this file.")
    ] = None,
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
    from weft.workloads import WORKLOADS
    from weftlab.bench.match import OTHERS

    known = [*WORKLOADS, *OTHERS]
    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in known:
            raise typer.BadParameter(f"there is no workload {name!r}: choose one of {', '.join(known)}")
    return chosen
