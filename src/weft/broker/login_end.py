"""Credentials are valid for a time. Law: a connection does not outlive what it was let in by."""

from __future__ import annotations

from collections.abc import Callable

from weft.broker.effects import Now
from weft.broker.sessions import Connection
from weft.broker.state import BrokerState
from weft.log.base import NEVER

_LOOK = 300_000_000  # microseconds after which it is looked at again: a timer keeps its connection in memory

Close = Callable[[Connection, str, str, Now], None]


def end_later(state: BrokerState, close: Close, connection: Connection, until: int, now: Now) -> None:
    """Close a connection when the UTC clock is past `until`, however that clock jumps."""
    if until == NEVER:
        return

    def ended(later: Now) -> None:
        if state.connections.get(connection.id) is not connection:
            return
        if later.utc < until:
            end_later(state, close, connection, until, later)
            return
        state.counts["credentials expired"] += 1
        close(connection, "expired", "the credentials have expired; connect again with new ones", later)

    state.timers.add(now.monotonic + min(max(until - now.utc, 1), _LOOK), ended)
