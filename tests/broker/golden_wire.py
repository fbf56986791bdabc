"""The scenarios of the golden transcripts in tests/golden/wire, and of the golden log in tests/golden/broker_log.

`python -m broker.golden_wire DIRECTORY` records them all, with the code of now. A golden file is never recorded again
to make a test pass: whoever adds something to the protocol adds a scenario. Those of version 2 were recorded with the
last release in which the broker's messages lived in `weft.broker` (commit 69c4c04).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from broker.transcript import Recorder
from weft.log.base import NEVER, Log, Offset, SessionId
from weft.log.opening import LogOptions, open_log
from weft.log.schema import DATABASE
from weft.protocol.link_messages import LinkAhead, LinkFeatures, LinkHello, LinkRelay
from weft.protocol.messages import (
    Ack,
    Advertise,
    AskSpace,
    AskStatus,
    AskStored,
    Bye,
    DropDead,
    Explain,
    Goodbye,
    Hello,
    ListDead,
    Nack,
    NewEpoch,
    Ping,
    Publish,
    PublishPlaced,
    PublishProfile,
    Question,
    QueueNumber,
    ReadHistory,
    Replace,
    RetryDead,
    SubNumber,
    Subscribe,
    SubscribeProfiles,
    Unadvertise,
    Unsubscribe,
    Whence,
    Whereabouts,
    WithdrawProfile,
)
from weft.protocol.questions import AskSessions, AskSubscriptions, AskSummary, AskTrace, SearchEvents, encode_body

SECOND = 1_000_000
QUAKES = {"attributes": {"magnitude": {"type": "float"}, "place": {"type": "string"}}}
CELLS = {"attributes": {name: {"type": "int", "bounds": [0, 8]} for name in ("x", "y")}}
ENTROPY = b"\x07"


def quake(sequence: int, magnitude: object, place: str = "Chile", **fields: Any) -> Publish:
    return Publish.of(sequence, {"magnitude": magnitude, "place": place}, b"#%d" % sequence, **fields)


def subscribe(number: int, text: str, queue: int = 0, **options: Any) -> Subscribe:
    return Subscribe(SubNumber(number), text, QueueNumber(queue), **options)


def ack(floor: int, *ranges: tuple[int, int], queue: int = 0) -> Ack:
    return Ack(QueueNumber(queue), Offset(floor), tuple((Offset(a), Offset(b)) for a, b in ranges))


def nack(*failed: tuple[int, int], queue: int = 0, reason: str = "") -> Nack:
    return Nack(QueueNumber(queue), tuple((Offset(offset), attempt) for offset, attempt in failed), reason)


def raw(**attributes: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(attributes))


# -- one broker, and clients of every kind --------------------------------------------------------------------


def clients() -> Recorder:
    """Sessions, publishers, queues, acknowledgements, dead letters, questions."""
    on = Recorder(schema=QUAKES, limits={"failures": 2, "held": 2, "tail": 2_000, "idle": 300 * SECOND})
    on.do("connect s")
    on.say("s", Hello(session="alerts", window_events=4, expires=3_600))
    on.say("s", subscribe(1, "magnitude >= 5"), subscribe(2, "place = 'Chile'"), subscribe(3, "place LIKE 'J%'", 7))
    on.do("connect p")
    on.say("p", Hello(session="sensor", versions=(1, 2), pub_epoch=3, fingerprint=""))
    on.say("p", quake(1, 5.5), quake(2, 2.0, "Japan"), quake(3, 7.25, "Japan", datacontenttype="text/plain"))
    on.say("p", quake(4, "strong"), quake(5, 4), Ping(77))  # the schema refuses a text
    on.say("p", quake(0, 9.5, "Chile"), quake(0, 1.5, "Peru", ttl=SECOND))  # not durable
    on.say("s", ack(2, (3, 4)), ack(3, queue=7))
    on.say("s", nack((4, 1), reason="too strong"), nack((3, 1), queue=7))
    on.do("wait 1500000")
    on.say("s", nack((4, 2), reason="still too strong"), nack((3, 2), queue=7, reason="cannot read it"))
    on.do("wait 3000000")
    on.say("s", ack(6), ack(6, queue=7))
    on.say("s", ListDead(1, QueueNumber(0)), ListDead(2, QueueNumber(7), Offset(0), 1))
    on.say("s", RetryDead(3, QueueNumber(0), (Offset(4),)))
    on.say("s", ack(4, (4, 5)), DropDead(4, QueueNumber(7), (Offset(3), Offset(99))), ListDead(5, QueueNumber(0)))
    on.say("s", Replace(SubNumber(3), "place LIKE 'P%'"), Unsubscribe(SubNumber(2)))
    on.say("p", quake(6, 6.5, "Peru", ttl=2 * SECOND), quake(7, 1.0, "Peru", ttl=3_600 * SECOND))
    on.do("cut s")
    on.do("wait 5000000")  # one has expired
    on.do("connect s2")
    on.say("s2", Hello(session="alerts"))
    on.say("s2", ack(8), ack(8, queue=7))
    _refusals(on)
    _shared(on)
    _behind(on)
    on.do("connect q")
    on.say("q", Hello(), AskStatus(9, 5), Explain(10, raw(magnitude=6.0, place="Chile")), Explain(11, raw(place="")))
    on.say("p", NewEpoch(8), quake(1, 5.0))
    on.do("store_floors")
    on.say("s2", Goodbye(forget=True))
    on.say("p", Goodbye())
    on.do("dismiss q a frame could not be read")
    on.do("wait 301000000")
    return on


def _refusals(on: Recorder) -> None:
    """What is refused, and why."""
    on.say("s2", subscribe(1, "place = 'Chile'"), subscribe(9, "magnitude >>= 5"), Replace(SubNumber(8), "TRUE"))
    on.say("s2", Unsubscribe(SubNumber(8)), Unadvertise(3), subscribe(9, "place = 'Oslo'", 7, ordered=False))
    on.say("p", quake(9, 5.0), quake(10, 5.0))  # 8 is missing
    on.say("p", NewEpoch(4), Publish.of(1, {"magnitude": 1.0, "deep": {"er": [1, 2]}}))
    on.do("connect z")
    on.say("z", Hello(versions=(7, 9)))
    on.do("connect z2")
    on.say("z2", Hello(session="alerts", epoch=1))
    on.do("connect z3")
    on.say("z3", Hello(fingerprint="another"))
    on.do("connect z4")
    on.say("z4", Ping())
    on.do("connect z5")
    on.do("wait 11000000")  # it never says hello
    on.do("connect z6")
    on.say("z6", Hello(session="z6", pub_epoch=3), NewEpoch(3))
    on.do("connect s3")
    on.say("s3", Hello(session="alerts"))  # a newer connection takes the session over
    on.do("connect s2b")
    on.say("s2b", Hello(session="alerts", epoch=9))
    on.do("refuse the log is full")
    on.say("p", NewEpoch(6), quake(1, 5.0), quake(2, 5.0))
    on.do("refuse the log is full")
    on.say("s2b", subscribe(20, "magnitude = 8"))
    on.say("p", NewEpoch(7), quake(1, 5.0), quake(2, 5.0))
    on.say("s2b", ack(10))
    on.do("connect s2")
    on.say("s2", Hello(session="alerts", epoch=10))


def _shared(on: Recorder) -> None:
    """A queue that two sessions consume together."""
    for name in ("w1", "w2"):
        on.do(f"connect {name}")
        on.say(name, Hello(session=name), subscribe(1, "magnitude > 6", share="workers"))
    on.say("w2", subscribe(2, "magnitude > 7", 5, share="workers"))  # another filter
    on.say("p", *(quake(sequence, 8.0) for sequence in range(3, 9)))
    on.say("w1", nack((11, 1), reason="not mine"))
    on.do("cut w2")
    on.do("wait 2000000")
    on.say("w1", ack(99), ListDead(1, QueueNumber(0), share="workers"))
    on.say("s2", ListDead(6, QueueNumber(0), session="w1"), RetryDead(7, QueueNumber(0), (), share="workers"))
    on.say("w1", Unsubscribe(SubNumber(1)))


def _behind(on: Recorder) -> None:
    """Queues that begin in the past, lag behind, or lose events."""
    on.do("connect late")
    on.say("late", Hello(session="late", window_events=2), subscribe(1, "magnitude >= 5", 1, since=Offset(2)))
    on.say("late", ack(4, queue=1))
    on.say("late", ack(99, queue=1), subscribe(2, "place = 'Chile'", 2, since_time=1_700_000_002_000_000, lag=3))
    on.say("late", Replace(SubNumber(2), "place = 'Peru'"))
    on.do("cut late")
    on.say("p", *(quake(sequence, 5.5) for sequence in range(9, 14)))
    on.do("trim 8")
    on.do("connect late2")
    on.say("late2", Hello(session="late"), subscribe(3, "magnitude < 3", 3, since=Offset(1)))
    on.say("late2", ack(99, queue=1), ack(99, queue=2), ack(99, queue=3))
    on.do("connect slow")
    on.say("slow", Hello(), subscribe(1, "place = 'Chile'"), subscribe(2, "magnitude = 5.5", 1, disconnect=True))
    on.do("pause slow")
    on.say("p", *(quake(sequence, 6.0) for sequence in range(14, 18)))
    on.do("resume slow")
    on.do("pause slow")
    on.say("p", *(quake(sequence, 5.5) for sequence in range(18, 22)))


def stored() -> Recorder:
    """Version 3: which acknowledgements are stored, those of an earlier connection, and announced dead letters."""
    on = Recorder(schema=QUAKES, limits={"failures": 1, "ack_delay": 0})
    on.do("connect s")
    on.say("s", Hello(versions=(2, 3), session="alerts"), subscribe(1, "magnitude >= 5"))
    on.do("connect p")
    on.say("p", Hello(session="sensor"), *(quake(sequence, 6.0) for sequence in range(1, 6)))
    on.say("s", ack(2), AskStored(QueueNumber(0)), ack(2, (3, 4)))
    on.say("s", AskStored(QueueNumber(0)), AskStored(QueueNumber(7)), nack((2, 1), reason="too strong"))
    on.do("cut s")
    on.do("connect s2")
    on.do("pause s2")
    on.say("s2", Hello(versions=(2, 3), session="alerts"))
    on.say("s2", ack(0, (1, 2), (3, 5)))  # 4 came on the earlier connection, and does not come on this one
    on.do("resume s2")
    on.say("p", RetryDead(1, QueueNumber(0), (Offset(2),), session="alerts"))
    on.say("s2", ack(6, (2, 3)), AskStored(QueueNumber(0)), ListDead(2, QueueNumber(0)))
    return on


def access() -> Recorder:
    """Principals and rules, which change."""
    rules = {"ann": {"subscribe": ["x < 5"], "publish": ["x >= 0"], "further": ["status"]}, "bob": {}}
    on = Recorder(principals=True, rules=rules, limits={"requests": 1.0, "connections": 3})
    for name, who in (("a", "ann"), ("b", "bob:key1"), ("e", "eve:key2:1700000009000000")):
        on.do(f"connect {name}")
        on.say(name, Hello(session=name, credentials=who.encode()))
    on.do("connect n")
    on.say("n", Hello())
    on.do("connect t")
    on.say("t", Hello(session="a", credentials=b"bob"))  # of another principal
    on.say("a", subscribe(1, "x < 3"), subscribe(2, "x < 4 AND y = 1", 1), subscribe(3, "x < 9"), Explain(1, raw(x=1)))
    on.say("a", ListDead(1, QueueNumber(0)), subscribe(4, "x = 1", 2, since=Offset(1)), AskStatus(2))
    on.say("a", Publish.of(1, {"x": 1}), Publish.of(2, {"x": -1}))
    on.say("b", subscribe(1, "TRUE"), Publish.of(1, {"x": 2, "y": 1}))
    on.do('rules {"ann": {"subscribe": ["x < 3"]}, "bob": {"subscribe": ["y = 1"]}}')
    on.do("cut a")
    on.do('rules {"ann": {"subscribe": []}, "bob": {"publish": []}}')
    on.say("b", Publish.of(2, {"x": 2, "y": 1}))
    on.do("connect a2")
    on.say("a2", Hello(session="a", credentials=b"ann"))
    on.do("distrust key1")
    on.do("wait 10000000")  # the credentials of eve have expired
    on.do("connect f")
    on.say("f", Hello(credentials=b"bob"), *(subscribe(number, f"x = {number}") for number in range(1, 120)))
    on.do("wait 2000000")
    return on


# -- two brokers that are linked --------------------------------------------------------------------------------


class Pair:
    """Two recorded brokers, and the wires between them."""

    def __init__(self, *ends: Recorder) -> None:
        self.ends = {end.broker.name: end for end in ends}
        self._wires: dict[str, tuple[str, str]] = {}
        self._flying: list[tuple[str, str, str]] = []  # to a broker, on a wire, a frame

    def do(self, name: str, line: str) -> None:
        self._sent(name, self.ends[name].do(line))
        self.settle()

    def say(self, name: str, connection: str, *messages: Any) -> None:
        self._sent(name, self.ends[name].say(connection, *messages))
        self.settle()

    def hello(self, name: str, connection: str, **fields: Any) -> None:
        self.do(name, f"connect {connection}")
        self.say(name, connection, Hello(session=connection, **fields))

    def dial(self, one: str, other: str, wire: str) -> None:
        self._wires[wire] = one, other
        self._sent(other, self.ends[other].do(f"connect {wire}"))
        self.do(one, f"dial {wire} {other}")

    def cut(self, wire: str) -> None:
        """A wire breaks."""
        for name in self._wires.pop(wire):
            self.do(name, f"cut {wire}")

    def wait(self, seconds: int) -> None:
        """Let time pass, a second at a time."""
        for _ in range(seconds):
            for name in self.ends:
                self.do(name, f"wait {SECOND}")

    def settle(self) -> None:
        """Let all frames arrive, each in a read of its own."""
        while self._flying:
            name, wire, frame = self._flying.pop(0)
            if wire in self._wires:
                self._sent(name, self.ends[name].do(f"in {wire} {frame}"))

    def _sent(self, name: str, outcome: Sequence[str]) -> None:
        for line in outcome:
            kind, wire, *frame = line.split()
            if wire in self._wires and kind == "out":
                one, other = self._wires[wire]
                self._flying.append((other if name == one else one, wire, *frame))
            elif wire in self._wires and kind == "closed":
                self.settle()
                for end in self._wires.pop(wire, ()):
                    if end != name:
                        self.do(end, f"cut {wire}")


def _pair(log: Log | None = None, **options: Any) -> Pair:
    pair = Pair(
        *(Recorder(log if each == "a" else None, name=each, log_id=f"log of {each}", **options) for each in "ab")
    )
    pair.do("a", "attach b peer")
    pair.do("b", "attach a peer")
    return pair


def linked(log: Log | None = None) -> tuple[Pair, list[Recorder]]:
    """Events, interest and questions that cross a link, which breaks and comes back; the brokers as they are then."""
    pair = _pair(log, advertised=True, model="merging", limits={"failures": 1, "ack_delay": 1})
    pair.hello("a", "s")
    pair.say("a", "s", subscribe(1, "x > 5"), subscribe(2, "x > 7 AND y = 1", 1), Advertise(1, "x < 100"))
    pair.wait(3)  # the neighbour is not there: incomplete
    pair.dial("a", "b", "w1")
    pair.hello("b", "p")
    pair.say("b", "p", Advertise(1, "x >= 0"), Advertise(2, "y = 1"), Advertise(3, "z = 0"))
    pair.hello("b", "t")
    pair.say("b", "t", subscribe(1, "x = 1"), subscribe(2, "x = 2", 1), subscribe(3, "z LIKE 'a%'", share="both"))
    pair.say(
        "b", "p", *(Publish.of(n, {"x": n, "y": 1}, b"%d" % n, ttl=3_600 * SECOND * (n % 2)) for n in range(1, 12))
    )
    pair.say("b", "p", Publish.of(0, {"x": 9}, b"transient"), Publish.of(0, {"x": 0, "y": 1}, b"unwanted"))
    pair.say("a", "s", Publish.of(1, {"x": 1}, b"back"), Publish.of(2, {"x": 2}, datacontenttype="text/plain"))
    pair.say("a", "s", ack(3, (4, 5)), nack((5, 1), queue=1, reason="bad"))
    pair.hello("a", "w", expires=86_400)
    pair.say("a", "w", subscribe(1, "y > 0", share="team"), subscribe(2, "x < 0", 3, ordered=False, lag=50))
    pair.do("b", "relay a 68656c6c6f")
    pair.do("b", "connect q")
    pair.say("b", "q", Hello(), Explain(1, raw(x=8, y=1)), Explain(2, raw(x=-1)), AskStatus(3))
    pair.say("a", "s", Replace(SubNumber(1), "x > 6"), subscribe(4, "y IN (1, 2)"), subscribe(6, "TRUE", 6))
    pair.say("b", "p", Unadvertise(2))
    pair.wait(32)  # heartbeats, and digests
    pair.cut("w1")
    pair.say("a", "s", subscribe(5, "z = 0"), Unsubscribe(SubNumber(4)), Unsubscribe(SubNumber(6)))
    pair.say("b", "p", Publish.of(12, {"x": 12, "z": 0}, b"later"), Publish.of(13, {"x": 13}, b"later still"))
    pair.wait(3)
    pair.dial("b", "a", "w2")
    pair.say("b", "p", Publish.of(14, {"x": 14}, b"last"))
    pair.say("a", "s", nack((9, 1), reason="worse"), ack(9))
    pair.wait(1)
    return pair, [*pair.ends.values()]


def neighbours() -> list[Recorder]:
    """Hellos that are refused, a neighbour that takes over, one that stands for others, and the end of a link."""
    pair = _pair(advertised=False, principals=True, limits={"link_events": 2})
    a = pair.ends["a"]
    for wire, hello in (
        ("x1", LinkHello(name="b", to="a", credentials=b"b", fingerprint="another")),
        ("x2", LinkHello(name="c", to="a", credentials=b"c")),
        ("x3", LinkHello(name="b", to="a", credentials=b"eve")),
        ("x4", LinkHello(versions=(9, 9), name="b", to="a", credentials=b"b")),
    ):
        a.do(f"connect {wire}")
        a.say(wire, hello)
    pair.dial("a", "b", "w1")
    pair.hello("a", "s", credentials=b"sue")
    pair.say("a", "s", subscribe(1, "x > 5"))
    pair.hello("b", "p", credentials=b"pat")
    pair.dial("b", "a", "w2")  # there is a connection already
    pair.say("b", "p", *(Publish.of(n, {"x": n}) for n in range(1, 12)))
    pair.ends["b"].say("w1", LinkAhead(Offset(9)), LinkRelay("nobody", "a", b"lost"))
    pair.ends["b"].do("pause w1")
    pair.say("b", "p", *(Publish.of(n, {"x": n}) for n in range(12, 16)))
    pair.do("b", "resume w1")
    pair.do("b", "detach a")
    pair.ends["a"].do("dial w3 b")
    pair.ends["a"].say("w3", Bye("refused", "a is not a neighbour of b"))
    pair.do("a", "detach b")
    return [*pair.ends.values()]


def labels() -> list[Recorder]:
    """Items with notes: labels whose space changes while brokers are linked."""
    pair = _pair(model="dls", schema=CELLS)
    pair.dial("a", "b", "w1")
    pair.hello("a", "s")
    pair.hello("b", "p")
    pair.say("a", "s", subscribe(1, "x > 5"), subscribe(2, "x <= 2 AND y = 3", 1))
    pair.say("b", "p", Publish.of(1, {"x": 7, "y": 1}), Publish.of(2, {"x": 3, "y": 3}))
    pair.do("b", "retune 4")
    pair.say("b", "p", Publish.of(3, {"x": 6, "y": 1}), Publish.of(4, {"x": 1, "y": 3}))
    pair.cut("w1")
    pair.say("a", "s", subscribe(3, "y = 7"))
    pair.dial("a", "b", "w2")
    pair.say("b", "p", Publish.of(5, {"x": 4, "y": 7}), Publish.of(6, {"x": 4, "y": 6}))
    return [*pair.ends.values()]


# -- a log that is restored ---------------------------------------------------------------------------------------


def opened(directory: Path) -> Log:
    """A log on disk with a fixed id."""
    return open_log(directory, LogOptions(entropy=lambda size: ENTROPY * size)).log


def restored(pair: Pair, log: Log) -> Recorder:
    """Broker a of `linked` goes on with the log that it has written; b never stopped."""
    other, before = pair.ends["b"], pair.ends["a"].broker.now
    a = Recorder(
        log,
        name="a",
        advertised=True,
        model="merging",
        limits={"failures": 1, "ack_delay": 1},
        monotonic=5 * SECOND,
        utc=before.utc + 60 * SECOND,
        draws=5001,
    )
    pair.do("b", "cut w2")
    pair = Pair(a, other)
    pair.dial("b", "a", "w9")
    pair.hello("a", "s")
    pair.say("a", "s", ListDead(1, QueueNumber(1)), ListDead(2, QueueNumber(0)), AskStatus(3))
    pair.say("a", "s", Publish.of(3, {"x": 1}, b"after the restart"), ack(99, queue=1))
    pair.say("b", "p", Publish.of(15, {"x": 15}, b"after a's restart"), Publish.of(16, {"z": 0}))
    pair.say("a", "s", ack(NEVER), Replace(SubNumber(5), "z = 1"), RetryDead(4, QueueNumber(0), (Offset(9),)))
    pair.say("a", "s", Unadvertise(1), Advertise(2, "x = 1"), Explain(5, raw(x=1)))
    pair.do("a", "cut s")
    pair.wait(1)
    pair.hello("a", "s", epoch=9)
    return a


def history() -> Recorder:
    """Past events, by offset. Clients of two versions."""
    on = Recorder(limits={"filter": 100})
    on.do("connect p")
    on.say("p", Hello(session="sensor"))
    on.say("p", *(Publish.of(number, {"x": number}, b"body") for number in range(1, 5)))
    on.do("connect r")
    on.say("r", Hello(versions=(2, 3)))
    on.say("r", ReadHistory(1, Offset(2), Offset(4)))
    on.say("r", ReadHistory(2, Offset(1), filter="x > 3"))
    on.say("r", ReadHistory(3, Offset(0), Offset(0)), ReadHistory(4, Offset(9)), ReadHistory(5, Offset(1), filter="x"))
    return on


def offsets() -> Recorder:
    """Confirmations with offsets, and without for a client of the version before."""
    on = Recorder()
    for name, newest in (("p", 6), ("q", 5)):
        on.do(f"connect {name}")
        on.say(name, Hello(versions=(2, newest), session=name))
    on.say("p", *(Publish.of(number, {"x": number}, b"body") for number in range(1, 4)))
    on.say("q", Publish.of(1, {"x": 1}))
    on.say("p", Publish.of(3, {"x": 3}), Publish.of(4, {"x": 4}))
    on.say("p", Publish.of(4, {"x": 4}))
    return on


def questions() -> Recorder:
    """Questions and answers, with a page token, and one that is refused."""
    on = Recorder()
    on.do("connect s")
    on.say("s", Hello(session="alerts"), subscribe(1, "x > 2"))
    on.do("connect p")
    on.say("p", Hello(session="sensor"))
    on.say("p", *(Publish.of(number, {"x": number}, b"body") for number in range(1, 5)))
    on.do("connect q")
    on.say("q", Hello(versions=(2, 4)))
    for number, question in enumerate((AskSessions("a"), AskSubscriptions("alerts"), SearchEvents("x > 3")), 1):
        on.say("q", Question(number, encode_body(question)))
    on.say("q", Question(4, encode_body(AskTrace("alerts", raw(x=1)))))
    on.say("q", Question(5, encode_body(AskSummary()), "north"), Question(6, raw(ask="nothing"), page=b"\x93\1\1\1"))
    return on


def moved() -> list[Recorder]:
    """A session that moves from one broker to the other, with what is not acknowledged, and its publisher."""
    pair = Pair(
        *(Recorder(name=each, log_id=f"log of {each}", draws=draws) for each, draws in (("a", 1001), ("b", 2001)))
    )
    pair.do("a", "attach b peer")
    pair.do("b", "attach a peer")
    pair.dial("a", "b", "w1")
    pair.hello("a", "s", versions=(2, 4))
    pair.say("a", "s", subscribe(1, "x > 5"), subscribe(2, "y = 1", 1, ordered=False), Publish.of(1, {"x": 9}, b"own"))
    pair.hello("b", "p")
    pair.say("b", "p", *(Publish.of(n, {"x": n, "y": n % 2}, b"%d" % n) for n in range(4, 9)))
    pair.say("b", "p", *(Publish.of(n, {"x": n + 3, "y": n % 2}, b"%d" % n) for n in range(1, 6)))
    pair.say("a", "s", ack(3), nack((4, 1), queue=1, reason="bad"))
    pair.do("b", "connect s2")
    hello = Hello(versions=(4, 4), session="s", epoch=2 << 16, pub_epoch=1)
    pair.say("b", "s2", hello, Whence(SessionId(1001), "a", ("c",)))
    pair.wait(1)
    pair.say("b", "p", Publish.of(6, {"x": 7, "y": 1}, b"later"))
    pair.say("b", "s2", Publish.of(2, {"x": 8}, b"own again"))
    pair.wait(2)
    pair.do("a", "connect s3")
    pair.say("a", "s3", Hello(versions=(4, 4), session="s", epoch=3 << 16), Whence(SessionId(1001), "b"))
    pair.wait(2)
    return [*pair.ends.values()]


def abandoned() -> list[Recorder]:
    """A session that goes on without its broker, which is away, and gets the rest when that is back."""
    names = (("a", 1001), ("b", 2001))
    pair = Pair(*(Recorder(name=each, log_id=f"log of {each}", draws=draws) for each, draws in names))
    pair.do("a", "attach b peer")
    pair.do("b", "attach a peer")
    pair.dial("a", "b", "w1")
    pair.hello("a", "s", versions=(2, 4))
    pair.say("a", "s", subscribe(1, "x > 5"))
    pair.hello("b", "p")
    pair.say("b", "p", Publish.of(1, {"x": 6}, b"late"))
    pair.cut("w1")
    pair.do("b", "connect s2")
    hello = Hello(versions=(4, 4), session="s", epoch=2 << 16, pub_epoch=1)
    pair.say("b", "s2", hello, Whereabouts(SessionId(1001), "a", (), 1 << 16, 0))
    pair.wait(1)
    pair.say("b", "s2", subscribe(1, "x > 5"))
    pair.say("b", "p", Publish.of(2, {"x": 7}, b"soon"))
    pair.dial("b", "a", "w2")
    pair.wait(6)
    return [*pair.ends.values()]


def lists() -> list[Recorder]:
    """Lists in events, and filters with HAS, which cross a link once both sides have said that they know them."""
    pair = _pair()
    pair.dial("a", "b", "w1")
    pair.hello("a", "s")
    pair.say("a", "s", subscribe(1, "tags HAS 'rock'"), subscribe(2, "tags HAS ALL (1, TRUE) AND tags IS NULL", 1))
    pair.hello("b", "p", versions=(2, 3))
    events = [{"tags": ["pop", "rock"]}, {"tags": "rock"}, {"tags": [1.0, True, None]}, {"tags": [{"a": 1}]}]
    pair.say("b", "p", *(Publish.of(at + 1, event) for at, event in enumerate(events)))
    pair.cut("w1")
    pair.dial("b", "a", "w2")
    pair.ends["a"].say("w2", Bye("protocol", "this message is unknown"))
    pair.ends["b"].say("w2", LinkFeatures(("lists", "more")))
    return [*pair.ends.values()]


def profiles() -> list[Recorder]:
    """Profiles and queries for them cross a link, in a table of their own, and again after it was cut."""
    pair = _pair()
    pair.dial("a", "b", "w1")
    pair.hello("a", "s", versions=(2, 5))
    pair.hello("b", "p", versions=(2, 5))
    pair.say("b", "p", PublishProfile(1, "7", "x BETWEEN 1 AND 5", 60 * SECOND, b"stay inside", 77))
    pair.say("a", "s", SubscribeProfiles(subscribe(1, "x >= 0"), "covering"))
    pair.say("a", "s", SubscribeProfiles(subscribe(2, "x > 4", 1), "overlap"))
    pair.say("b", "p", PublishProfile(2, "7", "x BETWEEN 1 AND 4", 90 * SECOND), PublishProfile(3, "8", "x >", 1))
    pair.say("b", "p", PublishProfile(4, "8", "x = 9", 30 * SECOND), WithdrawProfile(5, "7"), WithdrawProfile(6, "9"))
    pair.wait(32)  # heartbeats, and digests; one profile expires
    pair.cut("w1")
    pair.say("b", "p", PublishProfile(7, "10", "x = 10", 30 * SECOND))
    pair.dial("b", "a", "w2")
    pair.wait(1)
    return [*pair.ends.values()]


def places() -> list[Recorder]:
    """Places of events: a space that is not there yet, a place of another space, and places on links."""
    pair = Pair(*(Recorder(name=each, log_id=f"log of {each}", model="mics", schema=CELLS) for each in "abc"))
    pair.hello("a", "q", versions=(2, 7))
    pair.say("a", "q", AskSpace())
    pair.say("a", "q", Goodbye())
    for one, other in ("ab", "bc"):
        pair.do(one, f"attach {other} peer")
        pair.do(other, f"attach {one} peer")
        pair.dial(one, other, f"w{one}")
    pair.hello("c", "s")
    pair.say("c", "s", subscribe(1, "x > 5"))
    pair.hello("a", "p", versions=(2, 7))
    events = [PublishPlaced(n, raw(x=n, y=1), b"%d" % n, space=9, place=b"\x07\x00") for n in range(1, 9)]
    pair.say("a", "p", *events[:4])
    pair.say("a", "p", *events[4:])
    return [*pair.ends.values()]


def record(directory: Path) -> None:
    """Record all scenarios."""
    wire, logs = directory / "wire", directory / "broker_log"
    for each in (wire, logs):
        each.mkdir(parents=True, exist_ok=True)
    log = opened(logs)
    pair, recorders = linked(log)
    log.close()
    for path in logs.iterdir():
        if path.name != DATABASE:
            path.unlink()
    files = {
        "clients": clients(),
        "access": access(),
        **{f"linked-{each.broker.name}": each for each in recorders},
        **{f"neighbours-{each.broker.name}": each for each in neighbours()},
        **{f"labels-{each.broker.name}": each for each in labels()},
    }
    for name, recorder in files.items():
        recorder.save(wire / f"{name}.txt", COMMENT)
    stored().save(wire / "stored.txt", COMMENT.replace("code of commit 69c4c04", "first code of version 3"))
    history().save(wire / "history.txt", COMMENT.replace("commit 69c4c04", "the version that added it"))
    offsets().save(wire / "offsets.txt", COMMENT.replace("commit 69c4c04", "the version that added them"))
    questions().save(wire / "questions.txt", COMMENT.replace("commit 69c4c04", "the version that added them"))
    for each in abandoned():
        comment = COMMENT.replace("commit 69c4c04", "the version that added it")
        each.save(wire / f"abandoned-{each.broker.name}.txt", comment)
    for each in moved():
        comment = COMMENT.replace("commit 69c4c04", "the version that added it")
        each.save(wire / f"moved-{each.broker.name}.txt", comment)
    for each in lists():
        each.save(
            wire / f"lists-{each.broker.name}.txt", COMMENT.replace("commit 69c4c04", "the version that added them")
        )
    for each in profiles():
        each.save(
            wire / f"profiles-{each.broker.name}.txt", COMMENT.replace("commit 69c4c04", "the version that added them")
        )
    for each in places():
        each.save(
            wire / f"places-{each.broker.name}.txt", COMMENT.replace("commit 69c4c04", "the version that added them")
        )
    with TemporaryDirectory() as copy:
        shutil.copytree(logs, copy, dirs_exist_ok=True)
        log = opened(Path(copy))
        restored(pair, log).save(wire / "restored-a.txt", COMMENT)
        log.close()


COMMENT = """What one broker was sent, and what it sent: see tests/broker/transcript.py.
Recorded with the code of commit 69c4c04; do not record it again to make a test pass."""

if __name__ == "__main__":
    record(Path(sys.argv[1]))
