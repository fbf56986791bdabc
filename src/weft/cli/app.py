"""The command line. Laws: no logic of its own; 0 is fine, 1 a failure said in one sentence, 2 wrong usage; with --json
stdout has one JSON document, also for a failure.

Whatever is heavy is imported by the command that needs it, so that `weft --version` is quick.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from weft import __version__
from weft.errors import FilterError, FilterSyntaxError, WeftError

if TYPE_CHECKING:
    from rich.console import Console

    from weft.language.ast import Filter
    from weft.model.schema import Schema

_JSON = "weft.json"  # where a context keeps whether --json was given


class Commands(TyperGroup):
    """Commands whose failures are sentences, not tracebacks."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # typer ends quietly
        except WeftError as error:
            failure: Exception = error
        except OSError as error:
            failure = WeftError(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        except KeyboardInterrupt:
            failure = WeftError("stopped by Ctrl-C")
        return fail(failure, as_json=ctx.meta.get(_JSON, False))


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_show_locals=False,
)
filters = typer.Typer(no_args_is_help=True)
app.add_typer(filters, name="filter", help="Check, explain, compare and merge filters.")


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # an output that is no UTF-8 is no reason to fail
    try:
        app()
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
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    """Content-based publish/subscribe: filters, their algebra, and fast matching.

    Exit codes: 0 fine, 1 a failure (said on stderr), 2 wrong usage.
    """


# -- arguments ---------------------------------------------------------------------------------------


def _keep_json(ctx: typer.Context, wanted: bool) -> bool:
    ctx.meta[_JSON] = wanted
    return wanted


_TEXT = (
    "A filter, as text or as JSON (it starts with { or [); - reads one per line from standard input. "
    "Put -- before a text that starts with a dash."
)
Texts = Annotated[list[str], typer.Argument(metavar="TEXT", help=_TEXT, show_default=False)]
OneText = Annotated[str, typer.Argument(metavar="TEXT", help=_TEXT, show_default=False)]
SchemaFile = Annotated[
    Path | None,
    typer.Option("--schema", metavar="FILE", help="A schema, .toml or .json: types and bounds of attributes."),
]
TaxonomyFile = Annotated[
    Path | None,
    typer.Option("--taxonomy", metavar="FILE", help="A taxonomy, .toml or .json, for is_a(name, 'concept')."),
]
AsJson = Annotated[
    bool, typer.Option("--json", callback=_keep_json, is_eager=True, help="Answer in JSON, for machines.")
]


def read_schema(path: Path | None) -> Schema | None:
    """The schema of --schema."""
    from weft.model.schema import Schema

    return None if path is None else Schema.load(path)


def read_filters(texts: Sequence[str], taxonomy: Path | None, least: int = 1, most: int | None = None) -> list[Filter]:
    """The filters of the texts. Raises FilterError for the first that is wrong; too few or too many are wrong usage."""
    from weft.cli.reading import read_filter, read_predicates

    predicates = read_predicates(taxonomy)
    return [read_filter(text, place, predicates) for text, place in _texts(texts, least, most)]


def _texts(given: Sequence[str], least: int = 1, most: int | None = None) -> list[tuple[str, str]]:
    from weft.cli.reading import read_texts

    texts = list(read_texts(given, typer.get_binary_stream("stdin").read))
    if not least <= len(texts) <= (most or len(texts)):
        wanted = f"{least} filter{'s' if least > 1 else ''}{'' if most else ' or more'}"
        raise typer.BadParameter(f"{wanted} expected, {len(texts)} given")
    return texts


# -- answers -----------------------------------------------------------------------------------------


