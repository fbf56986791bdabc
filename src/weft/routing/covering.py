"""Covering-based routing: a filter is not told where one that covers it is (thesis 3.2 to 3.5). Law: what is told to a
link is the minimal cover of what all others want, exactly; or, approximately, that and now and then one more.

The external structure, a filters poset or a non-redundant forest, spares what a source has a wider filter for, but
sources keep what was spared: when the wider one goes, it comes back in the same update (the uncovered set).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any

from weft.algebra.relate import Region
from weft.order import Filters, Forwarded, Forwarding, Interface, Node, NonRedundantForest, Poset, Structure
from weft.order.boxed import Boxed, IndexedPlaces
from weft.routing.exact import ExactTable
from weft.routing.ledger import Revision
from weft.routing.local import Held
from weft.routing.table import Item, Link, Role, Source, Tell

Form = Hashable  # a canonical form


class HeldFilters(Filters):
    """Held items, ordered by what they admit."""

    def make(self, thing: Region | Held) -> Boxed:
        """The item's normal form and hull, made once as long as no other order asks."""
        if not isinstance(thing, Held):
            return super().make(thing)
        if not thing.made or thing.made[0] is not self:
            thing.made[:] = [self, super().make(thing.form)]
        made: Boxed = thing.made[1]
        return made


