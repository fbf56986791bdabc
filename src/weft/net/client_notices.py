"""What a client's session tells its driver. Law: every request that was made gets exactly one answer."""

from __future__ import annotations

import msgspec

from weft.broker.messages import DeadDone, DeadLetters, Deliver, SubNumber, Welcome
from weft.net.open_requests import DeadRequest, ExplainRequest
from weft.net.publisher import NotStored, UnconfirmedEvent


class Ready(msgspec.Struct, frozen=True):
    """The session is welcome. `kept` if the broker still knew it."""

    welcome: Welcome
    kept: bool


class Lost(msgspec.Struct, frozen=True):
    """The connection is gone: deliveries that were not shown to the application come again."""


class Stored(msgspec.Struct, frozen=True):
    """Events that are on the broker's disk."""

    events: list[UnconfirmedEvent]


class Arrived(msgspec.Struct, frozen=True):
    """Deliveries for a subscription."""

    number: SubNumber
    messages: list[Deliver]


class Answered(msgspec.Struct, frozen=True):
    """A request about a subscription was granted, or refused with a code. `complete` has no request of its own."""

    number: SubNumber
    waiter: object
    about: str
    code: str
    reason: str


class Ended(msgspec.Struct, frozen=True):
    """A subscription is over; with a code, because the broker says so."""

    number: SubNumber
    code: str
    reason: str


class Missed(msgspec.Struct, frozen=True):
    """Events that a subscription does not get: a range of offsets, a number, or nobody knows which."""

    number: SubNumber
    first: int
    end: int
    count: int


class Letters(msgspec.Struct, frozen=True):
    """The answer to a request about dead letters."""

    request: DeadRequest
    answer: DeadLetters | DeadDone | None
    code: str
    reason: str


class Shown(msgspec.Struct, frozen=True):
    """The answer to where an event would go."""

    request: ExplainRequest
    body: bytes
    code: str
    reason: str


class Redirected(msgspec.Struct, frozen=True):
    """The session lives at another address."""

    address: str


class Closed(msgspec.Struct, frozen=True):
    """The broker ends the connection; if that is final, the client need not come back."""

    code: str
    reason: str
    final: bool


Notice = Ready | Lost | Stored | NotStored | Arrived | Answered | Ended | Missed | Letters | Shown | Redirected | Closed
