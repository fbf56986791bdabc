"""Dead letters: the events that a subscriber failed to handle too often, and what can be done with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from weft.errors import OptionError
from weft.log.base import Offset
from weft.model.value import Value, from_micros
from weft.protocol.messages import DeadLetters, DeadMessage, DropDead, ListDead, RetryDead, read_head

_MOST = 1_000  # offsets in one request

_Offsets = list[int]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a subscriber failed to handle too often."""

    offset: int
    attributes: dict[str, Value]
    payload: bytes
    failures: int
    reason: str  # of the last failure
    died_at: datetime


_Letters = list[DeadLetter]


class DeadLetterQueue:
    """The events that subscriptions failed to handle too often; see `Client.dead_letters`.

    A subscription's own (`Subscription.dead_letters`) need no name. An invalid offset or limit raises OptionError
    before anything is sent.

    >>> import asyncio
    >>> from weft.testing import broker
    >>> async def main():
    ...     async with broker() as local, local.connect() as client, client.subscribe("x > 0", name="alerts") as alerts:
    ...         return await alerts.dead_letters.list(), await client.dead_letters.list("alerts")
    >>> asyncio.run(main())
    ([], [])
    """

    def __init__(self, ask: Callable[[Callable[..., DeadMessage]], Awaitable[Any]], *, is_named: bool) -> None:
        self._ask = ask  # makes a request about a queue
        self._is_named = is_named  # whether a name must be given

    def __repr__(self) -> str:
        return f"<weft.DeadLetterQueue of {'this client' if self._is_named else 'one subscription'}; list() has them>"

    async def list(self, name: str = "", *, shared: bool = False, limit: int = 100, after: int = 0) -> _Letters:
        """The letters of a subscription after an offset, in order. Its consumers are not disturbed.

        Cost: one round trip for each 100 letters or so.

        >>> import asyncio
        >>> from weft.broker.limits import ClientLimits
        >>> from weft.testing import broker
        >>> async def main(limits):
        ...     async with broker(limits=limits) as local, local.connect() as client:
        ...         alerts = await client.subscribe("x > 0", name="alerts")
        ...         await client.publish({"x": 1})
        ...         event = await anext(alerts)
        ...         await event.nack("no such place")
        ...         while not (letters := await client.dead_letters.list("alerts")):
        ...             pass
        ...         return [(letter.attributes, letter.reason) for letter in letters]
        >>> asyncio.run(main(ClientLimits(failures=1)))
        [({'x': 1}, 'no such place')]
        """
        place = self._place(name, shared)
        if limit < 1 or not 0 <= after < 1 << 63:
            raise OptionError(f"limit is {limit} and after is {after}; give a limit of 1 or more, and an offset")
        found: _Letters = []
        while len(found) < limit:
            answer = await self._ask(partial(ListDead, after=Offset(after), limit=limit - len(found), **place))
            found += _letters(answer)
            if not answer.more or not answer.letters:
                break
            after = found[-1].offset
        return found

    async def redeliver(self, *offsets: int, name: str = "", shared: bool = False) -> _Offsets:
        """Deliver letters once more, to the current consumer. Returns the offsets of those that are delivered.

        Nothing is delivered if nobody is connected. Acknowledging a letter removes it.

        Cost: one round trip for each 1,000 letters.

        >>> import asyncio
        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client, client.subscribe("x > 0", name="alerts"):
        ...         return await client.dead_letters.redeliver(7, name="alerts")  # there is no such letter
        >>> asyncio.run(main())
        []
        """
        return await self._do(RetryDead, name, shared, offsets)

    async def discard(self, *offsets: int, name: str = "", shared: bool = False) -> _Offsets:
        """Remove letters. Returns the offsets of those that existed.

        Cost: one round trip and one commit for each 1,000 letters.

        >>> import asyncio
        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         alerts = await client.subscribe("x > 0", name="alerts")
        ...         return await alerts.dead_letters.discard(7)  # there is no such letter
        >>> asyncio.run(main())
        []
        """
        return await self._do(DropDead, name, shared, offsets)

    async def _do(self, kind: type[RetryDead | DropDead], name: str, shared: bool, offsets: Sequence[int]) -> _Offsets:
        place = self._place(name, shared)
        for offset in offsets:
            if isinstance(offset, bool) or not isinstance(offset, int) or not 0 < offset < 1 << 63:
                raise OptionError(f"{offset!r} is not the offset of an event")
        done: _Offsets = []
        for at in range(0, len(offsets), _MOST):
            part = tuple(map(Offset, offsets[at : at + _MOST]))
            done += (await self._ask(partial(kind, offsets=part, **place))).offsets
        return done

    def _place(self, name: str, shared: bool) -> dict[str, Any]:
        if bool(name) != self._is_named:
            raise OptionError(
                "name the subscription whose dead letters you mean"
                if self._is_named
                else f"these are the dead letters of one subscription; for those of {name!r} use client.dead_letters"
            )
        return ({"share": name} if shared else {"session": name}) if name else {}


def _letters(answer: DeadLetters) -> list[DeadLetter]:
    return [
        DeadLetter(
            each.offset, read_head(each.head).attributes, each.payload, each.failures, each.reason, from_micros(each.at)
        )
        for each in answer.letters
    ]
