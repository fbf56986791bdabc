"""Sets of filters in which several can be told as one (thesis 8.3, 8.5). The items told let through everything that the
set matches, and with perfect mergers nothing else. A merger is removed with its components. An empty set tells nothing.

A merger keeps the two parts that it was made of, filters or mergers (CO), and whatever else it covers (CV). When a
component is removed, only the mergers on the way up from it dissolve, and what they contained is told or merged again.
The components of a part are components of the whole, but the part itself is not (Algorithm 14, erratum), and what is
left of a merger is not removed with it (rules 5 and 6, erratum).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from weft.errors import OptionError
from weft.merging.merge_parts import DEEP, MergeChange, MergeItem, MergePart, ToldParts
from weft.merging.mergeability import Merged, Merging
from weft.order.relation import Relation

T = TypeVar("T")


class MergedSet(Generic[T]):
    """Filters by key, told as few items.

    With `patience` above 0, a merger that lost a component stays until this many false positives are counted; `tidy`
    then merges again (thesis 8.8). The caller reports false positives, or `estimate` returns how many a removed
    component will cause.

    >>> from weft import to_filter, parse
    >>> from weft.order import FilterRelation
    >>> from weft.merging.mergeability import FilterMerging
    >>> told = MergedSet(FilterRelation(), FilterMerging())
    >>> for number, text in enumerate(("x < 10", "x >= 5", "x > 3 AND y = 1")):
    ...     change = told.add(number, parse(text))
    >>> [str(to_filter(item.thing)) for item in told]
    ['x < 0 OR x >= 0']
    >>> [str(item.thing) for item in told.discard(0).add]
    ['x >= 5', 'x > 3 AND y = 1']
    """

    def __init__(
        self,
        relation: Relation[T],
        merging: Merging[T],
        patience: float = 0.0,
        estimate: Callable[[Any], float] | None = None,
    ) -> None:
        if patience < 0:
            raise OptionError(f"patience is {patience}; give a number of false positives, or 0 for none")
        self.relation = relation
        self.merging = merging
        self.patience = patience
        self._estimate = estimate
        self._told: ToldParts[T] = ToldParts(relation)
        self._filters: dict[Hashable, MergePart[T]] = {}
        self._ghosts: dict[MergePart[T], Hashable] = {}  # removed filters in mergers that stay
        self._loose: dict[MergePart[T], None] = {}  # wholes that a change has not placed yet

    def __len__(self) -> int:
        return len(self._told)

    def __iter__(self) -> Iterator[MergeItem[T]]:
        return iter(self._told.items)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._filters and not self._filters[key].ghost

    @property
    def waste(self) -> float:
        """Upper bound of what is told beyond the filters, as a share of all events; never more than the budget."""
        return self._told.waste

    @property
    def filters(self) -> int:
        """The number of filters in the set."""
        return len(self._filters) - len(self._ghosts)

    # -- changes --------------------------------------------------------------------------------------

    def add(self, key: Hashable, thing: T) -> MergeChange[T]:
        """Add a filter. Nothing changes if the key is already present."""
        return self.change([(key, thing)], ())

    def discard(self, key: Hashable) -> MergeChange[T]:
        """Remove a filter. A missing key is not an error. Worst-case cost: O(what its mergers have covered)."""
        return self.change((), [key])

    def change(self, add: Iterable[tuple[Hashable, T]], drop: Iterable[Hashable]) -> MergeChange[T]:
        """Apply additions, then removals, as one change, so that a filter covered by a new one is never told
        separately.
        """
        for key, thing in add:
            known = self._filters.get(key)
            if known is None:
                self._filters[key] = part = MergePart(thing, self.relation)
                self._settle(part)
            elif known.ghost:
                self._revive(known)
        for key in drop:
            known = self._filters.get(key)
            if known is None or known.ghost:
                continue
            if self.patience and self._is_component(known):
                self._ghost(known, key)
            else:
                del self._filters[key]
                self._take(known)
        self._settle_loose()
        return self._told.changes()

    def report(self, item: MergeItem[T], times: float = 1.0) -> None:
        """Count an item's false positives: events that it let through and that no filter matches."""
        part = self._told.items.get(item)
        if part is not None:
            part.false += times

    def tidy(self, everything: bool = False) -> MergeChange[T]:
        """Merge again the mergers with too many false positives since a component was removed, or all mergers that lost
        one.
        """
        for ghost in [ghost for ghost in self._ghosts if everything or ghost.whole.false >= self.patience]:
            if ghost in self._ghosts:  # not already removed together with another
                self._forget(ghost, self._ghosts[ghost])
                self._take(ghost)
        self._settle_loose()
        return self._told.changes()

    # -- questions ------------------------------------------------------------------------------------

    def components(self, item: MergeItem[T]) -> list[T]:
        """What an item is made of (CO): itself, unless it is a merger."""
        return [part.thing for part in self._told.items[item].filters()]

    def covered(self, item: MergeItem[T]) -> list[T]:
        """What else an item covers (CV): filters that are neither told nor components."""
        whole = self._told.items[item]
        parts = set(whole.filters())
        return [part.thing for part in whole.everything() if not part.parts and part not in parts]

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. Compares without counting."""
        before = self.relation.comparisons
        held: list[MergePart[T]] = []
        self._told.check()
        assert not self._loose, "everything is told"
        for part in self._told:
            assert part.owner is None, "what is told is a whole"
            assert part.live > 0, "what is told is wanted"
            for inner in part.everything():
                held += [] if inner.parts else [inner]
                assert all(other.owner is inner for other in (*inner.parts, *inner.covered)), "parts know their owner"
                inside = sum(other.live for other in (*inner.parts, *inner.covered))
                assert inner.live == inside + (not inner.parts and not inner.ghost), "what is wanted is counted"
        assert len(held) == len(set(held)), "a filter is in one place"
        assert set(held) == set(self._filters.values()), "every filter lies in what is told"
        self.relation.comparisons = before

    # -- merging --------------------------------------------------------------------------------------

    def _settle(self, part: MergePart[T]) -> None:
        """Algorithms 14 and 15: place a part below what covers it, or above what it covers; merge as long as
        possible.
        """
        while True:
            wider, narrower = self._told.around(part)
            if wider is not None:
                wider.adopt(part)
                return
            for other in narrower:
                self._told.withdraw(other)
                part.adopt(other)
            part.signatures = part.signatures or tuple(self.merging.signatures(part.made))
            chosen = self.merging.best(self._mergers(part))
            if chosen is None:
                self._told.tell(part)
                return
            other, merged, _ = chosen
            self._told.withdraw(other)
            part = self._joined(other, part, merged)

    def _joined(self, other: MergePart[T], part: MergePart[T], merged: Merged[T]) -> MergePart[T]:
        """The merger of a whole and a part.

        Where one filter after another was merged with a whole, as adjacent intervals are, it has become a chain, and
        removing a filter would dissolve all that were added later. So the top of a deep chain is merged in pairs first:
        the height of a perfect merger stays about logarithmic, for one more merger an addition, amortised.
        """
        if other.height >= other.deep and not merged.waste:
            rest, tops, covered = _top(other)
            if len(tops) >= DEEP // 2:
                before = [(each, each.owner) for each in (rest, *tops)]
                beside = self._in_pairs([part, *tops])
                if beside is not None:
                    made = MergePart(merged.thing, self.relation, (rest, beside))
                    made.false, made.deep = other.false + part.false, DEEP
                    for each in covered:
                        made.adopt(each)
                    return made
                for each, owner in before:
                    each.owner = owner
                other.deep = 2 * other.height  # not again with each addition
        return MergePart(merged.thing, self.relation, (other, part), merged.waste)

    def _in_pairs(self, parts: list[MergePart[T]]) -> MergePart[T] | None:
        """The perfect merger of parts that follow each other, in as few levels as possible; None if there is none."""
        while len(parts) > 1:
            paired = []
            for one, other in zip(parts[::2], parts[1::2], strict=False):
                merged = self.merging.merged(other.made, one.made, 0.0)
                if merged is None or merged.waste:
                    return None
                paired.append(MergePart(merged.thing, self.relation, (other, one)))
                sizes = [self.merging.size(each.made) for each in (paired[-1], other, one)]
                if sizes[0] > max(sizes[1:]):  # they do not touch, and might merge better with others
                    return None
            parts = paired + parts[len(parts) - len(parts) % 2 :]
        return parts[0]

    def _mergers(self, part: MergePart[T]) -> Iterator[tuple[MergePart[T], Merged[T], Any]]:
        room = self.merging.room(len(self._told) + 1, self._told.waste + part.waste)
        for other in self._told.alike(part.signatures, self.merging.tries):
            merged = self.merging.merged(other.made, part.made, room)
            if merged is not None:
                yield other, merged, self.relation.make(merged.thing) if self.merging.choice == "widest" else None

    def _settle_loose(self) -> None:
        """Place the wholes that a change left over, the widest first, because a few of those cover the rest."""
        loose, self._loose = self._loose, {}
        for part in sorted(loose, key=self._narrowness) if len(loose) > 1 else loose:
            self._settle(part)

    def _narrowness(self, part: MergePart[T]) -> tuple[float, bool]:
        if part.breadth is None:
            part.breadth = self.merging.breadth(part.made)
        return -part.breadth, not part.parts

    def _take(self, part: MergePart[T]) -> None:
        """Algorithm 16, rule 5: remove a filter and the mergers that it is a component of, but nothing more."""
        loose = self._living(part.covered)
        while (owner := part.owner) is not None:
            if part in owner.covered:
                owner.disown(part)
                for other in loose:
                    owner.adopt(other)
                self._lapse(owner.whole)
                return
            loose += self._living(other for other in owner.parts if other is not part)
            loose += self._living(owner.covered)
            part = owner
        if part in self._loose:
            del self._loose[part]
        else:
            self._told.withdraw(part)
        for other in loose:
            other.owner = None
            self._loose[other] = None

    # -- removed filters in mergers that stay ------------------------------------------------------------

    def _is_component(self, part: MergePart[T]) -> bool:
        """Whether removing the filter would change what is told."""
        if part.owner is None:
            return False
        while (owner := part.owner) is not None:
            if part in owner.covered:
                return False
            part = owner
        return True

    def _ghost(self, part: MergePart[T], key: Hashable) -> None:
        part.ghost = True
        self._ghosts[part] = key
        part.weigh(-1)
        whole = part.whole
        if self._estimate is not None:
            whole.false += self._estimate(part.made)
        self._lapse(whole)

    def _revive(self, part: MergePart[T]) -> None:
        part.ghost = False
        del self._ghosts[part]
        part.weigh(1)

    def _living(self, parts: Iterable[MergePart[T]]) -> list[MergePart[T]]:
        """The parts that are still wanted; for a ghost, the parts that it covers."""
        living = []
        open_ = list(parts)
        while open_:
            part = open_.pop()
            if not part.live:
                self._bury(part)
            elif part.ghost:
                self._forget(part, self._ghosts[part])
                open_ += part.covered
            else:
                living.append(part)
        return living

    def _lapse(self, whole: MergePart[T]) -> None:
        """Remove at once a whole of which nothing is wanted."""
        if not whole.live:
            if whole in self._loose:
                del self._loose[whole]
            else:
                self._told.withdraw(whole)
            self._bury(whole)

    def _bury(self, whole: MergePart[T]) -> None:
        for part in whole.everything():
            if part.ghost:
                self._forget(part, self._ghosts[part])

    def _forget(self, ghost: MergePart[T], key: Hashable) -> None:
        del self._ghosts[ghost], self._filters[key]


def _top(whole: MergePart[T]) -> tuple[MergePart[T], list[MergePart[T]], list[MergePart[T]]]:
    """The part of a chain that is not too high for its filters; what hangs on the chain above it, the latest first; and
    what the mergers between cover.
    """
    tops: list[MergePart[T]] = []
    covered: list[MergePart[T]] = []
    rest = whole
    while rest.height > 2 * rest.leaves.bit_length() and rest.waste == sum(each.waste for each in rest.parts):
        covered += rest.covered
        rest, later = rest.parts
        tops.append(later)
    return rest, tops, covered
