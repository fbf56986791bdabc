"""The fast index: partition trees, with changes beside them. Laws: as `base`; a match sees one version of the index
from start to end, and waits for nobody.

A version is never changed, only replaced (see `current_version`): segments (a large one, and smaller ones of what came
later), what is dead in each, and a tail of the newest subscriptions as boxes.

A copy, and a child of `fork`, has the version of that moment and goes its own way; a pickle is a snapshot in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.algebra.bounds import bounds_size
from weft.algebra.box import Box, NormalForm
from weft.algebra.bulk import columns_of_texts
from weft.algebra.columns import BoxColumns
from weft.algebra.normalize import normalize, simplify
from weft.algebra.to_filter import to_filter
from weft.errors import FilterTypeError, SchemaError, UnknownIdError
from weft.index.base import AnyBatch, Ids, Matches
from weft.index.box_codec import decode_boxes
from weft.index.coding import rows_of_columns
from weft.index.current_version import CurrentVersion
from weft.index.events import conformed
from weft.index.filter_columns import columns_of_filters
from weft.index.joining import Joining
from weft.index.lookup import Lookup
from weft.index.segment import DEFAULT, Segment, TreeShape
from weft.index.single_event import Found, Take, copied
from weft.index.stats import Stats, stats_of
from weft.index.subscription_ids import already_exists, check_id, check_ids, check_new_ids
from weft.index.version import Version, joined, view_of_tail, whole
from weft.index.weight import check_weight, check_weights
from weft.kernels import search
from weft.language.any_filter import AnyFilter, as_filter
from weft.language.ast import Filter
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.trace import Trace, trace
from weft.model.door import shown
from weft.model.event import attributes_of
from weft.model.frame import AnyEvent
from weft.model.schema import Schema

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from threading import RLock


class TreeIndex:
    """The index for many filters.

    >>> index = TreeIndex()
    >>> index.add(1, "magnitude >= 5 AND depth < 70")
    >>> index.add(2, "place LIKE '%Alaska'")
    >>> index.match({"magnitude": 6.1, "depth": 12.5}).tolist()
    [1]

    `executor` rebuilds large segments; without one, a thread of the index does. `budget` is the memory that matching
    may take, in bytes per subscription; beyond it the trees get coarser. The other arguments are for tests and
    benchmarks.
    """

    def __init__(  # noqa: PLR0913 - structural constants
        self,
        schema: Schema | None = None,
        *,
        predicates: Predicates = NO_PREDICATES,
        executor: Executor | None = None,
        budget: float = 200.0,
        shape: TreeShape = DEFAULT,
        tail: int = 128,
        fan: int = 8,
        large: int = 20_000,
    ) -> None:
        self.schema = schema
        self.predicates = predicates
        self._settings = (budget, shape, tail, fan, large)
        build = partial(Segment.build, shape=shape, budget=budget)
        self._current = CurrentVersion(build, Joining(tail, fan, large), executor)
        self._lookup = Lookup(schema)

    @property
    def changing(self) -> RLock:
        """The lock that is held by whoever changes the index."""
        return self._current.changing

    @property
    def _version(self) -> Version:
        return self._current.value

    # -- changes --------------------------------------------------------------------------------

    def add(self, sub: int, filter: AnyFilter | NormalForm) -> None:
        """Add a subscription. Raises SubscriptionError or FilterError. Cost: about O(log n), amortised."""
        sub = check_id(sub)
        boxes, weight = self._boxes(filter)
        with self.changing:
            self._check_new((sub,))
            self._current.change({sub: boxes}, (), weight)

    def discard(self, sub: int) -> None:
        """Remove a subscription, if there is one with this id."""
        sub = check_id(sub)
        with self.changing:
            self._current.change({}, (sub,))

    def replace(self, sub: int, filter: AnyFilter | NormalForm) -> None:
        """Give a subscription another filter, or add it; no match sees both filters or none."""
        sub = check_id(sub)
        boxes, weight = self._boxes(filter)
        with self.changing:
            self._current.change({sub: boxes}, (sub,), weight)

    def add_texts(self, subs: Iterable[int], texts: Iterable[str]) -> None:
        """Add many filters as texts, all or none. Raises SubscriptionError or FilterError, with the position."""
        rows = list(texts)
        ids = check_new_ids(subs, len(rows))
        self.add_boxes(ids, columns_of_texts(rows, self.schema, self.predicates))

    def add_forms(self, subs: Iterable[int], forms: Sequence[NormalForm]) -> None:
        """Add many filters as normal forms, made under the index's schema, all or none."""
        ids = check_new_ids(subs, len(forms))
        for at, form in enumerate(forms):
            self._check_form(form, at)
        self.add_boxes(ids, columns_of_filters(form.boxes for form in forms))

    def add_columns(self, subs: Iterable[int], bounds: Mapping[str, Any]) -> None:
        """Add many filters as columns: for each attribute (low, high), both included, or the values to equal.

        NaN, None and NULL mean "no bound". Arrays may be numpy's or Arrow's.
        """
        ids = check_new_ids(subs, bounds_size(bounds))
        self.add_boxes(ids, BoxColumns.from_bounds(bounds))

    def add_boxes(self, subs: Iterable[int], boxes: BoxColumns, instead: Callable[[], Sequence[int]] = tuple) -> None:
        """Add many filters as boxes, made under the index's schema; those of owner o are subscription subs[o]'s.

        Those that `instead` returns are removed in the same step; it is called when nothing else can be refused.
        """
        ids = check_ids(subs)
        ids = check_new_ids(ids, len(ids))
        check_weights(boxes)
        ordered = np.sort(ids)
        self._check_new(self._version.among(ordered))  # before the work, and again after it
        view = whole(self._current.build(rows_of_columns(boxes, ids)))  # while others change and match
        with self.changing:
            self._check_new(self._version.among(ordered))
            self._current.append(view, instead())

    def discard_many(self, subs: Iterable[int]) -> None:
        """Remove many subscriptions at once."""
        gone: list[int] = check_ids(subs).tolist()
        with self.changing:
            self._current.change({}, gone)

    def _boxes(self, filter: AnyFilter | NormalForm) -> tuple[tuple[Box, ...], int]:
        if isinstance(filter, NormalForm):
            self._check_form(filter)
            boxes = filter.boxes
        else:
            boxes = normalize(as_filter(filter, self.predicates), self.schema).boxes
        return boxes, check_weight(boxes)

    def _check_form(self, form: NormalForm, position: int | None = None) -> None:
        if not isinstance(form, NormalForm):
            error = FilterTypeError(f"{form!r} is not a normal form; make one with weft.normalize()")
            raise error if position is None else error.at(position)
        if form.schema != self.schema:
            raise SchemaError("the normal form was made under another schema than the index's")

    def _check_new(self, subs: Iterable[int]) -> None:
        for sub in subs:
            if sub in self:
                raise already_exists(sub)

    def settle(self) -> None:
        """Wait until no rebuild is going on."""
        self._current.settle()

    # -- matching -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._version.size

    def __contains__(self, sub: object) -> bool:
        version = self._version
        if not isinstance(sub, int | np.integer) or isinstance(sub, bool):
            return False
        return sub in version.tail or version.find(int(sub)) is not None

    def match(self, event: AnyEvent) -> Ids:
        """The subscriptions that the event matches, in no order, each once. Raises EventError.

        Cost: some microseconds, and the matches.
        """
        return self.match_as(event, copied)

    def match_as(self, event: AnyEvent, take: Take[Found]) -> Found:
        """What `take` makes of the subscriptions that the event matches. It gets memory, which is used again later, and
        how many ids are in it.
        """
        if self.schema is not None:
            event = conformed(event, self.schema)
        version = self._current.value
        if len(version.views) > 1:
            self._current.took_detours(1, version)
        return self._lookup.one(version, attributes_of(event), take)

    def match_batch(self, batch: AnyBatch, *, out: Ids | None = None, by: Ids | None = None) -> Matches:
        """The subscriptions of each event; events that cannot be read are set aside, with the reason.

        Ids are written to `out`, an array of 64-bit integers, if it is large enough. With `by`, an array that gives
        each subscription a label, a small integer, the result has the distinct labels of each event instead.

        >>> index = TreeIndex()
        >>> index.add_texts([0, 1, 2], ["x > 5", "x > 6", "x > 7"])
        >>> [sorted(labels.tolist()) for labels in index.match_batch([{"x": 7}, {"x": 8}], by=np.array([4, 4, 9]))]
        [[4], [4, 9]]
        """
        version = self._version
        found = self._lookup.batch(version, batch, out, by)
        if len(version.views) > 1:
            self._current.took_detours(len(found), version)
        return found

    def count_batch(self, batch: AnyBatch) -> NDArray[np.int64]:
        """How many subscriptions each event matches. Raises EventError for an event that cannot be read."""
        return self._counts(batch, search.COUNT)

    def any_batch(self, batch: AnyBatch) -> NDArray[np.bool_]:
        """Whether any subscription matches each event; the search for an event ends with the first that does."""
        return self._counts(batch, search.ANY) > 0

    def _counts(self, batch: AnyBatch, mode: int) -> NDArray[np.int64]:
        version = self._version
        found = self._lookup.counts(version, batch, mode)
        if len(version.views) > 1:
            self._current.took_detours(len(found), version)
        return found

    # -- what is in it --------------------------------------------------------------------------

    def filter(self, sub: int) -> Filter:
        """A subscription's filter, or one that means the same. Raises UnknownIdError, which is a KeyError."""
        version, sub = self._version, check_id(sub)
        if sub in version.tail:
            return to_filter(NormalForm(version.tail[sub], self.schema))
        found = version.find(sub)
        if found is None:
            raise UnknownIdError(f"there is no subscription {shown(sub)}", sub)
        rows = found[0].segment.rows
        slot = rows.slot_of(found[1])
        if slot in rows.sources:
            return to_filter(NormalForm(decode_boxes(rows.sources[slot], self.predicates), self.schema))
        return to_filter(simplify((rows.box(row) for row in rows.rows_of(slot)), self.schema))

    def explain(self, event: AnyEvent, sub: int) -> Trace:
        """Why the event matches the subscription or not: the truth of each part of its filter, with the values.

        >>> index = TreeIndex()
        >>> index.add(1, "x > 5 AND y = 'a'")
        >>> [str(part.filter) for part in index.explain({"x": 3, "y": "a"}, 1).parts if not part.truth]
        ['x > 5']
        """
        known = self.filter(sub)
        return trace(known, event if self.schema is None else conformed(event, self.schema))

    def stats(self) -> Stats:
        """Sizes, shape and costs."""
        seen = self._lookup.events, self._lookup.matches, self._lookup.wanted
        return stats_of(self._version.views, len(self._version.tail), seen)

    def snapshot(self, path: str | Path) -> None:
        """Write the index to a directory that `open` maps into memory; an older snapshot there is replaced."""
        from weft.index.snapshot import write_snapshot  # only where it is needed: a process starts sooner

        write_snapshot(Path(path), self._whole(), self.schema)

    def _whole(self) -> Segment:
        """All that lives, as one segment."""
        version = self._version
        views = [*version.views, *([view_of_tail(version.tail, self._current.build)] if version.tail else [])]
        if len(views) == 1 and len(views[0].alive) == views[0].size:
            return views[0].segment
        return joined(views or [view_of_tail({}, self._current.build)], self._current.build).segment

    @staticmethod
    def open(
        path: str | Path,
        *,
        predicates: Predicates = NO_PREDICATES,
        executor: Executor | None = None,
        verify: bool = True,
        trusted: bool = False,
    ) -> TreeIndex:
        """The index of a snapshot; many processes that open one share its memory. Raises SnapshotError.

        It can be changed like any other; the changes are not written back. A snapshot need not be trusted: no search
        reads outside its memory or runs forever. With `verify`, the results are those of the filters that `filter`
        shows; without it, a snapshot with filters that are more than ranges opens faster.

        A `trusted` snapshot is not checked at all, and opens at once. Use this only for one that your own program has
        just written to a place where nobody else writes.
        """
        from weft.index.snapshot import read_snapshot

        segment, schema = read_snapshot(Path(path), predicates, verify, trusted)
        index = TreeIndex(schema, predicates=predicates, executor=executor)
        index._current.adopt(Version((whole(segment),)))
        return index

    # -- copies ---------------------------------------------------------------------------------

    def _like(self, version: Version) -> TreeIndex:
        budget, shape, tail, fan, large = self._settings
        made = TreeIndex(
            self.schema, predicates=self.predicates, budget=budget, shape=shape, tail=tail, fan=fan, large=large
        )
        made._current.adopt(version)
        return made

    def __copy__(self) -> TreeIndex:
        """An index of what is in this one now, which then goes its own way. Cost: next to nothing."""
        return self._like(self._version)  # versions are never changed, so that two indexes may share one

    def __deepcopy__(self, memo: dict[int, Any]) -> TreeIndex:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """A snapshot in memory; the executor stays behind."""
        return _unpickled, (self.schema, self.predicates, self._settings, self._whole())

    def subscriptions(self) -> list[int]:
        """The ids of all subscriptions, ascending. Cost: O(n log n)."""
        version = self._version
        found = list(version.tail)
        for view in version.views:
            found += view.segment.rows.subs[view.living()].tolist()
        return sorted(found)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        self._version.check()


def _unpickled(schema: Schema | None, predicates: Predicates, settings: tuple[Any, ...], segment: Segment) -> TreeIndex:
    budget, shape, tail, fan, large = settings
    index = TreeIndex(schema, predicates=predicates, budget=budget, shape=shape, tail=tail, fan=fan, large=large)
    index._current.adopt(Version((whole(segment),)))
    return index
