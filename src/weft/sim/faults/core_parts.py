"""What a simulated core is made of. Law: small limits now and then, so that a short run reaches them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import NamedTuple

from weft.broker.core import Core
from weft.broker.identity import Authenticate
from weft.broker.limits import ClientLimits
from weft.broker.rules import Rules
from weft.log.base import State
from weft.log.memory import MemoryLog
from weft.sim.faults.own_predicate import EVEN
from weft.sim.faults.shape import Shape


class CoreParts(NamedTuple):
    """One broker of a network, as it starts."""

    shape: Shape
    name: str
    log: MemoryLog
    state: State
    limits: ClientLimits
    rng: Random  # for ids of sessions
    rules: Rules | None = None
    authenticate: Authenticate | None = None


MakeWorldCore = Callable[[CoreParts], Core]


def plain_core(parts: CoreParts) -> Core:
    """A broker with the table of its network."""
    shape, rng = parts.shape, parts.rng
    return Core(
        parts.log,
        parts.state,
        shape.make_table(),
        draw=lambda: rng.getrandbits(63),
        schema=shape.schema,
        limits=parts.limits,
        advertised=shape.advertised,
        name=parts.name,
        predicates=EVEN,
        rules=parts.rules,
        authenticate=parts.authenticate,
    )


def draw_limits(rng: Random) -> ClientLimits:
    """Limits of a broker's clients and queues."""
    return ClientLimits(
        run=2,
        run_behind=2,
        window_events=rng.choice((2, 5, 1_000)),
        window_bytes=rng.choice((200, 1 << 20)),
        lag=rng.choice((25, 1 << 40, 1 << 40, 1 << 40)),
        held=rng.choice((2, 10_000)),
        failures=rng.choice((2, 5)),
        backoff=rng.choice((1_000, 50_000)),
        tail=rng.choice((0, 4_000, 64 << 20)),
        floors=rng.choice((0, 5_000, 50_000)),
        turn=rng.choice((3, 2_000)),
        idle=rng.choice((0, 1_500_000)),
    )


def draw_link_limits(rng: Random, limits: ClientLimits) -> ClientLimits:
    """The same limits, and those of links. A queue never falls behind too far, nor does a link."""
    heartbeat = rng.choice((40_000, 200_000))
    drawn = replace(
        limits,
        lag=1 << 40,
        link_events=rng.choice((1, 5, 4_096)),
        link_bytes=rng.choice((300, 4 << 20)),
        link_frames=rng.choice((1, 3, 16)),
        link_control=rng.choice((3, 20_000)),
        heartbeat=heartbeat,
        link_silence=4 * heartbeat,
        digests=rng.choice((1, 6)),
        audit=rng.choice((1, 4)),
        slice=rng.choice((1, 8)),
    )
    return replace(drawn, changes=drawn.slice)
