"""The fast index: partition trees, with changes beside them. Laws: as `base`; a match sees one version of the index
from start to end, and waits for nobody.

A version is never changed, only replaced: segments (a large one, and smaller ones of what came later), what is dead in
each, and a tail of the newest subscriptions as boxes. Small segments are joined as they gather, on the way; large ones
by the executor, in the background.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import Box, NormalForm
from weft.algebra.bulk import columns_of_texts
from weft.algebra.columns import BoxColumns
from weft.algebra.express import express
from weft.algebra.normalize import normalize, simplify
from weft.index.base import AnyEvent, Ids, Matches
from weft.index.coding import rows_of_columns
from weft.index.events import EventColumns
from weft.index.rows import join_rows
from weft.index.segment import Segment, View, settle
from weft.index.snapshot import read_snapshot, write_snapshot
from weft.index.stats import Stats, stats_of
from weft.kernels import search
from weft.language.ast import Filter, as_filter
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse
from weft.language.trace import Trace, trace
from weft.model.event import Event
from weft.model.schema import Schema
from weft.model.value import Value

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_CODES = 4_000_000  # of one search; larger batches are cut
_MANY_LEAVES = 4  # an event that reaches more is searched together with others


class Version(NamedTuple):
    """All that a match looks at."""

    views: tuple[View, ...] = ()
    tail: Mapping[int, tuple[Box, ...]] = {}


class _Buffers:
    """What a thread writes its findings to, before they are copied out."""

    def __init__(self) -> None:
        self.out, self.whose = np.empty(4096, np.int32), np.empty(4096, np.int32)
        self.offsets, self.counts = np.zeros(2, np.int64), np.zeros(1, np.int64)


class TreeIndex:
    """The index for many filters.

    >>> index = TreeIndex()
    >>> index.add(1, "magnitude >= 5 AND depth < 70")
    >>> index.add(2, "place LIKE '%Alaska'")
    >>> index.match({"magnitude": 6.1, "depth": 12.5}).tolist()
    [1]

    `executor` rebuilds large segments; without one, a thread of the index does. The other arguments are for tests.
    """

    def __init__(  # noqa: PLR0913 - structural constants
        self,
        schema: Schema | None = None,
        *,
        predicates: Predicates = NO_PREDICATES,
        executor: Executor | None = None,
        tail: int = 64,
        fan: int = 8,
        large: int = 20_000,
    ) -> None:
        self.schema = schema
        self.predicates = predicates
        self._executor = executor
        self._tail, self._fan, self._large = tail, fan, large
        self._version = Version()
        self._changing = threading.RLock()
        self._rebuild: Future[None] | None = None
        self._busy: frozenset[int] = frozenset()  # the segments that a rebuild is joining
        self._local = threading.local()
        self._together: dict[int, bool] = {}

    # -- changes --------------------------------------------------------------------------------

    def add(self, sub: int, filter: Filter | str) -> None:
        """Take in a subscription. Raises KeyError if it is known. Cost: about a logarithm of the size, amortised."""
        boxes = self._boxes(filter)
        with self._changing:
            self._check_new((sub,))
            self._change({sub: boxes}, ())

    def discard(self, sub: int) -> None:
        """Forget a subscription, if it is known."""
        with self._changing:
            self._change({}, (sub,))

    def replace(self, sub: int, filter: Filter | str) -> None:
        """Give a subscription another filter, known or not; no match sees both or none."""
        boxes = self._boxes(filter)
        with self._changing:
            self._change({sub: boxes}, (sub,))

    def add_texts(self, subs: Iterable[int], texts: Iterable[str]) -> None:
        """Take in many filters as texts, all or none. Raises KeyError, or FilterError that says which text."""
        self._add_bulk(subs, columns_of_texts(texts, self.schema, self.predicates))

    def add_columns(self, subs: Iterable[int], bounds: Mapping[str, Any]) -> None:
        """Take in many filters as columns: for each attribute (low, high), both included, or the values to equal.

        NaN, None or NULL is no bound. Arrays may be numpy's or Arrow's.
        """
        self._add_bulk(subs, BoxColumns.from_bounds(bounds))

    def discard_many(self, subs: Iterable[int]) -> None:
        """Forget many subscriptions at once."""
        with self._changing:
            self._change({}, [int(sub) for sub in subs])

    def _boxes(self, filter: Filter | str) -> tuple[Box, ...]:
        parsed = parse(filter, self.predicates) if isinstance(filter, str) else as_filter(filter)
        return normalize(parsed, self.schema).boxes

    def _add_bulk(self, subs: Iterable[int], columns: BoxColumns) -> None:
        ids = np.fromiter(subs, np.int64) if not isinstance(subs, np.ndarray) else subs.astype(np.int64)
        if len(columns.owners) and columns.owners[-1] >= len(ids):
            raise ValueError(f"{len(ids)} subscriptions for more filters than that")
        if len(np.unique(ids)) != len(ids):
            raise KeyError("a subscription comes twice in one call")
        with self._changing:
            self._check_new(ids)
            view = _view(Segment.build(rows_of_columns(columns, ids)))
            self._version = self._version._replace(views=(*self._version.views, view))
            self._tidy()

    def _check_new(self, subs: Iterable[int] | NDArray[np.int64]) -> None:
        version = self._version
        for view in version.views:
            if isinstance(subs, np.ndarray):
                known = subs[np.isin(subs, view.segment.rows.subs)].tolist()
            else:
                known = list(subs)
            for sub in known:
                if view.slot(sub) >= 0:
                    raise KeyError(f"subscription {sub} is known: use replace")
        for sub in version.tail if isinstance(subs, np.ndarray) else subs:
            if sub in version.tail and (not isinstance(subs, np.ndarray) or sub in subs):
                raise KeyError(f"subscription {sub} is known: use replace")

    def _change(self, added: Mapping[int, tuple[Box, ...]], dropped: Sequence[int]) -> None:
        """One new version without the dropped and with the added."""
        views, tail = list(self._version.views), dict(self._version.tail)
        for sub in dropped:
            if tail.pop(sub, None) is None:
                for at, view in enumerate(views):
                    slot = view.slot(sub)
                    if slot >= 0:
                        views[at] = view._replace(dead=view.dead | {slot})
                        if len(views[at].dead) > self._tail:
                            views[at] = _buried(views[at])
                        break
        tail.update(added)
        self._version = Version(tuple(views), tail)
        if len(tail) > self._tail or dropped:
            self._tidy()

    # -- joining segments -----------------------------------------------------------------------

    def _tidy(self) -> None:
        """Put a full tail into a segment, join segments of like size, and large ones in the background."""
        version = self._version
        if len(version.tail) > self._tail:
            version = Version((*version.views, _of_tail(version.tail)), {})
        busy = [view for view in version.views if id(view.segment) in self._busy]  # the rebuild has them
        free = [view for view in version.views if id(view.segment) not in self._busy and view.size]
        while free:
            least = min(len(view.alive) for view in free)
            small = [view for view in free if len(view.alive) <= self._fan * least]
            if len(small) < self._fan or sum(view.size for view in small) > self._large:
                break
            free = [view for view in free if len(view.alive) > self._fan * least] + [_joined(small)]
        self._version = Version((*busy, *free), version.tail)
        if self._rebuild is None and self._wants_rebuild():
            self._start_rebuild()

    def _wants_rebuild(self) -> bool:
        """Whether much is dead, or too much has gathered beside the largest segment."""
        views = self._version.views
        if not views:
            return False
        most = max(len(view.alive) for view in views)
        living = sum(view.size for view in views)
        total = sum(len(view.alive) for view in views)
        return (
            total > 2 * living + self._tail
            or (len(views) > self._fan)
            or (len(views) > 1 and total - most > max(self._large, most // 8))
        )

    def _start_rebuild(self) -> None:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="weft-index")
        views = self._version.views
        self._busy = frozenset(id(view.segment) for view in views)
        rebuild = self._executor.submit(self._run_rebuild, views)
        self._rebuild = None if rebuild.done() else rebuild  # an executor may run it here and now

    def _run_rebuild(self, views: tuple[View, ...]) -> None:
        """Join the views into one segment, then put it in their place, without what died meanwhile."""
        try:
            made = _joined(views) if any(view.size for view in views) else None
            with self._changing:
                current = {id(view.segment): view for view in self._version.views}
                if made is not None:
                    made = _bury_late(made, [(view, current[id(view.segment)]) for view in views])
                rest = tuple(view for view in self._version.views if id(view.segment) not in self._busy)
                self._version = Version(((made,) if made is not None else ()) + rest, self._version.tail)
        finally:
            with self._changing:
                self._rebuild, self._busy = None, frozenset()

    def settle(self) -> None:
        """Wait for the rebuild that goes on, if one does."""
        rebuild = self._rebuild
        if rebuild is not None:
            rebuild.result()

    # -- matching -------------------------------------------------------------------------------

    def __len__(self) -> int:
        version = self._version
        return sum(view.size for view in version.views) + len(version.tail)

    def __contains__(self, sub: object) -> bool:
        version = self._version
        return isinstance(sub, int) and (sub in version.tail or any(view.slot(sub) >= 0 for view in version.views))

    def match(self, event: AnyEvent) -> Ids:
        """The subscriptions that the event matches, in no order, each once."""
        version = self._version
        values = event.attributes if isinstance(event, Event) else event
        found = [self._match_one(view, values) for view in version.views]
        if version.tail:
            wanted = [sub for sub, boxes in version.tail.items() if any(values in box for box in boxes)]
            found.append(np.array(wanted, np.int64))
        return found[0] if len(found) == 1 else np.concatenate([np.zeros(0, np.int64), *found])

    def match_batch(self, batch: pa.RecordBatch | pa.Table | Sequence[AnyEvent]) -> Matches:
        """The subscriptions of each event."""
        version = self._version
        return _chained([self._match_columns(version, piece) for piece in self._pieces(version, batch)])

    def count_batch(self, batch: pa.RecordBatch | pa.Table | Sequence[AnyEvent]) -> NDArray[np.int64]:
        """How many subscriptions each event matches."""
        version = self._version
        pieces = self._pieces(version, batch)
        return np.concatenate([np.zeros(0, np.int64), *(self._count(version, piece, search.COUNT) for piece in pieces)])

    def any_batch(self, batch: pa.RecordBatch | pa.Table | Sequence[AnyEvent]) -> NDArray[np.bool_]:
        """Whether anybody wants each event. An event is dropped from the search as soon as somebody does."""
        version = self._version
        pieces = self._pieces(version, batch)
        counts = [np.zeros(0, np.int64), *(self._count(version, piece, search.ANY) for piece in pieces)]
        return np.concatenate(counts) > 0

    def _match_one(self, view: View, values: Mapping[str, Value | None]) -> Ids:
        segment = view.segment
        tree = segment.tree
        buffers = self._scratch()
        buffers.out, found = search.event_by_event(
            tree.nodes, tree.children, tree.columns, tree.data, tree.ids, view.live,
            segment.rows.encode_one(values), buffers.out, buffers.offsets, buffers.counts, search.FIND,
        )  # fmt: skip
        ids = buffers.out[:found]
        if len(segment.special):
            _, ids = settle(segment, buffers.offsets, ids, {0: values})
        if view.dead:
            ids = ids[~np.isin(ids, list(view.dead))]
        return segment.rows.subs[ids]

    def _scratch(self) -> _Buffers:
        """This thread's buffers: memory that has been used is much faster than new memory."""
        try:
            return self._local.buffers  # type: ignore[no-any-return]
        except AttributeError:
            self._local.buffers = _Buffers()
            return self._local.buffers  # type: ignore[no-any-return]

    def _pieces(self, version: Version, batch: Any) -> Iterator[EventColumns]:
        names = frozenset[str]().union(*(view.segment.rows.names for view in version.views))
        names |= {name for boxes in version.tail.values() for box in boxes for name in _names(box)}
        widest = max((len(view.segment.rows.dimensions) for view in version.views), default=1)
        step = max(1, _MOST_CODES // max(1, widest))
        for part in batch.to_batches() if hasattr(batch, "to_batches") else (batch,):
            size = part.num_rows if hasattr(part, "num_rows") else len(part)
            for first in range(0, size, step):
                piece = part if size <= step else _sliced(part, first, step)
                yield EventColumns.of(piece, names)

    def _match_columns(self, version: Version, events: EventColumns) -> Matches:
        found = [self._match_view(view, events) for view in version.views]
        if version.tail:
            found.append(_match_tail(version.tail, events))
        return found[0] if len(found) == 1 else _merged(found, events.size)

    def _match_view(self, view: View, events: EventColumns) -> Matches:
        segment = view.segment
        tree = segment.tree
        codes = segment.rows.encode(events)
        offsets = np.zeros(events.size + 1, np.int64)
        buffers = self._scratch()
        arrays = (tree.nodes, tree.children, tree.columns, tree.data, tree.ids, view.live)
        together = self._is_together(segment, codes)
        if together:
            buffers.out, buffers.whose, found = search.all_together(*arrays, codes, buffers.out, buffers.whose, offsets)
        else:
            buffers.out, found = search.event_by_event(
                *arrays, codes, buffers.out, offsets, buffers.counts, search.FIND
            )
        ids = buffers.out[:found]
        subs = segment.rows.subs
        if together and not len(segment.special) and not view.dead:  # the common case, in as few passes as can be
            sorted_subs = np.empty(found, np.int64)
            search.by_event(subs[ids], buffers.whose[:found], offsets, sorted_subs)
            return Matches(offsets, sorted_subs)
        if together:
            ids = np.empty(found, np.int32)
            search.by_event(buffers.out[:found], buffers.whose[:found], offsets, ids)
        if len(segment.special):
            offsets, ids = settle(segment, offsets, ids, _Attributes(events, segment))
        if view.dead:
            offsets, ids = _without(offsets, ids, view.dead)
        return Matches(offsets, subs[ids])

    def _is_together(self, segment: Segment, codes: NDArray[np.int32]) -> bool:
        """Whether batches are best searched all together; decided by the first events that a segment sees."""
        known = self._together.get(id(segment))
        if known is None:
            sample = codes[:64]
            known = len(sample) > 0 and search.reach(segment.tree.nodes, segment.tree.children, sample) > (
                _MANY_LEAVES * len(sample)
            )
            if len(self._together) > 64:
                self._together.clear()
            self._together[id(segment)] = known
        return known and len(codes) > 2

    def _count(self, version: Version, events: EventColumns, mode: int) -> NDArray[np.int64]:
        total = np.zeros(events.size, np.int64)
        for view in version.views:
            segment = view.segment
            if view.dead:
                total += self._match_view(view, events).counts
                continue
            tree = segment.tree
            counts, offsets = np.zeros(events.size, np.int64), np.zeros(events.size + 1, np.int64)
            buffers = self._scratch()
            buffers.out, found = search.event_by_event(
                tree.nodes, tree.children, tree.columns, tree.data, tree.ids, view.live,
                segment.rows.encode(events), buffers.out, offsets, counts, mode,
            )  # fmt: skip
            ids = buffers.out[:found]
            if len(ids):
                offsets, ids = settle(segment, offsets, ids, _Attributes(events, segment))
            total += counts + np.diff(offsets)
        if version.tail:
            total += _match_tail(version.tail, events).counts
        return total

    # -- what is in it --------------------------------------------------------------------------

    def filter(self, sub: int) -> Filter:
        """A subscription's filter, or one that means the same. Raises KeyError."""
        version = self._version
        if sub in version.tail:
            return express(NormalForm(version.tail[sub], self.schema))
        for view in version.views:
            slot = view.slot(sub)
            if slot >= 0:
                rows = view.segment.rows
                if slot in rows.texts:
                    return parse(rows.texts[slot], self.predicates)
                return express(simplify((rows.box(row) for row in rows.rows_of(slot)), self.schema))
        raise KeyError(f"there is no subscription {sub}")

    def explain(self, event: AnyEvent, sub: int) -> Trace:
        """Why the event matches the subscription or not: the truth of each part of its filter, with the values.

        >>> index = TreeIndex()
        >>> index.add(1, "x > 5 AND y = 'a'")
        >>> [str(part.filter) for part in index.explain({"x": 3, "y": "a"}, 1).parts if not part.truth]
        ['x > 5']
        """
        return trace(self.filter(sub), event if isinstance(event, Event) else Event.of(event))

    def stats(self) -> Stats:
        """Sizes, shape and costs."""
        return stats_of(self._version.views, len(self._version.tail))

    def snapshot(self, path: str | Path) -> None:
        """Write the index to a directory that `open` maps into memory; an older snapshot there is replaced."""
        version = self._version
        views = [*version.views, *([_of_tail(version.tail)] if version.tail else [])]
        if len(views) == 1 and len(views[0].alive) == views[0].size:
            segment = views[0].segment
        else:
            segment = _joined(views or [_of_tail({})]).segment
        write_snapshot(Path(path), segment, self.schema)

    @staticmethod
    def open(
        path: str | Path, *, predicates: Predicates = NO_PREDICATES, executor: Executor | None = None
    ) -> TreeIndex:
        """The index of a snapshot; many processes that open one share its memory. Raises SnapshotError.

        It can be changed like any other; the changes are not written back.
        """
        segment, schema = read_snapshot(Path(path), predicates)
        index = TreeIndex(schema, predicates=predicates, executor=executor)
        index._version = Version((_view(segment),))
        return index

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        version = self._version
        seen: set[int] = set(version.tail)
        for view in version.views:
            rows = view.segment.rows
            assert len(view.alive) == len(rows.subs)
            assert (np.diff(rows.slots) >= 0).all()
            assert all(view.alive[slot] for slot in view.dead)
            alive = view.alive.copy()
            alive[list(view.dead)] = False
            living = set(rows.subs[alive].tolist())
            assert seen.isdisjoint(living), "a subscription lives twice"
            seen |= living
            for at, dimension in enumerate(rows.dimensions):
                here = rows.dims == at
                assert (rows.lows[here] >= 0).all()
                assert (rows.highs[here] < dimension.size).all()
                assert (rows.lows[here] <= rows.highs[here]).all()
        assert len(seen) == len(self)


class _Attributes(dict[int, Mapping[str, Value | None]]):
    """The events of a batch as mappings, made when a box asks."""

    def __init__(self, events: EventColumns, segment: Segment) -> None:
        super().__init__()
        self._events = events
        self._names = frozenset(name for box in segment.rows.boxes.values() for name in _names(box))

    def __missing__(self, event: int) -> Mapping[str, Value | None]:
        made = self[event] = {name: self._events.values(name)[event] for name in self._names}
        return made


def _names(box: Box) -> Iterator[str]:
    yield from box.sets
    for subject in box.residuals:
        yield from subject.names


def _view(segment: Segment) -> View:
    return View(segment, segment.tree.live, np.ones(len(segment.rows.subs), bool), frozenset())


def _of_tail(tail: Mapping[int, tuple[Box, ...]]) -> View:
    owners = [owner for owner, boxes in enumerate(tail.values()) for _ in boxes]
    columns = BoxColumns.of([box for boxes in tail.values() for box in boxes], owners)
    return _view(Segment.build(rows_of_columns(columns, np.fromiter(tail, np.int64))))


def _joined(views: Sequence[View]) -> View:
    alive = []
    for view in views:
        living = view.alive.copy()
        living[list(view.dead)] = False
        alive.append(living)
    return _view(Segment.build(join_rows([view.segment.rows for view in views], alive)))


def _buried(view: View) -> View:
    """The view with its newest dead taken out of the tree for good."""
    if not view.dead:
        return view
    alive = view.alive.copy()
    alive[list(view.dead)] = False
    return View(view.segment, view.segment.without(view.live, sorted(view.dead)), alive, frozenset())


def _bury_late(made: View, views: Sequence[tuple[View, View]]) -> View:
    """The joined view without what died between its views' being taken and now."""
    gone: list[int] = []
    for before, after in views:
        died = (set(np.flatnonzero(before.alive & ~after.alive).tolist()) | after.dead) - before.dead
        gone += before.segment.rows.subs[sorted(died)].tolist()
    slots = (made.segment.slot(sub) for sub in gone)
    return _buried(made._replace(dead=frozenset(slot for slot in slots if slot >= 0)))


def _without(
    offsets: NDArray[np.int64], ids: NDArray[np.int32], dead: frozenset[int]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    keep = ~np.isin(ids, list(dead))
    kept = np.concatenate([[0], np.cumsum(keep)])
    return kept[offsets], ids[keep]


def _match_tail(tail: Mapping[int, tuple[Box, ...]], events: EventColumns) -> Matches:
    names = {name for boxes in tail.values() for box in boxes for name in _names(box)}
    columns = {name: events.values(name) for name in names}
    found: list[int] = []
    offsets = [0]
    for row in range(events.size):
        values = {name: column[row] for name, column in columns.items()}
        found += [sub for sub, boxes in tail.items() if any(values in box for box in boxes)]
        offsets.append(len(found))
    return Matches(np.array(offsets, np.int64), np.array(found, np.int64))


def _merged(parts: Sequence[Matches], size: int) -> Matches:
    """The matches of each event from all parts."""
    counts = sum((part.counts for part in parts), np.zeros(size, np.int64))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ids = np.empty(int(offsets[-1]), np.int64)
    free = offsets[:-1].copy()
    for part in parts:
        at = np.repeat(free - part.offsets[:-1], part.counts) + np.arange(len(part.ids))
        ids[at] = part.ids
        free += part.counts
    return Matches(offsets, ids)


def _chained(parts: Sequence[Matches]) -> Matches:
    """The matches of batches that follow each other."""
    if len(parts) == 1:
        return parts[0]
    ends = np.cumsum([0, *(len(part.ids) for part in parts)])
    offsets = [np.zeros(1, np.int64), *(part.offsets[1:] + end for part, end in zip(parts, ends[:-1], strict=True))]
    return Matches(np.concatenate(offsets), np.concatenate([np.zeros(0, np.int64), *(part.ids for part in parts)]))


def _sliced(part: Any, first: int, step: int) -> Any:
    return part.slice(first, step) if hasattr(part, "slice") else part[first : first + step]
