"""Matching on the covering order (thesis 3.7): an event is compared only with the children of filters that it matches.
Every interface that wants the event is found. With a bound, some interfaces may be found that do not want it, but none
is missed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, TypeVar

from weft.model.event import attributes_of
from weft.order.filter_relation import TYPE
from weft.order.node import Interface, Node, Roots
from weft.order.structure import Structure

T = TypeVar("T")
MatchTest = Callable[[Any, Any], bool]  # arguments: a filter as its relation makes it, and an event


def in_form(made: Any, event: Any) -> bool:
    """Whether a filter of `FilterRelation` matches an event."""
    return event in made.form


def type_of_event(event: Any) -> Hashable | None:
    """The event's type, or None if it has none."""
    kind = attributes_of(event).get(TYPE)
    return kind if isinstance(kind, str) else None


def match(  # noqa: PLR0913 - what may differ is named
    structure: Structure[T],
    event: Any,
    *,
    matches: MatchTest = in_form,
    kind: Callable[[Any], Hashable | None] = type_of_event,
    interfaces: Collection[Interface] | None = None,
    stop: Callable[[], bool] | None = None,
) -> set[Interface]:
    """The interfaces that want an event (Algorithm 6). Given all existing `interfaces`, the search ends once it has
    them.

    A filter is skipped if all its interfaces are already selected. Where nodes know the interfaces below them, the
    subtree is skipped too if those are selected. As soon as `stop` returns True, everything not yet visited counts as
    matching, which causes only false positives.

    >>> from weft import parse
    >>> from weft.order import FilterRelation, Forest, match
    >>> forest = Forest(FilterRelation())
    >>> for text, client in (("x > 0", "a"), ("x > 5", "b"), ("x > 9", "c"), ("y = 1", "d")):
    ...     change = forest.add(parse(text), client)
    >>> sorted(match(forest, {"x": 7}))
    ['a', 'b']
    >>> sorted(match(forest, {"x": 7}, stop=lambda: True))
    ['a', 'b', 'c', 'd']
    """
    chosen: set[Interface] = set()
    seen: set[Node[T]] = set()  # a poset can reach a node more than once
    stopped = False
    waiting = deque([_children(structure.top, kind(event))])
    while waiting:
        for node in waiting.popleft():
            if node in seen:
                continue
            seen.add(node)
            if node.interfaces <= chosen:
                if node.reach is not None and chosen.issuperset(node.reach):
                    continue
            else:
                stopped = stopped or (stop is not None and stop())
                if not stopped and not matches(node.made, event):
                    continue
                chosen |= node.interfaces
                if interfaces is not None and chosen.issuperset(interfaces):
                    return chosen
            waiting.append(node.children)
    return chosen


def _children(node: Node[T], kind: Hashable | None) -> Iterable[Node[T]]:
    return node.children.of_kind(kind) if isinstance(node.children, Roots) else node.children
