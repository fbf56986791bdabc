"""What happens in a run: operations of clients and faults, drawn from a seed before it begins.

Each operation carries its own draw, so that leaving one out changes no other: a failing plan can be shrunk.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from weft.sim.faults.shape import ONE, Shape, draw_shape
from weft.sim.faults.terms import OPEN, Terms, draw_terms

FAULTS = (
    "crash",
    "commit refused",
    "sync failed",
    "cut",
    "half open",
    "take over",
    "slow reader",
    "clock jump",
    "quota",
)
LINK_FAULTS = (
    "crash several",
    "link cut",
    "link cut in use",
    "link half open",
    "link dialled twice",
    "link reads slowly",
    "resync cut",
    "partition",
    "detach",
    "stale hello",
    "restore backup",
)
OPERATIONS = {  # with their weights
    "publish": 12,
    "publish once": 3,
    "publish with ttl": 1,
    "subscribe": 5,
    "subscribe once": 1,
    "subscribe shared": 1,
    "subscribe unordered": 1,
    "subscribe since": 1,
    "replace": 3,
    "unsubscribe": 1,
    "advertise": 1,
    "goodbye": 1,
    "stop acknowledging": 1,
    "refuse deliveries": 3,
    "dead letters": 3,
    "trim": 1,
}
ONE_OPERATIONS = {**OPERATIONS, "publish": 20, "publish with ttl": 2, "subscribe since": 3, "dead letters": 6}
TRIALS = {  # of clients of one broker, in addition; each seed has some of them
    "publish outside": 4,
    "subscribe once": 6,
    "subscribe within lag": 5,
    "subscribe badly": 6,
    "unsubscribe shared": 2,
    "advertise": 3,
    "unadvertise": 3,
    "ask badly": 6,
    "ask status": 2,
    "forget": 2,
    "stay away": 2,
    "change rules": 4,
    "hello badly": 3,
    "misbehave": 3,
}
NETWORK_OPERATIONS = {**OPERATIONS, "advertise": 2, "unadvertise": 1, "retune": 1}


class Step(NamedTuple):
    """One thing that happens: when, what, to which client, with a draw of its own."""

    time: int
    what: str
    client: int
    draw: int

    def __str__(self) -> str:
        return f"{self.time / 1000:9.3f} ms  client {self.client}: {self.what}"


class Plan(NamedTuple):
    """All of a run that is decided before it begins."""

    seed: int
    clients: int
    faults: frozenset[str]
    steps: tuple[Step, ...]
    shape: Shape = ONE
    terms: Terms = OPEN


def draw_plan(seed: int, steps: int = 100, span: int = 1_500_000) -> Plan:
    """The plan of a seed for one broker: a random subset of the faults, and steps over `span` microseconds.

    >>> draw_plan(7) == draw_plan(7), len(draw_plan(7).steps)
    (True, 100)
    """
    rng = Random(seed)
    clients = rng.randint(2, 4)
    tried = {what: weight for what, weight in TRIALS.items() if rng.random() < 0.4}
    faults, drawn = _drawn(rng, clients, FAULTS, {**ONE_OPERATIONS, **tried}, steps, span)
    return Plan(seed, clients, faults, drawn, ONE._replace(advertised=rng.random() < 0.3), draw_terms(rng))


def draw_network_plan(  # noqa: PLR0913 - what may be given instead of drawn
    seed: int,
    steps: int = 60,
    span: int = 1_000_000,
    *,
    brokers: int | None = None,
    model: str | None = None,
    advertised: bool | None = None,
) -> Plan:
    """The plan of a seed for a tree of brokers; what is given is not drawn.

    >>> draw_network_plan(7).shape.brokers >= 3
    True
    """
    rng = Random(seed ^ 0x7EE)
    clients = rng.randint(2, 6)
    shape = draw_shape(rng, clients, brokers, model, advertised)
    faults, drawn = _drawn(rng, clients, (*FAULTS, *LINK_FAULTS), NETWORK_OPERATIONS, steps, span)
    return Plan(seed, clients, faults, drawn, shape)


def _drawn(  # noqa: PLR0913, PLR0917 - what a plan is drawn from
    rng: Random, clients: int, possible: tuple[str, ...], operations: dict[str, int], steps: int, span: int
) -> tuple[frozenset[str], tuple[Step, ...]]:
    faults = [fault for fault in possible if rng.random() < 0.4]
    rate = rng.choice((0.05, 0.15, 0.3)) if faults else 0.0
    names, weights = list(operations), list(operations.values())
    drawn = []
    for time in sorted(rng.randrange(span) for _ in range(steps)):
        what = rng.choice(faults) if rng.random() < rate else rng.choices(names, weights)[0]
        drawn.append(Step(time, what, rng.randrange(clients), rng.getrandbits(32)))
    return frozenset(faults), tuple(drawn)
