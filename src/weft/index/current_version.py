"""The current version of an index, and how it is replaced. A reader keeps the version that it has read. A change does
one small piece of work at most. A rebuilt segment has nothing in it that died in the meantime.

A change puts a full tail into a segment, or joins a few small segments. Larger ones are joined by the executor, in the
background. In the child of a fork, everything that belonged to other threads begins anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakSet

from weft.algebra.box import Box
from weft.index.joining import Joining, joining_cost
from weft.index.version import Build, SegmentView, Version, buried, bury_late, joined, view_of_tail
from weft.index.weight import weigh
from weft.model.limits import LIMITS

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future


def _let_others_run() -> None:
    """A thread that waits for the interpreter's lock gets it now, and not only when it has waited for milliseconds."""
    threading.Event().wait(0.00005)


def _no_pause() -> None:
    pass


@dataclass(frozen=True, slots=True)
class FlushOnMatch:
    """When a match flushes the buffered changes first, so that it need not look at them one by one.

    It does if more than `changes` are buffered, or if there are more than `tests` pairs of a buffered change and an
    event.
    """

    changes: int | None = None
    tests: int | None = None

    def is_due(self, buffered: int, events: int) -> bool:
        """Whether so many buffered changes are flushed before so many events are matched."""
        changes, tests = self.changes, self.tests
        return (changes is not None and buffered > changes) or (tests is not None and buffered * events > tests)


