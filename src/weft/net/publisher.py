"""What a client has published and the broker has not confirmed. Laws: events are stored in the order in which they were
added, each once; an event that is refused is reported alone, and those behind it are sent again under new numbers.

Unconfirmed events have consecutive numbers, of which the first `_sent` are on their way. A refusal ends the epoch: the
events before it are still confirmed, then a new epoch begins with the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from weft.broker.messages import NewEpoch, Publish, Published, Refused

THROTTLED = "rate"  # the code of a refusal that says nothing against the event: it is sent again later
FULL = "full"  # the code of a refusal that concerns every event that waits


class UnconfirmedEvent(msgspec.Struct, gc=False):
    """An event on its way to the broker. `receipt` is whatever its publisher wants back."""

    attributes: msgspec.Raw
    payload: bytes = b""
    datacontenttype: str = ""
    ttl: int = 0
    receipt: object = None
    position: int = 0  # among the events of its receipt

    def numbered(self, sequence: int) -> Publish:
        """The message; 0 is an event that is not durable."""
        return Publish(sequence, self.attributes, self.payload, self.datacontenttype, self.ttl)


class NotStored(msgspec.Struct, frozen=True):
    """Events that were refused, and why."""

    events: list[UnconfirmedEvent]
    code: str
    reason: str


class Publisher:
    """The publishing side of a session.

    >>> publisher = Publisher()
    >>> publisher.welcomed(1, 0, kept=False)
    []
    >>> publisher.add([UnconfirmedEvent(msgspec.Raw(b"\\x80"))])
    >>> [event.sequence for event in publisher.take()], len(publisher.confirmed(Published(1, 1))), publisher.waiting
    ([1], 1, 0)
    """

    def __init__(self) -> None:
        self.epoch = 0  # 0: the broker says which
        self._events: deque[UnconfirmedEvent] = deque()
        self._first = 1  # the number of the first event
        self._sent = 0  # how many of them were sent on this connection
        self._over = 0  # the number that was refused, or 0; nothing is sent until a new epoch begins
        self.throttled = False  # whether the broker asked to publish more slowly; `go_on` ends it

    @property
    def waiting(self) -> int:
        """How many events are not confirmed."""
        return len(self._events)

    def add(self, events: Iterable[UnconfirmedEvent]) -> None:
        """Publish events, behind all others."""
        self._events.extend(events)

    # -- what is sent -----------------------------------------------------------------------------------

    def take(self, most: int = 1 << 62) -> list[Publish | NewEpoch]:
        """The messages to send now, `most` events at most. Only call it while the session is welcome."""
        said: list[Publish | NewEpoch] = []
        if self._over:
            if self._first < self._over or self.throttled:
                return said  # events before the refused one are on their way into the log
            self.epoch += 1
            self._first, self._sent, self._over = 1, 0, 0
            said.append(NewEpoch(self.epoch))
        count = min(len(self._events) - self._sent, most)
        if count <= 0:
            return said
        sequence = self._first + self._sent
        if self._sent == 0 and count == len(self._events):
            some: Iterable[UnconfirmedEvent] = self._events
        else:
            some = [self._events[self._sent + at] for at in range(count)]
        said += [event.numbered(number) for number, event in enumerate(some, sequence)]
        self._sent += count
        return said

    def go_on(self) -> None:
        """The pause that the broker asked for is over."""
        self.throttled = False

    # -- what the broker says ---------------------------------------------------------------------------

    def confirmed(self, message: Published) -> list[UnconfirmedEvent]:
        """Events that are stored."""
        return self._pop(message.upto) if message.pub_epoch == self.epoch else []

    def refused(self, message: Refused) -> NotStored | None:
        """An event that is not stored. None, if all of them are to be sent again."""
        if message.pub_epoch != self.epoch or not message.sequence:
            return None
        if self._over and message.sequence >= self._over:
            return None  # a full log may still refuse events before one that was refused
        at = message.sequence - self._first
        if not 0 <= at < len(self._events):
            return None
        self._over = message.sequence
        if message.code == THROTTLED:
            self.throttled = True
            return None
        if message.code == FULL:
            failed = [self._events.pop() for _ in range(len(self._events) - at)][::-1]
        else:
            failed = [self._events[at]]
            del self._events[at]
        self._sent = min(self._sent, len(self._events))
        return NotStored(failed, message.code, message.reason)

    def welcomed(self, epoch: int, stored: int, *, kept: bool) -> list[UnconfirmedEvent]:
        """A connection begins; returns events that turn out to be stored.

        `kept` says that the broker knows this publisher: then `stored` is the last event of the epoch that it has.
        Otherwise nobody knows what became of unconfirmed events; they are sent again, and may be stored twice.
        """
        self.throttled = False
        if not kept or epoch != self.epoch:
            self.epoch, self._first, self._sent, self._over = epoch, stored + 1, 0, 0
            return []
        done = self._pop(stored)
        self._sent = 0
        if self._over:
            self._over = self._first  # all before the refused event are stored, or never arrived: a new epoch begins
        return done

    def lost(self) -> None:
        """The connection is gone."""
        self._sent = 0

    def abandon(self) -> list[UnconfirmedEvent]:
        """Give up; returns everything that is not confirmed."""
        left = list(self._events)
        self._events.clear()
        self._sent = 0
        return left

    def _pop(self, upto: int) -> list[UnconfirmedEvent]:
        count = min(upto - self._first + 1, len(self._events))
        if self._over:
            count = min(count, self._over - self._first)
        if count <= 0:
            return []
        self._first += count
        self._sent = max(0, self._sent - count)
        events = self._events
        if count == len(events):
            done = list(events)
            events.clear()
            return done
        return [events.popleft() for _ in range(count)]
