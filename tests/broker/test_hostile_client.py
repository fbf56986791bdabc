"""A client that is let in and says anything: the broker answers, or ends its connection, and goes on for others.

Whatever a core raises ends a broker, so nothing that a client can put into a frame may make it raise.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from broker.harness import Broker
from weft.broker.limits import ClientLimits
from weft.broker.rules import Rights, Rules
from weft.errors import RemoteProtocolError
from weft.protocol.codec import client_messages, joined
from weft.protocol.messages import ClientMessage, Deliver, Hello, Publish, Published, Subscribe

NUMBERS = (0, 1, 2, 3, 5, 9, 255, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, -1, 1 << 63)
TEXTS = (
    "",
    "s",
    "x > 5",
    "x < 3",
    "x >",
    "TRUE",
    "a LIKE '%b%c_'",
    "\0",
    "s\n\x1b[2J",
    "x" * 300,
    "é" * 40,
    "x = 1 AND " * 30,
)
VALUES = (
    None,
    True,
    -1,
    0.5,
    float("nan"),
    1 << 62,
    "text",
    b"bytes",
    [1],
    {"y": {"z": 1}},
    "\0",
    "2020-01-01T00:00:00Z",
)
TAGS = (*range(3, 15), 16, 24)
ENDINGS = (1, 2, 15, 17, 18, 64, 65, 66, 67, 69, 72, 73)  # most of these end a connection
SHAPES: dict[int, str] = {  # fields of messages: n number, t text, b bytes, f flag, o offsets, r ranges, a attributes
    1: "vtnnbtnnn",
    2: "n",
    3: "nabtn",
    4: "ntnffftnnnf",
    5: "nt",
    6: "n",
    7: "nt",
    8: "n",
    9: "nnr",
    10: "not",
    11: "nnnn",
    12: "nno",
    13: "nno",
    14: "n",
    15: "f",
    16: "nn",
    24: "nqtp",
}
KINDS = (
    "sessions",
    "subscriptions",
    "items",
    "order",
    "related",
    "search",
    "overlay",
    "summary",
    "trace",
    "why",
    "matches",
)
OPERATIONS = ("disconnect", "detach", "change", "nothing")


class Anything:
    """Frames that are nearly messages."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)

    def field(self, kind: str) -> Any:
        rng = self.rng
        number = rng.choice(NUMBERS[:6]) if rng.random() < 0.8 else rng.choice(NUMBERS)
        match kind:
            case "n":
                return number if rng.random() < 0.95 else None
            case "t":
                return rng.choice(TEXTS)
            case "b":
                return rng.randbytes(rng.randrange(20))
            case "f":
                return rng.choice((True, False, None))
            case "o":
                return [rng.choice(NUMBERS[:7]) for _ in range(rng.randrange(5))]
            case "r":
                return [[rng.choice(NUMBERS[:8]), rng.choice(NUMBERS[:8])] for _ in range(rng.randrange(4))]
            case "v":
                return [1, 1]
            case "q":
                names = (
                    "session",
                    "text",
                    "filter",
                    "link",
                    "number",
                    "node",
                    "first",
                    "end",
                    "since",
                    "filters",
                    "event",
                )
                some = {name: self.field(rng.choice("ttnnoa")) for name in rng.sample(names, rng.randrange(6))}
                return {"ask": rng.choice((*KINDS, *OPERATIONS)), **some}
            case "p":
                token = [0, rng.randrange(4), rng.randrange(4)] if rng.random() < 0.7 else [rng.choice(VALUES)]
                return msgspec.msgpack.encode(token) if rng.random() < 0.5 else b""
            case _:
                return {
                    rng.choice(("x", "y", "id", "time", "a.b", "")): rng.choice(VALUES) for _ in range(rng.randrange(4))
                }

    def frame(self) -> bytes:
        rng = self.rng
        tag = rng.choice((*TAGS, 3, 3, 3, 4, 4, 4, 9, 10) if rng.random() < 0.97 else ENDINGS)
        fields = [self.field(kind) for kind in SHAPES.get(tag, "ntb")]
        if rng.random() < 0.1:
            fields = fields[: rng.randrange(len(fields) + 1)]
        return msgspec.msgpack.encode([tag, *fields])


def read(frame: bytes) -> list[ClientMessage]:
    try:
        return client_messages().feed(joined([frame]))  # type: ignore[return-value]
    except RemoteProtocolError:
        return []


@pytest.mark.parametrize("seed", range(4))
def test_nothing_that_a_client_says_ends_a_broker(seed: int) -> None:
    rules = Rules(default=Rights(subscribe=("x > 1", "x <= 1", "a LIKE '%b%'"), publish=("x > 0", "y IS NOT NULL")))
    limits = ClientLimits(window_events=3, failures=2, backoff=10, turn=5, tail=2_000)
    on = Broker(rules=rules if seed % 2 else None, limits=limits, name="here", at_once=True)
    anything = Anything(seed)
    on.hello("good")
    on.say("good", Subscribe(1, "x > 5"))  # type: ignore[arg-type]
    said = welcomed = 0
    for turn in range(600):
        name = f"bad{turn // 50}"
        if name not in on.core._sessions.connections:
            if turn % 50:
                continue
            on.connect(name)
            on.say(name, Hello(session=anything.rng.choice(("", "s", "t"))))
            welcomed += 1
        messages = read(anything.frame())
        said += len(messages)
        on.say(name, *messages)
        on.wait(anything.rng.randrange(30))
    assert said > 100
    assert welcomed == 12
    answers = on.say("good", Publish.of(1, {"x": 7}))
    assert {Published, Deliver} <= {type(each) for each in answers}
