"""The publishing side of a session: the events that the broker has not confirmed.

Events are stored in the order in which they were added, each once. An event that is refused is reported alone, and
those behind it are sent again under new numbers.

Unconfirmed events have consecutive numbers, of which the first `_sent` are on their way. A refusal ends the epoch: the
events before it are still confirmed, then a new epoch begins with the rest.

An application may also choose the epochs itself (`begin`): whatever it publishes again under the same name, epoch and
position is stored once, even by another process. Then the numbers are the positions, so a refused event cannot be left
out: everything from it on is refused, also what is added later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from weft.protocol.messages import NewEpoch, Publish, Published, PublishedAt, PublishPlaced, Refused

THROTTLED = "rate"  # the code of a refusal that says nothing against the event: it is sent again later
MOVING = "moving"  # the code of a request that is made again when the session has moved
FULL = "full"  # the code of a refusal that concerns every event that waits


class UnconfirmedEvent(msgspec.Struct, gc=False):
    """An event on its way to the broker. `receipt` is whatever its publisher wants back."""

    attributes: msgspec.Raw
    payload: bytes = b""
    datacontenttype: str = ""
    ttl: int = 0
    receipt: object = None
    position: int = 0  # among the events of its receipt
    offset: int = 0  # in the broker's log, once it is stored; 0 if that is not known

    def transient(self) -> Publish:
        """The message of an event that is not durable: it has no number."""
        return Publish(0, self.attributes, self.payload, self.datacontenttype, self.ttl)


class EventMapping(Protocol):
    """How events are mapped in the broker's space; `number` is that of the space."""

    number: int

    def places(self, events: Sequence[UnconfirmedEvent]) -> Sequence[bytes] | None:
        """The place of each event; None if they cannot be mapped, and are sent without."""
        ...


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
        self.epoch = 0  # 0: the broker chooses it
        self._events: deque[UnconfirmedEvent] = deque()
        self._first = 1  # the number of the first event
        self._sent = 0  # how many of them were sent on this connection
        self._last = 0  # the highest number that was ever sent in the epoch
        self._over = 0  # the number that was refused, or 0; nothing is sent until a new epoch begins
        self._refusal = "", ""  # its code and reason
        self.throttled = False  # whether the broker asked to publish more slowly; the session ends the pause
        self._is_numbered = False  # whether the application chooses the epochs
        self._is_begun = True  # whether the broker knows of the epoch
        self.mapping: EventMapping | None = None  # None: the broker maps the events
        self.too_late: list[NotStored] = []  # added behind a refused event of an epoch of the application's

    @property
    def waiting(self) -> int:
        """How many events are not confirmed."""
        return len(self._events)

    def add(self, events: Iterable[UnconfirmedEvent]) -> None:
        """Publish events, behind all others; those behind a refused one of an epoch go to `too_late`."""
        if self._over and self._is_numbered:
            self.too_late.append(NotStored(list(events), *self._refusal))
        else:
            self._events.extend(events)

    def begin(self, epoch: int) -> int | None:
        """Continue or begin an epoch of the application's; returns how many of its events are stored.

        None if a later epoch has begun: all events of this one are stored. Raises LookupError while events wait, or
        after an event of this epoch was refused on this connection.
        """
        if self._events:
            raise LookupError("events of another call are not confirmed yet")
        self._is_numbered = True
        if epoch < self.epoch:
            return None
        if epoch > self.epoch:
            self.epoch, self._first, self._sent, self._over, self._last = epoch, 1, 0, 0, 0
            self._is_begun = False
        elif self._over:
            raise LookupError(f"event {self._over} of epoch {epoch} was refused; connect again to send it once more")
        return self._first - 1

    # -- what is sent -----------------------------------------------------------------------------------

    def take(self, most: int = 1 << 62) -> list[Publish | NewEpoch]:
        """The messages to send now, `most` events at most. Only call it while the session is welcome."""
        messages: list[Publish | NewEpoch] = []
        if self._over:
            if self._first < self._over or self.throttled or self._is_numbered:
                return messages  # events before the refused one are on their way into the log
            self.epoch += 1
            self._first, self._sent, self._over, self._last = 1, 0, 0, 0
            self._is_begun = False
        if not self._is_begun:
            self._is_begun = True
            messages.append(NewEpoch(self.epoch))
        count = min(len(self._events) - self._sent, most)
        if count <= 0:
            return messages
        sequence = self._first + self._sent
        if self._sent == 0 and count == len(self._events):
            some: Sequence[UnconfirmedEvent] = self._events
        else:
            some = [self._events[self._sent + at] for at in range(count)]
        places = None if self.mapping is None else self.mapping.places(some)
        if self.mapping is None or places is None:
            messages += [
                Publish(number, event.attributes, event.payload, event.datacontenttype, event.ttl)
                for number, event in enumerate(some, sequence)
            ]
        else:
            messages += [
                PublishPlaced(
                    number,
                    event.attributes,
                    event.payload,
                    event.datacontenttype,
                    event.ttl,
                    space=self.mapping.number,
                    place=place,
                )
                for number, (event, place) in enumerate(zip(some, places, strict=True), sequence)
            ]
        self._sent += count
        self._last = max(self._last, self._first + self._sent - 1)
        return messages

    # -- answers of the broker --------------------------------------------------------------------------

    def confirmed(self, message: Published) -> list[UnconfirmedEvent]:
        """Events that are stored."""
        if message.pub_epoch != self.epoch:
            return []
        first = self._first
        done = self._pop(message.upto)
        if isinstance(message, PublishedAt):
            ends = [*(start for start, _ in message.runs[1:]), first + len(done)]
            for (start, offset), end in zip(message.runs, ends, strict=False):
                for sequence in range(max(start, first), min(end, first + len(done))):
                    done[sequence - first].offset = offset + sequence - start
        return done

    def refused(self, message: Refused) -> NotStored | None:
        """An event that is not stored. None, if all of them are to be sent again."""
        if message.pub_epoch != self.epoch or not message.sequence:
            return None
        if self._over and message.sequence >= self._over:
            return None  # a full log may still refuse events before one that was refused
        at = message.sequence - self._first
        if not 0 <= at < len(self._events):
            return None
        self._over, self._refusal = message.sequence, (message.code, message.reason)
        if message.code == THROTTLED and not self._is_numbered:
            self.throttled = True
            return None
        if message.code == FULL or self._is_numbered:
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
        self.throttled, self._is_begun = False, True  # a Hello has the epoch, too
        if not kept or epoch != self.epoch or stored > self._last:  # more than was sent: somebody else used the name
            self.epoch, self._first, self._sent, self._over, self._last = epoch, stored + 1, 0, 0, stored
            return []
        done, is_known = self._pop(stored), stored >= self._first - 1
        self._sent = 0
        if not is_known and not self._is_numbered:
            self._over = self._first  # it has gone on without the broker that had more of this epoch
        elif self._over and self._is_numbered:
            self._over = 0  # the refused event may be sent again
        elif self._over:
            self._over = self._first  # all before the refused event are stored, or never arrived: a new epoch begins
        return done

    def lost(self) -> None:
        """The connection is gone."""
        self._sent = 0

    def abandon(self) -> list[UnconfirmedEvent]:
        """Give up; returns everything that is not confirmed."""
        left, self._events, self._sent = list(self._events), deque(), 0
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
