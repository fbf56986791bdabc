"""The current version of an index, and how it is replaced. Laws: whoever has read a version keeps it; a change does one
small piece of work at most; what a rebuild makes has nothing in it that died meanwhile.

A change puts a full tail into a segment, or joins a few small segments. Larger ones are joined by the executor, in the
background. In the child of a fork, everything that belonged to other threads begins anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet

from weft.algebra.box import Box
from weft.index.joining import Joining, joining_cost
from weft.index.version import Build, SegmentView, Version, bury_late, joined, view_of_tail
from weft.index.weight import weigh
from weft.model.limits import LIMITS

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future


def _let_others_run() -> None:
    """A thread that waits for the interpreter's lock gets it now, and not only when it has waited for milliseconds."""
    threading.Event().wait(0.00005)


def _no_pause() -> None:
    pass


class CurrentVersion:
    """A version that is replaced by each change.

    Matches read `value` once, and need no lock. Whoever changes it holds `changing`.
    """

    def __init__(self, build: Build, joining: Joining, executor: Executor | None = None) -> None:
        self.value = Version()
        self.build, self.joining = build, joining
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
        if buried_some or self._untidy or self._is_full(tail):
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
        return len(tail) > self.joining.tail or (bool(tail) and self._weight > LIMITS.tail_weight)

    # -- joining segments -----------------------------------------------------------------------

    def _tidy(self) -> None:
        """Put a full tail into a segment, or else join small segments; start a rebuild if one is due."""
        version = self.value
        if self._is_full(version.tail):
            version = Version((*version.views, view_of_tail(version.tail, self.build)), {})
            self._weight, self._untidy = 0, True
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
        finally:
            with self.changing:
                self._rebuild, self.busy = None, frozenset()
        with self.changing:  # more may have gathered meanwhile, and nobody may change the index again
            if self._rebuild is None and (more := self.joining.in_background(self.value.views)):
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
        while (rebuild := self._rebuild) is not None:
            rebuild.result()

    def after_fork(self) -> None:
        """In the child of a fork: its lock, rebuild and executor belonged to threads that are not here."""
        self.changing = threading.RLock()
        self._executor, self._rebuild, self.busy = None, None, frozenset()


_ALL: WeakSet[CurrentVersion] = WeakSet()


def _all_after_fork() -> None:
    for current in list(_ALL):
        current.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_all_after_fork)
