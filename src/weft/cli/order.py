"""`weft order`: filters in their covering order, shown and compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.shell import (
    AsJson,
    FilterFileName,
    Overwrite,
    SchemaFile,
    TaxonomyFile,
    check_outputs,
    console,
    emit,
    progress_console,
    read_schema,
    said,
    say,
    say_notes,
    told,
)
from weft.errors import FilterError

if TYPE_CHECKING:
    from weft.cli.filter_files import RefusedFilter
    from weft.cli.order_answers import Usable
    from weft.model.schema import Schema

order = typer.Typer(no_args_is_help=True)

_SHOWN, _DRAWN, _SAID = 60, 300, 5
_STRUCTURES = ("forest", "balanced", "nonredundant", "poset")

Interfaces = Annotated[
    int | None,
    typer.Option(
        "--interfaces",
        metavar="N",
        min=1,
        help="Assign the filters in turn to N interfaces, I1 to IN, unless the file names interfaces.",
    ),
]


@order.command()
def show(  # noqa: PLR0913, PLR0917 - a command has its options
    file: FilterFileName,
    structure: Annotated[
        str,
        typer.Option("--structure", metavar="|".join(_STRUCTURES), help="The data structure that holds the filters."),
    ] = "forest",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=0,
            help="Show at most N filters, those with the most others below them; 0 shows all. "
            f"Default: {_SHOWN}, drawn {_DRAWN}.",
            show_default=False,
        ),
    ] = None,
    depth: Annotated[int | None, typer.Option("--depth", metavar="N", min=1, help="Show only N levels.")] = None,
    interfaces: Interfaces = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Also draw the order as SVG.")] = None,
    dot: Annotated[
        Path | None, typer.Option("--dot", metavar="FILE", help="Also write the order for Graphviz.")
    ] = None,
    overwrite: Overwrite = False,
    schema: SchemaFile = None,
    taxonomy: TaxonomyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show filters below the filters that cover them, with their interfaces in brackets.

    In a forest, each filter is below one filter that covers it. A poset has all such relations; a filter that was
    already shown is only named again. If the file names no interfaces, each filter has its own. With --json, all nodes
    are listed unless --limit or --depth is given.

    \b
    Example:
      $ weft order show alerts.txt --structure poset --svg alerts.svg
    """
    from weft.cli.order_answers import StructureKind, counted, listed, ordered
    from weft.drawing import order_view

    if structure not in _STRUCTURES:
        raise typer.BadParameter(f"there is no structure {structure!r}: choose one of {', '.join(_STRUCTURES)}")
    check_outputs(overwrite, svg, dot)
    kind, declared = StructureKind(structure), read_schema(schema)
    with progress_console().status("reading the filters") as status:
        found, wrong = _read(file, taxonomy, declared, interfaces)
        built = ordered(kind, found, declared, lambda done: status.update(f"ordering the filters: {done}"))
    facts: dict[str, Any] = {"structure": structure, "filters": len(found.wishes), **counted(built)}
    sentence = _sentence(facts)
    if svg is not None or dot is not None:
        drawn = order_view.view(built, _DRAWN if limit is None else limit or None, depth)
        if svg is not None:
            from weft.drawing.picture import svg as picture

            svg.write_text(picture(drawn, kind.named.capitalize(), sentence), encoding="utf-8")
        if dot is not None:
            dot.write_text(order_view.dot(drawn), encoding="utf-8")
    if as_json:
        shown = order_view.view(built, limit or None, depth)
        refused = {"wrong": _told(wrong), "left_out": _told(found.left_out)}
        emit({**facts, "shown": len(shown.nodes), "listed": listed(shown), **refused})
    else:
        shown = order_view.view(built, _SHOWN if limit is None else limit or None, depth)
        _print(shown)
        say(f"\n{sentence}", "bold")
        if len(shown.nodes) < len(built):
            say(f"{len(shown.nodes):,} of {len(built):,} shown: --limit 0 shows all, --limit and --depth more or less")
        for written in filter(None, (svg, dot)):
            say(f"written: {written}")
        _say_refused(found.left_out, wrong)
    if wrong:
        raise typer.Exit(1)


