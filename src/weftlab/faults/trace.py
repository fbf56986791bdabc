"""The trace of a simulated run, byte for byte the same for a seed; those who write it, and messages as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import NamedTuple

import msgspec

from weft.protocol import link_messages as link
from weft.protocol.link_messages import ABOUT, LinkMessage, LinkUpdate
from weft.protocol.messages import Deliver
from weft.routing.table import About, UpdateCodec
from weftlab.engine import Engine, Scheduled

_WIDTH = 160
_EMPTY: tuple[object, ...] = (0, "", b"", (), [], {}, None, False)


class InterestUpdate(NamedTuple):
    """An update of interest from one broker to another, and when it arrived."""

    time: int
    sender: str
    receiver: str
    what: str


class RunTrace:
    """Lines of (time, who, what), and counts of what occurred.

    >>> trace = RunTrace()
    >>> trace.say(1500, "alice", "connects")
    >>> trace.count("fault: crash")
    >>> print(*trace.lines, sep="\\n")
         1.500 ms  alice     connects
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()
        self.updates: list[InterestUpdate] = []
        self.listen: Callable[[str, str], None] | None = None  # gets who says what, whole, while a run is recorded

    def say(self, time: int, who: str, what: str) -> None:
        """Write a line; what is long is cut."""
        if self.listen is not None:
            self.listen(who, what)
        if len(what) > _WIDTH:
            what = what[: _WIDTH - 1] + "…"
        self.lines.append(f"{time / 1000:10.3f} ms  {who:<9} {what}")

    def count(self, what: str, number: int = 1) -> None:
        """Something occurred."""
        self.counts[what] += number

    def digest(self) -> str:
        """A hash of all lines."""
        return blake2b("\n".join(self.lines).encode(), digest_size=8).hexdigest()


@dataclass(eq=False)
class Actor:
    """Somebody in a run, with a name in its trace and draws of its own."""

    name: str
    engine: Engine
    rng: Random
    trace: RunTrace

    def say(self, what: str) -> None:
        """Write a line of the trace."""
        self.trace.say(self.engine.now, self.name, what)

    def soon(self, within: int, action: Callable[[], None]) -> Scheduled:
        """Run an action at a random time within so many microseconds."""
        return self.engine.after(1 + self.rng.randrange(within), action)


def shown(message: object) -> str:
    """A message in a line of the trace: its name and what is not empty.

    >>> from weft.protocol.messages import Ping
    >>> shown(Ping(7))
    'Ping token=7'
    """
    assert isinstance(message, msgspec.Struct)
    fields = []
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if isinstance(value, msgspec.Raw):
            value = msgspec.msgpack.decode(value)
        elif name == "letters":
            value = [letter.offset for letter in value]
        elif isinstance(message, Deliver) and name == "packed":
            name, value = "numbers", message.numbers  # noqa: PLW2901 - as a person reads it
        if value not in _EMPTY:
            fields.append(f"{name}={value}")
    return f"{type(message).__name__} {' '.join(fields)}"


def link_text(message: LinkMessage, codec: UpdateCodec) -> str:
    """A message between brokers in a line of the trace."""
    match message:
        case LinkUpdate():
            return f"told #{message.number}: {update_text(message, codec) or 'no more advertisements'}"
        case link.LinkEvents(events):
            return "events " + ", ".join(f"{bytes(event.payload).decode()} at {event.offset}" for event in events)
        case link.LinkLoose():
            return f"event {bytes(message.payload).decode()}, not durable"
        case link.LinkHave():
            return f"has {len(message.ids) // 8} {ABOUT[message.about].value}"
        case link.LinkProgress():
            return f"got {message.got}, heard {message.heard}, completed {message.completed}"
        case link.LinkHello():
            log = f"log {message.log_id}, incarnation {message.incarnation}, epoch {message.epoch}"
            return f"hello from {message.name}: {log}; has {message.peer_log or 'no log'} up to {message.got}"
        case link.LinkReach(brokers):
            return "reaches " + ", ".join(name for name, _ in brokers)
        case link.LinkRelay():
            return f"for {message.destination}, from {message.source}: {message.kind.name.lower()}"
        case _:
            return shown(message)


def update_text(message: LinkUpdate, codec: UpdateCodec) -> str:
    """What an update adds and drops."""
    about = ABOUT[message.about]
    mark = "" if about is About.SUBSCRIPTIONS else "advertised "
    added = [
        f"+{wire} {mark}{codec.decode_item(about, body)}" for wire, body in zip(message.ids, message.items, strict=True)
    ]
    dropped = [f"-{wire}" for wire in message.drop]
    notes = [_note_text(note) for note in message.notes]
    if message.fresh and not notes:
        notes = ["no notes"]
    return "; ".join([*added, *dropped, *notes, *(["that is all"] if message.resynced else [])])


def _note_text(note: object) -> str:
    assert isinstance(note, msgspec.Struct)
    stage = getattr(note, "stage", None)
    return type(note).__name__.lower() + (f" {stage.value}" if stage is not None else "")
