"""The negative space of one neighbour, and its open decisions.

The open decisions of a negative space, and the changes that its neighbour is sent. A removed subscription is
withdrawn only after all those that it may have subsumed are decided; decisions are first in, first out.

Negative space: what no forwarded subscription covers, as disjoint boxes (Jafarpour et al.). After every call, what
is told covers what is wanted. A subscription that one active subscription covers is passive and, if the space is exact,
so is one that all of them together cover. The negative boxes and those covered by each active subscription always tile
the space of all events (errata, negative space 5).

The number of boxes is bounded. Beyond the bound, the space is approximate: what cannot be subtracted stays negative. A
condition that boxes cannot express, such as a pattern or a comparison of attributes, subtracts nothing. State is per
neighbour (footnote 2): one space for what all others want.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from weft.algebra.box import Box, NormalForm
from weft.algebra.measure import volume
from weft.algebra.relate import Region, as_form
from weft.errors import FilterError, LocalProtocolError, OptionError, SchemaError
from weft.model.change import Change
from weft.model.schema import Schema
from weft.routing.negative.box_cover import BoxCover, Limit
from weft.routing.negative.coverers import ActiveSubscription, Comparison
from weft.routing.negative.kernels.tiles import FREE
from weft.routing.negative.space import SharedFilters
from weft.routing.negative.tiles import MOST_TILES, Owner, SplitOrder, Tiles

DecisionKey = TypeVar("DecisionKey", bound=Hashable)


class Telling(Generic[DecisionKey]):
    """What a neighbour must be told in one update. A subscription added and removed within it is not told at all.

    >>> telling = Telling()
    >>> telling.add("new"), telling.drop("old", "new")
    (None, None)
    >>> telling.change()
    Change(drop=['old'], add=[])
    """

    def __init__(self) -> None:
        self._drop: dict[DecisionKey, None] = {}
        self._add: dict[DecisionKey, None] = {}

    def add(self, key: DecisionKey) -> None:
        """Tell a subscription from now on."""
        self._add[key] = None

    def drop(self, *keys: DecisionKey) -> None:
        """Withdraw some subscriptions."""
        for key in keys:
            if key in self._add:
                del self._add[key]
            else:
                self._drop[key] = None

    def change(self) -> Change[list[DecisionKey], list[DecisionKey]]:
        """The whole update."""
        return Change(list(self._drop), list(self._add))


@dataclass(frozen=True, slots=True)
class Farewell(Generic[DecisionKey]):
    """Subscriptions that may be withdrawn once everything before this is decided."""

    keys: tuple[DecisionKey, ...]


class Undecided(Generic[DecisionKey]):
    """The owners to be decided, in order, with the farewells among them."""

    def __init__(self) -> None:
        self._queue: deque[Owner | Farewell[DecisionKey]] = deque()
        self.leaving: dict[DecisionKey, None] = {}  # no longer wanted, but told until their farewell

    def __bool__(self) -> bool:
        return bool(self._queue)

    def __iter__(self) -> Iterator[Owner]:
        return (each for each in self._queue if not isinstance(each, Farewell))

    @property
    def first(self) -> Owner | Farewell[DecisionKey] | None:
        """The next entry, or None."""
        return self._queue[0] if self._queue else None

    def put(self, owner: Owner) -> None:
        """Append an owner to be decided."""
        self._queue.append(owner)

    def leave(self, owners: Iterable[Owner], keys: Iterable[DecisionKey]) -> None:
        """Schedule the removal of `keys` after the `owners` are decided."""
        leaving = tuple(keys)
        self._queue += owners
        self._queue.append(Farewell(leaving))
        self.leaving.update(dict.fromkeys(leaving))

    def pop(self) -> None:
        """Remove the first entry, which is decided."""
        self._queue.popleft()


__all__ = ["MOST_BOXES", "Limit", "NegativeSpace"]

SpaceKey = TypeVar("SpaceKey", bound=Hashable)

MOST_BOXES = MOST_TILES


class NegativeSpace(Generic[SpaceKey]):
    """Subscriptions by key. Without a limit, the space is exact as long as there are at most `most_boxes` boxes,
    negative and covered (None: no bound).

    `order` determines how boxes are split. A change examines `at_once` subscriptions for each one added or removed, and
    leaves the rest to `step`. Spaces that get the same filters one after the other may have `shared` filters.

    >>> from weft import Schema, parse
    >>> schema = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 1000]} for name in "xy"}})
    >>> space = NegativeSpace(schema)
    >>> space.add("s1", parse("x BETWEEN 175 AND 510 AND y BETWEEN 180 AND 680")), space.boxes
    (True, 4)
    >>> space.add("s2", parse("x BETWEEN 405 AND 840 AND y BETWEEN 110 AND 540")), space.boxes
    (True, 7)
    >>> space.add("s3", parse("x BETWEEN 380 AND 720 AND y BETWEEN 230 AND 495")), space.volume(), space.exact
    (False, 683250.0, True)
    >>> space.discard("s1"), space.pending
    (Change(drop=['s1'], add=['s3']), False)
    """

    def __init__(  # noqa: PLR0913 - structural constants
        self,
        schema: Schema | None = None,
        limit: Limit | None = None,
        *,
        most_boxes: int | None = MOST_BOXES,
        order: SplitOrder = SplitOrder.MOST_OUTSIDE,
        at_once: int = 64,
        make_tiles: Callable[..., Tiles] = Tiles,
        shared: SharedFilters | None = None,
    ) -> None:
        if most_boxes is not None and most_boxes < 1:
            raise OptionError(f"most_boxes is {most_boxes}; give 1 or more, or None for no bound")
        if at_once < 0:
            raise OptionError(f"at_once is {at_once}; give 0 or more")
        self.schema, self.limit, self.most_boxes = schema, limit, most_boxes
        self._order, self._make, self._at_once = order, make_tiles, at_once
        self._shared = shared or SharedFilters()
        self._subscriptions: dict[SpaceKey, ActiveSubscription] = {}
        self._keys: dict[int, SpaceKey] = {}  # by owner
        self._next = 0
        self._clear()

    def _clear(self) -> None:
        self._active: dict[SpaceKey, None] = {}  # in the order of activation
        self._passive: dict[SpaceKey, None] = {}
        self._undecided: Undecided[SpaceKey] = Undecided()
        self._newcomers = 0  # active ones that are undecided
        self._comparison: Comparison | None = None  # of the first undecided one, if it has begun
        most = sys.maxsize if self.most_boxes is None else self.most_boxes
        self._cover = BoxCover(self._make(self.schema, order=self._order, most=most), self.limit, self._shared)

    # -- what is there ----------------------------------------------------------------------------

    @property
    def active(self) -> Collection[SpaceKey]:
        """The subscriptions that are forwarded; while work is pending, also new ones that may yet be found subsumed."""
        return self._active.keys()

    @property
    def passive(self) -> Collection[SpaceKey]:
        """The subscriptions that are subsumed."""
        return self._passive.keys()

    @property
    def told(self) -> Collection[SpaceKey]:
        """What the neighbour knows: the active subscriptions and, while work is pending, removed ones not yet
        withdrawn.
        """
        return dict.fromkeys([*self._active, *self._undecided.leaving]).keys()

    @property
    def pending(self) -> bool:
        """Whether there is work left to do: call `step`."""
        return bool(self._undecided)

    @property
    def exact(self) -> bool:
        """Whether the negative boxes are exactly what no active subscription covers, as far as boxes can express it.

        False once a limit or the bound has prevented a subtraction, until a rebuild finds room for all.
        """
        return self._cover.exact

    @property
    def boxes(self) -> int:
        """The number of negative boxes."""
        return self._cover.tiles.free

    @property
    def nbytes(self) -> int:
        """The memory of all boxes."""
        return self._cover.tiles.nbytes

    def __len__(self) -> int:
        """The number of subscriptions."""
        return len(self._subscriptions)

    def __contains__(self, key: SpaceKey) -> bool:
        return key in self._subscriptions

    def negative(self) -> list[Box]:
        """The negative boxes. Cost: O(boxes)."""
        return self._cover.boxes(FREE)

    def covered_by(self, key: SpaceKey) -> list[Box]:
        """The boxes assigned to an active subscription (CoveredBy); a passive one has none."""
        return self._cover.boxes(self._subscriptions[key].owner)

    def volume(self) -> float:
        """The negative volume within the schema's bounds. Raises SchemaError if there are none."""
        if self.schema is None:
            raise SchemaError("a volume needs a schema with bounds; create the space with one")
        return float(sum(volume(box, self.schema) for box in self.negative()))

    def subsumes(self, region: Region) -> bool:
        """True only if the active subscriptions together cover the filter. In an exact space, True whenever boxes can
        express it.

        Cost: that of finding a negative box that meets it, and a subscription that covers it.
        """
        made = self._cover.make(as_form(region, self.schema), widen=False)
        return self._covered(made, sys.maxsize) is True

    # -- changes ----------------------------------------------------------------------------------

    def add(self, key: SpaceKey, region: Region) -> bool:
        """Add a subscription (figures 6 and 8); returns whether it must be forwarded. Raises as `change`.

        Use it only while nothing is pending; `change` returns the whole update.
        """
        return key in self.change({key: region}).add

    def discard(self, key: SpaceKey) -> Change[list[SpaceKey], list[SpaceKey]]:
        """Remove a subscription (figures 7 and 9). What it had subsumed may have to be forwarded. As `change`."""
        return self.change({}, [key])

    def change(
        self, add: Mapping[SpaceKey, Region], drop: Collection[SpaceKey] = ()
    ) -> Change[list[SpaceKey], list[SpaceKey]]:
        """Remove some subscriptions, then add some; returns what the neighbour must be told, as one update.

        Long work is left `pending`. An active subscription that is removed remains told until those that it had
        subsumed are told. If its key is added again, all pending work is done at once; use a new key to avoid that.

        Raises FilterError for a filter that never matches, and LocalProtocolError for a key that already exists or does
        not exist. Nothing has changed in that case.
        """
        forms = {key: self._satisfiable(key, region) for key, region in add.items()}
        gone = dict.fromkeys(drop)
        for key in gone:
            if key not in self._subscriptions:
                raise LocalProtocolError(f"there is no subscription {key!r} to drop; drop only what was added")
        for key in forms:
            if key in self._subscriptions and key not in gone:
                raise LocalProtocolError(
                    f"subscription {key!r} already exists; drop it in the same change to replace it"
                )
        telling: Telling[SpaceKey] = Telling()
        freed = {key: made for key in gone if (made := self._forget(key, telling)) is not None}
        if not self._subscriptions:
            telling.drop(*freed, *self._undecided.leaving)
            self._clear()
            freed = {}
        again = [key for key in forms if key in freed or key in self._undecided.leaving]
        telling.drop(*again)
        for key in again:
            self._undecided.leaving.pop(key, None)
        met = self._left(freed.values())
        for key, form in forms.items():
            self._take_in(key, form, telling)
        leaving = [key for key in freed if key not in forms]
        if met:
            self._undecided.leave(met, leaving)
        else:
            telling.drop(*leaving)
        self._work(sys.maxsize if again else self._at_once * (len(forms) + len(gone)), telling)
        return telling.change()

    def step(self, budget: int) -> Change[list[SpaceKey], list[SpaceKey]]:
        """Continue with pending work; returns what the neighbour must be told now, as one update.

        `budget` is approximately how many subscriptions may be examined; 1 suffices to finish eventually.
        """
        telling: Telling[SpaceKey] = Telling()
        self._work(max(1, budget), telling)
        return telling.change()

    def _satisfiable(self, key: SpaceKey, region: Region) -> NormalForm:
        form = as_form(region, self.schema)
        if not form:
            raise FilterError(f"subscription {key!r} never matches, so it covers nothing; do not forward it")
        return form

    def _forget(self, key: SpaceKey, telling: Telling[SpaceKey]) -> ActiveSubscription | None:
        """Remove a subscription; returns it if others may have been subsumed by it."""
        made = self._subscriptions.pop(key)
        del self._keys[made.owner]
        if key in self._passive:
            del self._passive[key]
            self._cover.passive.discard(made.owner)
            return None
        del self._active[key]
        if made.owner not in self._cover.active:  # it is undecided, so no other relies on it
            self._newcomers -= 1
            telling.drop(key)
            return None
        self._cover.release(made)
        return made

    def _left(self, freed: Collection[ActiveSubscription]) -> list[Owner]:
        """Update after active subscriptions were removed; returns the passive ones to be decided again, in order."""
        for gone in freed:
            self._cover.retake(gone)
        return sorted({owner for gone in freed for owner in self._cover.met(gone)})

    def _work(self, budget: int, telling: Telling[SpaceKey]) -> None:
        """Decide what is undecided, in order, as far as the budget of subscriptions allows."""
        while (first := self._undecided.first) is not None:
            if isinstance(first, Farewell):
                for key in first.keys:
                    if key in self._undecided.leaving:
                        del self._undecided.leaving[key]
                        telling.drop(key)
            elif budget <= 0:
                return
            else:
                before = self._cover.work
                decided = self._decide(first, budget, telling)
                budget -= 1 + self._cover.work - before
                if not decided:
                    return
            self._undecided.pop()
            self._comparison = None

    def _decide(self, owner: Owner, budget: int, telling: Telling[SpaceKey]) -> bool:
        """Activate a passive subscription that is not subsumed, or make a new one passive that is; False if the budget
        ends.
        """
        if owner not in self._keys or owner in self._cover.active:
            return True
        key = self._keys[owner]
        made, told = self._subscriptions[key], key in self._active
        covered = self._covered(made, budget, resume=True)
        if covered is None:
            return False
        self._newcomers -= told
        if covered and told:
            del self._active[key]
            self._subsume(key, made)
            telling.drop(key)
        elif not covered:
            if not told:
                del self._passive[key]
                self._cover.passive.discard(owner)
                self._active[key] = None
                telling.add(key)
            self._cover.activate(made)
        return True

    def _covered(self, made: ActiveSubscription, budget: int, *, resume: bool = False) -> bool | None:
        """Whether a subscription is covered; None if the budget ends before that is known, so `resume` later."""
        comparison = self._comparison if resume else None
        if comparison is None:
            if self._cover.tiled(made):
                return True
            comparison = self._cover.comparison(made)
        if resume:
            self._comparison = comparison
        return self._cover.compare(made, comparison, budget)

    def _take_in(self, key: SpaceKey, form: NormalForm, telling: Telling[SpaceKey], budget: int | None = None) -> None:
        """Figures 6 and 8: activate a subscription that meets the negative space, and subtract it from that."""
        made = self._subscriptions[key] = self._cover.make(form, Owner(self._next))
        self._keys[self._next] = key
        self._next += 1
        budget = self._at_once if budget is None else budget
        covered = (self._cover.tiled(made) or None) if self._newcomers else self._covered(made, budget)
        if covered:
            self._subsume(key, made)
            return
        telling.add(key)
        self._active[key] = None
        if covered is None:  # later ones wait for it, because it may cover them
            self._undecided.put(made.owner)
            self._newcomers += 1
        else:
            self._cover.activate(made)

    def _subsume(self, key: SpaceKey, made: ActiveSubscription) -> None:
        self._passive[key] = None
        self._cover.subsume(made)

    # -- optimising -------------------------------------------------------------------------------

    def rebuild(self) -> Change[list[SpaceKey], list[SpaceKey]]:
        """Rebuild all sets from ALL subscriptions (errata, negative space 8), the largest first, so that few are
        active.

        Nothing is pending afterwards. Cost: that of adding all.
        """
        before = dict.fromkeys(self.told)
        subscriptions = self._subscriptions
        self._clear()
        self._subscriptions, self._keys = {}, {}
        forms = {key: made.form for key, made in subscriptions.items()}
        sizes = {key: self._cover.size(form) for key, form in forms.items()}
        for key in sorted(forms, key=lambda key: sizes[key], reverse=True):  # sorting is stable: ties keep their order
            self._take_in(key, forms[key], Telling(), sys.maxsize)
        self._thin()
        return Change([k for k in before if k not in self._active], [k for k in self._active if k not in before])

    def _thin(self) -> None:
        """Make active subscriptions passive that a later one covers, until there are none."""
        thinned: dict[SpaceKey, None] = {}
        while some := [key for key in self._active if key not in thinned and self._cover.redundant(self._made(key))]:
            for key in some:
                if key in self._active and self._cover.redundant(self._made(key)):
                    del self._active[key]
                    self._cover.release(self._made(key))
                    self._subsume(key, self._made(key))
                    self._undecided.leave(self._left([self._made(key)]), ())
                    self._work(sys.maxsize, Telling())
            thinned.update(dict.fromkeys(some))

    def _made(self, key: SpaceKey) -> ActiveSubscription:
        return self._subscriptions[key]

    def coalesce(self, budget: int, stop: Callable[[], bool] = lambda: False) -> int:
        """Combine adjacent boxes that form a box together (section 7); returns how many negative boxes that saved.

        `budget` and `stop`: see `Tiles.coalesce`.
        """
        before = self.boxes
        self._cover.tiles.coalesce(budget, stop)
        return before - self.boxes

    # ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. Cost: O(boxes^2)."""
        assert self._active.keys() | self._passive.keys() == self._subscriptions.keys()
        assert not self._active.keys() & self._passive.keys()
        self._cover.check(lambda owner: self._keys[owner] in self._active)
        undecided = set(self._undecided)
        assert len(self._active) == len(self._cover.active) + self._newcomers
        assert self.pending or not self._undecided.leaving, "what has left is withdrawn in the end"
        assert not self._undecided.leaving.keys() & self._subscriptions.keys(), "what is wanted does not leave"
        for key, made in self._subscriptions.items():
            assert self._keys[made.owner] == key
            assert (made.owner in self._cover.passive) is (key in self._passive)
            if made.owner in self._cover.active:
                assert key in self._active
                self._cover.check_active(made)
            elif made.owner not in undecided:
                assert self._covered(made, sys.maxsize), "what is passive is covered"
