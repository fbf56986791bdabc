"""The covering relation of filters, with an index for filters that are boxes. It gives the result of `covers` for every
node, but compares a filter with only a few of very many.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from weft.algebra.box import Box, NormalForm, required_memberships
from weft.algebra.budget import Budget
from weft.algebra.relate import Region, as_form, covers, covers_within
from weft.algebra.spans import ColumnPart, Span, only_string, span_of
from weft.algebra.valueset import ValueSet
from weft.errors import FilterError
from weft.kernels.boxes import BOUNDED
from weft.model.schema import Schema
from weft.order.cover_index import CoverIndex, CoverRow
from weft.order.node import Interface, Node
from weft.order.relation import NodePlaces, Relation, Standing, reaches

_OTHERS = 63  # interfaces with their own bit
_OTHER = 1 << _OTHERS
_ALL = (1 << 64) - 1  # the tag of a node that very many interfaces want

_NONE: frozenset[str] = frozenset()

TYPE = "type"  # the attribute by which the roots are partitioned


@dataclass(frozen=True, slots=True)
class Boxed:
    """A filter's normal form and the spans of its hull; `exact` means that the hull is the whole filter."""

    form: NormalForm
    spans: tuple[Span, ...]
    exact: bool
    members: frozenset[str] = frozenset()  # the values that lists must have; see `required_memberships`


class FilterRelation(Relation[Region]):
    """Filters by covering; with `indexed` False they are compared one by one, like things of any other type.

    A filter that matches nothing has no place in the order and raises FilterError. `numbers` maps strings to numbers on
    their axes; pass it to share spans with another relation. New strings are added to it. `search` bounds the steps of
    one look-up in an index; filters that are not compared for lack of steps are assumed not to cover.

    >>> from weft import parse
    >>> filters = FilterRelation()
    >>> filters.covers(filters.make(parse("x < 10")), filters.make(parse("x BETWEEN 5 AND 9")))
    True
    """

    def __init__(
        self,
        schema: Schema | None = None,
        indexed: bool = True,
        numbers: dict[str, float] | None = None,
        search: int | None = None,
    ) -> None:
        # covering of patterns and residuals is not transitive
        super().__init__(_covers, transitive=False)
        self.schema = schema
        self._indexed = indexed
        self.search = search
        self._numbers: dict[str, float] = {} if numbers is None else numbers  # the numbers of strings

    def make(self, thing: Region) -> Boxed:
        """The filter's normal form and hull."""
        form = as_form(thing, self.schema)
        if not form.boxes:
            raise FilterError(f"{thing} never matches, so it has no place in the covering order; leave it out")
        if len(form.boxes) == 1:
            spans, exact = self._hull(form.boxes[0])
            return Boxed(form, tuple(spans), exact, _NONE if exact else required_memberships(form))
        first, *others = (box.sets for box in form.boxes)
        spans = []
        for name in first:
            if all(name in sets for sets in others):
                span = self._span_around(name, [first[name], *(sets[name] for sets in others)])
                if span is not None:
                    spans.append(span)
        return Boxed(form, tuple(spans), False, required_memberships(form))

    def _span_around(self, name: str, several: Iterable[ValueSet]) -> Span | None:
        """The span around the sets that all boxes of a union have of an attribute; None if there is none."""
        different = {id(values): values for values in several}  # boxes of a product share most of their sets
        found = [span_of(name, values, self._number)[0] for values in different.values()]
        spans = [span for span in found if span is not None]
        if len(spans) < len(found) or len({axis for axis, *_ in spans}) > 1:
            return None
        return spans[0][0], min(low for _, low, _, _ in spans), max(high for _, _, high, _ in spans), BOUNDED

    def comparing(self) -> Callable[[Boxed, Boxed], bool]:
        """`covers` for the comparisons of one look-up, within the steps of a search."""
        if self.search is None:
            return self.covers
        budget = Budget(self.search)

        def covers_in_search(wide: Boxed, narrow: Boxed) -> bool:
            self.comparisons += 1
            if not wide.members <= narrow.members:
                return False
            return budget.left > 0 and covers_within(wide.form, narrow.form, self.schema, budget)

        return covers_in_search

    def key(self, made: Boxed) -> Hashable:
        """The canonical form: the spans of a box, otherwise the normal form."""
        return frozenset(made.spans) if made.exact else made.form

    def kind(self, made: Boxed) -> Hashable | None:
        """The event type that the filter requires, if it requires one: `type = 'A'`."""
        kinds = {only_value(box, TYPE) for box in made.form.boxes}
        return kinds.pop() if len(kinds) == 1 else None

    def places(self) -> NodePlaces[Region]:
        """An index for each structure, unless indexing is disabled."""
        return IndexedPlaces(self) if self._indexed else super().places()

    def _hull(self, box: Box) -> tuple[list[Span], bool]:
        """The spans around a box, and whether they describe all of it."""
        spans, exact, number = [], not box.residuals, self._number
        for name, values in box.sets.items():
            span, whole = span_of(name, values, number)
            exact = exact and whole
            if span is not None:
                spans.append(span)
        return spans, exact

    def _number(self, text: str) -> float:
        return self._numbers.setdefault(text, float(len(self._numbers)))


