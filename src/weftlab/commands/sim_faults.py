"""`weft sim faults`: brokers and clients under simulated faults."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from weft.cli.progress import bar
from weft.cli.shell import AsJson, Overwrite, check_outputs, console, emit, say
from weftlab.commands.sim_options import FirstSeed, Seeds, plot_option, record_option

if TYPE_CHECKING:
    from weftlab.faults.campaign import Campaign, Setting
    from weftlab.faults.world import RunOutcome

_SHOWN = 20  # failing seeds that are listed


def faults(  # noqa: PLR0913, PLR0917 - one option each
    seed: FirstSeed = 1,
    seeds: Seeds = 1,
    steps: Annotated[
        int | None,
        typer.Option("--steps", metavar="N", min=1, help="Steps of each run: 100 for one broker, 60 for a network."),
    ] = None,
    network: Annotated[
        bool, typer.Option("--network", help="A random tree of 3 to 12 brokers, of a random routing model.")
    ] = False,
    brokers: Annotated[
        int | None, typer.Option("--brokers", metavar="N", min=1, max=100, help="A random tree of N brokers.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="The routing model of a network, with options if need be: merging:lazy=true.",
        ),
    ] = None,
    adverts: Annotated[
        bool | None, typer.Option("--adverts/--no-adverts", help="A network with advertisements, or without.")
    ] = None,
    moves: Annotated[
        bool, typer.Option("--moves", help="Clients that move between the brokers of a network; 80 steps.")
    ] = False,
    profiles: Annotated[
        bool, typer.Option("--profiles", help="Profiles that last, and subscriptions that are shown them; 80 steps.")
    ] = False,
    ring: Annotated[
        bool, typer.Option("--ring", help="A ring of nodes, with messages lost, partitions, pauses and restarts.")
    ] = False,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode",
            metavar="NAME",
            help="How the ring stores: direct, groups, merging, replication, partition, partial or topics.",
            show_default=False,
        ),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write the trace of a single seed to a file.")
    ] = None,
    svg: Annotated[Path | None, plot_option("Draw what brokers told each other, for a single seed.")] = None,
    record: Annotated[
        Path | None,
        record_option("a single seed"),
    ] = None,
    shrink: Annotated[
        bool, typer.Option("--shrink/--no-shrink", help="Look for a shorter run that fails in the same seed.")
    ] = True,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Run brokers and random clients under random faults, and check every promise.

    Without further options there is one broker. With `--network`, `--brokers`, `--model` or `--adverts` there is a
    tree of brokers; options that are not given are drawn from the seed. With `--moves` clients move between them, with
    `--profiles` they publish profiles and are shown them. With `--ring` there are nodes of a ring.

    A seed always gives the same run. A single seed is shown line by line; if it fails, it is first shrunk to fewer
    steps. Exits with 1 if a promise is broken.

    \b
    Example:
      $ weft sim faults --seed 7
      $ weft sim faults --brokers 5 --model covering --seed 7 --plot told.svg
      $ weft sim faults --network --seed 1 --seeds 1000
      $ weft sim faults --moves --seed 1 --seeds 1000
      $ weft sim faults --profiles --seed 1 --seeds 1000
      $ weft sim faults --ring --mode groups --seeds 100
      $ weft sim faults --brokers 5 --seed 7 --record seed7.weftrun
    """
    check_outputs(overwrite, trace, svg, record)
    if record is not None and seeds > 1:
        raise typer.BadParameter("a recording is of one seed; leave out --seeds")
    if ring or mode is not None:
        if (
            network
            or moves
            or profiles
            or brokers is not None
            or model is not None
            or adverts is not None
            or svg is not None
        ):
            raise typer.BadParameter("a ring has no tree of brokers; leave out the options of a network and --plot")
        if _ring(seed, seeds, steps or 60, mode, trace, record, as_json):
            raise typer.Exit(1)
        return
    if profiles and (moves or adverts or record is not None):
        raise typer.BadParameter("--profiles cannot be combined with --moves, --adverts and --record")
    setting = _setting(steps, network or moves or profiles, brokers, model, adverts)
    setting = setting._replace(moves=moves, profiles=profiles)
    if seeds == 1:
        failed = _one(seed, setting, _Files(trace, svg, record), shrink, as_json)
    elif svg is not None or trace is not None:
        raise typer.BadParameter("a trace or a picture is of one seed; leave out --seeds")
    else:
        failed = _many(seed, seeds, setting, as_json)
    if failed:
        raise typer.Exit(1)