def console(stderr: bool = False) -> Console:
    """Where answers go: stdout, or stderr for what is not the answer."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def say(text: str, style: str = "", stderr: bool = False) -> None:
    """A text as it is: no markup in it counts, and no line is wrapped."""
    from rich.text import Text

    console(stderr).print(Text(text, style), soft_wrap=True)


def say_notes(notes: Sequence[str]) -> None:
    """What is odd, but not wrong."""
    for note in notes:
        say(f"note: {note}", "yellow", stderr=True)


def emit(facts: Any) -> None:
    """The answer to --json."""
    typer.echo(json.dumps(facts, indent=2, ensure_ascii=False))


def fail(error: Exception, as_json: bool) -> NoReturn:
    """Say what went wrong and end with 1."""
    if as_json:
        emit({"error": _told(error)})
    else:
        say(f"weft: {_said(error)}", stderr=True)
    raise typer.Exit(1)


def _said(error: Exception) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def _told(error: Exception) -> dict[str, Any]:
    place = error if isinstance(error, FilterSyntaxError) else None
    return {
        "kind": type(error).__name__,
        "message": place.message if place else str(error),
        "line": place.line if place else None,
        "column": place.column if place else None,
        "hint": (place.hint or None) if place else None,
        "notes": list(getattr(error, "__notes__", [])),
    }


# -- weft filter -------------------------------------------------------------------------------------


@filters.command()
def check(texts: Texts, schema: SchemaFile = None, taxonomy: TaxonomyFile = None, as_json: AsJson = False) -> None:
    """Say whether texts are filters and, if not, where they are wrong.

    The exit code is 1 if one is wrong. With a schema, attributes that it does not have are noted.

    \b
    Example:
      $ weft filter check "price < 95 AND symbol IN ('X', 'Y')"
    """
    from weft.cli.answers import checked
    from weft.cli.reading import read_filter, read_predicates

    declared, predicates = read_schema(schema), read_predicates(taxonomy)
    answers: list[dict[str, Any]] = []
    for text, place in _texts(texts):
        try:
            facts = checked(read_filter(text, place, predicates), declared)
        except FilterError as error:
            answers.append({"text": text, "ok": False, "error": _told(error)})
            if not as_json:
                say(f"wrong: {_said(error)}", "red")
            continue
        answers.append({"text": text, "ok": True, **facts})
        if not as_json:
            say(f"ok: {facts['filter']}", "green")
            say_notes(facts["notes"])
    wrong = sum(not answer["ok"] for answer in answers)
    if as_json:
        emit({"ok": not wrong, "filters": answers})
    elif wrong:
        say(f"weft: {wrong} of {len(answers)} filters cannot be used", stderr=True)
    if wrong:
        raise typer.Exit(1)


@filters.command("format")
def format_(texts: Texts, schema: SchemaFile = None, taxonomy: TaxonomyFile = None, as_json: AsJson = False) -> None:
    """Write filters in their canonical form, one per line.

    \b
    Example:
      $ weft filter format "not(5<price or active)"
    """
    from weft.cli.answers import undeclared

    declared, found = read_schema(schema), read_filters(texts, taxonomy)
    written, notes = [str(each) for each in found], undeclared(found, declared)
    if as_json:
        emit({"filters": written, "notes": notes})
        return
    print(*written, sep="\n")
    say_notes(notes)


@filters.command()
def explain(
    text: OneText,
    event: Annotated[
        str | None,
        typer.Option(
            "--event",
            metavar="JSON|@FILE",
            help="An event as a JSON object, or a file that has one: show which parts of the filter are TRUE for it.",
        ),
    ] = None,
    schema: SchemaFile = None,
    taxonomy: TaxonomyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what a filter matches: its attributes, its normal form as a union of boxes, its JSON form.

    With an event, also the truth of every part of the filter. A schema says which attributes are timestamps.

    \b
    Example:
      $ weft filter explain "a < 5 AND NOT b > 7" --event '{"a": 1}'
    """
    from weft.cli import show
    from weft.cli.answers import explained
    from weft.cli.reading import read_event
    from weft.language.trace import plain_values, trace

    declared = read_schema(schema)
    (wanted,) = read_filters([text], taxonomy, 1, 1)
    facts, traced = explained(wanted, declared), None
    if event is not None:
        happened = read_event(event, declared)
        traced = trace(wanted, happened)
        facts |= {
            "event": plain_values(happened.attributes),
            "matches": traced.truth is True,
            "trace": traced.to_dict(),
        }
    if as_json:
        emit(facts)
        return
    say(facts["filter"], "bold cyan")
    console().print("", *show.explanation(facts), sep="\n")
    if traced is not None:
        console().print("", show.tree(traced), sep="\n")
        say("the event matches" if traced.truth else "the event does not match", "bold")
    say_notes(facts["notes"])


@filters.command()
def covers(
    wide: Annotated[str, typer.Argument(metavar="WIDE", help=_TEXT, show_default=False)],
    narrow: Annotated[str, typer.Argument(metavar="NARROW", help="Another, as WIDE.", show_default=False)],
    schema: SchemaFile = None,
    taxonomy: TaxonomyFile = None,
    as_json: AsJson = False,
) -> None:
    """Say whether every event that matches NARROW matches WIDE.

    A yes is proven. A no is certain for numbers; for patterns and comparisons between attributes it may only mean
    that there is no proof. The exit code is 0 for yes and for no: the answer is in the output.

    \b
    Example:
      $ weft filter covers "x < 10" "x BETWEEN 5 AND 9"
    """
    from weft.cli import show
    from weft.cli.answers import compared

    declared = read_schema(schema)
    outer, inner = read_filters([wide, narrow], taxonomy, 2, 2)
    facts = compared(outer, inner, declared)
    if as_json:
        emit(facts)
        return
    console().print(show.named(("wide", facts["wide"]), ("narrow", facts["narrow"])))
    if facts["equivalent"]:
        say("yes: WIDE covers NARROW; they are equivalent, NARROW covers WIDE too", "bold")
    elif facts["covers"]:
        say("yes: WIDE covers NARROW; they are not equivalent, NARROW does not cover WIDE", "bold")
    elif facts["covered"]:
        say("no: WIDE does not cover NARROW; it is the other way round, NARROW covers WIDE", "bold")
    elif facts["overlaps"]:
        say("no: WIDE does not cover NARROW; neither covers the other, but they overlap", "bold")
    else:
        say("no: WIDE does not cover NARROW; no event matches both", "bold")
    say_notes(facts["notes"])


