"""Messages of the ring as bytes: whole, byte by byte, and garbage."""

from __future__ import annotations

import msgspec
import pytest

from weft.broker.frames import joined
from weft.errors import RemoteProtocolError
from weft.ring.codec import RingReader, encode_ring
from weft.ring.group_messages import (
    AskTopics,
    Deregister,
    Elsewhere,
    Entrust,
    FetchViews,
    Probe,
    Probed,
    Register,
    Renew,
    Reshape,
    Settle,
    Shift,
    TopicsAre,
    Views,
)
from weft.ring.group_placement import GroupView
from weft.ring.group_state import GroupState
from weft.ring.group_tree import GroupTree
from weft.ring.identifiers import IdSpace, Key
from weft.ring.messages import Address, NodeRef, Token
from weft.ring.rendezvous_messages import (
    AskLoad,
    CopyRecords,
    Handover,
    LoadIs,
    Recalled,
    Record,
    Release,
    RemoveRecord,
    RingMessage,
    RingSub,
    Store,
)

ME = NodeRef(Key(5), Address("a"))
STATE = GroupState.begun("t", GroupTree(IdSpace(16), 3, 2), 5).with_member(9)
VIEW, NEXT = STATE.views
RECORD = Record(Key(5), RingSub(Address("b"), 7), "t", "x > 1", cells=(Key(1), Key(2)), version=2)
MESSAGES: list[RingMessage] = [
    Register(Token(1), Key(3), "t", "t", Key(5)),
    Renew(Token(1), Key(3), "t+u", ("t", "u"), Key(5)),
    Deregister(Token(1), Key(3), "t", "t", Key(5)),
    Reshape(Token(1), Key(3), "t", "t", 2, None),
    FetchViews(Token(1), Key(3), "t+u", "t", b"12345678"),
    Elsewhere(Token(1), "t+u"),
    Entrust(Token(1), Key(3), "t+u", STATE.given_to("t+u")),
    AskTopics(Token(1)),
    TopicsAre(Token(1), ("t", "u")),
    Probe(Token(1), Key(3), "t", "t", {"u": (5, 9)}),
    Probed(Token(1), "t+u"),
    Probed(Token(1), None),
    Views(Token(1), (VIEW, NEXT), b"12345678"),
    Views(Token(1), None),
    Shift(Token(1), Key(5), "t", VIEW, NEXT),
    Settle(Token(1), Key(5), "t", 2),
    Store(Token(1), Key(5), (RECORD,)),
    RemoveRecord(Token(1), RECORD.slot, 2),
    Release(Token(1), RECORD.slot),
    Handover(Token(1), Key(1), Key(5), (RECORD,), (STATE,)),
    CopyRecords(Token(1), (RECORD,), (STATE,)),
    Recalled(Token(1), (RECORD,), (STATE,)),
    AskLoad(Token(1)),
    LoadIs(Token(1), ME, 12),
]


def test_every_message_is_read_as_it_was_written_whole_and_byte_by_byte() -> None:
    data = encode_ring(ME, MESSAGES)
    (frame,) = RingReader().feed(data)
    assert (frame.sender, frame.messages) == (ME, MESSAGES)
    reader = RingReader()
    frames = [frame for at in range(len(data)) for frame in reader.feed(data[at : at + 1])]
    assert [each.messages for each in frames] == [MESSAGES]


@pytest.mark.parametrize(
    "wrong",
    [
        {"tree": {"space": {"size": 16}, "start": 3, "depth": 2}, "members": []},
        {"tree": {"space": {"size": 16}, "start": 3, "depth": 9}, "members": [1]},
        {"tree": {"space": {"size": 15}, "start": 3, "depth": 2}, "members": [1]},
        {"tree": {"space": {"size": 16}, "start": 3, "depth": 2, "rotation": 99}, "members": [1]},
        {"members": [1]},
        7,
    ],
)
def test_views_that_cannot_be_are_not_read(wrong: object) -> None:
    body = msgspec.msgpack.encode([[5, "a"], [[45, 1, [wrong], b""]]])
    with pytest.raises(RemoteProtocolError, match="cannot be read"):
        RingReader().feed(joined([body]))


def test_a_view_is_written_once() -> None:
    """Views go with every change of a group: nothing in them is there twice."""
    view = GroupView(GroupTree(IdSpace(1 << 32), 3, 2), tuple(range(0, 1 << 32, 1 << 24)))
    assert len(msgspec.msgpack.encode(view)) < 5 * 256 + 100
