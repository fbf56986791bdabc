"""The chapter on the covering order: alerts for seismic events in a forest, and how its roots change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.model.event import Event
from weft.order import FilterRelation, Forest, Node
from weftlab.demo.filters import SUBSCRIPTIONS, NamedFilter

ALERTS: tuple[NamedFilter, ...] = (
    *SUBSCRIPTIONS,
    NamedFilter("rescue", "buildings may have fallen", "magnitude >= 6 AND depth < 70"),
    NamedFilter("coast guard", "a wave may come", "tsunami AND magnitude >= 6.5"),
    NamedFilter("Anchorage", "what the city feels", "latitude BETWEEN 60 AND 62 AND longitude BETWEEN -151 AND -148"),
    NamedFilter(
        "port of Anchorage",
        "and what may harm its cranes",
        "latitude BETWEEN 60.5 AND 61.5 AND longitude BETWEEN -150.5 AND -149 AND magnitude >= 4",
    ),
    NamedFilter("Taipei", "the stronger ones", "place LIKE '%, Taiwan' AND magnitude >= 5"),
    NamedFilter("mines", "only the quarries", "type = 'quarry blast'"),
)
WIDER = NamedFilter("newspaper", "whatever may be news", "magnitude >= 4 OR tsunami OR type != 'earthquake'")


def in_order(console: Console, events: Sequence[Event]) -> dict[str, Any]:
    """Show the alerts as a forest; then add one that covers many of them, and remove it."""
    forest: Forest[Any] = Forest(FilterRelation())
    for alert in ALERTS:
        forest.add(alert.filter, alert.name)
    above = {name: _above(node) for node in forest for name in node.interfaces if isinstance(name, str)}
    console.print(
        "A broker keeps filters in their covering order: each is below a filter that covers it. Only the roots, on the "
        "left, are forwarded. An event that does not match a filter matches none of those below it.\n"
    )
    for root in sorted(forest.roots, key=lambda node: -node.size):
        console.print(_tree(root))
    roots = _names(forest)
    coming = forest.add(WIDER.filter, WIDER.name)
    with_it = _names(forest)
    wanted = _wanted([node.thing for node in forest], events)
    wanted_of_roots = _wanted([node.thing for node in forest.roots], events)
    going = forest.discard(WIDER.filter, WIDER.name)
    console.print(
        f"\n[bold]{len(forest)}[/] alerts, [bold]{len(roots)}[/] roots, {forest.depth} levels. "
        f"Then the {WIDER.name} subscribes to [cyan]{WIDER.text}[/]. That becomes a root and covers {len(coming.drop)} "
        f"of the others: [bold]{len(with_it)}[/] are forwarded, and every event that matches an alert still arrives "
        f"({wanted:,} of {len(events):,} events match an alert, {wanted_of_roots:,} match a root). When the "
        f"{WIDER.name} unsubscribes, the {len(going.add)} are roots again."
    )
    return {
        "alerts": len(ALERTS),
        "roots": roots,
        "depth": forest.depth,
        "below": above,
        "roots_with_newspaper": with_it,
        "roots_after": _names(forest),
        "events_wanted": wanted,
        "events_of_roots": wanted_of_roots,
    }


def _above(node: Node[Any]) -> str | None:
    """Who wants the filter that a node hangs below."""
    return next((str(name) for name in sorted(map(str, node.parent.interfaces))), None)


def _wanted(filters: Sequence[Filter | None], events: Sequence[Event]) -> int:
    return sum(any(each is not None and matches(each, event) for each in filters) for event in events)


def _names(forest: Forest[Any]) -> list[str]:
    return sorted(str(name) for root in forest.roots for name in root.interfaces)


def _tree(root: Node[Any]) -> Tree:
    """A root with all that is below it."""
    tree = Tree(_label(root), guide_style="dim")
    open_ = [(tree, root)]
    while open_:
        branch, node = open_.pop()
        open_ += [(branch.add(_label(child)), child) for child in sorted(node.children, key=lambda each: -each.size)]
    return tree


def _label(node: Node[Any]) -> Text:
    return Text.assemble((", ".join(sorted(map(str, node.interfaces))), "bold"), "  ", (str(node.thing), "cyan"))
