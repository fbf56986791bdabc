"""`weft sim faults`: a broker and its clients under simulated faults. No logic of its own: `weft.sim.faults` has it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weft.cli.progress import bar
from weft.cli.shell import AsJson, console, emit, say

_SHOWN = 20  # failing seeds that are listed


def faults(  # noqa: PLR0913, PLR0917 - one option each
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The first seed, or the only one.")] = 1,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", min=1, help="How many seeds to run.")] = 1,
    steps: Annotated[int, typer.Option("--steps", metavar="N", min=1, help="Steps of each run.")] = 60,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write the trace of a single seed to a file.")
    ] = None,
    shrink: Annotated[
        bool, typer.Option("--shrink/--no-shrink", help="Look for a shorter run that fails in the same seed.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Run a broker and random clients under random faults, and check every promise.

    A seed always gives the same run. A single seed is shown line by line; if it fails, it is first shrunk to fewer
    steps. Exits with 1 if a promise is broken.

    \b
    Example:
      $ weft sim faults --seed 7
      $ weft sim faults --seed 1 --seeds 1000
    """
    failed = _one(seed, steps, trace, shrink, as_json) if seeds == 1 else _many(seed, seeds, steps, as_json)
    if failed:
        raise typer.Exit(1)


def _one(seed: int, steps: int, file: Path | None, shrink: bool, as_json: bool) -> bool:
    from weft.sim.faults.campaign import run_seed, smallest

    outcome = run_seed(seed, steps)
    if outcome.failure and shrink:
        outcome = smallest(outcome.plan)
    lines = outcome.trace.lines
    if file is not None:
        file.write_text("\n".join([*lines, ""]), encoding="utf-8")
    if as_json:
        emit(
            {
                "seed": seed,
                "failure": outcome.failure or None,
                "steps": len(outcome.plan.steps),
                "events": outcome.events,
                "deliveries": outcome.deliveries,
                "trace": outcome.trace.digest(),
                "counts": dict(sorted(outcome.trace.counts.items())),
            }
        )
        return bool(outcome.failure)
    if file is None:
        for line in lines:
            say(line)
    else:
        say(f"trace: {file}")
    for note in outcome.notes:
        say(note, "yellow")
    verdict = outcome.failure or "every promise was kept"
    size = f"{len(outcome.plan.steps)} steps, {outcome.events} events, {outcome.deliveries} deliveries"
    say(f"seed {seed}, {size}: {verdict}")
    return bool(outcome.failure)


def _many(first: int, number: int, steps: int, as_json: bool) -> bool:
    from rich.table import Table

    from weft.sim.faults.campaign import run_seeds

    with bar() as report:
        found = run_seeds(range(first, first + number), steps, report)
    if as_json:
        emit(
            {
                "seeds": found.seeds,
                "failures": {str(seed): why for seed, why in found.failures.items()},
                "events": found.events,
                "deliveries": found.deliveries,
                "counts": dict(sorted(found.counts.items())),
            }
        )
        return bool(found.failures)
    table = Table(title=f"{found.seeds:,} seeds, {found.events:,} events, {found.deliveries:,} deliveries")
    table.add_column("what occurred")
    table.add_column("times", justify="right")
    for what, times in sorted(found.counts.items()):
        table.add_row(what, f"{times:,}")
    console().print(table)
    for seed, why in list(found.failures.items())[:_SHOWN]:
        say(f"seed {seed} failed: {why}", "red")
    say(f"{len(found.failures)} of {found.seeds:,} seeds failed" if found.failures else "every promise was kept")
    return bool(found.failures)
