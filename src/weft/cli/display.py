"""Facts on a console. A user's text is shown unchanged: markup in it has no effect, and no table cuts it off."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from weft.language.trace import Trace, show_value
from weft.tables import plain_table

_LONGEST = 200  # characters of a value beside a test
_TRUTHS = {True: ("TRUE", "green"), False: ("FALSE", "red"), None: ("NULL", "yellow")}


def named(*pairs: tuple[str, str | Text]) -> Table:
    """Names and what belongs to them, in two columns."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, what in pairs:
        grid.add_row(name, Text(what) if isinstance(what, str) else what)
    return grid


def explanation(facts: dict[str, Any]) -> Iterator[RenderableType]:
    """What `filter_answers.explained` found, part by part."""
    boxes: Sequence[Sequence[dict[str, Any]]] = facts["boxes"]
    many = {0: "no box", 1: "one box"}.get(len(boxes), f"a union of {len(boxes)} boxes")
    yield named(
        ("attributes", ", ".join(facts["attributes"]) or "none"),
        ("matches", "nothing" if facts["empty"] else "every event" if facts["everything"] else "some events"),
        ("as JSON", json.dumps(facts["json"], ensure_ascii=False)),
        ("normal form", many),
    )
    if facts["empty"] or facts["everything"]:
        return
    table = plain_table()
    table.add_column("box", justify="right", no_wrap=True)
    table.add_column("attribute", overflow="fold", max_width=24)
    table.add_column("condition", overflow="fold")
    for number, tests in enumerate(boxes, 1):
        for at, test in enumerate(tests):
            names, condition = Text(", ".join(test["attributes"])), Text(test["condition"], "cyan")
            table.add_row("" if at else str(number), names, condition, end_section=at == len(tests) - 1)
    yield ""
    yield table


def tree(trace: Trace) -> Tree:
    """A trace, every part under the one that it belongs to."""
    root = Tree(_label(trace), guide_style="dim")
    _grow(root, trace)
    return root


def _grow(branch: Tree, trace: Trace) -> None:
    for part in trace.parts:
        _grow(branch.add(_label(part)), part)


def _label(trace: Trace) -> Text:
    word, style = _TRUTHS[trace.truth]
    said = Text.assemble((f"{word:5}", style), "  ", str(trace.filter))
    values = ", ".join(f"{name} is {_short(show_value(value))}" for name, value in trace.values.items())
    return said.append(f"   ({values})", "dim") if values else said


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 2] + ".."
