"""`weft models`: routing models, their options, and how they do on a user's own data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.progress import bar
from weft.cli.shell import (
    AsJson,
    SchemaFile,
    Seed,
    TaxonomyFile,
    console,
    emit,
    read_schema,
    said,
    say,
    say_notes,
    told,
)
from weft.errors import FilterError, OptionError, WeftError

if TYPE_CHECKING:
    import numpy as np

    from weft.cli.event_files import BadEvent, EventFile
    from weft.cli.filter_files import RefusedFilter
    from weft.language.ast import Filter
    from weft.model.schema import Schema
    from weft.models.evidence import Data, Evidence
    from weft.models.figures import ModelFigures
    from weft.models.recommendation import Recommendation

models = typer.Typer()
interest = typer.Typer(no_args_is_help=True)  # the former name

_SAID = 5  # of what cannot be used
_SUBSCRIPTIONS, _EVENTS, _PATIENCE = 2_000, 5_000, 80.0


@models.callback(invoke_without_command=True)
def list_models(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the routing models, and compare them on your own data."""
    from weft.routing.options import OPTIONS
    from weft.routing.registry import MODELS
    from weft.tables import plain_table

    if context.invoked_subcommand is not None:
        return
    having = {name: [option for option, each in OPTIONS.items() if name in each.models] for name in MODELS}
    if as_json:
        emit({name: {"summary": entry.summary, "options": having[name]} for name, entry in MODELS.items()})
        return
    table = plain_table("models")
    for heading in ("model", "what it does", "options"):
        table.add_column(heading, no_wrap=heading == "model")
    for name, entry in MODELS.items():
        table.add_row(name, entry.summary, ", ".join(having[name]))
    console().print(table)
    say("\n`weft models options NAME` explains the options of a model, which are set in [model] of a broker's settings")


