"""What a client's session returns: effects for its driver, and notices to the application, one for each request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.client.publisher import NotStored, UnconfirmedEvent
from weft.errors import WeftError
from weft.protocol.addresses import Address
from weft.protocol.messages import (
    Advertise,
    Answer,
    ClientMessage,
    DeadDone,
    DeadLetters,
    DeadMessage,
    Deliver,
    History,
    ProfilePublished,
    PublishProfile,
    QuestionMessage,
    SubNumber,
    Unadvertise,
    Welcome,
    WithdrawProfile,
)

if TYPE_CHECKING:
    from weft.client.session import ClientSession

ProfileRequest = PublishProfile | WithdrawProfile
QueryMessage = DeadMessage | QuestionMessage | Advertise | Unadvertise | ProfileRequest  # one message answers it

# -- effects: what the driver does ---------------------------------------------------------------------------


class Dial(msgspec.Struct, frozen=True):
    """Open a connection, and call `opened` or `dial_failed` with its number."""

    connection: int
    address: Address


class HangUp(msgspec.Struct, frozen=True):
    """Drop a connection, or stop opening it, at once. The session has already forgotten it."""

    connection: int


class Greet(msgspec.Struct, frozen=True):
    """Send these messages on a second connection, which is open besides the one that `take` is for."""

    connection: int
    messages: tuple[ClientMessage, ...]


class WakeAt(msgspec.Struct, frozen=True):
    """Call `tick` at this time. It replaces the last `WakeAt` of the session."""

    at: int


class Over(msgspec.Struct, frozen=True):
    """The session has ended. `successors` waited for that: start them."""

    error: WeftError
    successors: tuple[ClientSession, ...] = ()


# -- notices: what the application learns --------------------------------------------------------------------


class Ready(msgspec.Struct, frozen=True):
    """The session is welcome. `kept` if the broker still knew it."""

    welcome: Welcome
    kept: bool
    moved_from: str = ""  # the id of the log that numbered its deliveries until now, if it has moved


class MoveEnded(msgspec.Struct, frozen=True):
    """The session has moved to the broker that `move` named; or it has not, for this reason, and goes back."""

    error: WeftError | None


class Lost(msgspec.Struct, frozen=True):
    """The connection is gone: deliveries that were not acknowledged come again."""


class Stored(msgspec.Struct, frozen=True):
    """Events that are on the broker's disk."""

    events: list[UnconfirmedEvent]


class Arrived(msgspec.Struct, frozen=True):
    """Deliveries of a queue, which has the number of its subscription if that is the only one."""

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
    """A subscription has ended; with a code if the broker ended it."""

    number: SubNumber
    code: str
    reason: str


class Missed(msgspec.Struct, frozen=True):
    """Events of a queue that do not come: a range of offsets, a number, or an unknown number."""

    number: SubNumber
    first: int
    end: int
    count: int


class BrokerRequest(msgspec.Struct, frozen=True):
    """A request that one message answers: about dead letters, history, status, an explanation, or an advertisement.

    `number` is the subscription that dead letters belong to, if it is one of this session. `waiter` comes back with
    the answer.
    """

    message: QueryMessage
    number: SubNumber
    waiter: object


class Replied(msgspec.Struct, frozen=True):
    """The answer to a request; with a code if the broker refused it. Explanations and statuses are still encoded."""

    request: BrokerRequest
    answer: DeadLetters | DeadDone | History | Answer | ProfilePublished | bytes | None
    code: str
    reason: str


class Closed(msgspec.Struct, frozen=True):
    """The broker ends the connection; if that is final, the client does not come back."""

    code: str
    reason: str
    final: bool


Notice = MoveEnded | Ready | Lost | Stored | NotStored | Arrived | Answered | Ended | Missed | Replied | Closed
SessionEffect = Dial | Greet | HangUp | WakeAt | Over | Notice
