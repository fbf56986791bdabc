"""A broker's core and client sessions in memory: bytes travel when a test says so, and connections are cut anywhere."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from weft.broker.codec import broker_messages, client_messages, encode, encode_all
from weft.broker.core import Core
from weft.broker.effects import Close, ConnectionId, Effect, Now, Persist, Send
from weft.broker.limits import ClientLimits
from weft.broker.messages import BrokerMessage, ClientMessage
from weft.broker.rules import Rules
from weft.errors import LogFullError
from weft.log.memory import MemoryLog
from weft.net.client_notices import Notice
from weft.net.client_session import ClientSession
from weft.routing.registry import make_table


class Lab:
    """One broker. Commits are immediate unless `commits` is off; `tick` lets time pass."""

    def __init__(self, rules: Rules | None = None, limits: ClientLimits | None = None) -> None:
        self.log = MemoryLog("log-1")
        self._rules, self._limits = rules, limits
        self.now = Now(0, 1_700_000_000_000_000)
        self.commits = True
        self.full = False
        self.lines: dict[ConnectionId, Line] = {}
        self._persists: list[Persist] = []
        self.half_open: list[ConnectionId] = []  # cut, and the broker does not know
        self._numbers = 0
        self._start()

    def _start(self) -> None:
        rng = Random(7)
        self.core = Core(
            self.log,
            self.log.restore(),
            make_table("covering"),
            draw=lambda: rng.getrandbits(63),
            rules=self._rules,
            limits=self._limits,
        )

    def restart(self) -> None:
        """The broker process dies and starts again: every connection is cut."""
        for line in list(self.lines.values()):
            line.cut(noticed=False)
        self._persists.clear()
        self.half_open.clear()
        self._start()

    def connect(self, session: ClientSession) -> Line:
        self._numbers += 1
        return Line(self, session, ConnectionId(f"c{self._numbers}"))

    def tick(self, micros: int = 1_000) -> None:
        self.now = Now(self.now.monotonic + micros, self.now.utc + micros)
        self.perform(self.core.tick(self.now))

    def notice(self) -> None:
        """The broker notices which connections are cut."""
        while self.half_open:
            self.perform(self.core.closed(self.half_open.pop(), self.now))

    def commit(self) -> None:
        """Store what waits."""
        while self._persists:
            persist = self._persists.pop(0)
            try:
                if self.full and persist.group.events is not None:
                    raise LogFullError("the quota is used up")
                self.log.commit([persist.group])
            except LogFullError as error:
                self._persists.clear()
                self.perform(self.core.rejected(persist.ticket, str(error), self.now))
                return
            self.perform(self.core.committed(persist.ticket, self.now))

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Persist):
                self._persists.append(effect)
            elif isinstance(effect, Send) and effect.connection in self.lines:
                self.lines[effect.connection].back += encode_all(effect.messages)
            elif isinstance(effect, Close) and effect.connection in self.lines:
                self.lines[effect.connection].closing = True
        if self.commits:
            self.commit()


class Line:
    """One connection: bytes on their way to the broker (`there`) and from it (`back`)."""

    def __init__(self, lab: Lab, session: ClientSession, id: ConnectionId) -> None:
        self.lab, self.session, self.id = lab, session, id
        self.there = bytearray(encode([session.hello()]))
        self.back = bytearray()
        self.said: list[ClientMessage] = []  # what the broker has read
        self.heard: list[BrokerMessage] = []  # what the client has read
        self.closing = self.is_cut = False
        self._broker, self._client = client_messages(), broker_messages()
        lab.lines[id] = self
        lab.perform(lab.core.connected(id, lab.now))

    def flush(self) -> None:
        """The client sends what it has to say."""
        if not self.is_cut:
            self.there += encode(self.session.take())

    def to_broker(self, size: int = 1 << 30) -> None:
        data, self.there = bytes(self.there[:size]), self.there[size:]
        messages = self._broker.feed(data)
        self.said += messages
        if messages and not self.closing:
            self.lab.perform(self.lab.core.receive(self.id, messages, self.lab.now))

    def to_client(self, size: int = 1 << 30) -> list[Notice]:
        data, self.back = bytes(self.back[:size]), self.back[size:]
        messages = self._client.feed(data)
        self.heard += messages
        notices = self.session.receive(messages)
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
            self.lab.perform(self.lab.core.closed(self.id, self.lab.now))
        return self.session.lost()

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