class CurrentVersion:
    """A version that is replaced by each change.

    Matches read `value` once, and need no lock. A change holds `changing`.
    """

    def __init__(
        self, build: Build, joining: Joining, executor: Executor | None = None, on_match: FlushOnMatch | None = None
    ) -> None:
        self.value = Version()
        self.build, self.joining, self.on_match = build, joining, on_match
        self.flushes = 0
        self.flushed: Version | None = None  # the latest version that is known to have nothing buffered
        self._rested: Version | None = None  # the version of the last call of `rest`
        self.changing = threading.RLock()
        self._executor = executor
        self._weight = 0  # of the tail
        self._untidy = False  # whether there may be small segments to join
        self._rebuild: Future[None] | None = None
        self.busy: frozenset[int] = frozenset()  # the segments that a rebuild is joining
        self._detours = 0  # searches of one more segment than the largest, since the last time all were joined
        _ALL.add(self)

    def adopt(self, version: Version) -> None:
        """Begin with a version of another index."""
        self.value, self._weight = version, sum(map(weigh, version.tail.values()))

    # -- changes --------------------------------------------------------------------------------

    def change(self, added: Mapping[int, tuple[Box, ...]], dropped: Sequence[int], weight: int = 0) -> None:
        """Make a version without the dropped and with the added, which have a weight; do a piece of the work that
        waits.
        """
        self._weight += weight
        version, buried_some = self._without(dropped) if dropped else (self.value, False)
        tail = {**version.tail, **added}
        self.value = Version(version.views, tail)
        self._weight = self._weight if tail else 0
        self.flushes += buried_some
        full = self._is_full(tail)
        if full and self.on_match is not None:
            self.flush()
        elif buried_some or full or (self._untidy and self.on_match is None):  # else the next flush tidies up
            self._tidy()

    def append(self, view: SegmentView, dropped: Sequence[int]) -> None:
        """Make a version without the dropped and with one more segment."""
        version, _ = self._without(dropped)
        self.value = version._replace(views=(*version.views, view))
        self._untidy = True
        self._tidy()

    def _without(self, dropped: Sequence[int]) -> tuple[Version, bool]:
        """The version without some subscriptions, and whether any were buried."""
        version = self.value
        tail = dict(version.tail)
        rest = [sub for sub in dropped if tail.pop(sub, None) is None]
        views, buried_some = version.without(rest, self.joining.tail) if rest else (version.views, False)
        return Version(views, tail), buried_some

    def _is_full(self, tail: Mapping[int, tuple[Box, ...]]) -> bool:
        if len(tail) > self.joining.tail:
            return True
        return self.on_match is None and bool(tail) and self._weight > LIMITS.tail_weight

    # -- flushing -------------------------------------------------------------------------------

    def ready(self, events: int) -> Version:
        """The version in which so many events are matched. Buffered changes are flushed first, if that is due."""
        version = self.value
        if version is self.flushed or self.on_match is None:
            return version
        buffered = version.buffered
        if not buffered:
            self.flushed = version
        elif self.on_match.is_due(buffered, events):
            self.flush()
            return self.value
        return version

    def flush(self) -> None:
        """Put the tail into a segment, take the newest dead out of the trees, and join small segments."""
        with self.changing:
            version = self.value
            if not version.buffered:
                return
            views = tuple(map(buried, version.views))
            if version.tail:
                views = (*views, view_of_tail(version.tail, self.build))
            self.value = Version(views, {})
            self._weight, self._untidy = 0, True
            self.flushes += 1
            self._tidy()

    def rest(self) -> bool:
        """Flush if there was no change since the last call. Returns whether something is still buffered."""
        version = self.value
        if not version.buffered:
            return False
        if version is not self._rested:
            self._rested = version
            return True
        self.flush()
        return False

    # -- joining segments -----------------------------------------------------------------------

    def _tidy(self) -> None:
        """Put a full tail into a segment, or else join small segments; start a rebuild if one is due."""
        version = self.value
        if self._is_full(version.tail):
            version = Version((*version.views, view_of_tail(version.tail, self.build)), {})
            self._weight, self._untidy = 0, True
            self.flushes += 1
        elif small := self.joining.on_the_way(version.views, self.busy):
            gone = {id(view.segment) for view in small}
            rest = (view for view in version.views if id(view.segment) not in gone)
            version = Version((*rest, joined(small, self.build)), version.tail)
        else:
            self._untidy = False
        busy = self.busy  # what a rebuild has stays, even if all of it is dead
        self.value = version._replace(views=tuple(v for v in version.views if v.size or id(v.segment) in busy))
        if self._rebuild is None and (views := self.joining.in_background(self.value.views)):
            self._start_rebuild(views)

    def _start_rebuild(self, views: tuple[SegmentView, ...]) -> None:
        self.busy = frozenset(id(view.segment) for view in views)
        if self.joining.is_small(views):
            self._run_rebuild(views, _no_pause)
            return
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(1, thread_name_prefix="weft-index")
        rebuild = self._executor.submit(self._run_rebuild, views)
        self._rebuild = None if rebuild.done() else rebuild  # an executor may run it here and now

    def _run_rebuild(self, views: tuple[SegmentView, ...], pause: Callable[[], None] = _let_others_run) -> None:
        """Join the views into one segment, then put it in their place, without what died meanwhile."""
        try:
            made = joined(views, self.build, pause) if any(view.size for view in views) else None
            if made is not None:  # most of what died meanwhile, while others change; the rest when they wait
                now = self.value.of(views)
                made, views = bury_late(made, views, now), now
            with self.changing:
                if made is not None:
                    made = bury_late(made, views, self.value.of(views))
                gone = {id(view.segment) for view in views}
                rest = tuple(view for view in self.value.views if id(view.segment) not in gone)
                self.value = Version(((made,) if made is not None else ()) + rest, self.value.tail)
        except BaseException:
            with self.changing:
                self._rebuild, self.busy = None, frozenset()
            raise
        with self.changing:  # more may have gathered meanwhile, and nobody may change the index again
            self._rebuild, self.busy = None, frozenset()
            if more := self.joining.in_background(self.value.views):
                self._start_rebuild(more)

    def took_detours(self, events: int, version: Version) -> None:
        """Events were matched in several segments. When that has cost about as much as joining all would, they are
        joined, however seldom the index changes. Threads may overwrite each other's count, which does no harm.
        """
        self._detours += events * (len(version.views) - 1)
        if (
            self._detours <= version.size
            or self._detours <= joining_cost(version.views)
            or self._rebuild is not None
            or not self.changing.acquire(blocking=False)
        ):
            return
        try:
            self._detours = 0
            if self._rebuild is None and len(self.value.views) > 1:
                self._start_rebuild(self.value.views)
        finally:
            self.changing.release()

    def settle(self) -> None:
        """Wait until no rebuild is going on."""
        while True:
            with self.changing:  # between two rebuilds there is none for a moment
                rebuild = self._rebuild
            if rebuild is None:
                return
            rebuild.result()

    def after_fork(self) -> None:
        """In the child of a fork: its lock, rebuild and executor belonged to threads that are not here."""
        self.changing = threading.RLock()
        self._executor, self._rebuild, self.busy = None, None, frozenset()


_ALL: WeakSet[CurrentVersion] = WeakSet()


def settle_all() -> None:
    """Wait until no index of this process is being rebuilt in the background, not even one that nobody refers to.

    Cost: what is left of the work.

    >>> settle_all()
    """
    for current in list(_ALL):
        current.settle()


def _all_after_fork() -> None:
    for current in list(_ALL):
        current.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_all_after_fork)
