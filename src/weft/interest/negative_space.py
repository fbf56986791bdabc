"""Negative space: what no forwarded subscription covers, as disjoint boxes (Jafarpour et al.). Laws: after every call,
what is told covers what is wanted; a subscription that one active subscription covers is passive, exact, also one that
all of them together cover; the negative boxes and those covered by each active subscription tile the space of all
events, always (errata, negative space 5).

There is a bound on the boxes, beyond which the space is approximate: what cannot be subtracted stays negative. What no
box expresses, a pattern or a comparison of attributes, subtracts nothing. State is per neighbour (footnote 2): one
space for what all others want.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Generic, TypeVar

from weft.algebra.box import Box, NormalForm
from weft.algebra.measure import volume
from weft.algebra.relate import Region, as_form
from weft.errors import FilterError, LocalProtocolError, SchemaError
from weft.interest.box_cover import BoxCover, Limit
from weft.interest.coverers import ActiveSubscription, Comparison
from weft.interest.decision_queue import Farewell, Telling, Undecided
from weft.interest.tiles import MOST_TILES, Owner, SplitOrder, Tiles
from weft.kernels.tiles import FREE
from weft.model.change import Change
from weft.model.schema import Schema

__all__ = ["MOST_BOXES", "Limit", "NegativeSpace"]

Key = TypeVar("Key", bound=Hashable)

MOST_BOXES = MOST_TILES


class NegativeSpace(Generic[Key]):
    """Subscriptions by any keys; without a limit exact, as long as there are at most `most_boxes` boxes, negative and
    covered ones (None: no bound).

    `order` says how boxes are split. A change looks at `at_once` subscriptions for each one that comes or goes, and
    leaves the rest to `step`.

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
    ) -> None:
        if most_boxes is not None and most_boxes < 1:
            raise ValueError(f"most_boxes is 1 or more, or None for no bound, not {most_boxes}")
        if at_once < 0:
            raise ValueError(f"at_once is 0 or more, not {at_once}")
        self.schema, self.limit, self.most_boxes = schema, limit, most_boxes
        self._order, self._make, self._at_once = order, make_tiles, at_once
        self._subscriptions: dict[Key, ActiveSubscription] = {}
        self._keys: dict[int, Key] = {}  # by owner
        self._next = 0
        self._clear()

    def _clear(self) -> None:
        self._active: dict[Key, None] = {}  # in the order in which they became so
        self._passive: dict[Key, None] = {}
        self._undecided: Undecided[Key] = Undecided()
        self._newcomers = 0  # active ones that are undecided
        self._comparison: Comparison | None = None  # of the first that is undecided, if it has begun
        most = sys.maxsize if self.most_boxes is None else self.most_boxes
        self._cover = BoxCover(self._make(self.schema, order=self._order, most=most), self.limit)

    # -- what is there ----------------------------------------------------------------------------

    @property
    def active(self) -> Collection[Key]:
        """The subscriptions that are forwarded; while work is pending, also new ones that may yet be found subsumed."""
        return self._active.keys()

    @property
    def passive(self) -> Collection[Key]:
        """The subscriptions that are subsumed."""
        return self._passive.keys()

    @property
    def told(self) -> Collection[Key]:
        """What the neighbour knows: the active ones and, while work is pending, those that went but are told still."""
        return dict.fromkeys([*self._active, *self._undecided.leaving]).keys()

    @property
    def pending(self) -> bool:
        """Whether there is something left to do: call `step`."""
        return bool(self._undecided)

    @property
    def exact(self) -> bool:
        """Whether the negative boxes are just what no active subscription covers, as far as boxes can say.

        False once a limit or the bound has kept one from being subtracted, until a rebuild finds room for all.
        """
        return self._cover.exact

    @property
    def boxes(self) -> int:
        """How many negative boxes there are."""
        return self._cover.tiles.free

    @property
    def nbytes(self) -> int:
        """The memory of all boxes."""
        return self._cover.tiles.nbytes

    def __len__(self) -> int:
        """How many subscriptions there are."""
        return len(self._subscriptions)

    def __contains__(self, key: Key) -> bool:
        return key in self._subscriptions

    def negative(self) -> list[Box]:
        """The negative boxes. Cost: O(boxes)."""
        return self._cover.boxes(FREE)

    def covered_by(self, key: Key) -> list[Box]:
        """The boxes that are accounted to an active subscription, CoveredBy; of a passive one there are none."""
        return self._cover.boxes(self._subscriptions[key].owner)

    def volume(self) -> float:
        """The negative volume within the schema's bounds. Raises SchemaError if it has none."""
        if self.schema is None:
            raise SchemaError("a volume needs a schema with bounds: make the space with one")
        return float(sum(volume(box, self.schema) for box in self.negative()))

    def subsumes(self, region: Region) -> bool:
        """True only if the active subscriptions together cover it; in an exact space also if, where boxes can say it.

        Cost: that of finding a negative box that meets it, and a subscription that covers it.
        """
        made = self._cover.make(as_form(region, self.schema), widen=False)
        return self._covered(made, sys.maxsize) is True

    # -- changes ----------------------------------------------------------------------------------

    def add(self, key: Key, region: Region) -> bool:
        """Take in a subscription (figures 6 and 8); whether it must be forwarded. Raises as `change`.

        Only for a space without pending work: `change` says everything.
        """
        return key in self.change({key: region}).add

    def discard(self, key: Key) -> Change[list[Key], list[Key]]:
        """Let a subscription go (figures 7 and 9); what it had subsumed may have to be forwarded. As `change`."""
        return self.change({}, [key])

    def change(self, add: Mapping[Key, Region], drop: Collection[Key] = ()) -> Change[list[Key], list[Key]]:
        """Drop some, then add some; what the neighbour must be told, as one update.

        What takes long is `pending` afterwards. An active subscription that is dropped stays told until those that it
        had subsumed are; if its key is added again, all that is pending is done at once: a new key avoids that.

        Raises FilterError for a filter that matches nothing, LocalProtocolError for a key that is known or unknown;
        then nothing has changed.
        """
        forms = {key: self._satisfiable(key, region) for key, region in add.items()}
        gone = dict.fromkeys(drop)
        for key in gone:
            if key not in self._subscriptions:
                raise LocalProtocolError(f"there is no subscription {key!r} to drop")
        for key in forms:
            if key in self._subscriptions and key not in gone:
                raise LocalProtocolError(f"subscription {key!r} is known: drop it in the same change to replace it")
        telling: Telling[Key] = Telling()
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

    def step(self, budget: int) -> Change[list[Key], list[Key]]:
        """Go on with what is pending; what the neighbour must be told now, as one update.

        `budget` is how many subscriptions may be looked at, about; 1 is enough to come to an end.
        """
        telling: Telling[Key] = Telling()
        self._work(max(1, budget), telling)
        return telling.change()

    def _satisfiable(self, key: Key, region: Region) -> NormalForm:
        form = as_form(region, self.schema)
        if not form:
            raise FilterError(f"subscription {key!r} matches no event, so it covers nothing: do not forward it")
        return form

    def _forget(self, key: Key, telling: Telling[Key]) -> ActiveSubscription | None:
        """Let a subscription go; it, if others may have been subsumed by it."""
        made = self._subscriptions.pop(key)
        del self._keys[made.owner]
        if key in self._passive:
            del self._passive[key]
            self._cover.passive.discard(made.owner)
            return None
        del self._active[key]
        if made.owner not in self._cover.active:  # it is not decided, so nobody relies on it
            self._newcomers -= 1
            telling.drop(key)
            return None
        self._cover.release(made)
        return made

    def _left(self, freed: Collection[ActiveSubscription]) -> list[Owner]:
        """Some active ones have left; the passive ones that are to be decided anew, in order."""
        for gone in freed:
            self._cover.retake(gone)
        return sorted({owner for gone in freed for owner in self._cover.met(gone)})

    def _work(self, budget: int, telling: Telling[Key]) -> None:
        """Decide what is undecided, in order, as far as the budget of subscriptions goes."""
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

    def _decide(self, owner: Owner, budget: int, telling: Telling[Key]) -> bool:
        """Make a passive one active that is not subsumed, or a new one passive that is; False if the budget ends."""
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
        """Whether a subscription is covered; None if the budget ends before that is known: then it is to `resume`."""
        comparison = self._comparison if resume else None
        if comparison is None:
            if self._cover.tiled(made):
                return True
            comparison = self._cover.comparison(made)
        if resume:
            self._comparison = comparison
        return self._cover.compare(made, comparison, budget)

    def _take_in(self, key: Key, form: NormalForm, telling: Telling[Key], budget: int | None = None) -> None:
        """Figures 6 and 8: active if it meets the negative space, which it is then taken from."""
        made = self._subscriptions[key] = self._cover.make(form, Owner(self._next))
        self._keys[self._next] = key
        self._next += 1
        budget = self._at_once if budget is None else budget
        covered = self._cover.tiled(made) or (None if self._newcomers else self._covered(made, budget))
        if covered:
            self._subsume(key, made)
            return
        telling.add(key)
        self._active[key] = None
        if covered is None:  # those that come meanwhile wait for it, for it may cover them
            self._undecided.put(made.owner)
            self._newcomers += 1
        else:
            self._cover.activate(made)

    def _subsume(self, key: Key, made: ActiveSubscription) -> None:
        self._passive[key] = None
        self._cover.subsume(made)

    # -- making it better -------------------------------------------------------------------------

    def rebuild(self) -> Change[list[Key], list[Key]]:
        """All sets anew, from ALL subscriptions (errata, negative space 8), the largest first, so that few are active.

        Nothing is pending then. Cost: that of adding all.
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
        """Make those passive that one which became active later covers, until there is none."""
        thinned: dict[Key, None] = {}
        while some := [key for key in self._active if key not in thinned and self._cover.redundant(self._made(key))]:
            for key in some:
                if key in self._active and self._cover.redundant(self._made(key)):
                    del self._active[key]
                    self._cover.release(self._made(key))
                    self._subsume(key, self._made(key))
                    self._undecided.leave(self._left([self._made(key)]), ())
                    self._work(sys.maxsize, Telling())
            thinned.update(dict.fromkeys(some))

    def _made(self, key: Key) -> ActiveSubscription:
        return self._subscriptions[key]

    def coalesce(self, budget: int, stop: Callable[[], bool] = lambda: False) -> int:
        """Make one of adjacent boxes that are a box together (section 7); how many negative boxes it saved.

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
