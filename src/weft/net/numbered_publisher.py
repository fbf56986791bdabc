"""Publishing under numbers of one's own. Law: whatever is published again under the same session, epoch and numbers is
stored once.

A session publishes epoch after epoch, and never an older one again: when a newer one has begun, all of an older one is
known to be stored. Within an epoch the events are numbered from 1, and the broker says up to which it has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from weft.broker.messages import NewEpoch, Publish, Published, Refused
from weft.errors import EventError
from weft.net.blocking_connection import BlockingConnection

_GROUP = 500  # events that are sent at once
_AHEAD = 5_000  # events that may be unconfirmed


class NumberedPublisher:
    """The publishing side of a session with a name, on one connection."""

    def __init__(self, connection: BlockingConnection) -> None:
        self._connection = connection
        self._epoch = connection.welcome.pub_epoch
        self._stored = connection.welcome.pub_seq  # the last event of the epoch

    def publish(self, epoch: int, events: Iterable[Publish]) -> int:
        """Store the events of an epoch, numbered from 1 in their order; returns how many are new.

        An epoch that is older than the session's is complete: nothing is sent. Raises EventError if the broker refuses
        an event, and BrokerError if the connection ends: then try again, with the same events.
        """
        if epoch < self._epoch:
            return 0
        if epoch > self._epoch:
            self._connection.send([NewEpoch(epoch)])
            self._epoch, self._stored = epoch, 0
        known = self._stored
        last = known
        rest = self._numbered(islice(events, known, None), known)
        while group := list(islice(rest, _GROUP)):
            self._connection.send(group)
            last = group[-1].sequence
            while last - self._stored > _AHEAD:
                self._hear()
        while self._stored < last:
            self._hear()
        return last - known

    def _numbered(self, events: Iterable[Publish], before: int) -> Iterator[Publish]:
        for sequence, event in enumerate(events, before + 1):
            yield Publish(sequence, event.attributes, event.payload, event.datacontenttype, event.ttl)

    def _hear(self) -> None:
        match self._connection.receive():
            case Published(epoch, upto) if epoch == self._epoch:
                self._stored = max(self._stored, upto)
            case Refused(epoch, sequence, code, reason) if epoch == self._epoch:
                raise EventError(f"the broker refused event {sequence} ({code}): {reason}", position=sequence - 1)
            case _:
                pass
