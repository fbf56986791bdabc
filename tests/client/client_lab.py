"""A broker and client sessions in memory: bytes travel when a test says so, and connections are cut anywhere."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from weft.broker.broker import Core
from weft.broker.delivery_run import encode_all
from weft.broker.effects import ConnectionId, Now, Outgoing
from weft.broker.limits import ClientLimits
from weft.broker.rules import Rules
from weft.client.effects import Dial, HangUp, Notice, Over, SessionEffect, WakeAt
from weft.client.session import ClientSession, SessionState
from weft.log.base import Log
from weft.log.memory import MemoryLog
from weft.network.cores import MemoryBroker
from weft.protocol.codec import broker_messages, client_messages, encode
from weft.protocol.messages import BrokerMessage, ClientMessage


class Lab:
    """One broker. Commits are immediate unless `commits` is off; `tick` lets time pass."""

    def __init__(self, rules: Rules | None = None, limits: ClientLimits | None = None, **options: Any) -> None:
        rng = Random(7)
        self.broker = MemoryBroker(
            log=MemoryLog("log-1"),
            at_once=False,
            recorded=False,
            draw=lambda: rng.getrandbits(63),
            rules=rules,
            limits=limits,
            **options,
        )
        self.commits = True
        self.full = False
        self.lines: dict[ConnectionId, Line] = {}
        self.half_open: list[ConnectionId] = []  # cut, and the broker does not know
        self._numbers = 0

    @property
    def core(self) -> Core:
        return self.broker.core

    @property
    def log(self) -> Log:
        return self.broker.log

    @property
    def now(self) -> Now:
        return self.broker.time

    def restart(self) -> None:
        """The broker process dies and starts again: every connection is cut."""
        for line in list(self.lines.values()):
            line.cut(noticed=False)
        self.half_open.clear()
        self.broker.driver.stop()
        self.broker.start()

    def connect(self, session: ClientSession) -> Line:
        """The session dials, if it does not dial already, and its connection opens."""
        if session.state is SessionState.NEW:
            session.start(self.now.monotonic)
        while session.state is SessionState.PAUSED:
            self.tick(100_000)
            session.tick(self.now.monotonic)
        assert session.state is SessionState.DIALLING, session.state
        self._numbers += 1
        return Line(self, session, ConnectionId(f"c{self._numbers}"))

    def tick(self, micros: int = 1_000) -> None:
        self.broker.pass_time(micros)
        self.broker.tick()
        self.store()

    def notice(self) -> None:
        """The broker notices which connections are cut."""
        while self.half_open:
            self.broker.cut(self.half_open.pop())
            self.store()

    def store(self) -> None:
        """Store what waits, and let the broker handle what it has put off, unless a test does."""
        if self.commits:
            self.commit()
            while self.broker.core.behind:
                self.broker.tick()
                self.commit()

    def commit(self) -> None:
        """Store what waits."""
        while self.broker.driver.waiting:
            if self.full and self.broker.driver.waiting[0].group.events is not None:
                self.broker.reject("the quota is used up")
            else:
                self.broker.commit()


class Line:
    """One connection: bytes on their way to the broker (`there`) and from it (`back`)."""

    def __init__(self, lab: Lab, session: ClientSession, id: ConnectionId) -> None:
        self.lab, self.session, self.id = lab, session, id
        self.number = session.connection
        session.opened(self.number, lab.now.monotonic)
        self.there = bytearray(encode(session.take()))
        self.back = bytearray()
        self.said: list[ClientMessage] = []  # what the broker has read
        self.heard: list[BrokerMessage] = []  # what the client has read
        self.closing = self.is_cut = False
        self._broker, self._client = client_messages(), broker_messages()
        lab.lines[id] = self
        lab.broker.connect(id, receiver=self._sent)
        lab.store()

    def _sent(self, messages: list[Outgoing] | None) -> None:
        """The broker has sent messages, or closes the connection."""
        if messages is None:
            self.closing = True
        else:
            self.back += encode_all(messages)

    def flush(self) -> None:
        """The client sends what it has to say."""
        if not self.is_cut:
            self.there += encode(self.session.take())

    def to_broker(self, size: int = 1 << 30) -> None:
        data, self.there = bytes(self.there[:size]), self.there[size:]
        messages = self._broker.feed(data)
        self.said += messages
        if messages and not self.closing:
            self.lab.broker.receive(self.id, messages)
            self.lab.store()

    def to_client(self, size: int = 1 << 30) -> list[Notice]:
        data, self.back = bytes(self.back[:size]), self.back[size:]
        messages = self._client.feed(data)
        self.heard += messages
        notices = _notices(self.session.received(self.number, messages, self.lab.now.monotonic))
        if self.closing and not self.back:
            notices += self.cut()
        return notices

    def cut(self, *, noticed: bool = True) -> list[Notice]:
        """Everything on its way is lost."""
        if self.is_cut:
            return []
        self.is_cut = True
        self.lab.lines.pop(self.id, None)
        if not noticed:
            self.lab.half_open.append(self.id)
        else:
            self.lab.broker.cut(self.id)
            self.lab.store()
        return _notices(self.session.closed(self.number, self.lab.now.monotonic))

    def run(self, handle: Callable[[Notice], None] = lambda _: None) -> list[Notice]:
        """Let everything travel until nothing moves."""
        every: list[Notice] = []
        while True:
            self.flush()
            if not self.there and not self.back:
                return every
            self.to_broker()
            notices = self.to_client()
            every += notices
            for notice in notices:
                handle(notice)
            if self.is_cut:
                return every


def _notices(effects: list[SessionEffect]) -> list[Notice]:
    """What the application learns."""
    return [each for each in effects if not isinstance(each, (Dial, HangUp, WakeAt, Over))]
