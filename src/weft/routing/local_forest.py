"""Local subscriptions in a poset-derived forest (thesis 4.8). Law: the external table sees the root set of the forest,
so that what clients change below it costs the table nothing.

This is the local table of Figure 4.13: with a poset outside (a), with a non-redundant forest (b), or with a master and
slaves (c). The index that delivers to clients stands beside it (Figure 4.14).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping

from weft.index.base import SubId
from weft.model.schema import Schema
from weft.order import Forest
from weft.routing.covering import HeldFilters
from weft.routing.local import Held, RootChange, changed


class ForestLocal:
    """A local part whose roots are the minimal cover of all local subscriptions.

    >>> from weft import normalize, parse
    >>> local = ForestLocal()
    >>> filters = [Held(parse(text), normalize(parse(text))) for text in ("x > 5", "x > 0", "x > 9")]
    >>> change = local.change({SubId(n): held for n, held in enumerate(filters)}, ())
    >>> [str(held.item) for held in local.roots().values()]
    ['x > 0']
    """

    def __init__(self, schema: Schema | None = None) -> None:
        self._relation = HeldFilters(schema)
        self._forest: Forest[Held] = Forest(self._relation)  # type: ignore[arg-type]
        self._held: dict[SubId, Held] = {}
        self._roots: dict[Hashable, tuple[SubId, Held]] = {}
        self._next = 0

    def change(self, add: Mapping[SubId, Held], drop: Collection[SubId]) -> RootChange:
        """Drop, then add; the change of the root set only. Cost: that of the forest."""
        changes = changed(self._held, self._forest, add, drop)
        before: dict[Hashable, tuple[SubId, Held] | None] = {}  # of the forms that changed
        for change in changes:
            for held in change.drop:
                key = self._key(held)
                before.setdefault(key, self._roots.pop(key))
            for held in change.add:
                key = self._key(held)
                old = before.setdefault(key, None)
                self._roots[key] = old or (self._new_id(), held)  # one that went and came back keeps its id
        gone = [old[0] for key, old in before.items() if old and key not in self._roots]
        new = [self._roots[key] for key, old in before.items() if not old and key in self._roots]
        return RootChange(gone, dict(new))

    def _new_id(self) -> SubId:
        self._next += 1
        return SubId(self._next)

    def roots(self) -> Mapping[SubId, Held]:
        """The root set; ids are those of roots, not of subscriptions."""
        return dict(self._roots.values())

    def _key(self, held: Held) -> Hashable:
        return self._relation.key(self._relation.make(held))
