"""The choice of a model, from figures alone. A model is never recommended if another is at least as good in everything
and better in something. The same figures give the same advice, with its reason in numbers.

0. A model that *filters nothing*, because it lets 99% or more of the unwanted events pass, is neither recommended nor
   compared with: its few items and its speed are those of flooding. Flooding is recommended if there is nothing to
   filter, which means that fewer than one in a hundred events is unwanted, and if no model filters.
1. A model is *dominated* by one that forwards no more bytes, sends no more unwanted events, is no slower in matching
   and in changing, and needs no more memory, if it is better in one of these.
2. Of the others, the one with the fewest points wins. `Weights` states how much each criterion counts:

   | | a point for |
   |---|---|
   | forwarded | each percent of the bytes of all subscriptions as text |
   | unwanted | each half percent of the events: an item is forwarded once, an unwanted event every time |
   | matching, changing, memory | a factor: ten times the best costs 10, 5 and 5 points |

3. Models within a point of the best are even, because times vary more than that; the simplest of them, which comes
   first, wins.

The runner-up is the next by points, preferably among those that are better than the winner in something by more than a
point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log10
from typing import Any, NamedTuple

from weft.errors import WeftError
from weft.models.candidates import FLOODING
from weft.models.figures import ModelFigures


@dataclass(frozen=True, slots=True)
class Weights:
    """Points per hundredth (of bytes, of events), or per ten times the best (of times, of memory)."""

    forwarded: float = 1.0
    unwanted: float = 2.0
    matching: float = 10.0
    changing: float = 5.0
    memory: float = 5.0
    even: float = 1.0  # points that make no difference


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The advice, in sentences and for machines."""

    model: str
    reason: str
    runner_up: str | None = None
    when: str | None = None  # to use the runner-up instead
    points: Mapping[str, float] = field(default_factory=dict)
    dominated: Mapping[str, str] = field(default_factory=dict)  # by which model
    filter_nothing: Sequence[str] = ()  # models that are not recommended

    def to_dict(self) -> dict[str, Any]:
        """The advice for JSON."""
        return {
            "model": self.model,
            "reason": self.reason,
            "runner_up": self.runner_up,
            "when": self.when,
            "points": {model: round(points, 2) for model, points in self.points.items()},
            "dominated": dict(self.dominated),
            "filter_nothing": list(self.filter_nothing),
        }


class _Criterion(NamedTuple):
    value: Callable[[ModelFigures], float]
    counts: str  # "take it when ... count(s) most"
    better: str  # about the other model, whose value is `it`; the winner's is `own`
    worse: str
    factor: bool  # whether a factor counts, or a share


_CRITERIA: dict[str, _Criterion] = {
    "forwarded": _Criterion(
        lambda each: each.forwarded_share,
        "what is forwarded counts",
        "would forward fewer bytes ({it:.1%} of all instead of {own:.1%})",
        "forwards more bytes ({it:.1%} of all instead of {own:.1%})",
        False,
    ),
    "unwanted": _Criterion(
        lambda each: each.unwanted_share,
        "unwanted events count",
        "would send fewer unwanted events ({it:.1%} instead of {own:.1%})",
        "sends more unwanted events ({it:.1%} instead of {own:.1%})",
        False,
    ),
    "matching": _Criterion(
        lambda each: each.match_us,
        "the time to match events counts",
        "would match an event in {it:.2g} µs instead of {own:.2g}",
        "matches an event in {it:.2g} µs instead of {own:.2g}",
        True,
    ),
    "changing": _Criterion(
        lambda each: each.change_us,
        "the time to add and remove subscriptions counts",
        "would apply a change in {it:,.0f} µs instead of {own:,.0f}",
        "takes {it:,.0f} µs for a change instead of {own:,.0f}",
        True,
    ),
    "memory": _Criterion(
        lambda each: each.memory / 1e6,
        "memory counts",
        "would need {it:.2g} MB instead of {own:.2g}",
        "needs {it:.2g} MB instead of {own:.2g}",
        True,
    ),
}
_HARDLY_ANY = 0.01  # share of all events that are unwanted
_LEAST = 1e-9  # a time of zero has no logarithm


