"""A queue that is not durable: each event is delivered at most once.

What a slow connection has no room for is dropped, oldest first, and counted, or the connection is closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from weft.log.base import Offset
from weft.protocol.messages import Deliver, Dropped, QueueNumber, SubNumber, pack

if TYPE_CHECKING:
    from weft.broker.sessions import Connection


@dataclass(slots=True, eq=False, repr=False)
class TransientQueue:
    """Holds events while the connection is paused, up to a limit.

    `members` are its subscriptions, each with the offset from which on events are its own.
    """

    share: ClassVar[str] = ""  # it never is shared
    number: QueueNumber
    connection: Connection
    most: int
    most_bytes: int
    disconnect: bool = False
    size: int = field(init=False, default=0)  # bytes of what is held
    held: deque[Deliver] = field(init=False, default_factory=deque)
    dropped: int = field(init=False, default=0)  # not yet reported to the client
    members: dict[SubNumber, Offset] = field(init=False, default_factory=dict)
    changed: Offset = field(init=False, default=Offset(0))  # earlier events may name members that are gone
    recheck: Offset = field(init=False, default=Offset(0))  # earlier events may lie outside the access rules of now

    def wanted(self, numbers: list[SubNumber], offset: Offset) -> list[SubNumber]:
        """The subscriptions among these that still are what they were when the event came."""
        return [number for number in numbers if self.members.get(number, offset + 1) <= offset]

    def hold(self, messages: list[Deliver]) -> bool:
        """Hold events for later; whether the connection must be closed instead."""
        self.held.extend(messages)
        self.size += sum(map(_size, messages))
        while len(self.held) > self.most or self.size > self.most_bytes:
            if self.disconnect:
                return True
            self.size -= _size(self.held.popleft())
            self.dropped += 1
        return False

    def keep_only(self, numbers: Callable[[Deliver], list[SubNumber]]) -> None:
        """Drop what is held for nobody any more; `numbers` says whom an event is still for."""
        kept = [narrowed(each, left) for each in self.held if (left := numbers(each))]
        self.held = deque(kept)
        self.size = sum(map(_size, kept))

    def release(self) -> list[Deliver | Dropped]:
        """What was held, and first how many were dropped."""
        messages: list[Deliver | Dropped] = []
        if self.dropped:
            messages.append(Dropped(self.number, self.dropped))
            self.dropped = 0
        messages.extend(self.held)
        self.held.clear()
        self.size = 0
        return messages

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert self.size == sum(map(_size, self.held))
        assert len(self.held) <= self.most
        assert self.size <= self.most_bytes


def narrowed(message: Deliver, numbers: list[SubNumber]) -> Deliver:
    """The same event for other subscriptions."""
    return Deliver(
        message.queue, message.offset, message.attempt, message.at, pack(numbers), message.head, message.payload
    )


def _size(message: Deliver) -> int:
    return len(memoryview(message.head)) + len(message.payload) + len(message.packed)