class IndexedPlaces:
    """The nodes of one structure, in an index of their boxes."""

    def __init__(self, filters: FilterRelation) -> None:
        self._filters = filters
        self._index = CoverIndex()
        self._nodes: dict[CoverRow, Node[Region]] = {}
        self._rows: dict[Node[Region], CoverRow] = {}
        self._bits: dict[Interface, int] = {}
        self._popular: set[Node[Region]] = set()  # nodes with every tag

    def standing(self, made: Boxed, kind: Hashable | None) -> Standing[Region]:  # noqa: ARG002 - the boxes contain it
        """Where a filter stands, according to the index."""
        return _Looked(self, made)

    def placed(self, node: Node[Region]) -> None:
        """Add a node to the index. Amortised cost: O(log^2 n)."""
        row = self._index.add(node.made.spans, node.made.exact)
        self._nodes[row], self._rows[node] = node, row
        self.rewanted(node)

    def rewanted(self, node: Node[Region]) -> None:
        """Tag a node with its interfaces: the first interfaces have a bit each, all others share one."""
        bits = self._bits
        tag = 0
        for interface in islice(node.interfaces, _OTHERS):
            tag |= bits.setdefault(interface, 1 << len(bits)) if len(bits) < _OTHERS else bits.get(interface, _OTHER)
        if len(node.interfaces) > _OTHERS:
            self._popular.add(node)
            tag = _ALL
        else:
            self._popular.discard(node)
        self._index.tag(self._rows[node], tag)

    def removed(self, node: Node[Region]) -> None:
        """Remove a node from the index."""
        row = self._rows.pop(node)
        del self._nodes[row]
        self._popular.discard(node)
        self._index.discard(row)

    def above(self, made: Boxed, tag: int = 0) -> _Found | None:
        """The nodes that cover a filter; with a tag, None if one of them has it."""
        covers = self._filters.comparing()
        rows = self._asked(lambda spans, exact: self._index.around_until(spans, exact, tag), made)
        return None if rows is None else self._found(rows, made.exact, lambda node: covers(node.made, made))

    def tag(self, interface: Interface) -> int:
        """The tag of the nodes of an interface; the shared tag if it has no bit of its own."""
        return self._bits.get(interface, _OTHER)

    def decides(self, made: Boxed, tag: int) -> bool:
        """Whether a tag found above a filter proves that the interface wants a node that covers it."""
        return tag != _OTHER and made.exact and not self._index.hulls and not self._popular

    def below(self, made: Boxed) -> _Found:
        """The nodes that a filter covers."""
        covers = self._filters.comparing()
        exact = made.exact and not (self._index.full and not self._index.knows(axis for axis, *_ in made.spans))
        return self._found(self._asked(self._index.within, made) or [], exact, lambda node: covers(made, node.made))

    def meeting(self, made: Boxed, overlaps: Callable[[Boxed, Boxed], bool]) -> Iterator[Node[Region]]:
        """The nodes that overlap a filter. Where the index cannot decide, `overlaps` does, which counts its own
        comparisons.
        """
        nodes = map(self._nodes.__getitem__, self._asked(self._index.meeting, made) or [])
        mixed = any(
            self._index.knows([(name, part)])
            for (name, own), *_ in made.spans
            for part in ColumnPart
            if part is not own  # a number and a string never meet, but they lie on two axes
        )
        if made.exact and not mixed and not self._index.hulls:
            return nodes
        return (node for node in nodes if overlaps(node.made, made))

    def _asked(
        self, search: Callable[[Iterable[Span], bool], list[CoverRow] | None], made: Boxed
    ) -> list[CoverRow] | None:
        before = self._index.compared
        rows = search(made.spans, made.exact)
        self._filters.comparisons += self._index.compared - before
        return rows

    def _found(self, rows: list[CoverRow], exact: bool, holds: Callable[[Node[Region]], bool]) -> _Found:
        nodes, hulls = map(self._nodes.__getitem__, rows), self._index.hulls
        if exact and not hulls:
            return _Found(dict.fromkeys(nodes, True), holds)
        known = {node: (True if exact and row not in hulls else None) for row, node in zip(rows, nodes, strict=True)}
        return _Found(known, holds)


