"""Limits of what one client may use, and refusals: requests and events that cannot be granted.

A request beyond a limit is refused with a message that names the limit; no limit slows down other clients.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import AccessError, EventError, FilterError, LocalProtocolError
from weft.language.lexer import MAX_TEXT


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The limits of each client, and the sizes of a broker's queues. Times are in microseconds."""

    # of a principal or session
    connections: int = 1_000  # of one principal at a time
    requests: float = 0.0  # subscriptions and other requests a second of one connection, 0 is any; a burst of 100
    subscriptions: int = 100_000  # of one session
    queues: int = 10_000  # of one session
    adverts: int = 1_000  # of one session
    profiles: int = 100_000  # of one session
    filter: int = MAX_TEXT  # bytes of a filter's text
    rate: float = 0.0  # events a second of one principal, 0 is any; `burst` may come at once
    burst: int = 1_000
    name: int = 256  # characters of a session's name, or of a shared queue's

    # of queues
    window_events: int = 1_000  # unacknowledged deliveries of one queue to one connection, at most
    window_bytes: int = 1 << 20
    lag: int = 1 << 40  # events of its own that a durable queue may be behind
    held: int = 10_000  # events that a queue that is not durable may hold for a slow connection
    held_bytes: int = 16 << 20
    failures: int = 5  # negative acknowledgements that make a dead letter
    backoff: int = 1_000_000  # before the first redelivery; doubled for each failure
    max_backoff: int = 60_000_000

    # of a broker
    all_connections: int = 50_000  # at a time
    unauthenticated: int = 1_000  # connections that have not said hello; beyond that the oldest of them is closed
    tail: int = 64 << 20  # bytes of recent events that are kept in memory
    ack_delay: int = 50_000  # after which acknowledgements are stored
    changes: int = 8  # of subscriptions that are made for a connection in one turn: some tenths of a millisecond each
    run: int = 48  # deliveries of a batch, to all queues; so many are written together
    run_behind: int = 12  # the same for a queue that is behind
    turn: int = 2_000  # events that are read from the log in one turn
    hello: int = 10_000_000  # a connection must have said hello by then
    idle: int = 0  # a connection that is silent for longer is closed; 0 is never
    expires: int = 0  # a session without a connection is removed after this; 0 is never

    # of a link
    link_events: int = 4_096  # unacknowledged events
    link_bytes: int = 4 << 20
    link_frames: int = 16  # unacknowledged control frames
    link_control: int = 20_000  # items that may wait to be sent; beyond that, a resync sends the differences
    link_lag: int = 1 << 40  # offsets that a neighbour may be behind; one that is further behind is detached
    heartbeat: int = 5_000_000
    link_silence: int = 20_000_000  # a link on which nothing was received for longer is closed
    digests: int = 6  # heartbeats between two comparisons with a neighbour
    audit: int = 64  # items that are compared with their hashes at each heartbeat
    explain: int = 2_000_000  # that another broker has for its answer to where an event goes
    slice: int = 8  # items that the table learns in one turn, besides some steps of what is pending


@dataclass(frozen=True, slots=True)
class BalanceLimits:
    """When sessions are moved, and how many."""

    every: int = 5_000_000  # microseconds between two reports
    above: float = 1.2  # times the mean: a broker with more invites others
    until: float = 1.05  # times the mean: then it has invited enough, and more is too much for the others
    least: float = 10.0  # events per second above the mean that are worth a move
    most: int = 64  # sessions that one broker moves at a time
    rest: int = 30_000_000  # microseconds that a session stays at least


class TokenBucket:
    """How many events or requests may come now.

    >>> bucket = TokenBucket(rate=2.0, burst=1)
    >>> bucket.take(0), bucket.take(0), bucket.take(500_000)
    (True, False, True)
    """

    __slots__ = ("__weakref__", "_burst", "_last", "_left", "_rate")

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate / 1e6
        self._burst = float(burst)
        self._left = float(burst)
        self._last = 0

    def take(self, monotonic: int) -> bool:
        """Whether one more may come."""
        self._left = min(self._burst, self._left + (monotonic - self._last) * self._rate)
        self._last = monotonic
        if self._left < 1:
            return False
        self._left -= 1
        return True


class RefusalError(Exception):
    """A request or an event that cannot be granted, with a code for it."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


REFUSALS = (RefusalError, FilterError, AccessError, LocalProtocolError)  # what a request may raise


def refusal_code(error: Exception) -> str:
    """The code of a refusal.

    >>> refusal_code(AccessError("no")), refusal_code(RefusalError("limit", "too many"))
    ('access', 'limit')
    """
    if isinstance(error, RefusalError):
        return error.code
    for kind, code in ((FilterError, "filter"), (AccessError, "access"), (EventError, "event")):
        if isinstance(error, kind):
            return code
    return "table"
