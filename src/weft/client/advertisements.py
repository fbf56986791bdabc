"""Advertisements of a client: what it promises to publish, over all connections of its session.

Law: an event within an advertisement that was complete is not sent to a broker before it is complete there again. So
nothing that is published after `Client.advertise` has returned is missed, whatever happens to the connection.

The number of an advertisement follows from its filter. So a client that advertises the same filter again, even in
another process under the same name, has one advertisement, and can withdraw it.
"""

from __future__ import annotations

from collections import deque
from zlib import crc32

from weft.client.effects import BrokerRequest, QueryMessage, Replied
from weft.client.publisher import FULL, MOVING, THROTTLED
from weft.protocol.messages import Advertise, Unadvertise


def advert_number(filter: str) -> int:
    """The number of the advertisement of a filter; brokers take 31 bits."""
    return crc32(filter.encode()) >> 1


class AdvertState:
    """One advertisement. Requests about it are made one after the other, each until it is answered."""

    def __init__(self) -> None:
        self.requests: deque[BrokerRequest] = deque()  # without an answer
        self.message: Advertise | None = None  # that was accepted, and not withdrawn since
        self.is_complete = False
        self.is_waiting = False  # the broker had no room
        self._completing: list[BrokerRequest] = []  # accepted, and answered when every broker knows it
        self._is_promised = False  # the application knows that it is complete
        self._is_repeated = False  # the broker may not know it, or has yet to say that it is complete
        self._in_flight: QueryMessage | None = None

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to send or to wait for."""
        return not self.requests and self.is_complete == (self.message is not None)

    @property
    def holds_events(self) -> bool:
        """Whether events wait until it is complete again."""
        return self._is_promised and not self.is_complete

    def begin(self, *, kept: bool) -> None:
        """A connection begins: with the session that accepted it, if it is `kept`, or with another one."""
        self._in_flight, self.is_waiting = None, False
        self.is_complete = self.is_complete and kept
        self._is_repeated = self.message is not None and not self.is_complete

    def take(self) -> list[QueryMessage]:
        """The message to send now, if there is one."""
        if self._in_flight is not None or self.is_waiting:
            return []
        self._in_flight = self.message if self._is_repeated else self.requests[0].message if self.requests else None
        return [] if self._in_flight is None else [self._in_flight]

    def answered(self, about: str, code: str, reason: str) -> list[Replied]:
        """The broker has answered. Returns what the application learns."""
        message = self._in_flight
        if message is None or about != type(message).__name__.lower():
            return []
        self._in_flight = None
        if self._is_repeated:
            self.is_waiting = code in (FULL, MOVING, THROTTLED)
            self._is_repeated = self.is_waiting
            return self._withdrawn(code, reason) if code and not self.is_waiting else []
        if code == MOVING:
            self.is_waiting = True
            return []
        request = self.requests.popleft()
        if isinstance(message, Advertise) and not code and not self.is_complete:
            self.message = message
            self._completing.append(request)
            return []
        if isinstance(message, Unadvertise) and code in ("", "unknown"):
            return [*self._withdrawn("unknown", "the advertisement was withdrawn"), Replied(request, None, "", "")]
        return [Replied(request, None, code, reason)]

    def _withdrawn(self, code: str, reason: str) -> list[Replied]:
        """It is not there any more; neither is what waited until it is complete."""
        failed, self._completing = self._completing, []
        self.message, self.is_complete, self._is_promised = None, False, False
        return [Replied(request, None, code, reason) for request in failed]

    def completed(self) -> list[Replied]:
        """Every broker knows it. Returns what the application learns."""
        if self.message is None:
            return []
        done, self._completing = self._completing, []
        self.is_complete = self._is_promised = True
        return [Replied(request, None, "", "") for request in done]
