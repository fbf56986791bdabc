"""The budget of a tuned table, and the order of figures within and beyond it. Of any two figures one ranks first, and
equal ranks mean equal figures. Figures within the limits rank before figures that exceed them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from weft.errors import TuningError

Rank = tuple[float, float, float, float]

FILTERS_NOTHING = 0.99  # the share of unwanted events from which a table filters nothing
_LEAST_RATE = 1e-9  # so that a limit of zero false positives can be compared too


class Cost(StrEnum):
    """What a budget limits and what is minimised, in the order in which a budget without a goal chooses its goal."""

    FALSE_POSITIVES = "false_positives"
    FORWARDED = "forwarded"
    MEMORY = "memory"

    @property
    def unit(self) -> str:
        """The unit that it is counted in."""
        return {Cost.FALSE_POSITIVES: "of the events that nobody wants", Cost.FORWARDED: "items"}.get(self, "bytes")

    def shown(self, value: float) -> str:
        """One of its values as text for people."""
        return f"{100 * value:.3g}%" if self is Cost.FALSE_POSITIVES else f"{value:,.0f}"


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """What one link costs.

    `false_positives` is the share of the unwanted events that is forwarded anyway, `forwarded` the number of ranges or
    labels that are told, `memory` the size in bytes of the table in which events are looked up.
    """

    false_positives: float
    forwarded: int
    memory: int

    @property
    def filters_nothing(self) -> bool:
        """Whether nearly all unwanted events pass: such a table is not better than flooding."""
        return self.false_positives >= FILTERS_NOTHING

    def of(self, cost: Cost) -> float:
        """One of the figures."""
        return float(getattr(self, cost))

    def __str__(self) -> str:
        return ", ".join(f"{cost.shown(self.of(cost))} {cost.replace('_', ' ')}" for cost in Cost)


@dataclass(frozen=True, slots=True)
class CostBudget:
    """Limits, each optional, and what is minimised within them.

    The default for `minimise` is the first of these without a limit: false positives, forwarded items, memory.

    >>> CostBudget(memory=1 << 16).goal, CostBudget(false_positives=0.05).goal
    (<Cost.FALSE_POSITIVES: 'false_positives'>, <Cost.FORWARDED: 'forwarded'>)
    >>> few, many = LinkFigures(0.2, 100, 5_000), LinkFigures(0.1, 900, 5_000)
    >>> min(few, many, key=CostBudget().rank) is many, min(few, many, key=CostBudget(forwarded=500).rank) is few
    (True, True)
    """

    memory: int | None = None  # bytes
    false_positives: float | None = None  # a share
    forwarded: int | None = None  # items
    minimise: Cost | None = None

    def __post_init__(self) -> None:
        if self.minimise is not None:
            try:
                object.__setattr__(self, "minimise", Cost(self.minimise))
            except ValueError:
                known = ", ".join(Cost)
                raise TuningError(f"{self.minimise!r} cannot be minimised; choose one of {known}") from None
        rate = self.false_positives
        if rate is not None and not (_is_number(rate) and 0 <= rate <= 1):
            raise TuningError(f"the limit of false positives is {rate!r}; give a share from 0 to 1")
        for cost in (Cost.MEMORY, Cost.FORWARDED):
            limit = getattr(self, cost)
            if limit is not None and not (_is_number(limit) and limit >= 1):
                raise TuningError(f"the limit of {cost} is {limit!r}; give a number of {cost.unit} of 1 or more")

    @property
    def limits(self) -> dict[Cost, float]:
        """The limits that are set."""
        every = {cost: getattr(self, cost) for cost in Cost}
        return {cost: limit for cost, limit in every.items() if limit is not None}

    @property
    def goal(self) -> Cost:
        """What is minimised."""
        free = [cost for cost in Cost if cost not in self.limits]
        return self.minimise or next(iter(free), Cost.FALSE_POSITIVES)

    def excess(self, figures: LinkFigures) -> float:
        """How far figures exceed the limits, 0 if they keep all; a sum of ratios, so that no limit outweighs others."""
        return sum(_past(figures.of(cost), limit) for cost, limit in self.limits.items())

    def rank(self, figures: LinkFigures) -> Rank:
        """The smallest is best: within the limits, then by what is minimised, then by the rest."""
        rest = (figures.of(cost) for cost in Cost if cost is not self.goal)
        return (self.excess(figures), figures.of(self.goal), *rest)  # type: ignore[return-value]

    def verdict(self, figures: LinkFigures, best: LinkFigures) -> str:
        """Why figures do not rank before the best, or that they do, and by which figure."""
        for cost, limit in self.limits.items():
            if figures.of(cost) > limit and self.excess(figures) >= self.excess(best):
                return f"past {cost.shown(limit)} {_words(cost)}"
        if self.rank(figures) < self.rank(best):
            if self.excess(figures) < self.excess(best):
                return "kept: nearer to the limits"
            return f"kept: {_compared(figures, best, self.goal)}"
        return _compared(figures, best, self.goal)

    def refuse(self, tried: Iterable[LinkFigures]) -> TuningError:
        """The error for a budget that none of these figures keeps: which limit cannot hold, and which would."""
        every = list(tried)
        for cost, limit in self.limits.items():
            least = min(figures.of(cost) for figures in every)
            if least > limit:
                return TuningError(
                    f"no choice has at most {cost.shown(limit)} {_words(cost)}; the least found is "
                    f"{cost.shown(least)}, so allow that"
                )
        near = min(every, key=self.rank)
        broken = [cost for cost, limit in self.limits.items() if near.of(cost) > limit]
        limits = " and ".join(f"{cost.shown(limit)} {_words(cost)}" for cost, limit in self.limits.items())
        allow = " and ".join(f"{cost.shown(near.of(cost))} {_words(cost)}" for cost in broken)
        return TuningError(f"no choice keeps {limits} together; allow {allow}, or remove one of the limits")

    def to_dict(self) -> dict[str, Any]:
        """The budget as JSON types."""
        minimise = None if self.minimise is None else str(self.minimise)
        return {**{str(cost): limit for cost, limit in self.limits.items()}, "minimise": minimise}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _past(value: float, limit: float) -> float:
    return math.log(value / max(limit, _LEAST_RATE)) if value > max(limit, _LEAST_RATE) else float(value > limit)


def _words(cost: Cost) -> str:
    return {Cost.FORWARDED: "forwarded items", Cost.MEMORY: "bytes of memory"}.get(cost, "false positives")


def _compared(figures: LinkFigures, best: LinkFigures, goal: Cost) -> str:
    """The first difference, that of the goal before others."""
    for cost in (goal, *(other for other in Cost if other is not goal)):
        if figures.of(cost) != best.of(cost):
            return f"{'fewer' if figures.of(cost) < best.of(cost) else 'more'} {_words(cost)}"
    return "no better"
