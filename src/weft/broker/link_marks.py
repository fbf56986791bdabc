"""Changes that wait for one neighbour. Law: a change is complete when the neighbour has completed all frames before it,
no earlier; after a resync if some of them were lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from weft.broker.completion import PendingChange
from weft.broker.link_messages import ABOUT
from weft.errors import RemoteProtocolError
from weft.routing.table import About, Link


class FrameMarks:
    """The numbers of the control frames to one neighbour, and the changes that wait for them."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._later: list[PendingChange] = []  # that wait for the end of a resync
        # those that do not, by kind, with the number of the frame that they stand behind
        self._marks: dict[About, deque[tuple[int, PendingChange]]] = {about: deque() for about in ABOUT}
        self.begin()

    def __len__(self) -> int:
        return len(self._later) + sum(map(len, self._marks.values()))

    def begin(self) -> None:
        """A session begins, and numbers with it."""
        self.number = self.heard = 0  # of the last frame that was sent, and that the neighbour has stored
        self._last = dict.fromkeys(ABOUT, 0)  # of each kind
        self._completed = dict.fromkeys(ABOUT, 0)

    def numbered(self, about: int) -> int:
        """The number of the next frame of a kind."""
        self.number += 1
        self._last[ABOUT[about]] = self.number
        return self.number

    @property
    def unanswered(self) -> int:
        """How many frames the neighbour has not acknowledged."""
        return self.number - self.heard

    # -- changes --------------------------------------------------------------------------------------

    def put(self, change: PendingChange) -> None:
        """Complete a change when the neighbour has completed the frames so far."""
        kind = change.awaits(self._link)
        if self._last[kind] <= self._completed[kind]:
            change.completed(self._link)
        else:
            self._marks[kind].append((self._last[kind], change))

    def put_off(self, changes: Iterable[PendingChange]) -> None:
        """Complete changes when the next resync is complete."""
        self._later += changes

    def put_off_all(self) -> None:
        """There is no session: every change waits for the resync of the next."""
        for marks in self._marks.values():
            self.put_off(change for _, change in marks)
            marks.clear()

    def resynced(self) -> None:
        """The last frame of a resync is numbered."""
        later, self._later = self._later, []
        for change in later:
            self.put(change)

    def give_up(self) -> list[PendingChange]:
        """The neighbour is gone for good: the changes that waited for it."""
        self.put_off_all()
        gone, self._later = self._later, []
        return gone

    def progress(self, heard: int, completed: tuple[int, int]) -> None:
        """The neighbour has stored and completed these frames. Raises RemoteProtocolError."""
        if not self.heard <= heard <= self.number:
            raise RemoteProtocolError(f"{self._link} acknowledges control frames that it was not sent")
        self.heard = heard
        for kind, number in zip(ABOUT, completed, strict=True):
            if not self._completed[kind] <= number <= heard:
                raise RemoteProtocolError(f"{self._link} completes control frames that it has not acknowledged")
            self._completed[kind] = number
            marks = self._marks[kind]
            while marks and marks[0][0] <= number:
                marks.popleft()[1].completed(self._link)