@order.command()
def compare(  # noqa: PLR0913, PLR0917 - as above
    file: FilterFileName,
    interfaces: Interfaces = None,
    one_by_one: Annotated[
        bool,
        typer.Option("--one-by-one", help="Compare filters one by one, as in the papers, without the index of boxes."),
    ] = False,
    waste: Annotated[
        float,
        typer.Option(
            "--waste",
            metavar="SHARE",
            min=0,
            max=1,
            help="How much imperfect mergers may add, as a share of the domain.",
        ),
    ] = 0.1,
    schema: SchemaFile = None,
    taxonomy: TaxonomyFile = None,
    as_json: AsJson = False,
) -> None:
    """Build every data structure from the same filters, and show what each costs.

    Comparisons are those of one filter with another; the index of boxes needs few. The time is the time to build from
    normal forms. Below the table, the number of filters that the roots merge into is shown: perfectly and, with a
    schema that has bounds, imperfectly.

    \b
    Example:
      $ weft order compare alerts.txt --interfaces 3
    """
    from weft.cli.order_answers import compared, merged

    declared = read_schema(schema)
    with progress_console().status("reading the filters") as status:
        found, wrong = _read(file, taxonomy, declared, interfaces)
        rows = compared(found, declared, not one_by_one, lambda what: status.update(f"building the {what}"))
        status.update("merging the roots")
        told_as = merged(found, declared, waste)
    if as_json:
        refused = {"wrong": _told(wrong), "left_out": _told(found.left_out)}
        emit(
            {"filters": len(found.wishes), "indexed": not one_by_one, "structures": rows, "merged": told_as, **refused}
        )
    else:
        _table(rows)
        say(f"\n{len(found.wishes):,} {_many('filter', len(found.wishes))}", "bold")
        about = told_as["imperfect"]
        wasteful = (
            "imperfect mergers need a schema with bounds" if about is None else f"{about:,} with {waste:.0%} waste"
        )
        say(f"roots merged: {told_as['perfect']:,} perfectly; {wasteful}")
        _say_refused(found.left_out, wrong)
    if wrong:
        raise typer.Exit(1)


def _read(
    file: str, taxonomy: Path | None, schema: Schema | None, interfaces: int | None
) -> tuple[Usable, list[RefusedFilter]]:
    """The filters that can be used, and those that cannot be read."""
    from weft.cli.arguments import read_predicates
    from weft.cli.filter_files import read_filter_file
    from weft.cli.input_files import standard_input
    from weft.cli.order_answers import usable

    names = [f"I{number}" for number in range(1, (interfaces or 0) + 1)]
    wishes = read_filter_file(file, standard_input, read_predicates(taxonomy), names)
    found = usable(wishes.read, schema)
    if not found.wishes:
        refused = [*wishes.refused, *found.left_out]
        error = FilterError(f"{file} has no filter that can be ordered" + (": each has a fault" if refused else ""))
        for each in refused[:_SAID]:
            error.add_note(f"{each.place}: {said(each.error)}")
        raise error
    return found, wishes.refused


def _print(shown: Any) -> None:
    from rich.text import Text

    from weft.drawing.order_view import tree

    page = console()
    for line in tree(shown, page.options.ascii_only):
        text = Text(line.guide, "dim").append(line.filter, "cyan")
        if line.wanted:
            text.append(f"  [{line.wanted}]", "green")
        if line.note:
            text.append(f"  ({line.note})" if line.filter else f"... {line.note}", "dim")
        page.print(text, soft_wrap=True)


def _table(rows: Sequence[dict[str, Any]]) -> None:
    from weft.tables import plain_table

    table = plain_table()
    table.add_column("structure", no_wrap=True)
    for name in ("nodes", "roots", "depth", "edges", "comparisons", "ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        numbers = [f"{row[name]:,}" for name in ("nodes", "roots", "depth", "edges", "comparisons")]
        table.add_row(row["structure"], *numbers, f"{1e3 * row['seconds']:,.1f}")
    console().print(table)


def _sentence(facts: dict[str, Any]) -> str:
    """The closing line."""
    parts = [f"{facts[name]:,} {_many(name[:-1], facts[name])}" for name in ("filters", "nodes", "roots", "edges")]
    return f"{', '.join(parts)}, depth {facts['depth']:,}"


def _many(noun: str, number: int) -> str:
    return noun if number == 1 else f"{noun}s"


def _told(refused: Sequence[RefusedFilter]) -> list[dict[str, Any]]:
    return [{"place": each.place, "filter": each.text, "error": told(each.error)} for each in refused]


def _say_refused(left_out: Sequence[RefusedFilter], wrong: Sequence[RefusedFilter]) -> None:
    """What was not ordered, the first few with the reason, then how many."""
    say_notes([f"{each.place}: {each.text}: {said(each.error)}" for each in left_out[:_SAID]])
    if left_out:
        say_notes([f"{len(left_out):,} {_many('filter', len(left_out))} left out"])
    for each in wrong[:_SAID]:
        say(f"wrong: {each.place}: {said(each.error)}", "red", stderr=True)
    if wrong:
        say(f"weft: {len(wrong):,} {_many('filter', len(wrong))} cannot be read; the others are shown", stderr=True)
