"""An event as a subscriber gets it. Law: it is acknowledged or refused once; what comes after that has no effect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from weft.broker.admission import read_head
from weft.broker.messages import Deliver, Head
from weft.model.value import Value, from_micros
from weft.net.inbox import Inbox

_REASON = 1_000  # characters of a reason, as many as the broker keeps


class _Received:
    """What every received event has."""

    __slots__ = ("_done", "_head", "_inbox", "_message")

    def __init__(self, message: Deliver, inbox: Inbox) -> None:
        self._message = message
        self._inbox = inbox
        self._head: Head | None = None
        self._done = not message.offset or not inbox.durable

    def _read(self) -> Head:
        if self._head is None:
            self._head = read_head(self._message.head)
        return self._head

    @property
    def attributes(self) -> dict[str, Value]:
        """The attributes, by name."""
        return self._read().attributes

    @property
    def payload(self) -> bytes:
        """What the publisher sent besides the attributes."""
        return self._message.payload

    @property
    def datacontenttype(self) -> str:
        """The media type of the payload; empty if the publisher gave none."""
        return self._read().datacontenttype

    @property
    def text(self) -> str:
        """The payload as UTF-8 text."""
        return self._message.payload.decode()

    def json(self) -> Any:
        """The payload read as JSON."""
        return json.loads(self._message.payload)

    @property
    def offset(self) -> int:
        """Its place in the broker's log; 0 for an event that is not durable."""
        return self._message.offset

    @property
    def attempt(self) -> int:
        """How often it was delivered, including this time, as far as the broker knows."""
        return self._message.attempt

    @property
    def stored_at(self) -> datetime:
        """When the broker stored it."""
        return from_micros(self._message.at)

    def __getitem__(self, name: str) -> Value | None:
        return self._read().attributes.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._read().attributes

    def __iter__(self) -> Iterator[str]:
        return iter(self._read().attributes)

    def get(self, name: str, default: Value | None = None) -> Value | None:
        """The value of an attribute, or `default` when it is absent."""
        return self._read().attributes.get(name, default)

    def __repr__(self) -> str:
        return f"<event {self.offset}: {self.attributes}>"

    def _ack(self) -> None:
        if not self._done:
            self._done = True
            self._inbox.ack(self._message.offset)

    def _nack(self, reason: str) -> None:
        if not self._done:
            self._done = True
            said = str(reason)[:_REASON].encode(errors="replace").decode()
            self._inbox.nack(self._message.offset, self._message.attempt, said)


class ReceivedEvent(_Received):
    """An event that a subscription of `weft.connect` yields."""

    __slots__ = ()

    async def ack(self) -> None:
        """Acknowledge it: the broker does not deliver it again. This is sent within milliseconds."""
        self._ack()

    async def nack(self, reason: str = "") -> None:
        """Report a failure: the broker delivers it again later, and after some failures keeps it as a dead letter."""
        self._nack(reason)


class SyncReceivedEvent(_Received):
    """An event that a subscription of `weft.connect_sync` yields."""

    __slots__ = ()

    def ack(self) -> None:
        """Acknowledge it: the broker does not deliver it again. This is sent within milliseconds."""
        self._ack()

    def nack(self, reason: str = "") -> None:
        """Report a failure: the broker delivers it again later, and after some failures keeps it as a dead letter."""
        self._nack(reason)
