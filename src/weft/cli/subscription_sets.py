"""`weft aggregate`, `tune` and `demand`: whole sets of subscriptions on Spark."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.pipeline import (
    FILES,
    EventsFile,
    FilterColumn,
    IdColumn,
    Master,
    RulesFile,
    at_work,
    one_of,
    say_left_out,
    show_rows,
)
from weft.cli.shell import (
    AsJson,
    Overwrite,
    SchemaFile,
    Seed,
    check_outputs,
    console,
    emit,
    out_option,
    read_schema,
    say,
    say_notes,
)

if TYPE_CHECKING:
    from weft.spark.tune import Tuning


def aggregate(  # noqa: PLR0913, PLR0917 - each has a default that serves
    subscriptions: RulesFile,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="NAME",
            help="How to reduce: covering, subsumption, merging, mics (ranges of a curve) or dls (labels).",
        ),
    ] = "covering",
    schema: SchemaFile = None,
    budget: Annotated[
        float, typer.Option("--budget", metavar="SHARE", min=0, max=1, help="How much of the domain mergers may add.")
    ] = 0.0,
    out: Annotated[
        str | None,
        out_option("A folder for active, passive, errors, subscriptions and facts.", "only show figures"),
    ] = None,
    id_column: IdColumn = "id",
    filter_column: FilterColumn = "filter",
    seed: Seed = 0,
    overwrite: Overwrite = False,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Reduce subscriptions to a smaller set that admits the same events, on Spark.

    Every event that matches a subscription is admitted by the reduced set; this is checked with events at the corners
    of the filters. Subsumption, mics and dls need a schema with bounds.

    \b
    Example:
      $ weft aggregate rules.parquet -o reduced
      $ weft aggregate rules.csv --model mics --schema schema.toml
    """
    from weft.pipeline.preflight import check_files
    from weft.spark.aggregate import AggregationModel
    from weft.spark.aggregate import aggregate as reduce
    from weft.spark.aggregate_files import PARTS, check_folder, facts_of, save, session_names
    from weft.spark.report import read_subscriptions

    chosen, declared = one_of(AggregationModel, model, "model"), read_schema(schema)
    written = [] if out is None else [f"{out}/{part}" for part in PARTS]
    check_files([subscriptions], written, overwrite=overwrite, master=master)
    start = perf_counter()
    with at_work(master) as progress:
        if out is not None:
            check_folder(progress.spark, out, overwrite)
        progress.tell("reading the subscriptions")
        rows = read_subscriptions(progress.spark, subscriptions, id=id_column, filter=filter_column)
        given, names = rows.texts(), session_names(rows)
        progress.tell(f"reducing the subscriptions ({chosen})")
        found = reduce(given, chosen, schema=declared, budget=budget, seed=seed)
        facts = facts_of(found)
        wrong = [row.asDict() for row in found.errors.limit(3).collect()] if facts["errors"] else []
        if out is not None:
            progress.tell("writing")
            save(found, out, overwrite, names)
    facts |= {"first": wrong, "out": out, "seconds": round(perf_counter() - start, 3)}
    if as_json:
        emit(facts)
        return
    checked = facts["checked"]
    shown = [(name, f"{facts[name]:,}") for name in ("given", "kept", "active", "passive", "errors")]
    shown += [(f"bytes {name}", f"{facts[f'bytes_{name}']:,}") for name in ("given", "active")]
    shown.append(("rounds", f"{len(facts['rounds'])}{'' if facts['complete'] else ', incomplete'}"))
    if checked is not None:
        shown.append(("events checked", f"{checked['events']:,}"))
        shown.append(("matching, admitted", f"{checked['wanted']:,}, {checked['admitted']:,}"))
    show_rows([*shown, ("model", chosen), ("seconds", f"{facts['seconds']:.2f}")])
    first = [("subscription", str(each["id"]), str(each["reason"])) for each in wrong]
    say_left_out({"subscription": facts["errors"]}, first)
    for part in written:
        say(f"written: {part}")


