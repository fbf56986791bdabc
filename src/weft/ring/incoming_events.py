"""Events of the ring on their way to the broker. Laws: an event is handed to the broker once, and answered when the
broker has stored it; what was not stored in one session is handed over again in the next.

Events are told apart by their origin, which the broker's log has, too: after a restart it says what was stored before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from weft.broker.link_messages import LinkEvent
from weft.errors import RemoteProtocolError
from weft.log.base import Offset
from weft.ring.rendezvous_messages import EventId, Publication

Origin = tuple[int, int, int]  # the publisher's session, its epoch and its sequence there
_REMEMBERED = 100_000  # events that were stored

_encode = msgspec.msgpack.Encoder().encode


class _Body(NamedTuple):
    """What travels with an event besides its attributes."""

    session: int
    epoch: int
    sequence: int
    head: bytes
    payload: bytes


_body = msgspec.msgpack.Decoder(_Body).decode


def body_of(event: LinkEvent) -> bytes:
    """What is to travel with an event of the broker."""
    return _encode(_Body(event.session, event.epoch, event.sequence, bytes(event.head), event.payload))


class IncomingEvents:
    """What the broker has not stored yet, and what it has. `had` are the origins that its log knows."""

    def __init__(self, had: Iterable[Origin] = ()) -> None:
        self._offset = 0  # of the last event, as the broker knows it
        self._events: deque[tuple[EventId, Origin, LinkEvent]] = deque()
        self._waiting: set[Origin] = set()  # the same by origin
        self._done: dict[Origin, None] = dict.fromkeys(had)
        self.count = 0

    def arrived(self, event: Publication) -> LinkEvent | bool:
        """What the broker is to be told of an event; False if it has been told already, True if it has stored it.

        Raises RemoteProtocolError if the event cannot be read.
        """
        try:
            body = _body(event.body)
        except ValueError:
            raise RemoteProtocolError("an event of the ring cannot be read") from None
        origin = body.session, body.epoch, body.sequence
        if origin in self._waiting or origin in self._done:
            return origin in self._done
        self._offset += 1
        self.count += 1
        made = LinkEvent(Offset(self._offset), *origin, msgspec.Raw(body.head), body.payload)
        self._events.append((event.id, origin, made))
        self._waiting.add(origin)
        return made

    def since(self, got: int) -> list[LinkEvent]:
        """What the broker is to be told again: it has stored everything up to an offset."""
        return [event for _, _, event in self._events if event.offset > got]

    def stored(self, got: int) -> list[EventId]:
        """The broker has stored everything up to an offset: the events that are new among these."""
        found: list[EventId] = []
        while self._events and self._events[0][2].offset <= got:
            event_id, origin, _ = self._events.popleft()
            self._waiting.remove(origin)
            self._done[origin] = None
            found.append(event_id)
        while len(self._done) > _REMEMBERED:
            del self._done[next(iter(self._done))]
        return found
