"""The command line. Laws: no logic of its own; 0 is fine, 1 a failure said in one sentence, 2 wrong usage; with --json
stdout has one JSON document, errors included.

Whatever is heavy is imported by the command that needs it, so that `weft --version` is quick.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from weft import __version__
from weft.errors import FilterError, FilterSyntaxError, WeftError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.tree import Tree

    from weft.algebra.box import NormalForm
    from weft.demo.explain import Trace
    from weft.language.ast import Filter
    from weft.language.predicate import Predicates
    from weft.model.event import Event
    from weft.model.schema import Schema

_JSON = "weft.json"  # where a context keeps whether --json was given
_TRUTHS = {True: ("TRUE", "green"), False: ("FALSE", "red"), None: ("NULL", "yellow")}


class _Commands(TyperGroup):
    """Commands whose failures are sentences, not tracebacks."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except WeftError as error:
            _fail(error, ctx.meta.get(_JSON, False))
        except BrokenPipeError:
            raise  # typer ends quietly
        except OSError as error:
            said = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            _fail(WeftError(said), ctx.meta.get(_JSON, False))
        except KeyboardInterrupt:
            _fail(WeftError("stopped by Ctrl-C"), ctx.meta.get(_JSON, False))


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_show_locals=False,
)
filters = typer.Typer(no_args_is_help=True)
app.add_typer(
    filters,
    name="filter",
    help="Check, explain and compare filters.",
    short_help="Check, explain and compare filters.",
)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that is no UTF-8 is no reason to fail
    try:
        app()
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:  # else the interpreter complains when it flushes at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"weft {__version__}")
        raise typer.Exit


