"""The plan of a run: operations of clients and faults, drawn from a seed before it begins.

Each operation carries its own draw, so that leaving one out changes no other: a failing plan can be shrunk.

The terms of a broker (limits, credentials, access rules) are small, so that a short run reaches every limit.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from weft.broker.limits import ClientLimits
from weft.broker.rules import ALL_RIGHTS, Rights
from weftlab.faults.shape import ONE, Shape, draw_shape

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
    """What a broker grants."""

    narrow: dict[str, Any]  # limits of clients that are narrower than elsewhere
    guarded: bool = False  # clients show credentials, and access rules decide what they may do
    keep: int = 0  # seconds that clients want their sessions kept; 0: as long as the broker keeps them
    full: int = 20_000  # bytes that wait on a connection before the broker learns it
    login: int = 0  # microseconds that credentials are valid; 0: for ever
    crowded: bool = False  # there is hardly room for all connections

    def limits(self, limits: ClientLimits) -> ClientLimits:
        """The limits of a broker on these terms."""
        if not self.crowded or not limits.idle:  # a connection that is half open would take another's place for ever
            return replace(limits, **self.narrow)
        connections = 2 if self.guarded else limits.connections
        return replace(limits, **self.narrow, all_connections=5, connections=connections)


OPEN = Terms({})
_CHOICES: dict[str, tuple[Any, ...]] = {  # in the order in which they are drawn; 0: as elsewhere
    "rate": (0.0, 0.0, 0.0, 300.0),
    "burst": (3, 10),
    "subscriptions": (0, 0, 0, 0, 0, 5),
    "adverts": (0, 0, 1),
    "queues": (0, 0, 0, 0, 0, 4),
    "filter": (0, 100),
    "keep": (0, 1),
    "expires": (0, 0, 1_500_000),
    "failures": (0, 0, 1),
    "full": (250, 1_000, 20_000),
    "login": (0, 400_000),  # where clients show credentials
    "unauthenticated": (0, 0, 2),
    "hello": (0, 100_000),
}


def draw_terms(rng: Random) -> Terms:
    """Random terms: mostly few of them are narrow.

    >>> draw_terms(Random(1)) == draw_terms(Random(1))
    True
    """
    guarded = rng.random() < 0.3
    drawn = {name: rng.choice(choices) for name, choices in _CHOICES.items() if guarded or name != "login"}
    own = {name: drawn.pop(name, 0) for name in ("keep", "full", "login")}
    narrow = {name: value for name, value in drawn.items() if value}
    return Terms(narrow, guarded, **own, crowded=rng.random() < 0.3)


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
    "trap": 3,
    "misbehave": 3,
}
NETWORK_OPERATIONS = {**OPERATIONS, "advertise": 2, "unadvertise": 1, "retune": 1}


class Step(NamedTuple):
    """One thing that happens: when, what, to which client, with a draw of its own."""

    time: int
    what: str
    client: int
    draw: int


class Plan(NamedTuple):
    """All of a run that is decided before it begins."""

    seed: int
    clients: int
    faults: frozenset[str]
    steps: tuple[Step, ...]
    shape: Shape = ONE
    terms: Terms = OPEN


def draw_plan(seed: int, steps: int = 100) -> Plan:
    """The plan of a seed for one broker: a random subset of the faults, and steps.

    >>> draw_plan(7) == draw_plan(7), len(draw_plan(7).steps)
    (True, 100)
    """
    rng = Random(seed)
    clients = rng.randint(2, 4)
    tried = {what: weight for what, weight in TRIALS.items() if rng.random() < 0.4}
    faults, drawn = _drawn(rng, clients, FAULTS, {**ONE_OPERATIONS, **tried}, steps, 1_500_000)
    return Plan(seed, clients, faults, drawn, ONE._replace(advertised=rng.random() < 0.3), draw_terms(rng))


def draw_network_plan(seed: int, steps: int = 60, **given: Any) -> Plan:
    """The plan of a seed for a tree of brokers; what `draw_shape` is given is not drawn.

    >>> draw_network_plan(7).shape.brokers >= 3
    True
    """
    rng = Random(seed ^ 0x7EE)
    clients = rng.randint(2, 6)
    shape = draw_shape(rng, clients, **given)
    faults, drawn = _drawn(rng, clients, (*FAULTS, *LINK_FAULTS), NETWORK_OPERATIONS, steps, 1_000_000)
    return Plan(seed, clients, faults, drawn, shape)


MOVES = {  # of clients that move, with their weights
    "publish": 14,
    "move": 6,
    "both move": 1,
    "move on": 2,
    "invite": 2,
    "change": 1,
    "stop acknowledging": 2,
    "trim": 1,
}
MOVE_FAULTS = (
    "crash",
    "crash in a move",
    "commit refused",
    "sync failed",
    "quota",
    "clock jump",
    "cut",
    "half open",
    "slow reader",
    "link cut",
    "link half open",
    "partition",
)


DRASTIC = (  # after these, what was published before is not promised to everybody: one seed in five has some
    "abandon",
    "detach on the path",
    "restore backup",
    "log lost",
)


def draw_moving_plan(seed: int, steps: int = 80, **given: Any) -> Plan:
    """The plan of a seed for clients that move between the brokers of a tree.

    >>> draw_moving_plan(7) == draw_moving_plan(7)
    True
    """
    rng = Random(seed ^ 0x30BE)
    clients = rng.randint(2, 5)
    shape = draw_shape(rng, clients, **given)
    possible = (*MOVE_FAULTS, *DRASTIC) if rng.random() < 0.2 else MOVE_FAULTS
    faults, drawn = _drawn(rng, clients, possible, MOVES, steps, rng.choice((400_000, 1_500_000, 4_000_000)))
    return Plan(seed, clients, faults, drawn, shape)


PROFILE_OPERATIONS = {  # of clients with profiles, with their weights
    "publish profile": 12,
    "withdraw": 4,
    "query": 10,
    "unsubscribe": 1,
    "stop acknowledging": 1,
    "move": 2,
    "both move": 1,
}
PROFILE_FAULTS = MOVE_FAULTS


def draw_profile_plan(seed: int, steps: int = 80, **given: Any) -> Plan:
    """The plan of a seed for clients that publish profiles, and are shown them, in a tree of brokers.

    >>> draw_profile_plan(7) == draw_profile_plan(7)
    True
    """
    rng = Random(seed ^ 0x9F0F)
    clients = rng.randint(2, 5)
    shape = draw_shape(rng, clients, **{"advertised": False, **given})
    span = rng.choice((400_000, 1_500_000, 4_000_000))
    faults, drawn = _drawn(rng, clients, PROFILE_FAULTS, PROFILE_OPERATIONS, steps, span)
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
