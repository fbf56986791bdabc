"""Events to a neighbour: what is acknowledged is forgotten, what is passed by leaves the window and is kept."""

from __future__ import annotations

from weft.broker.links.events import EventWindow, NeighbourEvent
from weft.log.base import Offset, SeatId


def window_with(*offsets: int) -> EventWindow:
    window = EventWindow("north", SeatId(1), Offset(1), window_events=4, window_bytes=1000)
    for offset in offsets:
        assert window.add([NeighbourEvent(offset, (1, 1, offset), b"head", b"", 4)]) == 1
        window.cursor = Offset(offset + 1)
    return window


def test_what_is_passed_by_makes_room_and_is_sent_again_in_the_next_session() -> None:
    window = window_with(1, 2, 4, 5)
    assert window.ack(1)
    assert window.room == 1
    assert window.pass_by(4)
    window.check(Offset(6))
    assert (window.acked_below, window.in_flight, window.room) == (2, 1, 3)
    assert not window.pass_by(4), "that is no news"
    window.end()
    assert (window.cursor, window.acked_below) == (2, 2)


def test_the_floor_moves_on_when_what_was_passed_by_is_stored() -> None:
    window = window_with(1, 2, 4, 5)
    window.pass_by(4)
    assert (window.acked_below, window.ack(2), window.acked_below) == (1, True, 3)
    window.check(Offset(6))
    assert (window.ack(4), window.acked_below) == (True, 5)
    assert (window.ack(5), window.acked_below, window.in_flight) == (True, 6, 0)
    window.check(Offset(6))


def test_an_acknowledgement_may_go_beyond_what_was_passed_by() -> None:
    window = window_with(1, 2, 4, 5)
    window.pass_by(2)
    assert (window.acked_below, window.ack(4), window.acked_below) == (1, True, 5)
    assert not window.ack(3), "an old one is no news"
    window.check(Offset(6))
