"""The broker's changes of subscriptions on their way to the ring. Law: a control frame is complete when the ring has
every subscription that was added by it or before it, and is still wanted.
"""

from __future__ import annotations

from collections import deque

from weft.broker.link_messages import LinkUpdate
from weft.errors import RemoteProtocolError


class ControlFrames:
    """The control frames of a session, in order; what the ring does not have yet is known beyond it.

    >>> frames = ControlFrames()
    >>> frames.take(LinkUpdate(1, ids=(7,), items=(b"",)))
    >>> frames.take(LinkUpdate(2, resynced=True))
    >>> frames.completed
    (0, 0)
    >>> frames.placed(7)
    >>> frames.completed, frames.all_known
    ((2, 0), True)
    """

    def __init__(self) -> None:
        self.heard = 0  # the number of the last one
        self.completed = (0, 0)  # the last complete one: of subscriptions, and of advertisements
        self._storing: set[int] = set()  # subscriptions that the ring does not have yet
        self._waiting: deque[tuple[int, int, set[int]]] = deque()  # number, kind, and subscriptions not stored yet
        self._resynced = False  # the broker has told all subscriptions that it has

    def begin(self) -> None:
        """A session begins."""
        self.heard, self.completed = 0, (0, 0)

    def end(self) -> None:
        """A session is over; subscriptions that are being stored still are."""
        self._waiting.clear()

    def take(self, message: LinkUpdate) -> None:
        """A control frame. Raises RemoteProtocolError if it is not the next one, or a ring cannot serve it."""
        if message.number != self.heard + 1 or len(message.ids) != len(message.items):
            raise RemoteProtocolError("the broker sent a control frame out of order")
        if message.about and message.ids:
            raise RemoteProtocolError("a ring does not support advertisements; switch them off at the broker")
        self.heard = message.number
        self._storing.update(message.ids)
        self._resynced |= message.resynced
        self._waiting.append((message.number, message.about, set(self._storing)))  # those of earlier sessions, too
        self._advance()

    def placed(self, wire: int) -> None:
        """The ring has a subscription, or need not have it any more."""
        self._storing.discard(wire)
        for _, _, waiting in self._waiting:
            waiting.discard(wire)
        self._advance()

    @property
    def all_known(self) -> bool:
        """The broker has told all of its subscriptions, and the ring has them."""
        return self._resynced and not self._storing

    def _advance(self) -> None:
        while self._waiting and not self._waiting[0][2]:
            number, about, _ = self._waiting.popleft()
            subscriptions, advertisements = self.completed
            self.completed = (subscriptions, number) if about else (number, advertisements)
