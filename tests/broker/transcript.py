"""Transcripts: what a driver did with one broker, and what the broker then sent, as lines of text.

A transcript begins with `broker` and its options in JSON. Each further line is either something that the driver does,
or something that came of it:

    connect CONNECTION              a client or a neighbour has opened a connection
    dial CONNECTION PEER            we have opened a connection to a neighbour
    in CONNECTION FRAME             a read: one frame in hexadecimal, and `and` lines for the others of the same read
    out CONNECTION FRAME            the broker has sent a frame
    closed CONNECTION               the broker has closed a connection
    relayed SOURCE BODY             something that another broker has sent by `relay`

The other lines are calls of `Broker`, with their arguments. What follows a # is for readers: the type of a message.

Everything is fixed: the clocks, the random draws, and that each group is committed before the next thing is done.
`Broker` is the product's broker in memory, with its driver. So a transcript of any time can be replayed: what is sent
on each connection must be the same, byte for byte.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from inspect import signature
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from broker.harness import UTC
from weft.broker.delivery_run import encode_all
from weft.broker.effects import ConnectionId, Now, Outgoing
from weft.broker.identity import Identity
from weft.broker.limits import ClientLimits
from weft.broker.rules import Rights, Rules
from weft.errors import AccessError
from weft.log.base import Log, Offset
from weft.log.memory import MemoryLog
from weft.model.schema import Schema
from weft.network.cores import MemoryBroker
from weft.protocol.codec import FrameReader, broker_messages, client_messages, encode
from weft.protocol.link_messages import IncomingMessage, LinkHello
from weft.protocol.messages import StatusReport
from weft.routing.dls.space import LabelSpace
from weft.routing.table import Role

OUTCOMES = ("out", "closed", "relayed")


class Step(NamedTuple):
    """Something that the driver does, and what came of it."""

    done: list[str]
    outcome: list[str]


def steps(lines: Iterable[str]) -> Iterator[Step]:
    """The steps of a transcript, without comments."""
    step = Step([], [])
    for line in lines:
        text = line.partition("#")[0].strip()
        if not text:
            continue
        if text.split()[0] in OUTCOMES:
            step.outcome.append(text)
        elif text.startswith("and "):
            step.done.append(text)
        else:
            if step.done:
                yield step
            step = Step([text], [])
    yield step


def by_connection(outcome: Iterable[str]) -> dict[str, list[str]]:
    """What came of a step, by connection: the order of different connections does not matter."""
    found = defaultdict(list)
    for line in outcome:
        kind, connection, *rest = comparable(line).split(maxsplit=2)
        found[connection].append(" ".join([kind, *rest]))
    return dict(found)


def comparable(line: str) -> str:
    """A line, without what a status says since: how far behind a queue is counted all events, not only its own, and
    there were no options of models.
    """
    kind, connection, frame = (*line.partition("#")[0].split(), "", "", "")[:3]
    message = decode(kind, bytes.fromhex(frame)) if kind == "out" else None
    if not isinstance(message, StatusReport):
        return line
    status = msgspec.msgpack.decode(message.body)
    assert not status.pop("options", None)
    queues = [{**queue, "behind": 0} for queue in status["furthest"]]
    return f"out {connection} {message.request} {status | {'furthest': sorted(queues, key=repr)}}"


def frames(data: bytes) -> list[bytes]:
    """Frames, each with its length."""
    return [len(each).to_bytes(4, "big") + bytes(each) for each in FrameReader().feed(data)]


class Broker:
    """A broker that does what the lines of a transcript say. `log` is a new log in memory unless one is given."""

    def __init__(self, options: str, log: Log | None = None) -> None:
        given = json.loads(options)
        self.name: str = given.get("name", "")
        self.log: Log = MemoryLog(given.get("log_id", "a1")) if log is None else log
        self._schema = None if "schema" not in given else Schema.from_dict(given["schema"])
        draws = count(given.get("draws", 1001))
        self._broker = MemoryBroker(
            self.name,
            log=self.log,
            time=Now(given.get("monotonic", 0), given.get("utc", UTC)),
            at_once=False,
            recorded=False,
            model=given.get("model", "covering"),
            draw=lambda: next(draws),
            schema=self._schema,
            authenticate=_principal if given.get("principals") else None,
            link_credentials=lambda peer: self.name.encode(),
            rules=_rules(given.get("rules")),
            limits=ClientLimits(**given.get("limits", {})),
            advertised=given.get("advertised", False),
        )
        self.core = self._broker.core
        self._full = ""
        self._outcome: list[str] = []
        self._work()

    @property
    def now(self) -> Now:
        return self._broker.time

    def perform(self, done: Sequence[str]) -> list[str]:
        """Do what the lines of a step say; what came of it."""
        self._outcome = []
        kind, _, rest = done[0].partition(" ")
        if kind == "in":
            self._broker.read(ConnectionId(rest.split()[0]), b"".join(bytes.fromhex(line.split()[2]) for line in done))
        else:
            call = getattr(self, kind)
            call(*rest.split(" ", len(signature(call).parameters) - 1) if rest else ())
        self._work()
        self.core.check()
        relayed = [f"relayed {each.source} {each.body.hex()}" for each in self._broker.relayed]
        self._broker.relayed.clear()
        return [*self._outcome, *relayed]

    # -- the calls of a transcript ----------------------------------------------------------------------

    def connect(self, connection: str) -> None:
        self._broker.connect(connection, receiver=partial(self._sent, connection))

    def dial(self, connection: str, peer: str) -> None:
        self._broker.dial(connection, peer, partial(self._sent, connection))

    def cut(self, connection: str) -> None:
        self._broker.cut(connection)

    def pause(self, connection: str) -> None:
        self.core.paused(ConnectionId(connection))

    def resume(self, connection: str) -> None:
        self._broker.call(self.core.resumed, ConnectionId(connection))

    def dismiss(self, connection: str, reason: str) -> None:
        self._broker.call(self.core.dismiss, ConnectionId(connection), "protocol", reason)

    def distrust(self, key: str) -> None:
        self._broker.call(self.core.distrust, [key])

    def rules(self, rights: str) -> None:
        self._broker.call(self.core.set_rules, _rules(json.loads(rights)))

    def attach(self, peer: str, role: str) -> None:
        self._broker.attach(peer, Role(role))

    def detach(self, peer: str) -> None:
        self._broker.call(self.core.detach, peer)

    def relay(self, destination: str, body: str) -> None:
        self._broker.call(self.core.relay, destination, bytes.fromhex(body))

    def retune(self, cells: str) -> None:
        assert self._schema is not None
        self._broker.call(self.core.retune, LabelSpace.of(self._schema, int(cells)))

    def refuse(self, reason: str) -> None:
        """The log is full for what comes next."""
        self._full = reason

    def store_floors(self) -> None:
        self._broker.call(self.core.store_floors)

    def trim(self, below: str) -> None:
        """Trim the log, as far as the broker needs it or further."""
        while self.log.trim(Offset(int(below))):
            pass
        self._broker.call(self.core.trimmed, self.log.restore().first)

    def wait(self, micros: str) -> None:
        """Let time pass, with the timers on the way."""
        until = self.now.monotonic + int(micros)
        while (due := self._broker.driver.due) is not None and due <= until:
            self._broker.pass_time(max(0, due - self.now.monotonic))
            self._work()
        self._broker.pass_time(until - self.now.monotonic)

    def _sent(self, connection: str, messages: list[Outgoing] | None) -> None:
        """The broker has sent messages, or closed the connection."""
        if messages is None:
            self._outcome.append(f"closed {connection}")
        else:
            self._outcome += [f"out {connection} {frame.hex()}" for frame in frames(encode_all(messages))]

    def _work(self) -> None:
        """Commit what waits, and run the timer while it is due."""
        for _ in range(10_000):
            if self._broker.driver.waiting and self._full:
                reason, self._full = self._full, ""
                self._broker.reject(reason)
            elif self._broker.driver.waiting:
                self._broker.commit()
            elif self._broker.is_due:
                self._broker.tick()
            else:
                return
        raise AssertionError("the broker never comes to rest")


def _principal(credentials: bytes) -> Identity:
    """Credentials are a name, and perhaps a key and the time at which they expire."""
    if not credentials:
        raise AccessError("there are no credentials")
    name, key, until, *_ = [*credentials.decode().split(":"), "", ""]
    return Identity(name, int(until), key) if until else Identity(name, key=key or None)


def _rules(rights: dict[str, dict[str, Any]] | None) -> Rules:
    """Rules of principals; one that is not named may do anything."""
    if rights is None:
        return Rules()
    listed = {}
    for principal, each in rights.items():
        filters = {name: tuple(each[name]) for name in ("subscribe", "publish") if name in each}
        further = {"further": frozenset(each["further"])} if "further" in each else {}
        listed[principal] = Rights(**filters, **further)
    return Rules(listed)


# -- recording --------------------------------------------------------------------------------------------


class Recorder:
    """Writes the transcript of one broker."""

    def __init__(self, log: Log | None = None, **options: Any) -> None:
        head = json.dumps(options, sort_keys=True)
        self.broker = Broker(head, log)
        self.lines = [f"broker {head}"]

    def do(self, *done: str) -> list[str]:
        """A step; what came of it."""
        outcome = self.broker.perform(done)
        self.lines += [*map(_with_type, done), *map(_with_type, outcome)]
        return outcome

    def say(self, connection: str, *messages: IncomingMessage) -> list[str]:
        """Let messages come in one read."""
        data = [frame.hex() for frame in frames(encode(messages))]
        return self.do(*(f"{'and' if at else 'in'} {connection} {each}" for at, each in enumerate(data)))

    def save(self, path: Path, comment: str) -> None:
        path.write_text("\n".join([*(f"# {line}" for line in comment.splitlines()), *self.lines, ""]))


def _with_type(line: str) -> str:
    kind, *rest = line.split()
    if kind not in ("in", "and", "out"):
        return line
    return f"{line} # {type(decode(kind, bytes.fromhex(rest[1]))).__name__}"


def decode(kind: str, frame: bytes) -> Any:
    """The message of a frame that came in or went out."""
    to_client = kind == "out" and frame[5] < LinkHello.__struct_config__.tag  # type: ignore[operator]
    reader: Any = broker_messages() if to_client else client_messages()
    (message,) = reader.feed(frame)
    return message
