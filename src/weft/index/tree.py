"""The fast index: partition trees, with changes beside them. It answers as `base` says. A match sees one version of the
index from start to end, and never waits.

A version is never changed, only replaced (see `current_version`): segments (a large one, and smaller ones of what came
later), what is dead in each, and a tail of the newest subscriptions as boxes.

A copy, and a child of `fork`, has the version of that moment and goes its own way; a pickle is a snapshot in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from weft.errors import FilterTypeError, OptionError, SchemaError, UnknownIdError
from weft.index.base import AnyBatch, Ids, Matches
from weft.index.box_codec import decode_boxes
from weft.index.coding import rows_of_columns
from weft.index.current_version import CurrentVersion, FlushOnMatch
from weft.index.events import conformed
from weft.index.filter_columns import columns_of_filters
from weft.index.joining import Joining
from weft.index.lookup import Lookup
from weft.index.segment import DEFAULT, Segment, TreeShape
from weft.index.single_event import Take, Taken, copied
from weft.index.stats import Stats, stats_of
from weft.index.subscription_ids import already_exists, check_id, check_ids, check_new_ids
from weft.index.version import Version, joined, view_of_tail, whole
from weft.index.weight import check_weight, check_weights, weigh
from weft.kernels import search
from weft.language.any_filter import AnyFilter, as_filter
from weft.language.ast import Filter
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.trace import Trace, trace
from weft.model.door import PlainEvents, shown
from weft.model.event import attributes_of
from weft.model.frame import AnyEvent, as_batch
from weft.model.schema import Schema

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from threading import RLock

_FEW = 16  # new subscriptions that are looked up one by one
FEW_EVENTS = 8  # that are matched one by one
_NO_IDS = np.zeros(0, np.int64)


class TreeIndex:
    """The index for many filters.

    >>> index = TreeIndex()
    >>> index.add(1, "magnitude >= 5 AND depth < 70")
    >>> index.add(2, "place LIKE '%Alaska'")
    >>> index.match({"magnitude": 6.1, "depth": 12.5}).tolist()
    [1]

    `executor` rebuilds large segments; without one, a thread of the index does. `budget` is the memory that matching
    may take, in bytes per subscription; beyond it the trees get coarser.

    The newest changes are buffered: up to `tail` subscriptions, and as many removed ones in each segment. Matches look
    at them one by one, until they are flushed: they join the trees. With `flush`, a match flushes more of them than it
    should look at; it may wait for other changes then. The other arguments are for tests and benchmarks.
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
        flush: FlushOnMatch | None = None,
    ) -> None:
        self.schema = schema
        self.predicates = predicates
        self._settings = (budget, shape, tail, fan, large, flush)
        build = partial(Segment.build, shape=shape, budget=budget)
        self._current = CurrentVersion(build, Joining(tail, fan, large), executor, flush)
        self._lookup = Lookup(schema)

    @property
    def changing(self) -> RLock:
        """The lock that every change of the index holds. Cost: O(1).

        >>> index = TreeIndex()
        >>> index.add_texts([1, 2], ["x > 5", "x > 7"])
        >>> with index.changing:  # no other thread changes the index in between
        ...     index.discard(1)
        ...     index.add(3, "x > 9")
        >>> index.subscriptions()
        [2, 3]
        """
        return self._current.changing

    @property
    def _version(self) -> Version:
        return self._current.value

    # -- changes --------------------------------------------------------------------------------

    def add(self, sub: int, filter: AnyFilter | NormalForm) -> None:
        """Add a subscription. Raises SubscriptionError or FilterError. Cost: about O(log n), amortised.

        >>> index = TreeIndex()
        >>> index.add(1, "x > 5")
        >>> index.add(1, "x > 7")
        Traceback (most recent call last):
            ...
        weft.errors.DuplicateIdError: subscription 1 already exists; use replace()
        """
        sub = check_id(sub)
        boxes, weight = self._boxes(filter)
        with self.changing:
            self._check_new((sub,))
            self._current.change({sub: boxes}, (), weight)

    def discard(self, sub: int) -> None:
        """Remove a subscription, if there is one with this id. Cost: about O(log n), amortised.

        >>> index = TreeIndex()
        >>> index.add_texts([1, 2], ["x > 5", "x > 7"])
        >>> index.discard(1)
        >>> index.match({"x": 8}).tolist()
        [2]
        """
        sub = check_id(sub)
        with self.changing:
            self._current.change({}, (sub,))

    def replace(self, sub: int, filter: AnyFilter | NormalForm) -> None:
        """Give a subscription another filter, or add it; no match sees both filters or none. Cost: as `add`.

        >>> index = TreeIndex()
        >>> index.add(1, "x > 5")
        >>> index.replace(1, "x > 7")
        >>> print(index.filter(1))
        x > 7
        """
        sub = check_id(sub)
        boxes, weight = self._boxes(filter)
        with self.changing:
            self._current.change({sub: boxes}, (sub,), weight)

    def change(self, drop: Collection[int], add: Mapping[int, NormalForm]) -> None:
        """Remove subscriptions, if they exist, and add others, in one step; no match sees a part of it.

        The normal forms were made under the index's schema, of filters that `check_weight` admits. Raises
        SubscriptionError; then nothing has changed. Cost: as `add` and `discard`.

        >>> index = TreeIndex()
        >>> index.add_texts([1, 2], ["x > 5", "x > 7"])
        >>> index.change([1], {3: normalize("x > 9")})
        >>> index.subscriptions()
        [2, 3]
        """
        gone = [check_id(sub) for sub in drop]
        added: dict[int, tuple[Box, ...]] = {}
        for sub, form in add.items():
            self._check_form(form)
            added[check_id(sub)] = form.boxes
        weight = sum(map(weigh, added.values())) if self._current.on_match is None else 0  # else it does not matter
        with self.changing:
            known = added if len(added) <= _FEW else self._version.among(np.sort([*added]))
            self._check_new(set(known).difference(gone) if gone else known)
            self._current.change(added, gone, weight)

    def add_texts(self, subs: Iterable[int], texts: Iterable[str]) -> None:
        """Add many filters as texts, all or none. Raises SubscriptionError or FilterError, with the position.

        Cost: that of `parse` for each text, and of building a tree of them, about O(n log n).

        >>> index = TreeIndex()
        >>> index.add_texts([1, 2], ["x > 5", "x > 7"])
        >>> sorted(index.match({"x": 8}).tolist())
        [1, 2]
        """
        rows = list(texts)
        ids = check_new_ids(subs, len(rows))
        self.add_boxes(ids, columns_of_texts(rows, self.schema, self.predicates))

    def add_forms(self, subs: Iterable[int], forms: Sequence[NormalForm]) -> None:
        """Add many filters as normal forms, made under the index's schema, all or none.

        Cost: that of building a tree of them, about O(n log n).

        >>> index = TreeIndex()
        >>> index.add_forms([1, 2], [normalize("x > 5"), normalize("x > 7")])
        >>> index.match({"x": 6}).tolist()
        [1]
        """
        ids = check_new_ids(subs, len(forms))
        for at, form in enumerate(forms):
            self._check_form(form, at)
        self.add_boxes(ids, columns_of_filters(form.boxes for form in forms))

    def add_columns(self, subs: Iterable[int], bounds: Mapping[str, Any]) -> None:
        """Add many filters as columns: for each attribute (low, high), both included, or the values to equal.

        NaN, None and NULL mean "no bound". Arrays may be numpy's or Arrow's.

        Cost: that of building a tree of them, about O(n log n).

        >>> index = TreeIndex()
        >>> index.add_columns([1, 2], {"x": ([0, 5], [4, 9]), "kind": ["a", None]})
        >>> print(index.filter(1), index.filter(2), sep="; ")
        x BETWEEN 0 AND 4 AND kind = 'a'; x BETWEEN 5 AND 9
        """
        ids = check_new_ids(subs, bounds_size(bounds))
        self.add_boxes(ids, BoxColumns.from_bounds(bounds))

    def add_boxes(self, subs: Iterable[int], boxes: BoxColumns, instead: Callable[[], Sequence[int]] = tuple) -> None:
        """Add many filters as boxes, made under the index's schema; those of owner o are subscription subs[o]'s.

        Those that `instead` returns are removed in the same step; it is called when nothing else can be refused.

        Cost: that of building a tree of them, about O(n log n).

        >>> index = TreeIndex()
        >>> index.add_boxes([1, 2], BoxColumns.from_bounds({"x": ([0, 5], [4, 9])}))
        >>> index.match({"x": 7}).tolist()
        [2]
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
        """Remove many subscriptions at once. Cost: about O(log n) for each, amortised.

        >>> index = TreeIndex()
        >>> index.add_texts([1, 2], ["x > 5", "x > 7"])
        >>> index.discard_many([1, 2, 3])
        >>> len(index)
        0
        """
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
        if form.schema is not self.schema and form.schema != self.schema:
            raise SchemaError("the normal form was made under another schema than the index's")

    def _check_new(self, subs: Iterable[int]) -> None:
        for sub in subs:
            if sub in self:
                raise already_exists(sub)

    def flush(self) -> None:
        """Let buffered changes join the trees. Cost: some milliseconds, if any are buffered.

        >>> index = TreeIndex()
        >>> index.add(1, "x > 5")
        >>> index.flush()
        >>> index.stats().waiting
        0
        """
        self._current.flush()

    @property
    def flushes(self) -> int:
        """How often buffered changes have joined the trees, which takes as long as many changes. Cost: O(1).

        >>> index = TreeIndex()
        >>> index.add(1, "x > 5")
        >>> index.flush()
        >>> index.flushes
        1
        """
        return self._current.flushes

    def rest(self) -> bool:
        """Use quiet time: flush what is buffered, if nothing has changed since the last call.

        Returns whether something is still buffered. Cost: that of a flush, at most.

        >>> index = TreeIndex()
        >>> index.add(1, "x > 5")
        >>> index.rest(), index.rest()
        (True, False)
        """
        return self._current.rest()

    def settle(self) -> None:
        """Wait until no segments are being joined in the background.

        Cost: what is left of the work, about O(n log n) at most; O(1) if none are.

        >>> index = TreeIndex()
        >>> index.add_texts([1, 2], ["x > 5", "x > 7"])
        >>> index.settle()
        """
        self._current.settle()

    # -- matching -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._version.size

    def __repr__(self) -> str:
        return f"<weft.TreeIndex: {len(self):,} filters>"

    def __contains__(self, sub: object) -> bool:
        version = self._version
        if not isinstance(sub, int | np.integer) or isinstance(sub, bool):
            return False
        return sub in version.tail or version.find(int(sub)) is not None

    def match(self, event: AnyEvent) -> Ids:
        """The subscriptions that the event matches, in no order, each once. Raises EventError.

        Cost: some microseconds, and the matches.

        >>> index = TreeIndex()
        >>> index.add_texts([1, 2], ["x > 5", "x > 7"])
        >>> index.match({"x": 6}).tolist()
        [1]
        """
        return self.match_as(event, copied)

    def match_as(self, event: AnyEvent, take: Take[Taken]) -> Taken:
        """What `take` makes of the subscriptions that the event matches. It gets memory, which is used again later, and
        how many ids are in it.

        Cost: that of `match`, and of `take`.

        >>> index = TreeIndex()
        >>> index.add_texts([1, 2], ["x > 5", "x > 7"])
        >>> index.match_as({"x": 6}, lambda memory, count: set(memory.ids[:count].tolist()))
        {1}
        """
        if self.schema is not None:
            event = conformed(event, self.schema)
        current = self._current
        version = current.value if current.on_match is None else current.ready(1)
        if len(version.views) > 1:
            current.took_detours(1, version)
        return self._lookup.one(version, attributes_of(event), take)

    def match_events(self, events: Sequence[AnyEvent]) -> Matches:
        """The subscriptions of each event, for events that come in one or a few at a time. Raises EventError.

        Cost: that of `match` for each event of a few, else that of `match_batch`, where the first event costs as much
        as ten that are matched one by one.

        >>> index = TreeIndex()
        >>> index.add_texts([1, 2], ["x > 5", "x > 7"])
        >>> index.match_events([{"x": 6}, {"x": 1}]).counts.tolist()
        [1, 0]
        """
        if len(events) <= FEW_EVENTS:
            return Matches.of(self.match_few(events))
        return self.match_batch(events).checked()

    def match_few(self, events: Sequence[AnyEvent]) -> list[Ids]:
        """The subscriptions of each of a few events, matched one by one. Raises EventError. Cost: that of `match`.

        >>> index = TreeIndex()
        >>> index.add_texts([1, 2], ["x > 5", "x > 7"])
        >>> [ids.tolist() for ids in index.match_few([{"x": 6}, {"x": 1}])]
        [[1], []]
        """
        current, one = self._current, self._lookup.one
        version = current.value
        if version is not current.flushed and current.on_match is not None:
            version = current.ready(len(events))
        if len(version.views) > 1:
            current.took_detours(len(events), version)
        if not version.views and not version.tail:
            return [_NO_IDS] * len(events)
        if type(events) is PlainEvents and self.schema is None:
            if len(events) == 1:
                return [one(version, events[0], copied)]
            return [one(version, event, copied) for event in events]
        schema = self.schema
        checked = events if schema is None else [conformed(event, schema) for event in events]
        return [one(version, attributes_of(event), copied) for event in checked]

    def match_batch(self, batch: AnyBatch, *, out: Ids | None = None, by: Ids | None = None) -> Matches:
        """The subscriptions of each event; events that cannot be read are set aside, with the reason.

        Ids are written to `out`, an array of 64-bit integers, if it is large enough; raises OptionError for any
        other kind of `out`. With `by`, an array that gives each subscription a label, a small integer, the result has
        the distinct labels of each event instead.

        Cost: one search of the trees for each event, and O(matches).

        >>> index = TreeIndex()
        >>> index.add_texts([0, 1, 2], ["x > 5", "x > 6", "x > 7"])
        >>> [sorted(labels.tolist()) for labels in index.match_batch([{"x": 7}, {"x": 8}], by=np.array([4, 4, 9]))]
        [[4], [4, 9]]
        """
        if out is not None:
            _check_output(out)
        batch, version = self._ready(batch)
        found = self._lookup.batch(version, batch, out, by)
        if len(version.views) > 1:
            self._current.took_detours(len(found), version)
        return found

    def count_batch(self, batch: AnyBatch) -> NDArray[np.int64]:
        """How many subscriptions each event matches. Raises EventError for an event that cannot be read.

        Cost: that of `match_batch`, without writing ids.

        >>> index = TreeIndex()
        >>> index.add_texts([1, 2], ["x > 5", "x > 7"])
        >>> index.count_batch([{"x": 8}, {"x": 6}, {"x": 1}]).tolist()
        [2, 1, 0]
        """
        return self._counts(batch, search.COUNT)

    def any_batch(self, batch: AnyBatch) -> NDArray[np.bool_]:
        """Whether any subscription matches each event; the search for an event ends with the first that does.

        Cost: that of `count_batch` at most.

        >>> index = TreeIndex()
        >>> index.add_texts([1, 2], ["x > 5", "x > 7"])
        >>> index.any_batch([{"x": 8}, {"x": 6}, {"x": 1}]).tolist()
        [True, True, False]
        """
        return self._counts(batch, search.ANY) > 0

    def _ready(self, batch: AnyBatch) -> tuple[AnyBatch, Version]:
        """A batch, and the version in which it is matched."""
        if self._current.on_match is None:
            return batch, self._current.value
        batch = as_batch(batch)
        return batch, self._current.ready(batch.num_rows if hasattr(batch, "num_rows") else len(batch))

    def _counts(self, batch: AnyBatch, mode: int) -> NDArray[np.int64]:
        batch, version = self._ready(batch)
        found = self._lookup.counts(version, batch, mode)
        if len(version.views) > 1:
            self._current.took_detours(len(found), version)
        return found

    # -- what is in it --------------------------------------------------------------------------

    def filter(self, sub: int) -> Filter:
        """A subscription's filter, or one that means the same. Raises UnknownIdError, which is a KeyError.

        Cost: O(size of the filter); the boxes of a disjunction are simplified first, within a budget.

        >>> index = TreeIndex()
        >>> index.add(1, "NOT (x <= 5 OR x > 9)")
        >>> print(index.filter(1))
        x > 5 AND x <= 9
        """
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

        Cost: that of `filter`, and O(size of the filter).

        >>> index = TreeIndex()
        >>> index.add(1, "x > 5 AND y = 'a'")
        >>> [str(part.filter) for part in index.explain({"x": 3, "y": "a"}, 1).parts if not part.truth]
        ['x > 5']
        """
        known = self.filter(sub)
        return trace(known, event if self.schema is None else conformed(event, self.schema))

    def stats(self) -> Stats:
        """Sizes, shape and costs. Cost: O(size).

        >>> index = TreeIndex()
        >>> index.add_texts([1, 2], ["x > 5", "x > 7"])
        >>> index.stats().subscriptions
        2
        """
        seen = self._lookup.events, self._lookup.matches, self._lookup.wanted
        return stats_of(self._version.views, len(self._version.tail), seen)

    def snapshot(self, path: str | Path) -> None:
        """Write the index to a directory that `open` maps into memory; an older snapshot there is replaced.

        Cost: O(size); several trees are joined first, which takes about O(n log n).

        >>> index = TreeIndex()
        >>> index.add_texts([1, 2], ["x > 5", "x > 7"])
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     index.snapshot(f"{folder}/rules")
        ...     TreeIndex.open(f"{folder}/rules").match({"x": 6}).tolist()
        [1]
        """
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

        Cost: O(size) to check it; that of mapping some files if it is `trusted`.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     TreeIndex(Schema.of(x="float")).snapshot(f"{folder}/rules")
        ...     list(TreeIndex.open(f"{folder}/rules").schema)
        ['x']
        """
        from weft.index.snapshot import read_snapshot

        segment, schema = read_snapshot(Path(path), predicates, verify, trusted)
        index = TreeIndex(schema, predicates=predicates, executor=executor)
        index._current.adopt(Version((whole(segment),)))
        return index

    # -- copies ---------------------------------------------------------------------------------

    def _like(self, version: Version) -> TreeIndex:
        made = _like(self.schema, self.predicates, self._settings)
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
        """The ids of all subscriptions, ascending. Cost: O(n log n).

        >>> index = TreeIndex()
        >>> index.add_texts([1, 2], ["x > 5", "x > 7"])
        >>> index.subscriptions()
        [1, 2]
        """
        version = self._version
        found = list(version.tail)
        for view in version.views:
            found += view.segment.rows.subs[view.living()].tolist()
        return sorted(found)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. Cost: O(size).

        >>> index = TreeIndex()
        >>> index.add_texts([1, 2], ["x > 5", "x > 7"])
        >>> index.check()
        """
        self._version.check()


def _check_output(out: Any) -> None:
    """Raise OptionError unless ids can be written to an array as they are."""
    if not isinstance(out, np.ndarray) or out.dtype != np.int64 or out.ndim != 1:
        kind = (
            f"an array of {out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else repr(type(out).__name__)
        )
        raise OptionError(f"out must be a one-dimensional NumPy array of int64, not {kind}")
    if not (out.flags.writeable and out.flags.c_contiguous and out.flags.aligned):
        raise OptionError("out must be a writable, contiguous array; pass one made by numpy.empty(size, numpy.int64)")


def _unpickled(schema: Schema | None, predicates: Predicates, settings: tuple[Any, ...], segment: Segment) -> TreeIndex:
    index = _like(schema, predicates, settings)
    index._current.adopt(Version((whole(segment),)))
    return index


def _like(schema: Schema | None, predicates: Predicates, settings: tuple[Any, ...]) -> TreeIndex:
    """An empty index with the settings of another."""
    budget, shape, tail, fan, large, flush = settings
    return TreeIndex(
        schema, predicates=predicates, budget=budget, shape=shape, tail=tail, fan=fan, large=large, flush=flush
    )
