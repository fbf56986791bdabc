"""A simulated connection. Law: what arrives is a prefix of what was sent, in order, whatever happens.

Bytes travel in pieces, each way with a delay of its own. A cut may come between any two bytes, and each end notices it
at a time of its own, or never.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from weft.sim.engine import Engine, Scheduled

Receive = Callable[[bytes], None]


class Lane:
    """One direction of a connection."""

    def __init__(self, engine: Engine, rng: Random, receive: Receive, delay: int) -> None:
        self._engine = engine
        self._rng = rng
        self._receive = receive
        self._delay = delay
        self._last = 0  # when the last piece arrives
        self._flying: deque[tuple[bytes, Scheduled]] = deque()
        self._held: deque[bytes] = deque()  # arrived, but the reader reads nothing at present
        self._reading = True
        self.open = True
        self.backlog = 0  # bytes that were sent and not read

    def send(self, data: bytes) -> None:
        """Send bytes; nothing happens on a lane that was cut."""
        if not self.open or not data:
            return
        self.backlog += len(data)
        cut = self._rng.randrange(1, len(data) + 1) if self._rng.random() < 0.3 else len(data)
        for piece in (data[:cut], data[cut:]):
            if piece:
                self._last = max(self._last, self._engine.now + 1 + self._rng.randrange(self._delay))
                self._flying.append((piece, self._engine.at(self._last, self._arrive)))

    def _arrive(self) -> None:
        piece, _ = self._flying.popleft()
        if self._reading and not self._held:
            self._read(piece)
        else:
            self._held.append(piece)

    def _read(self, piece: bytes) -> None:
        self.backlog -= len(piece)
        self._receive(piece)

    def pause(self) -> None:
        """The reader reads nothing until `resume`."""
        self._reading = False

    def resume(self) -> None:
        """The reader reads what has arrived."""
        self._reading = True
        while self._held and self._reading and self.open:
            self._read(self._held.popleft())

    def cut(self) -> None:
        """Nothing more arrives but, perhaps, a part of the next piece."""
        self.open = False
        for _, arrival in self._flying:
            arrival.cancel()
        if self._flying and self._reading and not self._held:
            piece = self._flying[0][0]
            part = piece[: self._rng.randrange(len(piece) + 1)]
            if part:
                self._receive(part)
        self._flying.clear()
        self._held.clear()

    def close(self, then: Callable[[], None]) -> None:
        """The other end closes: what was sent still arrives, then the reader is told."""
        self.open = False
        self._last = max(self._last, self._engine.now + 1)
        self._engine.at(self._last + 1, then)
