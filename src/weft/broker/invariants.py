"""The invariants of a whole broker, checked one by one. Law: none of them is ever broken between two calls."""

from __future__ import annotations

from weft.broker.lossy_queue import LossyQueue
from weft.broker.queue import Queue
from weft.broker.state import BrokerState
from weft.routing.table import About


def check(state: BrokerState) -> None:
    """Raise AssertionError if an invariant is broken."""
    assert state.end <= state.next
    assert state.pending or state.end == state.next, "offsets are on their way, but no group is"
    tickets = [group.ticket for group in state.pending]
    assert tickets == sorted(set(tickets))
    assert not state.draft.attributes
    assert state.draft.is_empty
    _check_sessions(state)
    _check_queues(state)
    _check_connections(state)
    _check_links(state)
    state.tail.check()
    slots = [sub.slot for session in state.sessions.values() for sub in session.subs.values()]
    private = [
        sub.slot
        for session in state.sessions.values()
        for sub in session.subs.values()
        if not (isinstance(sub.queue, Queue) and sub.queue.share)
    ]
    assert len(set(private)) == len(private), "two subscriptions have one slot"
    shared = [member.slot for member in state.shared_members.values()]
    assert set(slots) <= {*private, *shared}
    state.seats.check([*private, *shared])


def _check_sessions(state: BrokerState) -> None:
    for name, session in state.names.items():
        assert session.name == name
        assert state.sessions[session.id] is session
    for session in state.sessions.values():
        assert session.connection is None or session.connection in state.connections
        assert session.durable or session.connection is not None, "a session without a name outlives its connection"
        for number, sub in session.subs.items():
            assert sub.number == number
            assert any(queue is sub.queue for queue in session.queues.values())
            if isinstance(sub.queue, Queue) and not sub.queue.share:
                assert sub.seat is not None
                assert sub.queue.members[sub.seat] == number
        for number_, queue in session.queues.items():
            if isinstance(queue, LossyQueue):
                queue.check()
                assert queue.members
                assert queue.connection.id == session.connection
            else:
                assert queue in state.queues
                assert queue.share or queue.number == number_


def _check_queues(state: BrokerState) -> None:
    seats: set[int] = set()
    for queue in state.queues:
        queue.check(state.end, state.next)
        assert queue.seat not in seats
        seats.add(queue.seat)
        assert queue.members, "a queue without subscriptions is kept"
        assert seats.isdisjoint(queue.members)
        assert all(seat < state.next_seat for seat in (queue.seat, *queue.members))
        for flight in queue.flights:
            queue_, flight_ = state.connections[flight.connection].flights[flight.queue_number]
            assert queue_ is queue
            assert flight_ is flight
        assert len(queue.flights) <= 1 or queue.share
        if queue.share:
            known = state.shared.get((queue.owner, queue.share))
            assert known is queue or not queue.flights, "a shared queue that is leaving has a consumer"
            assert known is not queue or set(queue.members) == {state.shared_members[queue].seat}
    assert set(state.shared_members) == set(state.shared.values())


def _check_connections(state: BrokerState) -> None:
    for connection in state.connections.values():
        session = connection.session
        if session is None:
            assert not connection.flights
            assert connection.link is None or connection.link.connection is connection
            continue
        assert session.connection == connection.id
        for number, (queue, flight) in connection.flights.items():
            assert session.queues.get(number) is queue or queue.leaving == queue.members.keys()
            assert flight in queue.flights


def _check_links(state: BrokerState) -> None:
    table = state.seats.table
    seats = [seat for each in state.neighbours.values() for seat in (each.seat, each.lane.cold_seat)]
    assert len(set(seats)) == len(seats)
    assert all(seat < state.next_seat for seat in seats)
    for peer, neighbour in state.neighbours.items():
        assert neighbour.peer == peer
        assert neighbour.got <= neighbour.received
        connection = neighbour.connection
        assert connection is None or state.connections[connection.id] is connection
        neighbour.lane.check(state.next)
        neighbour.receiver.check()
        neighbour.sender.check((len(table.told(peer)), len(table.told(peer, About.ADVERTISEMENTS))))
