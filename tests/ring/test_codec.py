"""Messages of the ring as bytes: whole, byte by byte, and garbage."""

from __future__ import annotations

import msgspec
import pytest

from weft.errors import RemoteProtocolError
from weft.protocol.codec import joined
from weft.ring.group_placement import GroupTree
from weft.ring.group_state import Arc, CellHold, GroupState, RegionState
from weft.ring.identifiers import IdSpace, Key
from weft.ring.messages import Leaving, Meet, Neighbours, NodeAddress, NodeRef, RequestToken
from weft.ring.rendezvous_messages import (
    AskLoad,
    AskRange,
    AskTopics,
    CopyRecords,
    DeliverEvent,
    Deregister,
    Elsewhere,
    Enter,
    Entered,
    Entrust,
    EventId,
    Exit,
    FetchSettings,
    GiveCells,
    Gone,
    GrantCells,
    Handover,
    HandoverPart,
    LoadIs,
    Locate,
    Located,
    NeedKeys,
    PassStates,
    Probe,
    Probed,
    Publication,
    RangeIs,
    Recall,
    Recalled,
    Record,
    Register,
    Release,
    RemoveRecord,
    Renew,
    Reshape,
    Review,
    RingMessage,
    RingReader,
    RingSub,
    Settings,
    Store,
    TopicsAre,
    Visit,
    Visited,
    encode_ring,
)

ME = NodeRef(Key(5), NodeAddress("a"), 3)
TREE = GroupTree(IdSpace(16), 3, 2)
STATE = GroupState.begun("t", TREE, 5).with_member(9)
REGION = RegionState("t", TREE, 1, Key(3), 2, (5, 9))
HOLD = CellHold("t", Key(5), 2, (Arc(Key(1), Key(4)),), (Arc(Key(4), Key(7)), Key(9)), ((Key(9), 1),))
RECORD = Record(Key(5), RingSub(NodeAddress("b"), 7), "t", "x > 1", cells=(Key(1), Key(2)), stamp=2)
EVENT = Publication(EventId("log", 7), "t", {"x": 1})
MESSAGES: list[RingMessage] = [
    Neighbours(RequestToken(1), ME, (ME,), (ME,)),
    Leaving(ME, None, (ME,)),
    Meet(ME),
    Register(RequestToken(1), Key(3), "t", "t", Key(5)),
    Renew(RequestToken(1), Key(3), "t+u", ("t", "u"), Key(5)),
    Deregister(RequestToken(1), Key(3), "t", "t", Key(5)),
    Reshape(RequestToken(1), Key(3), "t", "t", 2, None),
    FetchSettings(RequestToken(1), Key(3), "t+u", "t"),
    Settings(RequestToken(1), "t+u", TREE),
    Settings(RequestToken(1), "t", None, (NodeAddress("b"),)),
    Enter(RequestToken(1), Key(3), "t", TREE, 1, Key(5)),
    Entered(RequestToken(1), (Key(5), Key(9))),
    Exit(RequestToken(1), Key(3), "t", TREE, 1, Key(5)),
    Locate(RequestToken(1), Key(3), "t", TREE, 1, Key(2)),
    Located(RequestToken(1), Key(5), Key(1), Key(4)),
    Located(RequestToken(1), None),
    GrantCells(RequestToken(1), Key(5), "t"),
    GiveCells(RequestToken(1), Key(5), "t", Key(1), Key(4), (RECORD,), Key(9), 3),
    Review(RequestToken(1), Key(5), "t", True, TREE),
    Elsewhere(RequestToken(1), "t+u"),
    Entrust(RequestToken(1), Key(3), "t+u", STATE.given_to("t+u")),
    AskTopics(RequestToken(1)),
    TopicsAre(RequestToken(1), ("t", "u")),
    Probe(RequestToken(1), Key(3), "t", "t", {"u": (5, 9)}),
    Probed(RequestToken(1), "t+u"),
    Probed(RequestToken(1), None),
    Visit(RequestToken(1), Key(5), EVENT, (Key(2),)),
    Visited(RequestToken(1), (NodeAddress("b"),)),
    DeliverEvent(RequestToken(1), EVENT, ((7, 2),)),
    Gone(RequestToken(1), ((7, 2),)),
    Store(RequestToken(1), Key(5), (RECORD,)),
    RemoveRecord(RequestToken(1), RECORD.slot, 2, (Key(1),)),
    Release(RequestToken(1), RECORD.slot),
    HandoverPart(RequestToken(1), (RECORD,)),
    Handover(
        RequestToken(1),
        Key(1),
        Key(5),
        (RECORD,),
        (STATE, REGION, HOLD),
        ME,
        True,
        ((Key(1), Key(2)),),
        learning=7,
        missing=((ME, 7),),
    ),
    CopyRecords(RequestToken(1), (RECORD,), (STATE,), (Key(1), Key(5)), ME),
    Recall(RequestToken(1), Key(1), Key(5)),
    Recalled(RequestToken(1), (RECORD,), (STATE,), True, Key(5)),
    AskRange(RequestToken(1)),
    RangeIs(RequestToken(1), None, (ME,)),
    NeedKeys(RequestToken(1)),
    PassStates(RequestToken(1), Key(3), (REGION,)),
    AskLoad(RequestToken(1)),
    LoadIs(RequestToken(1), ME, 12),
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
        {"space": {"size": 16}, "start": 3, "depth": 9},
        {"space": {"size": 15}, "start": 3, "depth": 2},
        {"space": {"size": 16}, "start": 3, "depth": 2, "rotation": 99},
        {"start": 3},
        7,
    ],
)
def test_trees_that_cannot_be_are_not_read(wrong: object) -> None:
    body = msgspec.msgpack.encode([[5, "a"], [[45, 1, "t", wrong]]])
    with pytest.raises(RemoteProtocolError, match="cannot be read"):
        RingReader().feed(joined([body]))
