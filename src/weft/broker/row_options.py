"""How queues and subscriptions are stored as rows. Law: a row that was stored is read back as what it was.

A durable queue has a row of its own, with its floor; its members have a row each, with their filter and without a
floor: what they have acknowledged is what their queue has.
"""

from __future__ import annotations

import msgspec

from weft.broker.messages import QueueNumber
from weft.broker.queue import Queue
from weft.broker.sessions import ClientSubscription
from weft.errors import LogError
from weft.log.base import NEVER, MoveFloor, Offset, SeatId, SessionId, SubRow

_encode = msgspec.msgpack.Encoder().encode

SHARED = SessionId(0)  # the session of shared queues and of their members: none


class QueueOptions(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The row is a queue."""

    ordered: bool
    lag: int
    disconnect: bool
    share: str
    owner: str
    replay: int = 0  # the seat of the member whose filter finds events below `since`


class MemberOptions(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The row is a subscription of a queue, given by its seat."""

    queue: int


_options = msgspec.msgpack.Decoder(QueueOptions | MemberOptions)


def queue_row(queue: Queue, end: Offset, replay: SeatId | None = None) -> SubRow:
    """The row of a queue."""
    options = QueueOptions(queue.ordered, queue.lag, queue.disconnect, queue.share, queue.owner, int(replay or 0))
    floor, above, attempts = queue.position(end).encode()
    session = SHARED if queue.session is None else queue.session
    return SubRow(queue.seat, session, queue.number, "", _encode(options), queue.replay_until, floor, above, attempts)


def member_row(session: SessionId, sub: ClientSubscription) -> SubRow:
    """The row of a subscription."""
    assert isinstance(sub.queue, Queue)
    assert sub.seat is not None
    options = _encode(MemberOptions(sub.queue.seat))
    return SubRow(sub.seat, session, sub.number, sub.text, options, sub.start, Offset(NEVER))


def floor_change(queue: Queue, end: Offset) -> MoveFloor:
    """What a queue has acknowledged by now."""
    return MoveFloor(queue.seat, *queue.position(end).encode())


def read_options(row: SubRow) -> QueueOptions | MemberOptions:
    """What a row is. Raises LogError."""
    try:
        options: QueueOptions | MemberOptions = _options.decode(row.options)
        return options
    except msgspec.DecodeError as error:
        raise LogError(f"the options of seat {row.seat} in the log cannot be read: {error}") from None


def queue_seat(row: SubRow) -> SeatId:
    """The seat of the queue that a row is, or belongs to. Raises LogError."""
    options = read_options(row)
    return SeatId(options.queue) if isinstance(options, MemberOptions) else row.seat


def queue_of(row: SubRow, options: QueueOptions) -> Queue:
    """The queue of a row."""
    from weft.broker.position import Position

    queue = Queue(
        row.seat,
        QueueNumber(row.number),
        cursor=row.floor,
        ordered=options.ordered,
        session=None if row.session == SHARED else row.session,
        share=options.share,
        owner=options.owner,
        lag=options.lag,
        disconnect=options.disconnect,
    )
    position = Position.decode(row.floor, row.above, row.attempts)
    queue.skip = list(position.above)
    queue.failures = dict(position.failures)
    queue.gap = position.gap
    queue.replay_until = row.since
    return queue
