"""Whether a client is connected, as the application sees it: now, from now on, and in the process's log.

The logger is `weft.client`: a connection is logged as INFO, a loss and the first failure to reconnect as WARNING, and
the end of a client by an error as ERROR. What happens before the first connection is only raised. Tokens and events are
never logged.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from weft.client.connection import Waiter, finish_all

LOGGER = logging.getLogger("weft.client")
_MOST = 100  # states that a slow application finds later; older ones are forgotten


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """Whether a client is connected to its broker; if not, `reason` says why.

    >>> ConnectionState(False, "weft://localhost:9338", "the connection was lost")
    ConnectionState(connected=False, address='weft://localhost:9338', reason='the connection was lost')
    """

    connected: bool
    address: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return f"connected to {self.address}" if self.connected else f"not connected: {self.reason}"


class StateWatch:
    """The states of one client, one after the other, for one iterator. `waiter` makes what the iterator awaits."""

    def __init__(self, first: ConnectionState, waiter: Callable[[], Waiter], is_over: bool) -> None:
        self._states = deque([first], _MOST)
        self._make = waiter
        self._lock = threading.Lock()
        self._waiter: Waiter | None = None
        self._is_over = is_over

    def put(self, state: ConnectionState, is_over: bool) -> None:
        """It has changed; after the last state the iteration ends."""
        with self._lock:
            self._states.append(state)
            self._is_over = self._is_over or is_over
            waiter, self._waiter = self._waiter, None
        if waiter is not None:
            finish_all([waiter])

    async def next(self) -> ConnectionState | None:
        """The next state, or None after the last."""
        while True:
            with self._lock:
                if self._states:
                    return self._states.popleft()
                if self._is_over:
                    return None
                self._waiter = waiter = self._make()
            await waiter


class ConnectionStates:
    """The state of a client now, and everybody who watches it. Changes come from the network thread."""

    def __init__(self, name: str) -> None:
        self.current = ConnectionState(False, reason="it has not connected yet")
        self._who = f"client {name!r}" if name else "a client"
        self._watches: list[StateWatch] = []
        self._lock = threading.Lock()
        self._is_over = self._was_connected = False

    def watch(self, waiter: Callable[[], Waiter] = Waiter) -> StateWatch:
        """Watch it, beginning with the present state."""
        with self._lock:
            watch = StateWatch(self.current, waiter, self._is_over)
            self._watches.append(watch)
        return watch

    def unwatch(self, watch: StateWatch) -> None:
        """End a watch."""
        with self._lock:
            self._watches = [each for each in self._watches if each is not watch]

    def connected(self, address: str) -> None:
        """The broker has welcomed it."""
        self._was_connected = True
        LOGGER.info("%s is connected to %s", self._who, address)
        self._set(ConnectionState(True, address))

    def lost(self, address: str) -> None:
        """The connection is gone; the client goes on trying."""
        if self.current.connected:
            LOGGER.warning("%s lost its connection to %s and reconnects", self._who, address)
            self._set(ConnectionState(False, address, f"the connection to {address} was lost"))

    def failed(self, address: str, error: Exception) -> None:
        """An attempt to connect failed; the client goes on trying. The same reason is logged once."""
        if not self._is_over and self.current.reason != str(error):
            if self._was_connected:
                LOGGER.warning("%s cannot connect: %s", self._who, error)
            self._set(ConnectionState(False, address, str(error)))

    def over(self, error: Exception, expected: bool) -> None:
        """The client has ended; it does not come back."""
        if not self._is_over:
            if not expected and self._was_connected:
                LOGGER.error("%s has ended: %s", self._who, error)
            self._set(ConnectionState(False, self.current.address, str(error)), is_over=True)

    def _set(self, state: ConnectionState, is_over: bool = False) -> None:
        with self._lock:
            self.current, self._is_over = state, is_over
            watches = list(self._watches)
        for each in watches:
            each.put(state, is_over)
