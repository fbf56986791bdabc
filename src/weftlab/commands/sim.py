"""`weft sim`: simulated networks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.shell import (
    AsJson,
    Overwrite,
    SchemaFile,
    Seed,
    TaxonomyFile,
    check_outputs,
    console,
    emit,
    progress_console,
    read_schema,
    say,
    say_notes,
)
from weft.errors import FilterError
from weftlab.commands.sim_faults import faults
from weftlab.commands.sim_mobility import mobility
from weftlab.commands.sim_options import plot_option, record_option
from weftlab.commands.sim_ring import ring

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from weft.index.base import AnyEvent
    from weft.language.ast import Filter
    from weft.model.schema import Schema
    from weft.network.tables import BrokerId
    from weftlab.overlay.overlay import Expected, ModelOutcome, Scenario

sim = typer.Typer(no_args_is_help=True)
sim.command()(faults)
sim.command()(ring)
sim.command()(mobility)

_NOTED = 5  # filters that cannot be used and are said one by one


@sim.callback()
def simulators() -> None:
    """Simulate networks of brokers in memory."""


@sim.command()
def overlay(  # noqa: PLR0913, PLR0915, PLR0917 - a scenario has many sides
    brokers: Annotated[int, typer.Option("--brokers", metavar="N", min=1, help="The number of brokers.")] = 9,
    tree: Annotated[
        str, typer.Option("--tree", metavar="SHAPE", help="The shape of the tree: chain, star, binary or random.")
    ] = "random",
    models: Annotated[
        str,
        typer.Option(
            "--models",
            metavar="A,B",
            help="The routing models to compare. Default: all; those that need bounds only with a schema.",
        ),
    ] = "",
    workload: Annotated[
        str, typer.Option("--workload", metavar="NAME", help="What to generate: zipf, uniform, W1, W2, W3, W4 or W5.")
    ] = "zipf",
    subscriptions: Annotated[
        int, typer.Option("--subscriptions", metavar="N", min=1, help="How many filters to generate.")
    ] = 500,
    events: Annotated[int, typer.Option("--events", metavar="N", min=1, help="How many events to generate.")] = 200,
    filters_file: Annotated[
        str | None,
        typer.Option(
            "--filters",
            metavar="FILE",
            help="Your own filters: .csv, .jsonl or one per line, or - for standard input. "
            "Filters of one interface are at one broker.",
        ),
    ] = None,
    events_file: Annotated[
        Path | None,
        typer.Option(
            "--events-file", metavar="FILE", help="Your own events: .csv, .parquet or one JSON object per line."
        ),
    ] = None,
    churn: Annotated[
        float, typer.Option("--churn", metavar="PART", min=0, max=1, help="The share of the clients that leave.")
    ] = 0.0,
    publishers: Annotated[
        int | None,
        typer.Option("--publishers", metavar="N", min=1, help="The number of brokers that publish. Default: all."),
    ] = None,
    hierarchy: Annotated[
        bool, typer.Option("--hierarchy", help="A hierarchy with the first broker at the top, instead of peers.")
    ] = False,
    advertised: Annotated[
        bool,
        typer.Option("--advertised", help="Publishing brokers advertise; subscriptions are sent only towards them."),
    ] = False,
    seed: Seed = 1,
    check: Annotated[bool, typer.Option("--check", help="Also check the invariants of every table; slow.")] = False,
    plot: Annotated[Path | None, plot_option("Also draw a chart: .png, .svg or .pdf.")] = None,
    record: Annotated[
        Path | None,
        record_option("one model"),
    ] = None,
    overwrite: Overwrite = False,
    schema: SchemaFile = None,
    taxonomy: TaxonomyFile = None,
    as_json: AsJson = False,
) -> None:
    """Compare routing models on a tree of brokers: what each tells neighbours, and where it sends events.

    Every model sees the same clients and events. A model that loses an event, or delivers one that matches no
    subscription, has a bug, and the command ends with 1.

    \b
    told, dropped   items added and dropped by updates to neighbours
    held, largest   items in all tables at the end, and in the largest table
    compared        filters compared for covering
    events          events sent over links
    unwanted        those of them that matched nothing behind the link
    s               seconds, with queues and local matching

    \b
    Example:
      $ weft sim overlay --brokers 9 --models simple,covering --subscriptions 200
      $ weft sim overlay --filters mine.csv --events-file happened.jsonl
      $ weft sim overlay --models covering --subscriptions 50 --events 20 --record covering.weftrun
    """
    import numpy as np

    from weftlab.overlay.chart import check_chart, draw
    from weftlab.overlay.overlay import MODELS, NEED_BOUNDS, Expected, scenario, simulate
    from weftlab.overlay.range_workloads import WORKLOADS
    from weftlab.overlay.recorded import record_overlay
    from weftlab.overlay.trees import SHAPES
    from weftlab.overlay.trees import tree as planted

    usable = [name for name in MODELS if schema is not None or name not in NEED_BOUNDS]
    chosen = [_one_of(MODELS, name.strip(), "model") for name in models.split(",")] if models else usable
    shape, name = _one_of(SHAPES, tree, "tree"), _one_of(WORKLOADS, workload, "workload")
    if publishers is not None and publishers > brokers:
        raise typer.BadParameter(f"there are only {brokers} brokers: give fewer --publishers than {publishers}")
    if record is not None and len(chosen) > 1:
        raise typer.BadParameter("a recording has one model; give --models NAME")
    check_outputs(overwrite, plot, record)
    if plot is not None:
        check_chart(plot)
    declared, rng = read_schema(schema), np.random.default_rng(seed)
    links = planted(shape, brokers, rng)
    generated = WORKLOADS[name](subscriptions, events, seed=seed)
    notes: list[str] = []
    places = None
    if filters_file is None:
        from weft.language.text import parse_many

        wanted: Sequence[Filter] = parse_many(generated.texts())
    else:
        wanted, places = _own_filters(filters_file, taxonomy, declared, brokers, notes)
    happening = generated.table.to_pylist() if events_file is None else _own_events(events_file, declared, rng)
    if (filters_file is None) != (events_file is None):
        notes.append(f"only one of filters and events is your own: the other is generated by the workload {name}")
    options = {"schema": declared, "hierarchy": hierarchy, "advertised": advertised}
    given = scenario(links, wanted, happening, rng, places=places, publishers=publishers, churn=churn, **options)

    with progress_console().status("") as status:

        def show(what: str, done: int, of: int) -> None:
            status.update(f"{what}, {done:,} of {of:,}" if of else what)

        show("what every event should reach", 0, 0)
        expected = Expected(given)
        how: dict[str, Any] = {"seed": seed, "check": check, "progress": show}
        if record is not None:
            outcomes = [record_overlay(given, chosen[0], expected, record, **how)]
        else:
            outcomes = [simulate(given, each, expected, **how) for each in chosen]
    title = f"{brokers} brokers ({shape}), {len(wanted):,} subscriptions, {len(happening):,} events"
    if plot is not None:
        draw(outcomes, title, plot)
    if as_json:
        emit(_facts(given, expected, outcomes, notes))
        return
    _show(title, given, expected, outcomes)
    for written in (plot, record):
        if written is not None:
            say(f"written: {written}")
    say_notes(notes)


def _one_of(known: Any, name: str, what: str) -> str:
    if name not in known:
        raise typer.BadParameter(f"there is no {what} {name!r}: choose one of {', '.join(known)}")
    return name


# -- what a user gives -------------------------------------------------------------------------------


def _own_filters(
    path: str, taxonomy: Path | None, schema: Schema | None, brokers: int, notes: list[str]
) -> tuple[list[Filter], list[BrokerId]]:
    """The usable filters, and the broker of each; an interface that does not name a broker gets one in turn."""
    from weft.algebra.relate import as_form
    from weft.cli.arguments import read_predicates
    from weft.cli.filter_files import RefusedFilter, read_filter_file
    from weft.cli.input_files import standard_input
    from weftlab.overlay.trees import brokers as named

    names = named(brokers)
    wishes = read_filter_file(path, standard_input, read_predicates(taxonomy), names)
    refused = list(wishes.refused)
    homes: dict[str, BrokerId] = {str(name): name for name in names}
    wanted, places = [], []
    for wish in wishes.read:
        try:
            as_form(wish.filter, schema)
        except FilterError as error:
            refused.append(RefusedFilter(wish.place, str(wish.filter), error))
            continue
        interface = str(wish.interface)
        home = homes.setdefault(interface, names[(len(homes) - brokers) % brokers])
        wanted.append(wish.filter)
        places.append(home)
    notes += [f"{each.place} is left out: {str(each.error).splitlines()[0]}" for each in refused[:_NOTED]]
    if len(refused) > _NOTED:
        notes.append(f"{len(refused) - _NOTED} more filters are left out: run weft filter check")
    if not wanted:
        raise FilterError(f"{path} has no filter that can be used")
    return wanted, places


def _own_events(path: Path, schema: Schema | None, rng: np.random.Generator) -> list[AnyEvent]:
    from weft.cli.event_files import read_events
    from weft.cli.input_files import standard_input

    found = read_events(str(path), standard_input, schema, rng)
    if found.refused:
        error = found.refused[0].error
        error.add_note(f"in {found.refused[0].place} of {path}")
        raise error
    return [*found.events]


# -- what is shown -----------------------------------------------------------------------------------


def _facts(given: Scenario, expected: Expected, outcomes: Sequence[ModelOutcome], notes: list[str]) -> dict[str, Any]:
    return {
        "brokers": given.brokers,
        "links": given.links,
        "subscriptions": len(given.clients),
        "unsubscriptions": len(given.leaving),
        "events": len(given.publications),
        "deliveries": len(expected.deliveries),
        "scanned": expected.scanned,
        "models": [outcome.to_dict() for outcome in outcomes],
        "notes": notes,
    }


def _show(title: str, given: Scenario, expected: Expected, outcomes: Sequence[ModelOutcome]) -> None:
    from weft.tables import plain_table

    told = plain_table(title)
    for heading in ("model", "updates", "told", "dropped", "held", "largest", "compared", "s"):
        told.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=True)
    sent = plain_table()
    for heading in ("model", "events", "of flooding", "of ideal", "unwanted", "missed", "s"):
        sent.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=True)
    for each in outcomes:
        phases = (each.subscribing, each.leaving)
        counts = [sum(getattr(phase, part) for phase in phases) for part in ("updates", "told", "dropped")]
        compared = "" if each.comparisons is None else f"{each.comparisons:,}"
        seconds = f"{sum(phase.seconds for phase in phases):.2f}"
        told.add_row(each.model, *map("{:,}".format, (*counts, each.heard, each.largest)), compared, seconds)
        facts = each.to_dict()
        shares = [_share(facts[part]) for part in ("of_flooding", "of_ideal")]
        wrong = f"{each.false_positives:,}", f"{facts['missed']}"
        sent.add_row(each.model, f"{each.messages:,}", *shares, *wrong, f"{each.publishing_seconds:.2f}")
    console().print(told, "", sent, sep="\n")
    left = f", {len(given.leaving):,} of the subscriptions left before" if given.leaving else ""
    say(f"\nevery model made the same {len(expected.deliveries):,} deliveries{left}", "bold")
    say(
        f"checked against an index of all subscriptions, and for {expected.scanned:,} events against every filter",
        "dim",
    )


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
