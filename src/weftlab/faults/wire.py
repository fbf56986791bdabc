"""A simulated connection. What arrives is always a prefix of what was sent, in order.

Bytes travel in pieces, each way with a delay of its own. A cut may come between any two bytes, and each end notices it
at a time of its own, or never.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from weftlab.engine import Scheduled
from weftlab.faults.trace import Actor

_DELAY = 1500  # microseconds that a piece is on the wire, at most


class Pipe:
    """One direction of a connection."""

    def __init__(self, actor: Actor, receive: Callable[[bytes], None]) -> None:
        self._engine, self._rng, self._receive = actor.engine, actor.rng, receive
        self._last = 0  # when the last piece arrives
        self._in_flight: deque[tuple[bytes, Scheduled]] = deque()
        self._held: deque[bytes] = deque()  # arrived, but the reader reads nothing at present
        self._reading = True
        self.open = True
        self.backlog = 0  # bytes that were sent and not read

    def send(self, data: bytes) -> None:
        """Send bytes; nothing happens on a pipe that was cut."""
        if not self.open or not data:
            return
        self.backlog += len(data)
        cut = self._rng.randrange(1, len(data) + 1) if self._rng.random() < 0.3 else len(data)
        for piece in (data[:cut], data[cut:]):
            if piece:
                self._last = max(self._last, self._engine.now + 1 + self._rng.randrange(_DELAY))
                self._in_flight.append((piece, self._engine.at(self._last, self._arrive)))

    def _arrive(self) -> None:
        piece, _ = self._in_flight.popleft()
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
        for _, arrival in self._in_flight:
            arrival.cancel()
        if self._in_flight and self._reading and not self._held:
            piece = self._in_flight[0][0]
            part = piece[: self._rng.randrange(len(piece) + 1)]
            if part:
                self._receive(part)
        self._in_flight.clear()
        self._held.clear()

    def close(self, then: Callable[[], None]) -> None:
        """The other end closes: what was sent still arrives, then the reader learns it."""
        self.open = False
        self._last = max(self._last, self._engine.now + 1)
        self._engine.at(self._last + 1, then)
