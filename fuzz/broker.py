"""Coverage-guided fuzzing of what clients and brokers send: `make fuzz`, or `python fuzz/broker.py -max_total_time=60`.

Laws: bytes become messages or a RemoteProtocolError, nothing else, however they are cut; a message is written and read
back as itself; a broker that is sent any messages keeps its invariants.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import gettempdir

import atheris

with atheris.instrument_imports(include=["weft.broker"]):
    import msgspec

    from weft.broker.delivery_run import encode_all, one_by_one
    from weft.broker.effects import ConnectionId, Outgoing
    from weft.errors import RemoteProtocolError
    from weft.log.base import Offset
    from weft.network.cores import MemoryBroker
    from weft.protocol.codec import broker_messages, client_messages, encode, joined
    from weft.protocol.messages import (
        Ack,
        BrokerMessage,
        ClientMessage,
        Deliver,
        Hello,
        Nack,
        Publish,
        Question,
        QueueNumber,
        SubNumber,
        Subscribe,
    )

NUMBERS = (0, 1, 2, 3, 127, 128, -1, 2**31, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = ("", "x", "x > 5", "x >", "s", "work", "x" * 300)
MAPS = ({}, {"x": 1}, {"x": {"y": 1}}, {"": 1}, {"x": float("nan")}, {"time": "2018-02-01"}, {"id": 5})
VALUES = (*NUMBERS, *TEXTS, *MAPS, b"", b"body", None, True, False, 0.5, [], [1, 2], [[1, 2]], [[3, 1]])
QUESTIONS = (
    *({"ask": kind} for kind in ("sessions", "subscriptions", "order", "overlay", "summary", "search", "matches")),
    *({"ask": kind, "session": "s", "number": 1} for kind in ("why", "change", "disconnect", "subscriptions")),
    *({"ask": "related", "filter": text} for text in ("x > 5", "x >", "TRUE")),
    {"ask": "trace", "session": "s", "event": {"x": 6}},
    {"ask": "items", "link": "s"},
    {"ask": "change", "session": "s", "number": 1, "filter": "x < 5"},
    [0, 1, 1],  # a page token
)
PIECES = (
    *(bytes([0x90 + size, tag]) for tag in (*range(1, 16), 24) for size in (1, 2, 3, 4, 5)),
    *map(msgspec.msgpack.encode, QUESTIONS),
    *(b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc1", b"\xc7\x01\x00", b"\xd6\xff\0\0\0\0"),
    *map(msgspec.msgpack.encode, VALUES),
)
SEEDS: tuple[list[ClientMessage], ...] = (
    [Hello(session="s"), Subscribe(SubNumber(1), "x > 5"), Publish.of(1, {"x": 6}), Ack(QueueNumber(0), Offset(2))],
    [Hello(), Subscribe(SubNumber(1), "x > 5", share="work"), Publish.of(1, {"x": 6}), Nack(QueueNumber(0), ())],
    [Hello(), *(Question(1, msgspec.Raw(msgspec.msgpack.encode(each))) for each in QUESTIONS)],
)
HOME = ConnectionId("c")


def one_input(data: bytes) -> None:
    """Check the laws on one input. Its first byte says what the others are: a stream, or pieces of frames."""
    way, rest = (data[0] % 3, data[1:]) if data else (0, b"")
    if way == 2:
        frames = rest.split(b"\xff")
        rest = joined(b"".join(PIECES[byte % len(PIECES)] for byte in frame) for frame in frames)
    if way == 1:
        reader = broker_messages()
        check_read([*_read(reader.feed, rest)])
        return
    check_core([*_read(client_messages().feed, rest)])


def _read(feed, data: bytes):  # type: ignore[no-untyped-def]
    try:
        for start in range(0, len(data), 7):
            yield from feed(data[start : start + 7])
    except RemoteProtocolError as error:
        str(error).encode()


def check_read(messages: list[BrokerMessage]) -> None:
    """What was read is written and read again as itself."""
    assert broker_messages().feed(encode(messages)) == messages


def check_core(messages: list[ClientMessage]) -> None:
    """A broker takes whatever a client says, and what it answers can be written."""
    assert client_messages().feed(encode(messages)) == messages
    broker = MemoryBroker(model="flooding", at_once=False)
    broker.connect(HOME, answer=_answer)
    for message in messages:
        broker.receive(HOME, [message])
    broker.at_once = True
    broker.follow_up()
    broker.core.check()


def _answer(sent: list[Outgoing]) -> list[Ack]:
    """Acknowledge what is delivered."""
    encode_all(sent)
    delivered = [each.offset for each in one_by_one(sent) if isinstance(each, Deliver)]
    return [Ack(QueueNumber(0), Offset(max(delivered) + 1))] if delivered else []


def main() -> None:
    """Run until told to stop, from the seeds and what earlier runs found, or on the files the command line names."""
    given = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    corpus = Path(gettempdir(), "weft-fuzz-broker")
    corpus.mkdir(exist_ok=True)
    for number, messages in enumerate(SEEDS):
        (corpus / f"seed{number}").write_bytes(b"\0" + encode(messages))
    atheris.Setup(sys.argv if given else [*sys.argv, str(corpus)], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