@models.command("options")
def show_options(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Only the options of this model.", show_default=False)
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show the options of routing models: their defaults, the papers, and when to change them.

    \b
    Example:
      $ weft models options mics
    """
    from weft.routing.options import OPTIONS, ModelOptions
    from weft.routing.registry import MODELS
    from weft.tables import plain_table

    if model and model not in MODELS:
        raise typer.BadParameter(f"there is no model {model!r}: choose one of {', '.join(MODELS)}")
    chosen = {name: option for name, option in OPTIONS.items() if not model or model in option.models}
    defaults = ModelOptions()
    if as_json:
        emit({name: {**each._asdict(), "default": getattr(defaults, name)} for name, each in chosen.items()})
        return
    if not chosen:
        say(f"the model {model} has no options")
        return
    table = plain_table("options, in [model] of the settings of a broker")
    for heading in ("option", "default", "what it does", "change it when", "from"):
        table.add_column(heading, no_wrap=heading in ("option", "default"))
    for name, each in chosen.items():
        default = getattr(defaults, name)
        shown = str(default).lower() if isinstance(default, bool) else "-" if default == () else str(default)
        table.add_row(name, shown, each.summary, each.when, each.paper)
    console().print(table)


@interest.callback()
def former_name() -> None:
    """The former name of `weft models`."""
    say_notes(["`weft interest` is now `weft models`; the old name will go"])


@interest.command()
@models.command()
def compare(  # noqa: PLR0913, PLR0917 - a command has its options
    events: Annotated[
        str,
        typer.Argument(
            metavar="EVENTS",
            help="Events: .csv, .parquet, or one JSON object per line; - is standard input.",
            show_default=False,
        ),
    ],
    subscriptions: Annotated[
        str,
        typer.Argument(
            metavar="RULES",
            help="Rules (filters): one per line as text or JSON; .csv, .parquet or .jsonl with a column `filter`; "
            "- is standard input.",
            show_default=False,
        ),
    ],
    only: Annotated[
        str,
        typer.Option(
            "--models",
            metavar="A,B",
            help="Compare only these models. A model may have options: merging:lazy=true:scope=local. Default: all.",
            show_default=False,
        ),
    ] = "",
    sample: Annotated[
        int, typer.Option("--sample", metavar="N", min=0, help="Sample N subscriptions; 0 takes all.")
    ] = _SUBSCRIPTIONS,
    sample_events: Annotated[
        int, typer.Option("--sample-events", metavar="N", min=0, help="Sample N events; 0 takes all.")
    ] = _EVENTS,
    cells: Annotated[
        int | None,
        typer.Option(
            "--cells",
            metavar="N",
            min=2,
            help="Cells per attribute for mics and dls. Default: 256 for mics, up to 64 for dls.",
            show_default=False,
        ),
    ] = None,
    patience: Annotated[
        float,
        typer.Option(
            "--patience",
            metavar="SECONDS",
            min=0,
            help="Processor time for all models together; a model that takes more than its share is stopped.",
        ),
    ] = _PATIENCE,
    seed: Seed = 1,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if a filter or an event cannot be used, instead of leaving it out.")
    ] = False,
    schema: SchemaFile = None,
    taxonomy: TaxonomyFile = None,
    as_json: AsJson = False,
) -> None:
    """Run every routing model on your subscriptions and events, and recommend one.

    Half of the subscriptions belong to clients of a broker, half come from a neighbour. A second neighbour is told
    about them, and publishes the events. Without a schema, types and bounds are those of the events. A model that loses
    an event ends the command.

    \b
    forwarded       items that the neighbour holds at the end: filters, ranges or labels
    kB, of all      their size, and its share of the size of all subscriptions
    updates, sent   updates to the neighbour, and the items in them
    table, MB       items in the broker's table, and its memory
    insert, remove  microseconds per subscription, one by one; batched: insert in batches
    match           microseconds per event, in batches and alone
    unwanted        events sent that match no subscription, of all events

    \b
    Example:
      $ weft models compare events.parquet rules.csv
      $ weft models compare events.jsonl rules.txt --models covering,mics --sample 0
      $ weft models compare events.jsonl rules.txt --models mics,mics:gap=8,merging:lazy=true
    """
    import numpy as np

    from weft.cli.event_files import read_events
    from weft.cli.input_files import standard_input
    from weft.cli.table_order import in_order
    from weft.models.candidates import CANDIDATES, candidate
    from weft.models.evidence import Data
    from weft.models.evidence import compare as compared
    from weft.models.recommendation import recommend

    chosen = [name.strip() for name in only.split(",")] if only else list(CANDIDATES)
    try:
        candidates = {name: candidate(name) for name in sorted(chosen, key=_simplest_first)}
    except OptionError as error:
        raise typer.BadParameter(str(error)) from None
    if subscriptions == events == "-":
        raise typer.BadParameter("only one of the subscriptions and the events can be standard input")
    events, subscriptions = in_order(events, subscriptions)
    rng, declared = np.random.default_rng(seed), read_schema(schema)
    with bar() as progress:
        progress("reading the events", 0, 0)
        happened = read_events(events, standard_input, declared, rng, most=sample_events or None)
        known = happened.observed if declared is None else declared
        progress("reading the subscriptions", 0, 0)
        wanted = _filters(subscriptions, taxonomy, known, rng, sample or None)
        if strict:
            _be_strict(wanted.refused, happened.refused)
        data = Data.of(wanted.filters, happened.events, known, seed)
        found = compared(data, chosen, cells=cells, patience=patience, progress=progress, candidates=candidates)
    advice = recommend(found.figures) if found.figures else None
    notes = _notes(wanted, happened, declared) + _unseen(data, chosen)
    if as_json:
        emit(_facts(wanted, happened, found, advice, notes, seed))
    else:
        _show(wanted, happened, found, advice)
        say_notes(notes)
        _say_refused("filter", [f"{each.place}: {each.text}: {said(each.error)}" for each in wanted.refused])
        _say_refused("event", [f"{each.place}: {said(each.error)}" for each in happened.refused])
    if advice is None:
        raise typer.Exit(1)


def _simplest_first(name: str) -> tuple[int, str]:
    """The place of a model among those that are compared; models with options come after the others."""
    from weft.models.candidates import CANDIDATES

    known = [*CANDIDATES]
    return (known.index(name), "") if name in known else (len(known), name)


# -- what a user gives -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Wanted:
    filters: Sequence[Filter]
    of: int
    refused: Sequence[RefusedFilter]


def _filters(path: str, taxonomy: Path | None, schema: Schema, rng: np.random.Generator, most: int | None) -> _Wanted:
    """The filters that can be used, a sample of them. Raises FilterError if there is none."""
    from weft.algebra.relate import as_form
    from weft.cli.arguments import read_predicates
    from weft.cli.event_files import drawn
    from weft.cli.filter_files import RefusedFilter, read_filter_file
    from weft.cli.input_files import standard_input

    wishes = read_filter_file(path, standard_input, read_predicates(taxonomy))
    refused, usable = list(wishes.refused), []
    for wish in (wishes.read[at] for at in drawn(len(wishes.read), most, rng)):
        try:
            as_form(wish.filter, schema)
            as_form(wish.filter)  # grids are of events as they are
        except FilterError as error:
            refused.append(RefusedFilter(wish.place, str(wish.filter), error))
            continue
        usable.append(wish.filter)
    if not usable:
        why = f": {refused[0].place}: {said(refused[0].error)}" if refused else ": write one per line"
        raise FilterError(f"{'standard input' if path == '-' else path} has no filter that can be used{why}")
    return _Wanted(usable, len(wishes.read) + len(wishes.refused) - len(refused), refused)


def _be_strict(filters: Sequence[RefusedFilter], events: Sequence[BadEvent]) -> None:
    for what, refused in (("filter", filters), ("event", events)):
        if refused:
            first = refused[0]
            raise WeftError(
                f"{len(refused):,} {_many(what, len(refused))} cannot be used, and --strict was given; "
                f"the first is {first.place}: {said(first.error)}"
            )


def _notes(wanted: _Wanted, happened: EventFile, declared: Schema | None) -> list[str]:
    from weft.cli.filter_answers import undeclared
    from weft.language.ast import attributes
    from weft.model.schema import did_you_mean

    notes = list(happened.notes)
    if declared is not None:
        return notes + undeclared(wanted.filters, declared)
    used = set().union(*map(attributes, wanted.filters))
    seen = {*happened.observed, *(name for event in happened.events for name in event)}
    return notes + [f"no event has {name!r}{did_you_mean(name, seen)}" for name in sorted(used - seen)]


def _unseen(data: Data, models: Sequence[str]) -> list[str]:
    from weft.models.candidates import ON_GRIDS, TableTerms

    models = [name for name in models if name.partition(":")[0] in ON_GRIDS]
    unseen = ", ".join(map(repr, TableTerms.of(data.schema, data.filters).unseen))
    if not models or not unseen:
        return []
    return [f"{' and '.join(models)} cannot see {unseen}: no bounds or categories are known, so more events are sent"]


# -- what is shown -----------------------------------------------------------------------------------


def _facts(  # noqa: PLR0913, PLR0917 - all that there is to say
    wanted: _Wanted,
    happened: EventFile,
    found: Evidence,
    advice: Recommendation | None,
    notes: list[str],
    seed: int,
) -> dict[str, Any]:
    filters = [{"place": each.place, "filter": each.text, "error": told(each.error)} for each in wanted.refused]
    return {
        "subscriptions": {"used": len(wanted.filters), "of": wanted.of, "refused": filters},
        "events": {
            "used": len(happened.events),
            "of": happened.of,
            "wanted": found.wanted,
            "scanned": found.scanned,
            "refused": [{"place": each.place, "error": told(each.error)} for each in happened.refused],
        },
        "seed": seed,
        "models": [each.to_dict() for each in found.figures],
        "not_run": [{"model": each.model, "reason": each.reason} for each in found.not_run],
        "recommendation": None if advice is None else advice.to_dict(),
        "notes": notes,
    }


_TOLD = ("forwarded", "kB", "of all", "updates", "sent", "table")
_TIMED = ("insert", "batched", "remove", "match", "alone", "unwanted", "MB")


def _show(wanted: _Wanted, happened: EventFile, found: Evidence, advice: Recommendation | None) -> None:
    from weft.tables import plain_table

    subs = _sampled("subscription", len(wanted.filters), wanted.of)
    events = _sampled("event", len(happened.events), happened.of)
    say(f"{subs}, {events}, {found.wanted:,} of them match a subscription", "bold")
    first, second = plain_table("what is forwarded and held"), plain_table("microseconds, unwanted events, memory")
    for table, headings in ((first, _TOLD), (second, _TIMED)):
        table.add_column("model", no_wrap=True)
        for heading in headings:
            table.add_column(heading, justify="right", no_wrap=True)
    for each in found.figures:
        style = "bold" if advice is not None and each.model == advice.model else ""
        first.add_row(each.model, *_told_row(each), style=style)
        second.add_row(each.model, *_timed_row(each), style=style)
    for missing in found.not_run:
        for table, headings in ((first, _TOLD), (second, _TIMED)):
            table.add_row(missing.model, *("-" for _ in headings), style="dim")
    console().print("", first, "", second, sep="\n")
    for missing in found.not_run:
        _wrapped(f"\n{missing.model} has no figures: {missing.reason}", "yellow")
    for each in found.figures:
        if each.filters_nothing:
            _wrapped(f"\n{each.model} filters nothing: {each.passed_share:.1%} of the unwanted events pass", "yellow")
    if advice is None:
        _wrapped("\nno model can run on this data", "bold")
        return
    _wrapped(f"\nrecommended: {advice.reason}", "bold")
    if advice.when is not None:
        _wrapped(f"\nor {advice.when}")


def _wrapped(text: str, style: str = "") -> None:
    """A long sentence, wrapped."""
    from rich.text import Text

    console().print(Text(text, style))


def _told_row(each: ModelFigures) -> list[str]:
    counts = map("{:,}".format, (each.updates, each.sent, each.table))
    size = f"{each.forwarded_bytes / 1e3:,.1f}", f"{each.forwarded_share:.1%}"
    return [f"{each.forwarded:,}", *size, *counts]


def _timed_row(each: ModelFigures) -> list[str]:
    changes = map("{:,.0f}".format, (each.insert_us, each.batch_us, each.remove_us))
    events = _figure(each.match_us, 2), _figure(each.route_us, 1), f"{each.unwanted_share:.1%}"
    return [*changes, *events, f"{each.memory / 1e6:,.1f}"]


def _figure(value: float, digits: int) -> str:
    """A number that takes few columns, also where a machine is slow."""
    return f"{value:,.{digits if value < 100 else 0}f}"


def _sampled(what: str, used: int, of: int) -> str:
    return f"{used:,} {_many(what, used)}" + (f" (sampled from {of:,})" if used < of else "")


def _many(noun: str, number: int) -> str:
    return noun if number == 1 else f"{noun}s"


def _say_refused(what: str, sentences: Sequence[str]) -> None:
    """What cannot be used: the first few with the reason, then how many."""
    say_notes(list(sentences[:_SAID]))
    if sentences:
        say_notes([f"{len(sentences):,} {_many(what, len(sentences))} left out"])