class CoveringTable(ExactTable[Form]):
    """Covering on a structure of the order; a key is a canonical form.

    `exact` False is for forests: it takes their own relations for all there are, which is quicker and tells more.

    >>> from weft import parse
    >>> from weft.index.base import SubId
    >>> table, north = CoveringTable(), Link("north")
    >>> _ = table.attach(north)
    >>> _ = table.change({SubId(1): parse("x > 0"), SubId(2): parse("x > 5")}, ())
    >>> [str(item) for item in table.told(north).values()]
    ['x > 0']
    >>> [[str(item) for item in tell.update.add.values()] for tell in table.change({}, [SubId(1)])]
    [['x > 5']]
    """

    model = "covering"

    def __init__(
        self,
        *args: Any,
        structure: Callable[[Filters], Structure[Any]] = Poset,
        exact: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.relation = HeldFilters(self.schema)
        built = structure(self.relation)
        if isinstance(built, NonRedundantForest) and built.spare_on == "discard":
            raise ValueError("a table spares on addition: a forest that spares on discards forgets what was spared")
        self.order: Forwarding[Held] = Forwarding(built, exact=exact)
        self._sources: dict[Source, _Holdings] = {}

    # -- what should be told ----------------------------------------------------------------------

    def wanted(self, link: Link) -> Mapping[Form, Item]:
        """The minimal cover of what the others want."""
        return {self._key(node): _item(node) for node in self.order.told(link)}

    def revise(
        self, source: Source, drop: Mapping[int, Held], add: Mapping[int, Held]
    ) -> Mapping[Link, Revision[Form]]:
        """By the order. Cost: that of finding what covers each of them and what each covers."""
        mine = self._sources.get(source)
        if mine is None:
            mine = self._sources[source] = _Holdings(self.relation)
        gone, new = mine.changed(drop.values(), add.values())
        interface = _interface(source)
        uncovered = [held for each in gone for held in mine.uncover(each)]
        changes = self.order.change(((each, interface) for each in (*uncovered, *new)), ((e, interface) for e in gone))
        structure = self.order.structure
        for each in (*uncovered, *new):
            node = structure.find(each)
            if node is None or interface not in node.interfaces:
                mine.spare(each)
        for node in self.order.touched:
            if interface not in node.interfaces and node.thing is not None:
                mine.spare(node.thing)
        return self._revisions(changes)

    def _revisions(self, changes: Mapping[Interface, Forwarded[Held]]) -> dict[Link, Revision[Form]]:
        revisions = {}
        for link, change in changes.items():
            drop = {self._key(node): None for node in change.drop}
            add = {self._key(node): _item(node) for node in change.add}
            for key in drop.keys() & add.keys():  # another node, the same events
                del drop[key], add[key]
            revisions[Link(str(link))] = Revision(list(drop), add)
        return revisions

    def _key(self, node: Node[Held]) -> Form:
        return self.relation.key(node.made)

    # -- links ------------------------------------------------------------------------------------

    def attach(self, link: Link, role: Role = Role.PEER) -> list[Tell]:
        """All that the neighbour should know, fresh."""
        self.ledger.attach(link, role)
        others = {}
        if role is not Role.SLAVE and link not in self.order.neighbours:
            others = self._join(link)
            others.pop(link, None)
        return super().attach(link, role) + self.tell(others)

    def detach(self, link: Link) -> list[Tell]:
        """Withdraw what nobody else wants, and tell what its filters had covered."""
        self.ledger.detach(link)
        self._matcher.detach(link)
        del self.held[link]
        self._sources.pop(link, None)
        return self.tell(self._leave(link))

    def _join(self, link: Link) -> dict[Link, Revision[Form]]:
        """The order has one more neighbour; what it makes of the others'."""
        self.order.attach(link)
        return {}

    def _leave(self, link: Link) -> dict[Link, Revision[Form]]:
        """The order has one neighbour or client less."""
        return self._revisions(self.order.detach(link))

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().check()
        self.order.check()
        assert self.order.neighbours.keys() == set(self.ledger.listening)
        for source, held in self.held.items():
            mine = self._sources.get(source)
            assert mine is not None or not held, "a source keeps what it holds"
            if mine is not None:
                mine.check(held.values(), self.order.structure, _interface(source))


class _Holdings:
    """What one source holds: how many items of each form, and which forms the order spares."""

    def __init__(self, relation: HeldFilters) -> None:
        self._relation = relation
        self._counts: Counter[Form] = Counter()
        self._spared = _Spared(relation)

    def changed(self, drop: Iterable[Held], add: Iterable[Held]) -> tuple[list[Held], list[Held]]:
        """Count items out and in; the forms of which the last went, and those of which the first came."""
        items: dict[Form, Held] = {}
        net: Counter[Form] = Counter()
        for step, several in ((-1, drop), (1, add)):
            for held in several:
                key = self._key(held)
                items[key] = held
                net[key] += step
        gone, new = [], []
        for key, held in items.items():
            before, now = self._counts[key], self._counts[key] + net[key]
            if now:
                self._counts[key] = now
            else:
                self._counts.pop(key, None)
            if before and not now:
                gone.append(held)
                self._spared.discard(held)
            elif now and not before:
                new.append(held)
        return gone, new

    def uncover(self, held: Held) -> list[Held]:
        """What was spared and may be so because of a form that goes; it is no longer spared."""
        found = self._spared.covered(held)
        for each in found:
            self._spared.discard(each)
        return found

    def spare(self, held: Held) -> None:
        """Keep a form that the order does without, if the source has it."""
        if self._counts[self._key(held)] > 0:
            self._spared.add(held)

    def _key(self, held: Held) -> Form:
        return self._relation.key(self._relation.make(held))

    def check(self, held: Iterable[Held], structure: Structure[Any], interface: Interface) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert self._counts == Counter(map(self._key, held))
        keys = {self._relation.key(node.made) for node in structure if interface in node.interfaces}
        spared = {self._relation.key(node.made) for node in self._spared}
        assert keys | spared == set(self._counts), "every form is in the order or spared"
        assert not keys & spared, "and not both"


class _Spared:
    """Forms in no order, in an index of boxes: all that is asked is which of them a form covers."""

    def __init__(self, relation: HeldFilters) -> None:
        self._relation = relation
        self._places = IndexedPlaces(relation)
        self._nodes: dict[Form, Node[Any]] = {}

    def __iter__(self) -> Iterator[Node[Any]]:
        return iter(self._nodes.values())

    def add(self, held: Held) -> None:
        """Take in a form, once. Cost: O(log^2 n), amortised."""
        made = self._relation.make(held)
        key = self._relation.key(made)
        if key not in self._nodes:
            node = self._nodes[key] = Node(held, made, None)
            self._places.placed(node)

    def discard(self, held: Held) -> None:
        """Let a form go, if it is there."""
        node = self._nodes.pop(self._relation.key(self._relation.make(held)), None)
        if node is not None:
            self._places.removed(node)

    def covered(self, held: Held) -> list[Held]:
        """The forms that are found to be covered by a form."""
        return [node.thing for node in self._places.below(self._relation.make(held))]  # type: ignore[misc]


def _interface(source: Source) -> Interface:
    return "" if source is None else source  # no link has no name


def _item(node: Node[Held]) -> Item:
    assert node.thing is not None
    return node.thing.item


def covering_forest(*args: Any, exact: bool = True, **options: Any) -> CoveringTable:
    """Covering on the non-redundant forest."""
    return CoveringTable(*args, structure=NonRedundantForest, exact=exact, **options)
