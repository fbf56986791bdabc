"""When a change is complete: known on every path. Law: never early.

A change comes from a client or from a neighbour. When all its consequences are told, every other link has been sent
certain control frames; the change is complete when each of these links has completed all of them. It does not matter
which frames the change itself has caused: one may be covered by an item that is still on its way, and cause none.

- A change of subscriptions waits for the frames about subscriptions on every link but its source.
- A change of advertisements waits for the frames about advertisements there, and for those about subscriptions to its
  source: the source is told which subscriptions its new advertisements meet.

So subscriptions wait for subscriptions, away from their source, and advertisements for advertisements, away from their
source, and for subscriptions: on a tree nothing waits for itself. Were both kinds counted together, two brokers that
exchange advertisements would wait for each other for ever.

A link that is cut is waited for until it is there again and has what it should have, or is detached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft.broker.effects import Now
from weft.routing.table import About, Link, RoutingTable, Source

Done = Callable[[Now], None]


class PendingChange:
    """A change, and the links that have not completed it."""

    __slots__ = ("_completion", "about", "done", "left", "marked", "source")

    def __init__(self, completion: Completion, source: Source, about: About, done: Done) -> None:
        self._completion = completion
        self.source = source
        self.about = about
        self.done = done
        self.left: set[Link] = set()
        self.marked = False  # False: some of its consequences may not have been told yet

    @property
    def complete(self) -> bool:
        """Whether no link is waited for."""
        return self.marked and not self.left

    def awaits(self, link: Link) -> About:
        """Which frames of a link it waits for."""
        return About.SUBSCRIPTIONS if link == self.source else self.about

    def completed(self, link: Link) -> None:
        """A link has completed what it was sent before the mark, or is gone."""
        self.left.discard(link)
        if not self.left:
            self._completion.finished.append(self)


class Completion:
    """The changes of one broker that are not complete."""

    def __init__(self, table: RoutingTable) -> None:
        self._table = table
        self._mark: Callable[[Link, PendingChange], None] | None = None
        self._links: Callable[[], Iterable[Link]] = tuple
        self._unsettled: list[PendingChange] = []
        self.finished: list[PendingChange] = []  # whose `done` is to be called

    def connect(self, links: Callable[[], Iterable[Link]], mark: Callable[[Link, PendingChange], None]) -> None:
        """Say which links there are, and how to put a mark behind everything that a link is told so far."""
        self._links, self._mark = links, mark

    def begin(self, source: Source, about: About, done: Done) -> PendingChange:
        """A change was made in the table, and its first consequences were told."""
        change = PendingChange(self, source, about, done)
        if self._table.pending:
            self._unsettled.append(change)
        else:
            self._put_marks(change)
        return change

    def settle(self) -> None:
        """Put the marks of changes whose consequences are all told by now."""
        if self._unsettled and not self._table.pending:
            unsettled, self._unsettled = self._unsettled, []
            for change in unsettled:
                self._put_marks(change)

    def _put_marks(self, change: PendingChange) -> None:
        change.marked = True
        advertised = change.about is About.ADVERTISEMENTS
        change.left = {link for link in self._links() if link != change.source or advertised}
        if not change.left:
            self.finished.append(change)
            return
        assert self._mark is not None
        for link in sorted(change.left):
            self._mark(link, change)