def tune(  # noqa: PLR0913, PLR0917
    events: EventsFile,
    subscriptions: RulesFile,
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="The table to tune: mics or dls.")] = "mics",
    memory: Annotated[
        int | None, typer.Option("--max-memory", metavar="BYTES", min=1, help="Limit for the size of a link's table.")
    ] = None,
    false_positives: Annotated[
        float | None,
        typer.Option(
            "--max-false-positives",
            metavar="SHARE",
            min=0,
            max=1,
            help="Limit for the share of unwanted events that pass.",
        ),
    ] = None,
    forwarded: Annotated[
        int | None,
        typer.Option(
            "--max-forwarded", metavar="N", min=1, help="Limit for the number of ranges or labels that are forwarded."
        ),
    ] = None,
    minimise: Annotated[
        str | None,
        typer.Option(
            "--minimise", metavar="COST", help="Minimise false_positives, forwarded or memory, within the limits."
        ),
    ] = None,
    schema: SchemaFile = None,
    out: Annotated[Path | None, out_option("Write the tuning here, .json.")] = None,
    overwrite: Overwrite = False,
    id_column: IdColumn = "id",
    filter_column: FilterColumn = "filter",
    seed: Seed = 1,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Choose the parameters of a routing table for these subscriptions and events, on Spark.

    The choice is made on samples. It is then measured with all subscriptions, on events that were not used to choose.

    \b
    Example:
      $ weft tune events.parquet rules.parquet --max-memory 65536 -o tuning.json
    """
    from weft.cli.table_order import in_order
    from weft.pipeline.preflight import check_files
    from weft.spark.events import readable_events
    from weft.spark.files import read_frame
    from weft.spark.report import read_subscriptions
    from weft.spark.tune import Samples
    from weft.spark.tune import tune as choose
    from weft.tuning.budget import CostBudget

    events, subscriptions = in_order(events, subscriptions, filter_column)
    chosen, declared = one_of(("mics", "dls"), model, "model"), read_schema(schema)
    limits = CostBudget(memory, false_positives, forwarded, minimise)  # type: ignore[arg-type]
    check_outputs(overwrite, out)
    check_files([subscriptions, events], master=master)
    start = perf_counter()
    with at_work(master) as progress:
        progress.tell("reading the files")
        given = read_subscriptions(progress.spark, subscriptions, id=id_column, filter=filter_column).texts()
        happened = readable_events(read_frame(progress.spark, events, schema=declared))

        def tell(what: str, done: int, of: int) -> None:
            progress.tell(f"tuning {chosen}: {what}", done, of)

        options: Any = {"model": chosen, "schema": declared, "samples": Samples(seed=seed), "progress": tell}
        found = choose(given, happened, limits, **options)
    if out is not None:
        found.save(out)
    if as_json:
        import json

        emit({**json.loads(found.to_json()), "kept": found.kept, "seconds": round(perf_counter() - start, 3)})
        return
    _show_tuning(found, perf_counter() - start)
    if out is not None:
        say(f"written: {out}")
        say(f'settings of every broker: tuning = "{out}", and name = "{chosen}" in [model]')
        if chosen == "dls":
            say(f"or, for a network that runs: weft retune {out}")
    if not found.kept:
        say_notes(["measured with all subscriptions, the choice exceeds a limit: raise the limit"])
    if found.measured.figures.filters_nothing:
        say_notes(["the choice lets nearly every unwanted event pass: use a table of filters, or flooding, instead"])


def demand(  # noqa: PLR0913, PLR0917
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="[EVENTS] RULES",
            help=f"Events, if you have some, and rules with columns `id` and `filter`, or `id` and bounds: {FILES}.",
            show_default=False,
        ),
    ],
    out: Annotated[Path | None, out_option("Also write a page, .html, or the facts, .json.")] = None,
    overwrite: Overwrite = False,
    sample: Annotated[
        int, typer.Option("--sample", metavar="N", min=1, help="How many events are sampled to see which pass.")
    ] = 20_000,
    schema: SchemaFile = None,
    id_column: IdColumn = "id",
    filter_column: FilterColumn = "filter",
    seed: Seed = 1,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Show what subscriptions ask for and which events would pass, on Spark.

    \b
    Example:
      $ weft demand rules.csv
      $ weft demand events.jsonl rules.csv -o portrait.html
    """
    from weft.cli.table_order import in_order
    from weft.pipeline.preflight import check_files
    from weft.spark.demand_report import check_portrait
    from weft.spark.events import readable_events
    from weft.spark.files import read_frame
    from weft.spark.profile import profile as portray
    from weft.spark.report import read_subscriptions

    if len(tables) > 2:
        raise typer.BadParameter(f"events and rules expected, {len(tables)} files given")
    events, subscriptions = in_order(tables[0], tables[1], filter_column) if len(tables) > 1 else (None, tables[0])
    declared = read_schema(schema)
    check_outputs(overwrite, out)
    check_portrait(out)
    check_files([path for path in (subscriptions, events) if path is not None], master=master)
    with at_work(master) as progress:
        progress.tell("reading the files")
        given = read_subscriptions(progress.spark, subscriptions, id=id_column, filter=filter_column).texts()
        happened = None
        if events is not None:
            happened = readable_events(read_frame(progress.spark, events, schema=declared))
        progress.tell("counting what subscriptions ask for")
        found = portray(given, happened, sample=sample, seed=seed)
    if out is not None:
        found.save(out)
    if as_json:
        emit(found.facts)
        return
    found.show(console())
    if out is not None:
        say(f"written: {out}")


@wraps(demand)
def profile(*args: Any, **options: Any) -> None:
    """Run `weft demand`, under its former name."""
    say_notes(["`weft profile` is now `weft demand`; the old name still works"])
    demand(*args, **options)


profile.__doc__ = "The former name of `weft demand`."


def _show_tuning(found: Tuning, seconds: float) -> None:
    from weft.tables import plain_table

    table = plain_table(f"{found.tuned.model}, for a link with all subscriptions")
    for heading in ("cost", "limit", "by samples", "measured"):
        table.add_column(heading, justify="left" if heading == "cost" else "right", no_wrap=True)
    for row in found.rows:
        table.add_row(*row)
    console().print(table, "", sep="\n")
    seen = found.measured
    show_rows(
        [
            ("subscriptions sampled", f"{found.sampled:,}"),
            ("candidates tried", f"{found.tuned.measured:,}"),
            ("events measured", f"{seen.events:,}"),
            ("wanted, passed, lost", f"{seen.wanted:,}, {seen.passed:,}, {seen.lost:,}"),
            ("seconds", f"{seconds:.2f}"),
        ]
    )
