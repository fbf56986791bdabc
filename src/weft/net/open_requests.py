"""Requests of a client that one message answers: about dead letters, and where an event goes. Law: each is made again
on a new connection until it is answered.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from weft.broker.messages import DropDead, Explain, ListDead, RetryDead, SubNumber


class DeadRequest(msgspec.Struct, frozen=True):
    """A request about dead letters of a subscription. `waiter` comes back with the answer."""

    message: ListDead | RetryDead | DropDead
    number: SubNumber
    waiter: object

    @property
    def retry(self) -> bool:
        """Whether dead letters are to be delivered again."""
        return type(self.message) is RetryDead

    @property
    def offsets(self) -> tuple[int, ...]:
        """The letters that it names."""
        return () if isinstance(self.message, ListDead) else self.message.offsets


class ExplainRequest(msgspec.Struct, frozen=True):
    """Where would an event go? `waiter` comes back with the answer."""

    message: Explain
    waiter: object


Request = TypeVar("Request", DeadRequest, ExplainRequest)


class OpenRequests(Generic[Request]):
    """The requests of a session that have no answer."""

    def __init__(self) -> None:
        self._asked: dict[int, Request] = {}
        self._unsaid: list[int] = []
        self._last = 0

    @property
    def waiting(self) -> int:
        """How many have no answer."""
        return len(self._asked)

    @property
    def has_news(self) -> bool:
        """Whether there is anything to say."""
        return bool(self._unsaid)

    def number(self) -> int:
        """The number of a new request."""
        self._last += 1
        return self._last

    def add(self, request: Request) -> None:
        """Ask."""
        self._asked[request.message.request] = request
        self._unsaid.append(request.message.request)

    def again(self) -> None:
        """A connection begins: ask everything again."""
        self._unsaid = sorted(self._asked)

    def take(self) -> list[Request]:
        """The requests to make now."""
        unsaid, self._unsaid = self._unsaid, []
        return [self._asked[number] for number in unsaid if number in self._asked]

    def answered(self, number: int) -> Request | None:
        """The request that an answer is for."""
        return self._asked.pop(number, None)

    def failed(self, number: int) -> Request | None:
        """The request that was refused."""
        return self._asked.pop(number, None)