class _Found:
    """Candidate nodes from hulls. Nodes that the hulls cannot decide are compared when they are needed."""

    def __init__(self, known: Mapping[Node[Region], bool | None], holds: Callable[[Node[Region]], bool]) -> None:
        self._known = dict(known)
        self._holds = holds

    def __iter__(self) -> Iterator[Node[Region]]:
        return filter(self._answers, list(self._known))

    def among(self, parent: Node[Region], key: Callable[[Node[Region]], Any] | None = None) -> Iterator[Node[Region]]:
        """The children of a node that qualify, sorted by the key."""
        if len(self._known) > len(parent.children):
            found = [child for child in parent.children if child in self._known]
        else:
            found = [node for node in self._known if parent in node.parents]
        if key is not None:
            found.sort(key=key)
        return filter(self._answers, found)

    def _answers(self, node: Node[Region]) -> bool:
        known = self._known[node]
        if known is None:
            known = self._known[node] = self._holds(node)
        return known


class _Looked:
    """A filter that is looked up at most once upwards and once downwards."""

    def __init__(self, places: IndexedPlaces, made: Boxed) -> None:
        self._places = places
        self._made = made
        self._ups: _Found | None = None
        self._downs: _Found | None = None

    def above(self, parent: Node[Region], first: Interface | None = None) -> Iterator[Node[Region]]:
        return self._above().among(parent, lambda node: (first is not None and not reaches(node, first), node.size))

    def below(self, parent: Node[Region]) -> Iterator[Node[Region]]:
        return self._below().among(parent)

    def all_above(self, top: Node[Region]) -> Iterator[Node[Region]]:  # noqa: ARG002 - the index holds all nodes
        return iter(self._above())

    def has_above(self, top: Node[Region], interface: Interface) -> bool:  # noqa: ARG002 - as above
        tag = self._places.tag(interface)
        if self._ups is None:
            self._ups = self._places.above(self._made, tag)
            if self._ups is None and self._places.decides(self._made, tag):
                return True
        return any(interface in node.interfaces for node in self._above())

    def all_below(
        self,
        top: Node[Region],  # noqa: ARG002 - as above
        interface: Interface | None = None,
    ) -> Iterator[Node[Region]]:
        return (node for node in self._below() if reaches(node, interface))

    def _above(self) -> _Found:
        if self._ups is None:
            self._ups = self._places.above(self._made)
        assert self._ups is not None
        return self._ups

    def _below(self) -> _Found:
        if self._downs is None:
            self._downs = self._places.below(self._made)
        return self._downs


def _covers(wide: Boxed, narrow: Boxed) -> bool:
    """As `covers`, with a shortcut where comparing one box with one box decides."""
    if not wide.members <= narrow.members:
        return False
    mine, theirs = wide.form.boxes, narrow.form.boxes
    if len(mine) == len(theirs) == 1:
        if mine[0].covers(theirs[0]):
            return True
        if not any(values.strings.terms for values in theirs[0].sets.values()):
            return False
    return covers(wide.form, narrow.form, wide.form.schema)


def only_value(box: Box, attribute: str) -> str | None:
    """The string that an attribute must have in a box; None if it may have another value, or none."""
    values = box.sets.get(attribute)
    if values is None or values.absent or values.numbers or values.bools or values.timestamps:
        return None
    return only_string(values.strings)