def _ring(  # noqa: PLR0913, PLR0917 - one option each
    seed: int, seeds: int, steps: int, mode: str | None, file: Path | None, record: Path | None, as_json: bool
) -> bool:
    from weftlab.ring.recorded import record_ring_faults
    from weftlab.ring.ring_faults import MODES, plan_of, run_ring, run_ring_seeds

    if mode is not None and mode not in MODES:
        raise typer.BadParameter(f"there is no mode {mode!r}: choose one of {', '.join(MODES)}", param_hint="--mode")
    if seeds > 1:
        with bar() as report:
            found = run_ring_seeds(range(seed, seed + seeds), mode, steps, report)
        return _report(found, as_json)
    plan = plan_of(seed, mode, steps)
    outcome = run_ring(plan) if record is None else record_ring_faults(plan, record)
    if file is not None:
        file.write_text("\n".join([*outcome.trace.lines, ""]), encoding="utf-8")
    if as_json:
        emit(
            {
                "seed": seed,
                "mode": plan.mode,
                "nodes": plan.nodes,
                "replicas": plan.replicas,
                "failure": outcome.failure or None,
                "events": outcome.events,
                "deliveries": outcome.deliveries,
                "trace": outcome.trace.digest(),
                "counts": dict(sorted(outcome.counts.items())),
            }
        )
        return bool(outcome.failure)
    for line in outcome.trace.lines if file is None else (f"written: {file}",):
        say(line)
    size = f"{steps} steps, {outcome.events} events, {outcome.deliveries} deliveries"
    if record is not None:
        say(f"written: {record}")
    say(f"seed {seed}, {outcome.plan}, {size}: {outcome.failure or 'every promise was kept'}")
    return bool(outcome.failure)


def _setting(steps: int | None, network: bool, brokers: int | None, model: str | None, adverts: bool | None) -> Setting:
    from weft.routing.registry import MODELS
    from weftlab.faults.campaign import Setting

    if model is not None and model.partition(":")[0] not in MODELS:
        raise typer.BadParameter(
            f"there is no model {model!r}: choose one of {', '.join(MODELS)}", param_hint="--model"
        )
    many = network or model is not None or adverts is not None or brokers not in (None, 1)
    if many and brokers == 1:
        raise typer.BadParameter("a network has at least 2 brokers", param_hint="--brokers")
    return Setting(steps or 0, many, brokers, model, adverts)


class _Files(NamedTuple):
    """What is written of a single seed."""

    trace: Path | None
    svg: Path | None
    record: Path | None


def _one(seed: int, setting: Setting, files: _Files, shrink: bool, as_json: bool) -> bool:
    from weftlab.faults.campaign import run_seed, smallest
    from weftlab.faults.recorded import record_faults
    from weftlab.faults.update_picture import update_picture

    outcome = run_seed(seed, setting)
    if outcome.failure and shrink:
        outcome = smallest(outcome.plan, setting)
    file, svg, record = files
    if record is not None:
        outcome = record_faults(outcome.plan, record, moves=setting.moves)
    lines = outcome.trace.lines
    if file is not None:
        file.write_text("\n".join([*lines, ""]), encoding="utf-8")
    if svg is not None:
        title = f"Seed {seed}: what brokers told each other"
        svg.write_text(update_picture(outcome.plan.shape, outcome.trace.updates, title), encoding="utf-8")
    if as_json:
        emit(_figures(seed, outcome))
        return bool(outcome.failure)
    if file is None:
        for line in lines:
            say(line)
    else:
        say(f"written: {file}")
    for written in (svg, record):
        if written is not None:
            say(f"written: {written}")
    for note in outcome.notes:
        say(note, "yellow")
    verdict = outcome.failure or "every promise was kept"
    size = f"{len(outcome.plan.steps)} steps, {outcome.events} events, {outcome.deliveries} deliveries"
    say(f"seed {seed}, {outcome.plan.shape}, {size}: {verdict}")
    return bool(outcome.failure)


def _figures(seed: int, outcome: RunOutcome) -> dict[str, object]:
    shape = outcome.plan.shape
    return {
        "seed": seed,
        "brokers": shape.brokers,
        "model": shape.model,
        "advertisements": shape.advertised,
        "failure": outcome.failure or None,
        "steps": len(outcome.plan.steps),
        "events": outcome.events,
        "deliveries": outcome.deliveries,
        "trace": outcome.trace.digest(),
        "counts": dict(sorted(outcome.trace.counts.items())),
    }


def _many(first: int, number: int, setting: Setting, as_json: bool) -> bool:
    from weftlab.faults.campaign import run_seeds

    with bar() as report:
        found = run_seeds(range(first, first + number), setting, report)
    return _report(found, as_json)


def _report(found: Campaign, as_json: bool) -> bool:
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
    else:
        _show(found)
    return bool(found.failures)


def _show(found: Campaign) -> None:
    from rich.table import Table

    table = Table(title=f"{found.seeds:,} seeds, {found.events:,} events, {found.deliveries:,} deliveries")
    table.add_column("what occurred")
    table.add_column("times", justify="right")
    for what, times in sorted(found.counts.items()):
        table.add_row(what, f"{times:,}")
    console().print(table)
    for seed, why in list(found.failures.items())[:_SHOWN]:
        say(f"seed {seed} failed: {why}", "red")
    say(f"{len(found.failures)} of {found.seeds:,} seeds failed" if found.failures else "every promise was kept")
