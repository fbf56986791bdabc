"""Negative space: what no forwarded subscription covers, as disjoint boxes (Jafarpour et al.). Laws: a subscription is
passive only if the active ones together cover it; exact, one that they cover is never made active; the negative boxes
and those covered by each active subscription tile the space of all events, always (errata, negative space 5).

What no box expresses, a pattern or a comparison of attributes, covers nothing and is always active itself. State is per
neighbour (footnote 2): one space for what all others want.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from weft.algebra.box import Box, NormalForm
from weft.algebra.measure import volume
from weft.algebra.relate import Region, as_form
from weft.errors import FilterError, LocalProtocolError, SchemaError
from weft.interest.cuts import Interval
from weft.interest.rows import OwnedRows
from weft.interest.tiles import Choice, Labels, Owner, SplitOrder, Tiles
from weft.kernels.tiles import FREE, NO_LIMIT
from weft.model.schema import Schema

Key = TypeVar("Key", bound=Hashable)

NOBODY = Owner(FREE)


@dataclass(frozen=True, slots=True)
class Limit:
    """How many negative boxes more a subscription may make (section 4).

    With `dynamic`, it may also make those that earlier ones did not: zeta(i) = k i - m(i - 1).
    """

    k: int
    dynamic: bool = False
    choice: Choice = Choice.RATIO

    def __post_init__(self) -> None:
        if self.k < 0:
            raise ValueError(f"a limit is 0 or more, not {self.k}")

    def most(self, active: int, boxes: int) -> int:
        """The limit of a subscription that becomes active after `active` others, when there are so many boxes."""
        return max(0, self.k * (active + 1) - boxes) if self.dynamic else self.k


class Change(NamedTuple, Generic[Key]):
    """What must be forwarded and withdrawn, together, as one update; a key that is replaced may be in both."""

    forward: list[Key]
    withdraw: list[Key]


@dataclass(slots=True)
class _Subscription:
    """A subscription: its boxes as far as tiles can say them, and whether that is all of it."""

    owner: Owner
    form: NormalForm
    spans: list[dict[str, Interval]]
    whole: bool


class NegativeSpace(Generic[Key]):
    """Subscriptions by any keys; without a limit exact. `order` says how boxes are split.

    >>> from weft import Schema, parse
    >>> schema = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 1000]} for name in "xy"}})
    >>> space = NegativeSpace(schema)
    >>> space.add("s1", parse("x BETWEEN 175 AND 510 AND y BETWEEN 180 AND 680")), space.boxes
    (True, 4)
    >>> space.add("s2", parse("x BETWEEN 405 AND 840 AND y BETWEEN 110 AND 540")), space.boxes
    (True, 7)
    >>> space.add("s3", parse("x BETWEEN 380 AND 720 AND y BETWEEN 230 AND 495")), space.volume()
    (False, 683250.0)
    >>> space.discard("s1")
    Change(forward=['s3'], withdraw=['s1'])
    """

    def __init__(
        self,
        schema: Schema | None = None,
        limit: Limit | None = None,
        *,
        order: SplitOrder = SplitOrder.MOST_OUTSIDE,
        make_tiles: Callable[..., Tiles] = Tiles,
    ) -> None:
        self.schema, self.limit = schema, limit
        self._order, self._make = order, make_tiles
        self._subscriptions: dict[Key, _Subscription] = {}
        self._keys: dict[int, Key] = {}  # by owner
        self._next = 0
        self._clear()

    def _clear(self) -> None:
        self._active: dict[Key, None] = {}  # in the order in which they became so
        self._passive: dict[Key, None] = {}
        self._tiles = self._make(self.schema, order=self._order)
        self._forwarded, self._subsumed = OwnedRows(self._tiles), OwnedRows(self._tiles)

    # -- what is there ----------------------------------------------------------------------------

    @property
    def active(self) -> Collection[Key]:
        """The subscriptions that are forwarded."""
        return self._active.keys()

    @property
    def passive(self) -> Collection[Key]:
        """The subscriptions that are subsumed."""
        return self._passive.keys()

    @property
    def boxes(self) -> int:
        """How many negative boxes there are."""
        return self._tiles.free

    @property
    def nbytes(self) -> int:
        """The memory of all boxes."""
        return self._tiles.nbytes

    def __len__(self) -> int:
        """How many subscriptions there are."""
        return len(self._subscriptions)

    def __contains__(self, key: Key) -> bool:
        return key in self._subscriptions

    def negative(self) -> list[Box]:
        """The negative boxes. Cost: O(boxes)."""
        return self._boxes(FREE)

    def covered_by(self, key: Key) -> list[Box]:
        """The boxes that are accounted to an active subscription, CoveredBy; of a passive one there are none."""
        return self._boxes(self._subscriptions[key].owner)

    def _boxes(self, owner: int) -> list[Box]:
        low, high, owners = self._tiles.tiles()
        return [self._tiles.box(low[at], high[at]) for at in np.flatnonzero(owners == owner).tolist()]

    def volume(self) -> float:
        """The negative volume within the schema's bounds. Raises SchemaError if it has none."""
        if self.schema is None:
            raise SchemaError("a volume needs a schema with bounds: make the space with one")
        return float(sum(volume(box, self.schema) for box in self.negative()))

    def subsumes(self, region: Region) -> bool:
        """True only if the active subscriptions together cover it; without a limit, if and only if that can be said in
        boxes. Cost: that of finding a negative box that meets it.
        """
        made = self._made(as_form(region, self.schema), widen=False)
        return made.whole and not self._uncovers(*self._tiles.rows(made.spans))

    # -- changes ----------------------------------------------------------------------------------

    def add(self, key: Key, region: Region) -> bool:
        """Take in a subscription (figures 6 and 8); whether it must be forwarded. Raises as `change`."""
        return bool(self.change({key: region}).forward)

    def discard(self, key: Key) -> Change[Key]:
        """Let a subscription go (figures 7 and 9); what it had subsumed may have to be forwarded."""
        return self.change({}, [key])

    def change(self, add: Mapping[Key, Region], drop: Collection[Key] = ()) -> Change[Key]:
        """Drop some, then add some, as one. Raises FilterError for one that matches nothing, LocalProtocolError for a
        key that is known or unknown; then nothing has changed.
        """
        forms = {key: self._satisfiable(key, region) for key, region in add.items()}
        gone = dict.fromkeys(drop)
        for key in gone:
            if key not in self._subscriptions:
                raise LocalProtocolError(f"there is no subscription {key!r} to drop")
        for key in forms:
            if key in self._subscriptions and key not in gone:
                raise LocalProtocolError(f"subscription {key!r} is known: drop it in the same change to replace it")
        withdraw = [key for key in gone if key in self._active]
        freed = [self._subscriptions[key] for key in withdraw]
        for key in gone:
            self._forget(key)
        if not self._subscriptions:
            self._clear()
            freed = []
        if self.limit is None:
            self._retake(freed)
        forward = [key for key, form in forms.items() if self._take_in(key, form)]
        forward += self._uncovered(freed)
        return Change(forward, withdraw)

    def _satisfiable(self, key: Key, region: Region) -> NormalForm:
        form = as_form(region, self.schema)
        if not form:
            raise FilterError(f"subscription {key!r} matches no event, so it covers nothing: do not forward it")
        return form

    def _made(self, form: NormalForm, owner: Owner = NOBODY, *, widen: bool = True) -> _Subscription:
        parts = [self._tiles.spans(box, widen=widen) for box in form.boxes]
        spans = [each for part in parts if part is not None for each in part]
        return _Subscription(owner, form, spans, None not in parts)

    def _take_in(self, key: Key, form: NormalForm) -> bool:
        made = self._subscriptions[key] = self._made(form, Owner(self._next))
        self._keys[self._next] = key
        self._next += 1
        return self._subscribe(key, made)

    def _subscribe(self, key: Key, made: _Subscription) -> bool:
        """Figures 6 and 8: active if it meets the negative space, which it is then taken from."""
        rows = self._tiles.rows(made.spans)
        if made.whole and not self._uncovers(*rows):
            self._passive[key] = None
            self._subsumed.add(made.owner, rows)
            return False
        choice, left = Choice.RATIO, NO_LIMIT
        if self.limit is not None:
            choice, left = self.limit.choice, self.limit.most(len(self._active), self.boxes)
        for low, high in zip(*rows, strict=True):
            made_more = self._tiles.take(low, high, made.owner, left, choice)
            left = left if self.limit is None else left - made_more
        self._active[key] = None
        self._forwarded.add(made.owner, rows)
        return True

    def _uncovers(self, lows: Labels, highs: Labels) -> bool:
        """Whether a row is not covered, as far as can be seen. With a limit the negative space is too large, and one
        active subscription may cover what meets it: pairwise covering, which the paper has beside it (section 5).
        """
        free = self._tiles.are_free(lows, highs)
        if self.limit is None:
            return bool(free.any())
        return not all(map(self._forwarded.holds, lows[free], highs[free]))

    def _forget(self, key: Key) -> None:
        made = self._subscriptions.pop(key)
        del self._keys[made.owner]
        if key in self._passive:
            del self._passive[key]
            self._subsumed.discard(made.owner)
        else:
            del self._active[key]
            self._forwarded.discard(made.owner)
            self._tiles.release(made.owner)

    def _retake(self, freed: Iterable[_Subscription]) -> None:
        """Figure 7, lines 6 to 20: what other active ones cover of what went is theirs now."""
        for gone in freed:
            for low, high in zip(*self._tiles.rows(gone.spans), strict=True):
                for owner, start, end in zip(*self._forwarded.meeting(low, high), strict=True):
                    self._tiles.take(start, end, Owner(int(owner)))

    def _uncovered(self, freed: Iterable[_Subscription]) -> list[Key]:
        """Figure 7, lines 21 to 26, and figure 9: the passive ones that are subsumed no longer, now active."""
        met: set[int] = set()
        for gone in freed:
            for low, high in zip(*self._tiles.rows(gone.spans), strict=True):
                owners, lows, highs = self._subsumed.meeting(low, high)
                met.update(owners[self._tiles.are_free(lows, highs)].tolist())
        forward = []
        for owner in sorted(met):
            key = self._keys[owner]
            made = self._subscriptions[key]
            if self._uncovers(*self._subsumed.of(made.owner)):
                del self._passive[key]
                self._subsumed.discard(made.owner)
                self._subscribe(key, made)
                forward.append(key)
        return forward

    # -- making it better -------------------------------------------------------------------------

    def rebuild(self) -> Change[Key]:
        """All sets anew, from ALL subscriptions (errata, negative space 8), the largest first, so that few are active.

        Cost: that of adding all.
        """
        before = dict(self._active)
        subscriptions = self._subscriptions
        self._clear()
        self._subscriptions, self._keys = {}, {}
        forms = {key: made.form for key, made in subscriptions.items()}
        sizes = {key: self._size(form) for key, form in forms.items()}
        for key in sorted(forms, key=lambda key: sizes[key], reverse=True):  # sorting is stable: ties keep their order
            self._take_in(key, forms[key])
        return Change([k for k in self._active if k not in before], [k for k in before if k not in self._active])

    def _size(self, form: NormalForm) -> float:
        """The volume of its boxes, as labels measure it."""
        made = self._made(form)
        low, high = self._tiles.rows(made.spans)
        whole_low, whole_high = self._tiles.whole(1)
        shares = (high.astype(float) - low) / (whole_high.astype(float) - whole_low)
        return float(shares.prod(axis=1).sum())

    def coalesce(self, budget: int, stop: Callable[[], bool] = lambda: False) -> int:
        """Make one of adjacent boxes that are a box together (section 7); how many negative boxes it saved.

        `budget` and `stop`: see `Tiles.coalesce`.
        """
        before = self.boxes
        self._tiles.coalesce(budget, stop)
        return before - self.boxes

    # ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. Cost: O(boxes^2)."""
        assert self._active.keys() | self._passive.keys() == self._subscriptions.keys()
        assert not self._active.keys() & self._passive.keys()
        self._tiles.check(self._forwarded.of)
        owners = set(self._tiles.tiles()[2].tolist()) - {FREE}
        assert {self._keys[owner] for owner in owners} <= self._active.keys(), "only active ones cover anything"
        for key, made in self._subscriptions.items():
            rows = (self._subsumed if key in self._passive else self._forwarded).of(made.owner)
            assert made.owner not in (self._forwarded if key in self._passive else self._subsumed)
            assert all(np.array_equal(*sides) for sides in zip(rows, self._tiles.rows(made.spans), strict=True))
            if key in self._passive:
                assert made.whole, "what no box expresses is active"
                assert not self._uncovers(*rows), "what is passive is covered"
            elif self.limit is None:
                assert not self._tiles.are_free(*rows).any(), "exact: what is forwarded is not negative"
