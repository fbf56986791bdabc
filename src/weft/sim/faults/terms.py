"""On which terms a simulated broker serves its clients: limits, credentials and access rules. Law: drawn from a seed,
before a run begins; small, so that a short run reaches every limit.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import NamedTuple

from weft.broker.limits import ClientLimits
from weft.broker.rules import ALL_RIGHTS, Rights

# For a filter of the simulation, one of these rules covers it iff it matches all of the 24 events that the filter does.
GRANTS = (
    Rights(),
    Rights(subscribe=("x < 6",)),
    Rights(subscribe=("x < 4", "y = 'a'"), publish=("x >= 1",)),
    Rights(subscribe=("x >= 2",), publish=("x < 7", "y = 'b'"), further=ALL_RIGHTS - {"status"}),
    Rights(further=frozenset()),
)

PRINCIPALS = ("ann", "bob")


class Terms(NamedTuple):
    """What a broker grants; 0 is no limit."""

    guarded: bool = False  # clients show credentials, and access rules decide what they may do
    rate: float = 0.0  # events a second
    burst: int = 1_000
    subscriptions: int = 0
    adverts: int = 0
    queues: int = 0
    filter: int = 0
    keep: int = 0  # seconds that clients want their sessions kept
    expires: int = 0  # microseconds that the broker keeps a session
    failures: int = 0
    full: int = 20_000  # bytes that wait on a connection before the broker is told
    login: int = 0  # microseconds that credentials are valid
    strangers: int = 0
    hello: int = 0  # microseconds until a connection must have said hello
    crowded: bool = False  # there is hardly room for all connections

    def limits(self, limits: ClientLimits) -> ClientLimits:
        """The limits of a broker on these terms."""
        return replace(
            limits,
            rate=self.rate,
            burst=self.burst,
            subscriptions=self.subscriptions or limits.subscriptions,
            adverts=self.adverts or limits.adverts,
            queues=self.queues or limits.queues,
            filter=self.filter or limits.filter,
            expires=self.expires,
            failures=self.failures or limits.failures,
            strangers=self.strangers or limits.strangers,
            hello=self.hello or limits.hello,
            # a connection that is half open must be closed some day, or it takes the place of another for ever
            all_connections=5 if self.crowded and limits.idle else limits.all_connections,
            connections=2 if self.crowded and limits.idle and self.guarded else limits.connections,
        )


OPEN = Terms()


def draw_terms(rng: Random) -> Terms:
    """Random terms: mostly few of them are narrow.

    >>> draw_terms(Random(1)) == draw_terms(Random(1))
    True
    """
    guarded = rng.random() < 0.3
    return Terms(
        guarded=guarded,
        rate=rng.choice((0.0, 0.0, 0.0, 300.0)),
        burst=rng.choice((3, 10)),
        subscriptions=rng.choice((0, 0, 0, 0, 0, 5)),
        adverts=rng.choice((0, 0, 1)),
        queues=rng.choice((0, 0, 0, 0, 0, 4)),
        filter=rng.choice((0, 100)),
        keep=rng.choice((0, 1)),
        expires=rng.choice((0, 0, 1_500_000)),
        failures=rng.choice((0, 0, 1)),
        full=rng.choice((250, 1_000, 20_000)),
        login=rng.choice((0, 400_000)) if guarded else 0,
        strangers=rng.choice((0, 0, 2)),
        hello=rng.choice((0, 100_000)),
        crowded=rng.random() < 0.3,
    )
