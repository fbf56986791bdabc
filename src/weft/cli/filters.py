"""`weft filter`: check, lint, format and explain."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from weft.cli.shell import (
    AsJson,
    FilterFileName,
    OneText,
    SchemaFile,
    TaxonomyFile,
    Texts,
    console,
    emit,
    read_filters,
    read_schema,
    read_texts_of,
    said,
    say,
    say_notes,
    told,
)
from weft.errors import FilterError

filters = typer.Typer(no_args_is_help=True)


@filters.command()
def check(texts: Texts, schema: SchemaFile = None, taxonomy: TaxonomyFile = None, as_json: AsJson = False) -> None:
    """Check that texts are valid filters and, if not, show where they are wrong.

    A filter is a text, JSON in the CloudEvents dialects, or an EventBridge pattern; its form is recognised. The exit
    code is 1 if one is wrong. With a schema, attributes that it does not declare are noted.

    \b
    Example:
      $ weft filter check "price < 95 AND symbol IN ('X', 'Y')"
    """
    from weft.cli.arguments import read_filter, read_predicates
    from weft.cli.filter_answers import checked

    declared, predicates = read_schema(schema), read_predicates(taxonomy)
    answers: list[dict[str, Any]] = []
    for text, place in read_texts_of(texts):
        try:
            facts = checked(read_filter(text, place, predicates), declared, text)
        except FilterError as error:
            answers.append({"text": text, "ok": False, "error": told(error)})
            if not as_json:
                say(f"wrong: {said(error)}", "red")
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


@filters.command()
def lint(
    file: FilterFileName,
    events: Annotated[
        str | None,
        typer.Option(
            "--events",
            metavar="FILE",
            help="Events, .csv, .parquet or one JSON object per line: attributes and types are theirs.",
        ),
    ] = None,
    schema: SchemaFile = None,
    taxonomy: TaxonomyFile = None,
    as_json: AsJson = False,
) -> None:
    """Find filters that are probably mistakes.

    Reported are filters that name attributes which no event has, that compare unlike types, that can never be true,
    that are always true, and duplicates. Without --events and --schema, only the last three are looked for.

    The exit code is 0 if nothing is found and 1 otherwise.

    \b
    Example:
      $ weft filter lint rules.csv --events events.jsonl
    """
    from weft.cli.arguments import read_predicates
    from weft.cli.event_files import read_seen
    from weft.cli.filter_files import read_filter_texts
    from weft.cli.input_files import standard_input
    from weft.lint import lint_filters

    if file == events == "-":
        raise typer.BadParameter("only one of the filters and the events can be standard input")
    declared = read_schema(schema)
    seen = None if events is None else read_seen(events, standard_input, declared)
    report = lint_filters(read_filter_texts(file, standard_input), declared, seen, read_predicates(taxonomy))
    if as_json:
        emit(report.to_dict())
    else:
        for line in report.lines():
            say(line, "" if line.startswith(" ") else "bold")
        if report.filters:
            dead = f"{report.dead:,} of {report.filters:,} filters can never match"
            say(dead if report.dead else f"{report.filters:,} filters checked", "yellow" if report.dead else "green")
        if seen is None and declared is None:
            say_notes(["names and types were not checked; give --events FILE or --schema FILE"])
    if not report.clean:
        raise typer.Exit(1)


@filters.command("format")
def format_(texts: Texts, schema: SchemaFile = None, taxonomy: TaxonomyFile = None, as_json: AsJson = False) -> None:
    """Write filters in their canonical form, one per line.

    \b
    Example:
      $ weft filter format "not(5<price or active)"
    """
    from weft.cli.filter_answers import undeclared

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
            help="An event as a JSON object, or @FILE: show which parts of the filter are TRUE for it.",
        ),
    ] = None,
    schema: SchemaFile = None,
    taxonomy: TaxonomyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what a filter matches: its attributes, its normal form as a union of boxes, its JSON form.

    With an event, the truth of every part of the filter is shown as well. A schema says which attributes are
    timestamps.

    \b
    Example:
      $ weft filter explain "a < 5 AND NOT b > 7" --event '{"a": 1}'
    """
    from weft.cli import display
    from weft.cli.arguments import read_event
    from weft.cli.filter_answers import explained
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
    console().print("", *display.explanation(facts), sep="\n")
    if traced is not None:
        console().print("", display.tree(traced), sep="\n")
        say("the event matches" if traced.truth else "the event does not match", "bold")
    say_notes(facts["notes"])
