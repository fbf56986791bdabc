"""What a broker asks its driver to do. Law: the driver carries effects out in the order in which they come.

`Send` and `Close` concern one connection, and their order on it matters. `Persist` concerns the log: the groups of all
`Persist` effects are committed in their order, any number of them in one `commit`.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

import msgspec

from weft.broker.delivery_run import DeliveryRun
from weft.broker.link_messages import LinkMessage
from weft.broker.messages import BrokerMessage
from weft.log.base import Group

ConnectionId = NewType("ConnectionId", str)  # chosen by the driver, never for two connections
Ticket = NewType("Ticket", int)  # ascending


class Now(NamedTuple):
    """The time, as two clocks tell it, in microseconds."""

    monotonic: int  # never goes back; timers run by it
    utc: int  # may jump


Outgoing = BrokerMessage | LinkMessage | DeliveryRun


class Send(msgspec.Struct, frozen=True):
    """Send messages, in this order, after those sent on this connection before."""

    connection: ConnectionId
    messages: list[Outgoing]


class Persist(msgspec.Struct, frozen=True):
    """Commit a group, then call `committed(ticket)`. One that is not urgent may wait for the next that is."""

    ticket: Ticket
    group: Group
    urgent: bool = True


class SetTimer(msgspec.Struct, frozen=True):
    """Call `tick` at this monotonic time, or soon after. It replaces the timer that was set before."""

    at: int


class Close(msgspec.Struct, frozen=True):
    """Close a connection after sending what was sent on it; the core no longer knows it."""

    connection: ConnectionId


class Relayed(msgspec.Struct, frozen=True):
    """Another broker has sent something to this one, by `relay`."""

    source: str
    body: bytes


Effect = Send | Persist | SetTimer | Close | Relayed
