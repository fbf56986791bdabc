"""`weft filter covers`, `equivalent`, `overlaps` and `merge`: how filters relate."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.filters import filters
from weft.cli.shell import (
    TEXT,
    AsJson,
    ExitCode,
    SchemaFile,
    TaxonomyFile,
    Texts,
    answer_by_code,
    console,
    emit,
    read_filters,
    read_schema,
    say,
    say_notes,
)

__all__ = ["filters"]


@filters.command()
def covers(  # noqa: PLR0913, PLR0917 - a command has its options
    wide: Annotated[str, typer.Argument(metavar="WIDE", help=TEXT, show_default=False)],
    narrow: Annotated[
        str, typer.Argument(metavar="NARROW", help="Another filter, given like WIDE.", show_default=False)
    ],
    schema: SchemaFile = None,
    taxonomy: TaxonomyFile = None,
    exit_code: ExitCode = False,
    as_json: AsJson = False,
) -> None:
    """Check whether WIDE matches everything that NARROW matches.

    A yes is proven. A no is certain for numbers; for patterns and comparisons between attributes it may only mean
    that no proof was found. The exit code is 0 for either answer unless --exit-code is given.

    \b
    Example:
      $ weft filter covers "x < 10" "x BETWEEN 5 AND 9"
    """
    from weft.cli import display
    from weft.cli.filter_answers import compared

    declared = read_schema(schema)
    outer, inner = read_filters([wide, narrow], taxonomy, 2, 2)
    facts = compared(outer, inner, declared)
    if as_json:
        emit(facts)
        answer_by_code(exit_code, facts["covers"])
        return
    console().print(display.named(("wide", facts["wide"]), ("narrow", facts["narrow"])))
    if facts["equivalent"]:
        say("yes: WIDE covers NARROW; they are equivalent, NARROW covers WIDE too", "bold")
    elif facts["covers"]:
        say("yes: WIDE covers NARROW; they are not equivalent: NARROW does not cover WIDE", "bold")
    elif facts["covered"]:
        say("no: WIDE does not cover NARROW; it is the other way round, NARROW covers WIDE", "bold")
    elif facts["overlaps"]:
        say("no: WIDE does not cover NARROW; neither covers the other, but they overlap", "bold")
    else:
        say("no: WIDE does not cover NARROW; no event matches both", "bold")
    say_notes(facts["notes"])
    answer_by_code(exit_code, facts["covers"])


@filters.command()
def equivalent(  # noqa: PLR0913, PLR0917 - a command has its options
    one: Annotated[str, typer.Argument(metavar="ONE", help=TEXT, show_default=False)],
    other: Annotated[str, typer.Argument(metavar="OTHER", help="Another filter, given like ONE.", show_default=False)],
    schema: SchemaFile = None,
    taxonomy: TaxonomyFile = None,
    exit_code: ExitCode = False,
    as_json: AsJson = False,
) -> None:
    """Check whether two filters match the same events.

    A yes is proven. A no is certain for numbers; for patterns and comparisons between attributes it may only mean
    that no proof was found. The exit code is 0 for either answer unless --exit-code is given.

    \b
    Example:
      $ weft filter equivalent "x > 5" "NOT x <= 5"
    """
    from weft.cli import display
    from weft.cli.filter_answers import compared

    declared = read_schema(schema)
    first, second = read_filters([one, other], taxonomy, 2, 2)
    facts = compared(first, second, declared)
    facts["one"], facts["other"] = facts.pop("wide"), facts.pop("narrow")
    if as_json:
        emit(facts)
        answer_by_code(exit_code, facts["equivalent"])
        return
    console().print(display.named(("one", facts["one"]), ("other", facts["other"])))
    say("yes: both match the same events" if facts["equivalent"] else "no: they are not equivalent", "bold")
    say_notes(facts["notes"])
    answer_by_code(exit_code, facts["equivalent"])


@filters.command()
def overlaps(  # noqa: PLR0913, PLR0917 - a command has its options
    one: Annotated[str, typer.Argument(metavar="ONE", help=TEXT, show_default=False)],
    other: Annotated[str, typer.Argument(metavar="OTHER", help="Another filter, given like ONE.", show_default=False)],
    schema: SchemaFile = None,
    taxonomy: TaxonomyFile = None,
    exit_code: ExitCode = False,
    as_json: AsJson = False,
) -> None:
    """Check whether an event can match both filters, and show the filter of the events that do.

    A no is proven. For patterns and comparisons between attributes, a yes may only mean that no disproof was found.
    The exit code is 0 for either answer unless --exit-code is given.

    \b
    Example:
      $ weft filter overlaps "x < 10" "x > 5 AND y = 1"
    """
    from weft.cli import display
    from weft.cli.filter_answers import shared

    declared = read_schema(schema)
    first, second = read_filters([one, other], taxonomy, 2, 2)
    facts = shared(first, second, declared)
    if as_json:
        emit(facts)
        answer_by_code(exit_code, facts["overlaps"])
        return
    console().print(display.named(("one", facts["one"]), ("other", facts["other"])))
    if facts["overlaps"]:
        say("yes: both match the events of", "bold")
        say(facts["both"], "cyan")
    else:
        say("no: no event matches both", "bold")
    say_notes(facts["notes"])
    answer_by_code(exit_code, facts["overlaps"])


@filters.command()
def merge(
    texts: Texts,
    schema: SchemaFile = None,
    taxonomy: TaxonomyFile = None,
    exit_code: ExitCode = False,
    as_json: AsJson = False,
) -> None:
    """Merge two or more filters into one that matches every event that they match.

    A merger is perfect if it matches nothing else; with --exit-code, that is the answer. The rules are: covering (one
    of the filters covers the others), perfect, attributes (the union of each attribute's values) and bounding (the box
    around them all). With a schema that has bounds, the volume that the merger adds is shown.

    \b
    Example:
      $ weft filter merge "x < 5 AND y > 1" "x BETWEEN 5 AND 9 AND y > 1"
    """
    from weft.cli import display
    from weft.cli.filter_answers import merged

    declared = read_schema(schema)
    facts = merged(read_filters(texts, taxonomy, 2), declared)
    if as_json:
        emit(facts)
        answer_by_code(exit_code, facts["perfect"])
        return
    say(facts["merged"], "bold cyan")
    perfect = "yes: it matches what its parts match" if facts["perfect"] else "no: it matches more than its parts"
    added = facts["unknown"] or f"{facts['share']:.1%} of its volume ({facts['added']:,.6g})"
    about = [("rule", facts["rule"]), ("perfect", perfect), *([] if facts["perfect"] else [("added", added)])]
    console().print("", display.named(*about), sep="\n")
    say_notes(facts["notes"])
    answer_by_code(exit_code, facts["perfect"])
