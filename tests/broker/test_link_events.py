"""Events to a neighbour: what is acknowledged is forgotten, what is passed by leaves the window and is kept."""

from __future__ import annotations

from weft.broker.link_events import EventLane, NeighbourEvent
from weft.log.base import Offset, SeatId


def lane_with(*offsets: int) -> EventLane:
    lane = EventLane("north", SeatId(1), Offset(1), window_events=4, window_bytes=1000)
    for offset in offsets:
        lane.sent(NeighbourEvent(offset, (1, 1, offset), b"head", b"", 4))
        lane.cursor = Offset(offset + 1)
    return lane


def test_what_is_passed_by_makes_room_and_is_sent_again_in_the_next_session() -> None:
    lane = lane_with(1, 2, 4, 5)
    assert lane.ack(1)
    assert lane.room == 1
    assert lane.pass_by(4)
    lane.check(Offset(6))
    assert (lane.floor, lane.in_flight, lane.room) == (2, 1, 3)
    assert not lane.pass_by(4), "that is no news"
    lane.end()
    assert (lane.cursor, lane.floor) == (2, 2)


def test_the_floor_moves_on_when_what_was_passed_by_is_stored() -> None:
    lane = lane_with(1, 2, 4, 5)
    lane.pass_by(4)
    assert (lane.floor, lane.ack(2), lane.floor) == (1, True, 3)
    lane.check(Offset(6))
    assert (lane.ack(4), lane.floor) == (True, 5)
    assert (lane.ack(5), lane.floor, lane.in_flight) == (True, 6, 0)
    lane.check(Offset(6))


def test_an_acknowledgement_may_go_beyond_what_was_passed_by() -> None:
    lane = lane_with(1, 2, 4, 5)
    lane.pass_by(2)
    assert (lane.floor, lane.ack(4), lane.floor) == (1, True, 5)
    assert not lane.ack(3), "an old one is no news"
    lane.check(Offset(6))
