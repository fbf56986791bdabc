"""Control frames are complete when the ring has what they and earlier ones added."""

from __future__ import annotations

import pytest

from weft.errors import RemoteProtocolError
from weft.protocol.link_messages import LinkUpdate
from weft.ring.bridge import ControlFrames


def test_frames_are_complete_in_order_and_by_kind() -> None:
    frames = ControlFrames()
    frames.take(LinkUpdate(1, ids=(1, 2), items=(b"a", b"b")))
    frames.take(LinkUpdate(2, about=1))
    frames.take(LinkUpdate(3, ids=(3,), items=(b"c",)))
    frames.placed(3)
    frames.placed(1)
    assert (frames.heard, frames.completed) == (3, (0, 0)), "2 is not stored yet"
    frames.placed(2)
    assert frames.completed == (3, 2)


def test_what_is_being_stored_as_a_session_ends_is_not_known_in_the_next() -> None:
    frames = ControlFrames()
    frames.take(LinkUpdate(1, ids=(1,), items=(b"a",), resynced=True))
    frames.end()
    assert not frames.all_known, "subscriptions of a former life must not be dropped yet"
    frames.begin()
    frames.take(LinkUpdate(1, resynced=True))
    assert (frames.completed, frames.all_known) == ((0, 0), False)
    frames.placed(1)
    assert (frames.completed, frames.all_known) == ((1, 0), True)


@pytest.mark.parametrize(
    "wrong", [LinkUpdate(2), LinkUpdate(1, ids=(1,)), LinkUpdate(1, about=1, ids=(1,), items=(b"a",))]
)
def test_frames_that_cannot_be_are_refused(wrong: LinkUpdate) -> None:
    with pytest.raises(RemoteProtocolError):
        ControlFrames().take(wrong)
