"""Weft's own protocol, on light brokers: the target drives, and three markers travel along the links.

Ask, State, Flush and End are what a broker calls `MoveRequest`, `SessionState`, `MoveFlush` and `MoveEnd`. State, Flush
and End are markers: they arrive behind everything that was sent before them on their links. Storing takes no time here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from weftlab.mobility.protocol import Protocol
from weftlab.mobility.trace import MobileEvent
from weftlab.mobility.world import ClientHandover

_Then = Callable[..., Any]


class WeftMove(Protocol):
    """The decided protocol, break-before-make."""

    publishers = True
    make_first: ClassVar[bool] = False  # the client keeps its connection to the source until the cut

    def depart(self, handover: ClientHandover) -> None:
        """Disconnect; or stay connected until the source cuts."""
        if self.make_first:
            self.world.schedule_arrival(handover)
        else:
            self.world.disconnect(handover)

    def arrive(self, handover: ClientHandover) -> None:
        """The target asks the source for the session."""
        self._to_source(handover, "ask", self._asked)

    def _asked(self, handover: ClientHandover) -> None:
        """The source sends the session; from now on it records what it has."""
        if handover.client.mailbox is not None:
            handover.client.mailbox.seen = {}
        self._to_target(handover, "state", self._stated)

    def _stated(self, handover: ClientHandover) -> None:
        """The target subscribes and advertises, collects, and sends the marker behind that."""
        self.set_up(handover)
        self._to_source(handover, "flush", self._flushed, "update")

    def _flushed(self, handover: ClientHandover) -> None:
        """The cut: whatever came before the marker is the source's, everything else the target's."""
        client = handover.client
        if self.make_first:
            handover.cut = self.world.engine.now
        client.send = None
        items = self.release(handover)
        self._to_target(handover, "end", partial(self._ended, items=items), "reply" if client.spec.publishes else "")

    def _ended(self, handover: ClientHandover, items: list[MobileEvent]) -> None:
        client = handover.client
        if client.spec.publishes:
            self.publish_here(handover)
            self.world.finish(handover)
            self._to_source(handover, "finish", partial(self._to_target, kind="done", then=_nothing))
        elif items:
            self._to_source(handover, "pull", partial(self._pulled, items=items))
        else:
            self._filled(handover, items)

    def _pulled(self, handover: ClientHandover, items: list[MobileEvent]) -> None:
        self._to_target(handover, "chunk", partial(self._filled, items=items))

    def _filled(self, handover: ClientHandover, items: list[MobileEvent]) -> None:
        """Inherited events first, then what was collected, without what the source had."""
        seen, mailbox = self.old(handover).seen or {}, self.new(handover)
        mailbox.items = [each for each in mailbox.items if each.event.sequence > seen.get(each.event.publisher, 0)]
        self.take(handover, items)
        self._to_source(handover, "finish", partial(self._to_target, kind="done", then=_nothing))

    def _to_source(self, handover: ClientHandover, kind: str, then: _Then, group: str = "") -> None:
        way = self.path(handover.target, handover.source)
        self.walk(handover, way, kind, partial(then, handover), group)

    def _to_target(self, handover: ClientHandover, kind: str, then: _Then, group: str = "") -> None:
        way = self.path(handover.source, handover.target)
        self.walk(handover, way, kind, partial(then, handover), group)


class WeftMoveMake(WeftMove):
    """The same, make-before-break: the client is served by the source until the cut."""

    make_first = True


def _nothing(_: ClientHandover) -> None:
    pass
