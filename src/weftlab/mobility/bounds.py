"""What a hand-over may cost: Tables 5.1, 5.2 and 5.3 of the thesis.

Costs are updated intermediate brokers, without source, target, unsubscription and transfer. n is the number of brokers,
k that of the brokers between source and target, P that of repeated signals, K that of rendezvous points, and RPmax the
longest way to one. (Table 5.1 writes N and n for n and k.)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class CostRow(StrEnum):
    """The rows of the tables."""

    GENERIC = "Generic API Pub/Sub"
    GENERIC_RP = "Generic API Pub/Sub RP"
    ACYCLIC = "Acyclic graph"
    CYCLIC_RP = "Cyclic RP"
    ACYCLIC_RP = "Acyclic RP"


class CostBounds(NamedTuple):
    """An upper and a lower bound."""

    upper: int
    lower: int


@dataclass(frozen=True, slots=True)
class Measures:
    """What the bounds depend on."""

    n: int
    k: int
    repeats: int = 0  # P
    points: int = 1  # K
    farthest: int = 0  # RPmax
    to_points: int = 0  # links from source and target to the points: the real length where the thesis has 2 RPmax


def cost_bounds(row: CostRow, complete: bool, publisher: bool, given: Measures) -> CostBounds:
    """The bounds of Table 5.2 (complete) or 5.3.

    The printed lower bound of the generic protocol with rendezvous points has the longest way to a point, so it is one
    only for brokers that are so far away. The real ways take its place.

    >>> cost_bounds(CostRow.ACYCLIC, complete=False, publisher=False, given=Measures(n=10, k=3, repeats=1))
    CostBounds(upper=16, lower=3)
    """
    others, k, repeats = given.n - 2, given.k, given.repeats
    way = given.points * given.farthest
    if row is CostRow.GENERIC:
        return CostBounds(4 * others + (repeats + 2) * others, 2 * others + 4 * k)
    if row is CostRow.GENERIC_RP:
        return CostBounds(2 * given.farthest + (repeats + 4) * others, max(0, given.to_points - 2) + 4 * k)
    if row is CostRow.ACYCLIC:
        if publisher:
            return CostBounds(2 * others, 0 if complete else 2 * k)
        return CostBounds(others if complete else (repeats + 1) * others, 0 if complete else k)
    times = (1 if complete else 2) + publisher
    if row is CostRow.CYCLIC_RP:
        return CostBounds(times * way, 0)
    return CostBounds(min(times * way, times * others), 0)


class PhaseCost(NamedTuple):
    """A row of Table 5.1 for advertisement semantics: how many brokers a phase of the generic protocol updates."""

    phase: str
    upper: int


def generic_phases(given: Measures) -> list[PhaseCost]:
    """Table 5.1, advertisement semantics, without the broker that acts. Subscriptions follow advertisements."""
    every, way = given.n - 1, given.k + 1
    return [
        PhaseCost("advertisements of ping", every),
        PhaseCost("advertisements of pong", every),
        PhaseCost("subscriptions of ping", way),
        PhaseCost("subscriptions of pong", way),
        PhaseCost("filters", every),
    ]
