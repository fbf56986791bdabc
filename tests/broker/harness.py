"""A driver for tests: a log in memory, a core, and clients that remember what they were sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from weft.broker.codec import one_by_one
from weft.broker.core import Core
from weft.broker.effects import Close, ConnectionId, Effect, Now, Persist, Send, SetTimer
from weft.broker.limits import ClientLimits
from weft.broker.messages import BrokerMessage, ClientMessage, Deliver, Hello
from weft.log.base import NEVER
from weft.log.memory import MemoryLog
from weft.routing import make_table

UTC = 1_700_000_000_000_000


class SameThread:
    """An executor that works at once."""

    def submit(self, work: Callable[..., Any], *args: Any) -> Any:
        from concurrent.futures import Future

        done: Future[Any] = Future()
        done.set_result(work(*args))
        return done


class Broker:
    """A core whose groups are committed when the test says so, or at once."""

    def __init__(self, log: MemoryLog | None = None, at_once: bool = True, **options: Any) -> None:
        self.log = MemoryLog("a1") if log is None else log
        self.options = options
        self.at_once = at_once
        self.now = Now(0, UTC)
        self.ids = count(1)
        self.timer: int | None = None
        self.persists: list[Persist] = []
        self.sent: list[tuple[str, BrokerMessage]] = []
        self.closed: list[str] = []
        self.start()

    def start(self) -> None:
        options = {"limits": ClientLimits(), **self.options}
        model, advertised = options.pop("model", "covering"), options.get("advertised", False)
        table = make_table(model, options.get("schema"), advertised=advertised, **options.pop("table", {}))
        self.core = Core(
            self.log, self.log.restore(), table, draw=lambda: next(self.ids) + 1000, executor=SameThread(), **options
        )

    def restart(self) -> None:
        """Crash, losing what was not committed, and start again."""
        self.log = self.log.crash()
        self.persists, self.sent, self.timer = [], [], None
        self.start()
        self.core.check()

    # -- calls ----------------------------------------------------------------------------------------

    def connect(self, *names: str) -> None:
        for name in names:
            self.do(self.core.connected(ConnectionId(name), self.now))

    def hello(self, name: str, session: str | None = None, **fields: Any) -> list[BrokerMessage]:
        self.connect(name)
        return self.say(name, Hello(session=name if session is None else session, **fields))

    def say(self, name: str, *messages: ClientMessage) -> list[BrokerMessage]:
        """Send messages to the broker; what comes back on this connection."""
        return self.do(self.core.receive(ConnectionId(name), messages, self.now), name)

    def cut(self, name: str) -> None:
        self.do(self.core.closed(ConnectionId(name), self.now))

    def wait(self, micros: int) -> None:
        """Let time pass, with the timers on the way."""
        until = self.now.monotonic + micros
        while self.timer is not None and self.timer <= until:
            at = max(self.timer, self.now.monotonic)
            self.now = Now(at, self.now.utc + at - self.now.monotonic)
            self.timer = None
            self.do(self.core.tick(self.now))
        self.now = Now(until, self.now.utc + until - self.now.monotonic)

    def do(self, effects: Sequence[Effect], name: str = "") -> list[BrokerMessage]:
        before = len(self.sent)
        self.take(effects)
        while self.at_once and self.persists:
            self.commit()
        while self.at_once and self.timer is not None and self.timer <= self.now.monotonic:
            self.timer = None
            self.take(self.core.tick(self.now))
            while self.persists:
                self.commit()
        self.core.check()
        return [message for to, message in self.sent[before:] if to == name]

    def take(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self.sent += [(effect.connection, message) for message in one_by_one(effect.messages)]
                case Persist():
                    self.persists.append(effect)
                case SetTimer():
                    self.timer = effect.at
                case Close():
                    self.closed.append(effect.connection)

    def commit(self, number: int = 1) -> list[tuple[str, BrokerMessage]]:
        """Commit the first groups that wait; what is sent then."""
        before = len(self.sent)
        groups, self.persists = self.persists[:number], self.persists[number:]
        self.log.commit([each.group for each in groups])
        for each in groups:
            self.take(self.core.committed(each.ticket, self.now))
        return self.sent[before:]

    def reject(self) -> list[tuple[str, BrokerMessage]]:
        """The log is full: every group that waits is lost."""
        before = len(self.sent)
        first, self.persists = self.persists[0], []
        self.take(self.core.rejected(first.ticket, "the log is full", self.now))
        self.core.check()
        return self.sent[before:]


def deliveries(messages: Sequence[BrokerMessage]) -> list[tuple[int, int, list[int]]]:
    """(offset, attempt, numbers) of each delivery."""
    return [(each.offset, each.attempt, each.numbers) for each in messages if isinstance(each, Deliver)]


__all__ = ["NEVER", "UTC", "Broker", "SameThread", "deliveries"]