@filters.command()
def overlaps(
    one: Annotated[str, typer.Argument(metavar="ONE", help=_TEXT, show_default=False)],
    other: Annotated[str, typer.Argument(metavar="OTHER", help="Another, as ONE.", show_default=False)],
    schema: SchemaFile = None,
    taxonomy: TaxonomyFile = None,
    as_json: AsJson = False,
) -> None:
    """Say whether an event can match both filters, and show the filter of those that do.

    A no is proven; for patterns and comparisons between attributes a yes may only mean that there is no proof.
    The exit code is 0 for yes and for no.

    \b
    Example:
      $ weft filter overlaps "x < 10" "x > 5 AND y = 1"
    """
    from weft.cli import show
    from weft.cli.answers import shared

    declared = read_schema(schema)
    first, second = read_filters([one, other], taxonomy, 2, 2)
    facts = shared(first, second, declared)
    if as_json:
        emit(facts)
        return
    console().print(show.named(("one", facts["one"]), ("other", facts["other"])))
    if facts["overlaps"]:
        say("yes: both match the events of", "bold")
        say(facts["both"], "cyan")
    else:
        say("no: no event matches both", "bold")
    say_notes(facts["notes"])


@filters.command()
def merge(texts: Texts, schema: SchemaFile = None, taxonomy: TaxonomyFile = None, as_json: AsJson = False) -> None:
    """Merge two or more filters into one that matches whatever they match.

    A merger is perfect if it matches nothing else. The rules: covering (one of the filters covers the others),
    perfect, attributes (the union of each attribute's values), bounding (the box around them all). With a schema
    that has bounds, the volume that the merger adds is shown.

    \b
    Example:
      $ weft filter merge "x < 5 AND y > 1" "x BETWEEN 5 AND 9 AND y > 1"
    """
    from weft.cli import show
    from weft.cli.answers import merged

    declared = read_schema(schema)
    facts = merged(read_filters(texts, taxonomy, 2), declared)
    if as_json:
        emit(facts)
        return
    say(facts["merged"], "bold cyan")
    perfect = "yes: it matches what its parts match" if facts["perfect"] else "no: it matches more than its parts"
    added = facts["unknown"] or f"{facts['share']:.1%} of its volume ({facts['added']:,.6g})"
    about = [("rule", facts["rule"]), ("perfect", perfect), *([] if facts["perfect"] else [("added", added)])]
    console().print("", show.named(*about), sep="\n")
    say_notes(facts["notes"])


# -- weft demo ---------------------------------------------------------------------------------------


@app.command()
def demo(as_json: AsJson = False) -> None:
    """Show what Weft does, on a week of real seismic events.

    \b
    Example:
      $ weft demo
    """
    from rich.console import Console

    from weft.demo.tour import tour

    facts = tour(Console(quiet=as_json))
    if as_json:
        emit(facts)


# -- weft bench --------------------------------------------------------------------------------------


@app.command()
def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to measure: language or match.")],
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: ends within two minutes.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures here.")
    ] = None,
    size: Annotated[
        int | None, typer.Option("--size", metavar="N", min=1, help="Of match: this many subscriptions only.")
    ] = None,
    workloads: Annotated[
        str | None, typer.Option("--workloads", metavar="W1,W2", help="Of match: these workloads only.")
    ] = None,
) -> None:
    """Measure Weft, with goals and with what it is compared to in the same run.

    The exit code is 0 whatever the figures are. Peers that are not installed are named, and so are the plans that
    query engines chose.

    \b
    Example:
      $ weft bench language --quick
      $ weft bench match --size 100000 --workloads W1,W3
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
    taken = OPTIONS.get(name, frozenset())
    if options.keys() - taken:
        raise typer.BadParameter(f"the bench {name!r} has no option --{min(options.keys() - taken)}")
    notes: list[str] = []
    if "note" in taken:
        options["note"] = notes.append
    with console(stderr=True).status("") as status:
        results = BENCHES[name]()(quick, lambda what: status.update(f"measuring {what}"), **options)
    say_notes(notes)
    show(name, results, console())
    if json_file is not None:
        write(json_file, name, results)


def _workloads(names: str) -> list[str]:
    from weft.workloads import WORKLOADS

    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in WORKLOADS:
            raise typer.BadParameter(f"there is no workload {name!r}: choose among {', '.join(WORKLOADS)}")
    return chosen
