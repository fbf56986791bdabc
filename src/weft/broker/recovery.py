"""A broker as it was. Law: after a restart every durable session, queue and subscription is what its rows say; what was
delivered and not acknowledged is delivered again, with an attempt above 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.algebra.bulk import columns_of_texts
from weft.broker.advertising import client_number, seat_of
from weft.broker.announcing import Announcing
from weft.broker.event_reader import EventReader
from weft.broker.link_rows import SETTINGS, heard
from weft.broker.linking import Linking
from weft.broker.messages import SubNumber
from weft.broker.queue import Queue
from weft.broker.row_options import SHARED, MemberOptions, QueueOptions, queue_of, read_options
from weft.broker.sessions import ClientSubscription, Session
from weft.broker.state import BrokerState
from weft.errors import FilterError, LogError
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.language.text import parse_many
from weft.log.base import Offset, SeatId, State, SubRow
from weft.routing.table import ClientId, Kept


def restore(state: BrokerState, reader: EventReader, kept: State, linking: Linking, announcing: Announcing) -> None:
    """Take back what the log has, before any connection comes. Raises LogError for rows that do not fit together.

    The table has all local subscriptions and everything that neighbours told before it tells anybody anything.
    """
    for row in kept.sessions.values():
        session = Session(row.id, row.name, row.owner, state.bucket_of(row.owner))
        session.epoch, session.expires = row.epoch, row.expires
        session.pub_epoch, session.pub_received = row.pub_epoch, row.pub_seq
        state.sessions[session.id] = state.names[session.name] = session
    queues: dict[int, Queue] = {}
    replays: dict[int, Queue] = {}
    members: list[tuple[SubRow, MemberOptions]] = []
    for row_ in kept.subs.values():
        options = read_options(row_)
        if isinstance(options, MemberOptions):
            members.append((row_, options))
        else:
            queues[row_.seat] = _queue(state, row_, options, kept)
            if options.replay and row_.floor < row_.since:
                replays[options.replay] = queues[row_.seat]
    adverts = _adverts(state, kept)
    _subscriptions(state, queues, members, kept, adverts)
    for seat, queue in replays.items():
        if seat not in queue.members:  # who asked for older events has left
            queue.advance(max(queue.cursor, queue.replay_until))
            queue.replay_until = Offset(0)
            continue
        sub = state.sessions[queue.session].subs[queue.members[SeatId(seat)]]  # type: ignore[index]
        reader.replays[queue] = SeatId(seat), state.read(sub.text)
    if kept.links:
        linking.restore(kept)
    if linking.reach.name:  # it may have had neighbours, which clients still wait for
        announcing.restored()


def _adverts(state: BrokerState, kept: State) -> dict[ClientId, dict[SubId, Filter]]:
    """The advertisements of each session."""
    found: dict[ClientId, dict[SubId, Filter]] = {}
    for advert in kept.adverts.values():
        state.next_seat = SeatId(max(state.next_seat, seat_of(advert.id) + 1))
        owner = state.sessions.get(advert.session)
        if owner is None:
            raise LogError(f"advertisement {advert.id} in the log belongs to no session")
        found.setdefault(ClientId(str(owner.id)), {})[SubId(advert.id)] = _filters(state, [advert.filter])[0]
        owner.adverts[client_number(advert.id)] = advert.id, advert.filter
    return found


def _filters(state: BrokerState, texts: Sequence[str]) -> list[Filter]:
    """Filters that were stored. Raises LogError: one may call a predicate that this process does not have, or be beyond
    a limit that was higher when it was added.
    """
    try:
        return parse_many(texts, state.predicates)
    except FilterError as error:
        raise LogError(
            f"a filter in the log cannot be read: {error}; start the broker with the predicates and "
            "the limits (weft.model.limits.LIMITS) that it had before"
        ) from None


def _queue(state: BrokerState, row: SubRow, options: QueueOptions, kept: State) -> Queue:
    queue = queue_of(row, options)
    queue.again_below = kept.next
    queue.stored = True
    state.queues[queue] = None
    if queue.session is None:
        state.shared[queue.owner, queue.share] = queue
    else:
        session = state.sessions.get(queue.session)
        if session is None:
            raise LogError(f"queue {row.number} at seat {row.seat} in the log belongs to no session")
        session.queues[queue.number] = queue
    return queue


def _subscriptions(
    state: BrokerState,
    queues: dict[int, Queue],
    members: list[tuple[SubRow, MemberOptions]],
    kept: State,
    adverts: dict[ClientId, dict[SubId, Filter]],
) -> None:
    """All subscriptions at once. Cost: that of the table, and some 20 us each."""
    texts = [row.filter for row, _ in members]
    try:
        homes = [queues[options.queue] for _, options in members]
    except KeyError as error:
        raise LogError(f"a subscription in the log belongs to queue seat {error}, which is not there") from None
    numbers = [SubNumber(row.number) for row, _ in members]
    seats = [row.seat for row, _ in members]
    filters = _filters(state, texts)
    boxes = columns_of_texts(texts, state.seats.table.schema, state.predicates)
    slots = state.seats.add_many(boxes, seats, homes, numbers)
    settings = kept.meta.get(SETTINGS, b"").decode()
    links = heard(kept, state.seats.table.codec)
    state.seats.table.restore(Kept(dict(zip(slots, filters, strict=True)), adverts, links, settings))
    for (row, _), slot, queue in zip(members, slots, homes, strict=True):
        sub = ClientSubscription(SubNumber(row.number), row.filter, slot, row.seat, queue, row.since)
        queue.members[row.seat] = sub.number
        if row.session == SHARED:
            state.shared_members[queue] = sub
        else:
            state.sessions[row.session].subs[sub.number] = sub