def recommend(figures: Sequence[ModelFigures], weights: Weights | None = None) -> Recommendation:
    """The model to use, of some in order of simplicity. Raises WeftError if there is none.

    >>> def model(name, bytes_, unwanted, us):
    ...     return ModelFigures(name, 9, bytes_, 1000, 9, 9, 0, 18, 10**6, us, us, us, 1, 1, 1, 100, 50, unwanted)
    >>> found = recommend([model("identity", 900, 0, 10), model("covering", 120, 0, 12), model("mics", 90, 8, 11)])
    >>> found.model, found.runner_up, found.dominated
    ('covering', 'mics', {})
    >>> print(found.reason)
    covering: it forwards 9 items (12.0% of the bytes of all subscriptions) and sends no unwanted events; mics would \
forward fewer bytes (9.0% of all instead of 12.0%), but sends more unwanted events (8.0% instead of 0.0%)
    >>> found.when
    'choose mics if what is forwarded counts most: it would forward fewer bytes (9.0% of all instead of 12.0%)'
    """
    if not figures:
        raise WeftError("no model could run, so there is nothing to recommend; see the reason for each")
    useless = tuple(each.model for each in figures if each.filters_nothing)
    able = [each for each in figures if not each.filters_nothing]
    flooding = next((each for each in figures if each.model == FLOODING), None)
    if flooding is not None and (not able or flooding.unwanted_share < _HARDLY_ANY):
        return Recommendation(FLOODING, _why_flooding(flooding, able), filter_nothing=useless)
    return replace(_among(able or figures, weights or Weights()), filter_nothing=useless)


def _why_flooding(flooding: ModelFigures, able: Sequence[ModelFigures]) -> str:
    """Either there is nothing to filter, or no model filters."""
    if able or not flooding.unwanted:
        return f"{_praise(flooding)}; so few are unwanted that there is nothing to filter"
    return f"{_praise(flooding)}; no other model that was run filters any of them"


def _among(figures: Sequence[ModelFigures], weights: Weights) -> Recommendation:
    """The advice among models that filter."""
    parts = {each.model: _parts(each, figures, weights) for each in figures}
    points = {model: sum(each.values()) for model, each in parts.items()}
    dominated = {
        each.model: by
        for each in figures
        if (by := next((other.model for other in figures if _dominates(other, each)), None)) is not None
    }
    free = [each for each in figures if each.model not in dominated]
    best = min(points[each.model] for each in free)
    winner = next(each for each in free if points[each.model] <= best + weights.even)
    gains = {each.model: _gains(parts[winner.model], parts[each.model]) for each in figures if each is not winner}
    others = [each for each in figures if each is not winner]
    real = [each for each in others if max(gains[each.model].values()) > weights.even]
    second = min(real or others, key=lambda each: points[each.model], default=None)
    if second is None:
        return Recommendation(winner.model, f"{_praise(winner)}; no other model was run", points=points)
    reason, when = _reason(winner, second, gains[second.model], bool(real))
    return Recommendation(winner.model, reason, second.model, when, points, dominated)


def _parts(each: ModelFigures, all_: Sequence[ModelFigures], weights: Weights) -> dict[str, float]:
    """The points of a model for each criterion."""
    found = {}
    for name, criterion in _CRITERIA.items():
        value, weight = criterion.value(each), getattr(weights, name)
        if criterion.factor:
            least = max(_LEAST, min(map(criterion.value, all_)))
            found[name] = weight * log10(max(value, least) / least)
        else:
            found[name] = weight * 100 * value
    return found


def _dominates(one: ModelFigures, other: ModelFigures) -> bool:
    pairs = [(criterion.value(one), criterion.value(other)) for criterion in _CRITERIA.values()]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def _gains(winner: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """How many fewer points the other has, for each criterion."""
    return {name: winner[name] - other[name] for name in _CRITERIA}


def _praise(winner: ModelFigures) -> str:
    items = "item" if winner.forwarded == 1 else "items"
    share = f"{winner.forwarded_share:.1%} of the bytes of all subscriptions"
    sent = f"{winner.unwanted_share:.1%} of all events needlessly" if winner.unwanted else "no unwanted events"
    return f"{winner.model}: it forwards {winner.forwarded:,} {items} ({share}) and sends {sent}"


def _reason(
    winner: ModelFigures, second: ModelFigures, gains: Mapping[str, float], real: bool
) -> tuple[str, str | None]:
    """Why to use the winner, and when the runner-up: by what each gains most points."""
    best, worst = max(gains, key=lambda name: gains[name]), min(gains, key=lambda name: gains[name])

    def phrase(name: str, better: bool) -> str:
        criterion = _CRITERIA[name]
        pattern = criterion.better if better else criterion.worse
        return pattern.format(it=criterion.value(second), own=criterion.value(winner))

    behind = phrase(worst, False) if gains[worst] < 0 else "is as good"
    if not real:
        return f"{_praise(winner)}; the next, {second.model}, {behind}, and is not better in anything that counts", None
    take = f"choose {second.model} if {_CRITERIA[best].counts} most: it {phrase(best, True)}"
    return f"{_praise(winner)}; {second.model} {phrase(best, True)}, but {behind}", take
