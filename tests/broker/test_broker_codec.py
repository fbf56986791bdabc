"""Frames and messages: whole, byte by byte, with trailing bytes; garbage is a RemoteProtocolError and nothing else."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import LocalProtocolError, RemoteProtocolError
from weft.log.base import Offset, SessionId
from weft.protocol.codec import MAX_FRAME, FrameReader, MessageReader, broker_messages, client_messages, encode, joined
from weft.protocol.link_messages import (
    LinkAhead,
    LinkDigest,
    LinkEvent,
    LinkEvents,
    LinkFeatures,
    LinkHave,
    LinkHello,
    LinkLoose,
    LinkMessage,
    LinkNumbered,
    LinkPing,
    LinkProgress,
    LinkReach,
    LinkRelay,
    LinkUpdate,
    PlacedLinkEvents,
)
from weft.protocol.messages import (
    Accepted,
    Ack,
    AcksStored,
    Advertise,
    Answer,
    AskSpace,
    AskStatus,
    AskStored,
    BrokerMessage,
    Bye,
    ClientMessage,
    Complete,
    DeadDone,
    DeadEvent,
    DeadLetters,
    Deliver,
    DropDead,
    Dropped,
    Explain,
    Explained,
    Failed,
    Gap,
    Goodbye,
    Head,
    Hello,
    History,
    HomeBroker,
    Incomplete,
    ListDead,
    Nack,
    NewEpoch,
    OfferedSpace,
    PastEvent,
    Ping,
    Pong,
    ProfilePublished,
    Publish,
    Published,
    PublishedAt,
    PublishPlaced,
    PublishProfile,
    Question,
    QueueNumber,
    ReadHistory,
    Refused,
    Replace,
    RetryDead,
    Revival,
    Revoked,
    StatusReport,
    SubNumber,
    Subscribe,
    SubscribeProfiles,
    Unadvertise,
    Unsubscribe,
    Welcome,
    Whence,
    Whereabouts,
    WithdrawProfile,
    pack,
)
from weft.protocol.questions import AskTrace, OperationDone, encode_body
from weft.routing.dls.items import Retuning, Stage, Switch

HEAD = msgspec.Raw(msgspec.msgpack.encode(Head({"x": 1})))
Q, ONE = QueueNumber(3), SubNumber(1)

CLIENT: list[ClientMessage] = [
    Hello(session="s", epoch=4, credentials=b"secret", fingerprint="ab"),
    Whence(SessionId(5), "north", ("south", "east")),
    Whereabouts(SessionId(7), "a", ("b",), 3, 500),
    SubscribeProfiles(Subscribe(ONE, "x > 5", Q), "overlap"),
    PublishProfile(3, "gale-3", "x BETWEEN 1 AND 5", 7_200_000_000, b"storm", 9),
    WithdrawProfile(4, "gale-3"),
    NewEpoch(2),
    Publish.of(1, {"x": 1.5, "y": "text"}, b"body", "text/plain", 10),
    PublishPlaced(2, HEAD, b"body", space=3, place=b"\x01\x02"),
    AskSpace(),
    Subscribe(ONE, "x > 5", Q, since=Offset(4), share="work"),
    Replace(ONE, "x > 6"),
    Unsubscribe(ONE),
    Advertise(1, "x > 5"),
    Unadvertise(1),
    Ack(Q, Offset(7), ((Offset(8), Offset(9)),)),
    Nack(Q, ((Offset(7), 2),), "no"),
    ListDead(1, Q),
    RetryDead(1, Q, (Offset(4),)),
    DropDead(1, Q, (Offset(4),)),
    Ping(3),
    Goodbye(True),
    AskStatus(1, 5),
    AskStored(Q),
    Explain(1, msgspec.Raw(msgspec.msgpack.encode({"x": 7}))),
    ReadHistory(1, Offset(2), Offset(9), "x > 1"),
    Question(1, encode_body(AskTrace("alerts", msgspec.Raw(msgspec.msgpack.encode({"x": 7})))), "north", b"\x93\1\2\3"),
]
BROKER: list[BrokerMessage] = [
    ProfilePublished(3, 2, 1_700_000_000_000_000),
    HomeBroker("north"),
    OfferedSpace(4, b"packed"),
    Welcome(1, SessionId(5), 4, 2, 17, True, (ONE,), "log", 3, "ab", MAX_FRAME, 0),
    Published(1, 17, {"x": 2}),
    PublishedAt(1, 17, {"x": 2}, ((3, 100), (5, 200))),
    Refused(1, 18, "event", "it is too large"),
    Accepted("subscribe", 1, Offset(7)),
    Complete(ONE),
    Incomplete(1, "subscribe", ("north",)),
    Failed("replace", 1, "filter", "it is not a filter"),
    Deliver(Q, Offset(7), 1, 170, pack([1, 70_000]), HEAD, b"body"),
    Gap(Q, Offset(1), Offset(5)),
    Dropped(Q, 3),
    DeadLetters(1, (DeadEvent(Offset(4), 5, "no", 17, HEAD, b"body"),), False),
    DeadDone(1, (Offset(4),)),
    Answer(1, encode_body(OperationDone("it is done")), b"\x93\1\2\4", "north"),
    Pong(3),
    Bye("slow", "it is too slow"),
    StatusReport(1, msgspec.Raw(msgspec.msgpack.encode({"end": 7}))),
    Explained(1, msgspec.Raw(msgspec.msgpack.encode({"hops": []}))),
    History(1, "log", Offset(1), Offset(9), Offset(4), (PastEvent(Offset(3), 5, msgspec.Raw(b"\x91\x80"), b"p"),)),
    Revoked(ONE, "the rules have changed"),
    AcksStored(Q, 7),
    Revival(Q, Offset(9)),
]
LINK: list[LinkMessage] = [
    LinkHello(name="north", to="south", role="master", log_id="a1", incarnation=2, epoch=3, peer_log="b2", got=17),
    LinkHave(1, b"\1" + bytes(7), bytes(8), 1, last=False),
    LinkUpdate(1, 0, (1,), (2, 3), (b"\xa1x", b"\xa1y"), (Switch(1, 64), Retuning("{}", Stage.DONE)), True, True),
    LinkEvents((LinkEvent(Offset(5), 1, 1, 9, HEAD, b"body"),)),
    PlacedLinkEvents((LinkEvent(Offset(5), 1, 1, 9, HEAD, b"body"),), space=b"12345678", places=b"\x07\x00"),
    LinkLoose(HEAD, b""),
    LinkProgress(Offset(5), 2, (2, 1)),
    LinkAhead(Offset(5)),
    LinkFeatures(("lists", "more")),
    LinkNumbered(1, LinkAhead(Offset(4))),
    LinkPing(),
    LinkDigest(1, (1 << 64) - 1, 0),
    LinkReach((("north", ""), ("east", "north"))),
    LinkRelay("east", "north", b"body", 2),
    Bye("refused", "because"),
]
BOTH = [(client_messages, CLIENT), (broker_messages, BROKER), (client_messages, LINK)]


def reader(side: int) -> MessageReader[object]:
    return BOTH[side][0]()  # type: ignore[return-value]


def test_every_message_is_tested() -> None:
    for messages, kinds in ((CLIENT, ClientMessage), (BROKER, BrokerMessage), (LINK, LinkMessage)):
        assert Counter(map(type, messages)) == Counter(get_args(kinds))


@pytest.mark.parametrize("side", [0, 1])
def test_messages_come_back_whole(side: int) -> None:
    messages = BOTH[side][1]
    assert reader(side).feed(encode(messages)) == messages  # type: ignore[arg-type]


@pytest.mark.parametrize("side", [0, 1])
def test_messages_come_back_byte_by_byte(side: int) -> None:
    messages, each = BOTH[side][1], reader(side)
    found: list[object] = []
    for byte in encode(messages):  # type: ignore[arg-type]
        found += each.feed(bytes([byte]))
    assert found == messages


@pytest.mark.parametrize("side", [0, 1])
def test_messages_come_back_with_trailing_bytes(side: int) -> None:
    for message in BOTH[side][1]:
        data, each = encode([message]), reader(side)  # type: ignore[list-item]
        assert each.feed(data + data[:3]) == [message]
        assert each.feed(data[3:] + data) == [message, message]


@given(st.data())
def test_messages_come_back_however_they_are_cut(data: st.DataObject) -> None:
    sent = encode(CLIENT)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=8)))
    each, found = client_messages(), []
    for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        found += each.feed(sent[start:end])
    assert found == CLIENT


def test_fields_at_the_end_may_be_missing() -> None:
    assert client_messages().feed(joined([msgspec.msgpack.encode([1])])) == [Hello()]


# -- garbage -----------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_garbage_is_a_remote_protocol_error_and_nothing_else(data: bytes) -> None:
    for each in (client_messages(), broker_messages()):
        for sent in (data, joined([data])):
            try:
                each.feed(sent)
            except RemoteProtocolError:
                break


@given(st.integers(0, len(CLIENT) - 1), st.data())
def test_a_message_with_wrong_bytes_is_one_too(which: int, data: st.DataObject) -> None:
    body = bytearray(encode([CLIENT[which]])[4:])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        client_messages().feed(joined([bytes(body)]))
    except RemoteProtocolError as error:
        str(error).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x93\x09\x01\xdd\xff\xff\xff\xff",  # an array that claims to be huge
        b"\x92\x0e\xff",  # a negative number
        b"\x92\x0e\xcf" + b"\xff" * 8,  # a number beyond 63 bits
        b"\x93\x0e\x01\x01",  # a field too many
        b"\x92\x63\x01",  # an unknown tag
        b"\x94\x03\x01" + b"\x91" * 100_000,  # attributes that are nested too deeply
        b"\x92\x0e\x01tail",
        b"\x93\x05\x01\xa2\xff\xfe",  # text that is not Unicode
    ],
)
def test_bad_messages_are_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        client_messages().feed(joined([body]))


def test_a_frame_that_is_too_long_is_refused_by_its_length() -> None:
    each = FrameReader()
    with pytest.raises(RemoteProtocolError, match="longer"):
        each.feed((MAX_FRAME + 1).to_bytes(4, "big"))
    with pytest.raises(RemoteProtocolError):
        each.feed(b"")


def test_garbage_takes_no_more_memory_than_a_frame() -> None:
    each = client_messages()
    piece = b"\xff" * (MAX_FRAME // 16)
    tracemalloc.start()
    try:
        each.feed(MAX_FRAME.to_bytes(4, "big"))
        for _ in range(15):
            each.feed(piece)
        with pytest.raises(RemoteProtocolError):
            each.feed(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MAX_FRAME


# -- large deliveries --------------------------------------------------------------------------------


def test_a_delivery_with_more_numbers_than_a_frame_holds_is_split() -> None:
    numbers = [SubNumber((1 << 31) + n) for n in range(300)]
    message = Deliver(Q, Offset(7), 1, 170, pack(numbers), HEAD, b"x" * 100)
    found = broker_messages(500).feed(encode([message, Pong(1)], most=500))
    parts = [each for each in found if isinstance(each, Deliver)]
    assert len(parts) > 1
    assert [number for part in parts for number in part.numbers] == numbers
    assert all((part.offset, part.payload, part.head) == (7, b"x" * 100, HEAD) for part in parts)
    assert found[-1] == Pong(1)


def test_an_event_that_fits_no_frame_is_refused_here() -> None:
    with pytest.raises(LocalProtocolError):
        encode([Deliver(Q, Offset(7), 1, 170, pack([1]), HEAD, b"x" * 600)], most=500)
    with pytest.raises(LocalProtocolError):
        encode([Bye("slow", "x" * 600)], most=500)


def test_a_delivery_has_the_bytes_that_the_publisher_wrote() -> None:
    published = Publish.of(1, {"b": 1, "a": 2.5}, b"payload")
    sent = encode([Deliver(Q, Offset(7), 1, 170, pack([1]), msgspec.Raw(b"\x91" + bytes(published.attributes)), b"p")])
    assert bytes(published.attributes) in sent
