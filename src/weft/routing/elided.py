"""Local subscriptions most of which were found redundant beforehand. The roots admit exactly what all subscriptions
admit. An elided subscription is not even parsed before what stands for it is removed.

A broker that starts with millions of subscriptions adds the few that stand for all, as one change. What is behind a
root returns in the same change that removes the root. A merger is removed with the first of its components.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from weft.index.base import SubId
from weft.language.ast import Filter
from weft.language.text import parse
from weft.model.change import Change
from weft.model.limits import LIMITS
from weft.routing.ledger import check_change
from weft.routing.local import RootSetChange


@dataclass(frozen=True, slots=True)
class Passive:
    """A subscription's text, and the roots that together admit everything that it admits."""

    text: str
    coverers: tuple[SubId, ...]


class Elided:
    """A local part with subscriptions behind roots; the roots themselves are added by the first changes, by their ids.

    `components` are those of roots that are mergers. A merger has the id of one of them, and is not a subscription.

    >>> local = Elided({SubId(2): Passive("x > 5", (SubId(1),))}, roots=[SubId(1)])
    >>> sorted(local.change({SubId(1): parse("x > 0")}, ()).add)
    [1]
    >>> change = local.change({}, [SubId(1)])
    >>> change.drop, [str(root) for root in change.add.values()]
    ([1], ['x > 5'])
    """

    def __init__(
        self,
        passive: Mapping[SubId, Passive],
        roots: Iterable[SubId] = (),
        components: Mapping[SubId, Collection[SubId]] | None = None,
    ) -> None:
        self._roots: dict[SubId, Filter] = {}  # that are subscriptions
        self._mergers: dict[SubId, Filter] = {}  # that are not
        self._expected = set(roots)
        self._components = {root: frozenset(some) for root, some in (components or {}).items()}
        self._passive = dict(passive)
        self._behind: dict[SubId, dict[SubId, None]] = {}
        for sub, each in self._passive.items():
            for root in each.coverers:
                self._behind.setdefault(root, {})[sub] = None

    @property
    def elided(self) -> int:
        """The number of subscriptions behind roots."""
        return len(self._passive)

    def change(self, add: Mapping[SubId, Filter], drop: Collection[SubId]) -> RootSetChange:
        """Remove, then add. A subscription that loses a root that stood for it becomes a root. Cost: O(what was
        behind).
        """
        loaded = {sub for sub in add if sub in self._expected}
        known: ChainMap[SubId, object] = ChainMap(self._roots, self._passive)  # type: ignore[arg-type]
        check_change(known, [sub for sub in add if sub not in loaded], drop)
        gone: dict[SubId, None] = {}
        for sub in drop:
            if sub in self._roots:
                gone[sub] = None
                continue
            for root in self._forget(sub).coverers:
                if sub in self._components.get(root, ()):
                    gone[root] = None
        new: dict[SubId, Filter] = {}
        for root in gone:
            self._roots.pop(root, None)
            self._mergers.pop(root, None)
            self._components.pop(root, None)
            for sub in list(self._behind.get(root, ())):
                new[sub] = parse(self._forget(sub).text, limit=LIMITS.stored_text)
        self._roots.update(new)
        for sub, wanted in add.items():
            (self._mergers if sub in self._components and sub in loaded else self._roots)[sub] = wanted
        self._expected -= loaded
        return Change(list(gone), {**new, **add})

    def roots(self) -> Mapping[SubId, Filter]:
        """What stands for all subscriptions."""
        return {**self._roots, **self._mergers}

    def _forget(self, sub: SubId) -> Passive:
        """Remove and return a subscription that is no longer behind a root."""
        passive = self._passive.pop(sub)
        for root in passive.coverers:
            behind = self._behind[root]
            del behind[sub]
            if not behind:
                del self._behind[root]
        return passive