@app.callback()
def weft(
    version: Annotated[  # noqa: ARG001
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
Texts = Annotated[list[str], typer.Argument(metavar="TEXT...", help=_TEXT, show_default=False)]
Text = Annotated[str, typer.Argument(metavar="TEXT", help=_TEXT, show_default=False)]
SchemaFile = Annotated[
    Path | None,
    typer.Option("--schema", metavar="FILE", help="A schema, .toml or .json: types and bounds of attributes."),
]
TaxonomyFile = Annotated[
    Path | None,
    typer.Option(
        "--taxonomy", metavar="FILE", help="A taxonomy, .toml or .json: filters may then call is_a(name, 'concept')."
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", callback=_keep_json, is_eager=True, help="Answer in JSON, for machines."),
]


def _schema(path: Path | None) -> Schema | None:
    from weft.model.schema import Schema

    return None if path is None else Schema.load(path)


def _predicates(taxonomy: Path | None) -> Predicates:
    from weft.language.predicate import Predicates
    from weft.language.taxonomy import IsA, Taxonomy

    return Predicates([] if taxonomy is None else [IsA(Taxonomy.load(taxonomy))])


def _sources(texts: Sequence[str], least: int = 1, most: int | None = None) -> list[tuple[str, str]]:
    """Each text, and where it comes from if that is not the command line."""
    sources: list[tuple[str, str]] = []
    for text in texts:
        if text != "-":
            sources.append((text, ""))
            continue
        try:
            lines = typer.get_binary_stream("stdin").read().decode("utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise FilterError("standard input is no UTF-8 text: convert it") from None
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.lstrip().startswith("#"):
                sources.append((line.strip(), f"in line {number} of standard input"))
    if not least <= len(sources) <= (most or len(sources)):
        wanted = f"{least} filter{'s' if least > 1 else ''}" + ("" if most else " or more")
        raise typer.BadParameter(f"{wanted} expected, {len(sources)} given")
    return sources


def _read(source: tuple[str, str], predicates: Predicates) -> Filter:
    from weft.language.dialects import from_json
    from weft.language.text import parse

    text, place = source
    try:
        return (from_json if text.lstrip()[:1] in ("{", "[") else parse)(text, predicates)
    except FilterError as error:
        if place:
            error.add_note(place)
        raise


def _read_all(
    texts: Sequence[str], taxonomy: Path | None, least: int = 1, most: int | None = None
) -> list[Filter]:
    predicates = _predicates(taxonomy)
    return [_read(source, predicates) for source in _sources(texts, least, most)]


def _event(given: str, schema: Schema | None) -> Event:
    from weft.demo.explain import read_event
    from weft.errors import EventError

    if not given.startswith("@"):
        return read_event(given, schema)
    try:
        return read_event(Path(given[1:]).read_text(encoding="utf-8-sig"), schema)
    except UnicodeDecodeError:
        raise EventError(f"{given[1:]}: it is no UTF-8 text") from None


# -- answers -----------------------------------------------------------------------------------------


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _say(text: str, style: str = "", err: bool = False) -> None:
    """A text as it is: no markup, no wrapping."""
    from rich.console import Console
    from rich.text import Text as Styled

    Console(stderr=err, highlight=False).print(Styled(text, style), soft_wrap=True)


def _lines(said: Sequence[tuple[str, RenderableType]]) -> None:
    """Names and what belongs to them, in two columns."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, what in said:
        grid.add_row(name, what)
    _console().print(grid)


def _emit(facts: Any) -> None:
    typer.echo(json.dumps(facts, indent=2, ensure_ascii=False))


def _say_notes(notes: Sequence[str]) -> None:
    for note in notes:
        _say(f"note: {note}", "yellow", err=True)


def _told(error: Exception) -> dict[str, Any]:
    """An error for machines."""
    known = isinstance(error, FilterSyntaxError)
    return {
        "kind": type(error).__name__,
        "message": error.message if known else str(error),
        "line": error.line if known else None,
        "column": error.column if known else None,
        "hint": (error.hint or None) if known else None,
        "notes": list(getattr(error, "__notes__", [])),
    }


def _whole(error: Exception) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def _fail(error: Exception, as_json: bool) -> None:
    if as_json:
        _emit({"error": _told(error)})
    else:
        _say(f"weft: {_whole(error)}", err=True)
    raise typer.Exit(1)


# -- weft filter -------------------------------------------------------------------------------------


@filters.command()
def check(texts: Texts, schema: SchemaFile = None, taxonomy: TaxonomyFile = None, as_json: AsJson = False) -> None:
    """Say whether texts are filters, and if not, where they are wrong; then the exit code is 1.

    With a schema, attributes that it does not have are noted.

    \b
    Example:
      $ weft filter check "price < 95 AND symbol IN ('X', 'Y')"
    """
    from weft.algebra.normalize import normalize
    from weft.demo.explain import undeclared

    declared, predicates = _schema(schema), _predicates(taxonomy)
    answers: list[dict[str, Any]] = []
    wrong = 0
    for source in _sources(texts):
        try:
            filter = _read(source, predicates)  # noqa: A001 - the field's word
            form = normalize(filter, declared)  # past the limit of boxes it cannot be used
        except FilterError as error:
            wrong += 1
            answers.append({"text": source[0], "ok": False, "error": _told(error)})
            if not as_json:
                _say(f"wrong: {_whole(error)}", "red")
            continue
        notes = undeclared([filter], declared) + ([] if form else ["it matches no event at all"])
        answers.append({"text": source[0], "ok": True, "filter": str(filter), "notes": notes})
        if not as_json:
            _say(f"ok: {filter}", "green")
            _say_notes(notes)
    if as_json:
        _emit({"ok": not wrong, "filters": answers})
    elif wrong:
        _say(f"weft: {wrong} of {len(answers)} filters cannot be used", err=True)
    if wrong:
        raise typer.Exit(1)


@filters.command("format")
def format_(texts: Texts, schema: SchemaFile = None, taxonomy: TaxonomyFile = None, as_json: AsJson = False) -> None:
    """Write filters in their canonical form, one per line.

    \b
    Example:
      $ weft filter format "not(5<price or active)"
    """
    from weft.demo.explain import undeclared

    found = _read_all(texts, taxonomy)
    notes = undeclared(found, _schema(schema))
    if as_json:
        _emit({"filters": [str(filter) for filter in found], "notes": notes})  # noqa: A001
        return
    for filter in found:  # noqa: A001
        typer.echo(str(filter))
    _say_notes(notes)


@filters.command()
def explain(
    text: Text,
    event: Annotated[
        str | None,
        typer.Option(
            "--event",
            metavar="JSON|@FILE",
            help="An event as a JSON object, or a file that has one: show which parts of the filter are TRUE.",
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
      $ weft filter explain "magnitude >= 5 AND NOT depth > 70" --event '{"magnitude": 6.1}'
    """
    from weft.algebra.normalize import normalize
    from weft.algebra.relate import covers
    from weft.demo.explain import conditions, plain_values, trace, undeclared
    from weft.language.ast import TRUE, attributes
    from weft.language.dialects import to_json

    declared = _schema(schema)
    (filter,) = _read_all([text], taxonomy, 1, 1)  # noqa: A001
    form = normalize(filter, declared)
    happened = None if event is None else _event(event, declared)
    traced = None if happened is None else trace(filter, happened)
    facts: dict[str, Any] = {
        "filter": str(filter),
        "attributes": sorted(attributes(filter)),
        "empty": not form,
        "everything": covers(form, TRUE, declared),
        "boxes": [
            [{"attributes": name, "condition": str(test)} for name, test in conditions(box, declared)]
            for box in form.boxes
        ],
        "json": to_json(filter),
        "notes": undeclared([filter], declared),
    }
    if happened is not None and traced is not None:
        facts["event"] = plain_values(happened.attributes)
        facts["matches"] = traced.truth is True
        facts["trace"] = traced.to_dict()
    if as_json:
        _emit(facts)
        return
    _show_explanation(facts)
    if traced is not None:
        _console().print()
        _console().print(_tree(traced))
        _say("the event matches" if traced.truth else "the event does not match", "bold")
    _say_notes(facts["notes"])


def _show_explanation(facts: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text as Styled

    matched = "nothing" if facts["empty"] else "every event" if facts["everything"] else "some events"
    _say(facts["filter"], "bold cyan")
    _console().print()
    _lines(
        [
            ("attributes", Styled(", ".join(facts["attributes"]) or "none")),
            ("matches", matched),
            ("as JSON", Styled(json.dumps(facts["json"], ensure_ascii=False))),
            ("normal form", _count(len(facts["boxes"]), "box", "boxes")),
        ]
    )
    if facts["empty"] or facts["everything"]:
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("box", justify="right")
    table.add_column("attribute", overflow="fold", max_width=24)
    table.add_column("condition", overflow="fold")
    for number, tests in enumerate(facts["boxes"], 1):
        for at, test in enumerate(tests):
            last = at == len(tests) - 1
            label = str(number) if at == 0 else ""
            table.add_row(label, Styled(test["attributes"]), Styled(test["condition"], "cyan"), end_section=last)
    _console().print()
    _console().print(table)


def _tree(traced: Trace) -> Tree:
    from rich.text import Text as Styled
    from rich.tree import Tree

    from weft.demo.explain import show_value

    def label(part: Trace) -> Styled:
        word, style = _TRUTHS[part.truth]
        said = Styled.assemble((f"{word:5}", style), "  ", str(part.filter))
        values = ", ".join(f"{name} is {show_value(value)}" for name, value in part.values.items())
        return said.append(f"   ({values})", "dim") if values else said

    def grow(tree: Tree, part: Trace) -> Tree:
        for inner in part.parts:
            grow(tree.add(label(inner)), inner)
        return tree

    return grow(Tree(label(traced), guide_style="dim"), traced)


@filters.command()
def covers(
    wide: Annotated[str, typer.Argument(metavar="WIDE", help=_TEXT, show_default=False)],
    narrow: Annotated[str, typer.Argument(metavar="NARROW", help="As WIDE.", show_default=False)],
    schema: SchemaFile = None,
    taxonomy: TaxonomyFile = None,
    as_json: AsJson = False,
) -> None:
    """Say whether every event that matches NARROW matches WIDE.

    A yes is proven. A no is certain for numbers and sets of values; for patterns and comparisons between attributes
    it may only mean that there is no proof. The exit code is 0 for yes and for no.

    \b
    Example:
      $ weft filter covers "x < 10" "x BETWEEN 5 AND 9"
    """
    from weft.algebra import relate
    from weft.algebra.normalize import normalize
    from weft.demo.explain import undeclared

    declared = _schema(schema)
    found = _read_all([wide, narrow], taxonomy, 2, 2)
    outer, inner = (normalize(filter, declared) for filter in found)  # noqa: A001
    facts = {
        "wide": str(found[0]),
        "narrow": str(found[1]),
        "covers": relate.covers(outer, inner, declared),
        "covered": relate.covers(inner, outer, declared),
        "overlaps": relate.overlaps(outer, inner, declared),
        "notes": undeclared(found, declared),
    }
    facts["equivalent"] = facts["covers"] and facts["covered"]
    if as_json:
        _emit(facts)
        return
    _pair("wide", facts["wide"], "narrow", facts["narrow"])
    if facts["equivalent"]:
        _say("yes: WIDE covers NARROW, and NARROW covers WIDE: they are equivalent", "bold")
    elif facts["covers"]:
        _say("yes: WIDE covers NARROW; they are not equivalent: NARROW does not cover WIDE", "bold")
    elif facts["covered"]:
        _say("no: it is the other way round, NARROW covers WIDE", "bold")
    elif facts["overlaps"]:
        _say("no: neither covers the other, though they overlap", "bold")
    else:
        _say("no: neither covers the other, and no event matches both", "bold")
    _say_notes(undeclared(found, declared))


@filters.command()
def overlaps(
    one: Annotated[str, typer.Argument(metavar="ONE", help=_TEXT, show_default=False)],
    other: Annotated[str, typer.Argument(metavar="OTHER", help="As ONE.", show_default=False)],
    schema: SchemaFile = None,
    taxonomy: TaxonomyFile = None,
    as_json: AsJson = False,
) -> None:
    """Say whether an event can match both filters, and show the filter of those that do.

    A no is proven; a yes may be wrong for patterns and comparisons between attributes. The exit code is 0 for both.

    \b
    Example:
      $ weft filter overlaps "x < 10" "x > 5 AND y = 1"
    """
    from weft.algebra.express import express
    from weft.algebra.relate import intersect
    from weft.demo.explain import undeclared

    declared = _schema(schema)
    found = _read_all([one, other], taxonomy, 2, 2)
    both = intersect(found[0], found[1], declared)
    shared = str(express(both)) if both else None
    notes = undeclared(found, declared)
    if as_json:
        _emit({"one": str(found[0]), "other": str(found[1]), "overlaps": bool(both), "both": shared, "notes": notes})
        return
    _pair("one", str(found[0]), "other", str(found[1]))
    if shared is None:
        _say("no: no event matches both", "bold")
    else:
        _say("yes: both match the events of", "bold")
        _say(shared, "cyan")
    _say_notes(notes)


@filters.command()
def merge(texts: Texts, schema: SchemaFile = None, taxonomy: TaxonomyFile = None, as_json: AsJson = False) -> None:
    """Merge two or more filters into one that matches all that they match.

    A merger is perfect if it matches nothing else. Rules: covering (one of the filters covers the others), perfect,
    attributes (one attribute at a time), bounding (the box around them all). With a schema that has bounds, the
    volume that an imperfect merger adds is shown, measured in the attributes that the filters use.

    \b
    Example:
      $ weft filter merge "x BETWEEN 0 AND 5 AND a" "x BETWEEN 5 AND 9 AND a"
    """
    from weft.algebra.express import express
    from weft.algebra.merge import merge as merge_filters
    from weft.demo.explain import cost, measured_by, undeclared

    declared = _schema(schema)
    found = _read_all(texts, taxonomy, 2)
    used = measured_by(found, declared)
    merger = merge_filters(found, used)
    share, reason = cost(merger, used)
    facts = {
        "filters": [str(filter) for filter in found],  # noqa: A001
        "merged": str(express(merger.form)),
        "rule": merger.rule,
        "perfect": merger.perfect,
        "added": merger.added,
        "share": share,
        "reason": reason or None,
        "notes": undeclared(found, declared),
    }
    if as_json:
        _emit(facts)
        return
    _say(facts["merged"], "bold cyan")
    _console().print()
    added = reason if merger.added is None else f"{merger.added:,.6g}, {share:.1%} of what it matches"
    kind = "perfect: it matches nothing else" if merger.perfect else "imperfect: it matches more than its parts"
    _lines([("rule", merger.rule), ("merger", kind), *([] if merger.perfect else [("adds", added)])])
    _say_notes(facts["notes"])


def _pair(one: str, first: str, other: str, second: str) -> None:
    from rich.text import Text as Styled

    _lines([(one, Styled(first, "cyan")), (other, Styled(second, "cyan"))])


def _count(number: int, one: str, many: str) -> str:
    return f"a union of {number} {many}" if number > 1 else f"one {one}" if number else f"no {one}"


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
        _emit(facts)
