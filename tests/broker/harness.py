"""A broker in memory as the tests of the core use it: checked after every call, and called directly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.broker.effects import Effect, Now, Persist
from weft.log.base import NEVER
from weft.log.memory import MemoryLog
from weft.network.cores import START, MemoryBroker, SameThread
from weft.protocol.messages import BrokerMessage, Deliver

UTC = START.utc


class Broker(MemoryBroker):
    """A core whose groups are committed when the test says so, or at once."""

    def __init__(self, log: MemoryLog | None = None, at_once: bool = True, *, name: str = "", **options: Any) -> None:
        super().__init__(name, log=log, at_once=at_once, **{"checked": True, **options})

    @property
    def now(self) -> Now:
        return self.time

    @now.setter
    def now(self, time: Now) -> None:
        self.time = time

    @property
    def persists(self) -> list[Persist]:
        return self.driver.waiting

    @property
    def timer(self) -> int | None:
        return self.driver.due

    def do(self, effects: Sequence[Effect], name: str = "") -> list[Any]:
        """Carry out the effects of a call that the test has made; what is sent on a connection."""
        before = len(self.sent)
        self.take(effects)
        self.follow_up()
        return [message for to, message in self.sent[before:] if to == name]

    def take(self, effects: Sequence[Effect]) -> None:
        """Carry out effects, and nothing that follows from them."""
        self.driver.carry_out(effects, self.now)


def deliveries(messages: Sequence[BrokerMessage]) -> list[tuple[int, int, list[int]]]:
    """(offset, attempt, numbers) of each delivery."""
    return [(each.offset, each.attempt, each.numbers) for each in messages if isinstance(each, Deliver)]


__all__ = ["NEVER", "UTC", "Broker", "SameThread", "deliveries"]
