"""Requests that wait for their answers. Law: every request ends once: with an answer, or when its time is up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.ring.messages import Address, Token
from weft.ring.rendezvous_messages import Request, RingAnswer, RingEffect, RingSend, Visited

Answer = RingAnswer | bool  # what was asked for, or whether it was done
Then = Callable[[Answer, int], list[RingEffect]]  # what follows an answer, at a time
Silent = frozenset[Address]  # nodes that want an event and do not answer
Seen = Callable[[Silent, int], list[RingEffect]]  # what follows a visit


@dataclass(slots=True)
class _Waiting:
    deadline: int
    then: Then


class UnansweredRequests:
    """The requests of a node that are not answered yet."""

    def __init__(self) -> None:
        self._next = 0
        self._waiting: dict[Token, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(self, to: Address, message: Callable[[Token], Request], deadline: int, then: Then) -> list[RingEffect]:
        """Send a request. `then` is called with its answer, or with False at the deadline."""
        self._next += 1
        token = Token(self._next)
        self._waiting[token] = _Waiting(deadline, then)
        return [RingSend(to, message(token))]

    def answered(self, token: Token, answer: Answer, now: int) -> list[RingEffect]:
        """An answer has come. One that came too late does nothing."""
        waiting = self._waiting.pop(token, None)
        return [] if waiting is None else waiting.then(answer, now)

    def expire(self, now: int) -> list[RingEffect]:
        """End the requests whose time is up."""
        effects: list[RingEffect] = []
        for token in [token for token, waiting in self._waiting.items() if waiting.deadline <= now]:
            effects += self.answered(token, False, now)
        return effects


class Countdown:
    """Calls a function when so many answers have come; `ok` if all were."""

    def __init__(self, count: int, then: Callable[[bool, int], list[RingEffect]]) -> None:
        self._left = count
        self._ok = True
        self._then = then

    def start(self, now: int) -> list[RingEffect]:
        """To be called once all requests are sent: there may have been none."""
        return self._then(True, now) if self._left == 0 else []

    def __call__(self, answer: Answer, now: int) -> list[RingEffect]:
        """One more answer."""
        self._ok &= answer is not False
        self._left -= 1
        return self._then(self._ok, now) if self._left == 0 else []


class VisitCountdown:
    """Calls a function when so many visits have ended, with all nodes that were silent."""

    def __init__(self, count: int, then: Seen) -> None:
        self._left = count
        self._silent: set[Address] = set()
        self._then = then

    def start(self, now: int) -> list[RingEffect]:
        """To be called once all visits have begun: there may have been none."""
        return self._then(frozenset(), now) if self._left == 0 else []

    def __call__(self, silent: Silent, now: int) -> list[RingEffect]:
        """One more visit has ended."""
        self._silent |= silent
        self._left -= 1
        return self._then(frozenset(self._silent), now) if self._left == 0 else []

    def answered(self, answer: Answer, now: int) -> list[RingEffect]:
        """The node that was visited has answered."""
        return self(frozenset(answer.silent if isinstance(answer, Visited) else ()), now)
