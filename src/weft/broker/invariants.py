"""The invariants of a whole broker. None of them is ever broken between two calls."""

from __future__ import annotations

from weft.broker.after_commit import ConfirmationDue
from weft.broker.parts import BrokerParts
from weft.broker.queue import Queue
from weft.broker.transient_queue import TransientQueue
from weft.log.base import Offset
from weft.log.codec import SeatOwners, open_offsets
from weft.routing.table import About


class Invariants:
    """Checks the parts of a broker against each other. Each method raises AssertionError if something is broken."""

    def __init__(self, parts: BrokerParts) -> None:
        self._journal, self._sessions, self._queues = parts.journal, parts.sessions, parts.queues
        self._recent, self._matcher, self._neighbours = parts.recent, parts.matcher, parts.neighbours

    def check(self) -> None:
        """Check everything."""
        journal, by_id = self._journal, self._sessions.by_id
        assert journal.end <= journal.next
        assert journal.groups or journal.end == journal.next, "offsets are on their way, but no group is"
        for group in journal.groups:
            assert not group.has_events or all(isinstance(each, ConfirmationDue) for each in group.waiting)
        tickets = [group.ticket for group in journal.groups]
        assert tickets == sorted(set(tickets))
        write = journal.write
        for part in (write.attributes, write.changes, write.batches, write.watermarks):
            assert not part, "the pending write was not stored"
        self._check_sessions()
        self._check_queues()
        self._check_connections()
        self._check_links()
        self._recent.check()
        subs = [sub for session in by_id.values() for sub in session.subs.values()]
        private = [sub.slot for sub in subs if not sub.queue.share]
        assert len(set(private)) == len(private), "two subscriptions have one slot"
        shared = [member.slot for member in self._queues.shared_members.values()]
        assert {sub.slot for sub in subs} <= {*private, *shared}
        self._matcher.check([*private, *shared])

    def _check_sessions(self) -> None:
        sessions = self._sessions
        for name, session in sessions.by_name.items():
            assert session.name == name
            assert sessions.by_id[session.id] is session
        for session in sessions.by_id.values():
            assert session.connection is None or session.connection in sessions.connections
            assert session.durable or session.connection is not None, "a session without a name outlives its connection"
            for number, sub in session.subs.items():
                assert sub.number == number
                assert any(queue is sub.queue for queue in session.queues.values())
                if isinstance(sub.queue, Queue) and not sub.queue.share:
                    assert sub.consumer_id is not None
                    assert sub.queue.members[sub.consumer_id] == number
            for number_, queue in session.queues.items():
                if isinstance(queue, TransientQueue):
                    queue.check()
                    assert queue.members
                    assert queue.connection.id == session.connection
                else:
                    assert queue in self._queues.all
                    assert queue.share or queue.number == number_

    def _check_queues(self) -> None:
        journal, queues = self._journal, self._queues
        ids: set[int] = set()
        for queue in queues.all:
            queue.check(journal.end, journal.next)
            assert queue.consumer_id not in ids
            ids.add(queue.consumer_id)
            assert queue.members, "a queue without subscriptions is kept"
            assert ids.isdisjoint(queue.members)
            assert all(each < journal.next_consumer for each in (queue.consumer_id, *queue.members))
            for window in queue.windows:
                queue_, window_ = self._sessions.connections[window.connection].windows[window.queue_number]
                assert queue_ is queue
                assert window_ is window
            assert len(queue.windows) <= 1 or queue.share
            if queue.share:
                known = queues.shared.get((queue.owner, queue.share))
                assert known is queue or not queue.windows, "a shared queue that is leaving has a consumer"
                assert known is not queue or set(queue.members) == {queues.shared_members[queue].consumer_id}
        assert set(queues.shared_members) == set(queues.shared.values())
        self._check_backlog([queue for queue in queues.all if queue.counted and not queue.live])

    def _check_backlog(self, queues: list[Queue]) -> None:
        """What waits for each queue is what the log has for it."""
        found = {int(queue.consumer_id): 0 for queue in queues}
        starts = {int(queue.consumer_id): max(queue.cursor, queue.replay_until) for queue in queues}
        skips = {int(queue.consumer_id): queue.skip for queue in queues}
        owners = SeatOwners({member: queue.consumer_id for queue in queues for member in queue.members})
        lowest = min(starts.values(), default=self._journal.end)
        for column in self._journal.log.seats(Offset(lowest), self._journal.end - lowest):
            for owner, offsets in owners.own(column):
                stored = offsets[: offsets.searchsorted(self._journal.end)]
                found[owner] += len(open_offsets(stored, starts[owner], skips[owner]))
        for queue in queues:
            assert queue.unsent == found[queue.consumer_id], "the events that wait for a queue are miscounted"

    def _check_connections(self) -> None:
        for connection in self._sessions.connections.values():
            session = connection.session
            if session is None:
                assert not connection.windows
                assert connection.link is None or connection.link.connection is connection
                continue
            assert session.connection == connection.id
            for number, (queue, window) in connection.windows.items():
                assert session.queues.get(number) is queue or queue.leaving == queue.members.keys()
                assert window in queue.windows

    def _check_links(self) -> None:
        journal = self._journal
        windows = [neighbour.window for neighbour in self._neighbours.values()]
        ids = [each for window in windows for each in (window.link_id, window.unsynced_id)]
        assert len(set(ids)) == len(ids)
        assert all(each < journal.next_consumer for each in ids)
        for peer, neighbour in self._neighbours.items():
            assert neighbour.peer == peer
            assert neighbour.got <= neighbour.received
            connection = neighbour.connection
            assert connection is None or self._sessions.connections[connection.id] is connection
            neighbour.window.check(journal.next)
            for exchange in neighbour.exchanges:
                table = exchange.table
                exchange.receiver.check()
                exchange.sender.check((len(table.told(peer)), len(table.told(peer, About.ADVERTISEMENTS))))
