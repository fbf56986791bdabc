"""The chapter on lint: rules that are probably mistakes, found before they are missed. Every sentence comes from
`weft.lint`, for the demo's own events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from weft.lint import lint_filters
from weft.model.event import Event
from weftlab.demo.filters import SUBSCRIPTIONS

MISTAKES: tuple[tuple[str, str], ...] = (
    ("typo", "magntude >= 5"),
    ("since February", "time >= '2018-02-01' AND magnitude >= 5"),
    ("felt", "felt = 'yes'"),
    ("impossible", "depth > 70 AND depth < 10"),
    ("tsunami watch", "tsunami IS TRUE"),
)


def what_lint_finds(console: Console, events: Sequence[Event]) -> dict[str, Any]:
    """The subscriptions of the demo with some mistakes among them."""
    rules = [*((each.name, each.text) for each in SUBSCRIPTIONS), *MISTAKES]
    report = lint_filters(rules, events=events)
    console.print(
        f"The commonest mistake is a rule that can never match. Here are the {len(SUBSCRIPTIONS)} rules again, with "
        f"{len(MISTAKES)} more. [bold]weft filter lint[/] compares them with the events:\n"
    )
    for line in report.lines():
        depth = len(line) - len(line.lstrip())
        console.print(Text(line, ("bold", "", "cyan")[depth // 2]))
    console.print(f"\n[bold]{report.dead}[/] of {report.filters} rules can never match.")
    return report.to_dict()
