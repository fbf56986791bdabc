"""Tuning of curve ranges and label sets: which attributes are dimensions, how each is cut into cells, the cap, and the
filter (the future work of DLS 5.2 and MICS 5). Laws: the same samples and budget give the same choice; a choice keeps
the budget on the samples, or there is none; what it changes is cost, never what matches.

A grid's cost has no formula, but a sample shows it: all figures are measured. Even grids over any few
attributes are tried, and the best of these are starts. From there one place of a candidate after another is set to its
best, as long as that helps; then one is made finer and another coarser, for two that share a budget block each other.
That takes some hundred measurements, where `exhaustive` takes thousands for three attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from weft.algebra.columns import BoxColumns
from weft.errors import TuningError
from weft.index.base import AnyEvent
from weft.interest.budget import Budget, Rank
from weft.interest.choices import LEFT_OUT, Candidate, Choices, Options
from weft.interest.measured import Dls, Made, Mics, Model, Sample
from weft.interest.tuning import Trial, Tuned
from weft.model.schema import Schema
from weft.space.content import ContentSpace
from weft.space.label_space import LabelSpace

if TYPE_CHECKING:
    import pyarrow as pa

_MODELS: dict[str, Model] = {model.name: model for model in (Mics(), Dls())}
_ROOM = 1.25  # more labels than the sample has, before a filter grows
_LEAST_RATE = 1e-9
_STARTS = 5
_FEW = 4  # attributes of which every set is a start
_MOST_CANDIDATES = 200_000


def tune_mics(
    columns: BoxColumns,
    events: pa.RecordBatch | Sequence[AnyEvent],
    schema: Schema,
    budget: Budget | None = None,
    options: Options | None = None,
) -> Tuned[ContentSpace]:
    """Dimensions, cells and range cap of a MICS table for such subscriptions and events.

    Raises TuningError if a sample is empty, no attribute can be cut, or the budget cannot be kept.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> low = rng.integers(0, 90, 50)
    >>> wanted = BoxColumns.from_bounds({"x": (low, low + 5.0), "y": (low * 0.0, low * 0.0 + 99)})
    >>> happening = [{"x": float(x), "y": float(y)} for x, y in rng.uniform(0, 100, (500, 2))]
    >>> schema = Schema.from_dict({"attributes": {n: {"type": "float", "bounds": [0, 100]} for n in ("x", "y")}})
    >>> tuned = tune_mics(wanted, happening, schema, Budget(forwarded=10))
    >>> tuned.figures.forwarded <= 10, Tuned.from_json(tuned.to_json()) == tuned
    (True, True)
    """
    return _tuned(_Search("mics", columns, events, schema, budget, options), exhaustively=False)


def tune_dls(
    columns: BoxColumns,
    events: pa.RecordBatch | Sequence[AnyEvent],
    schema: Schema,
    budget: Budget | None = None,
    options: Options | None = None,
) -> Tuned[LabelSpace]:
    """Granules, label cap and filter of a DLS table for such subscriptions and events. Raises as `tune_mics`."""
    return _tuned(_Search("dls", columns, events, schema, budget, options), exhaustively=False)


def exhaustive(  # noqa: PLR0913, PLR0917
    model: str,
    columns: BoxColumns,
    events: pa.RecordBatch | Sequence[AnyEvent],
    schema: Schema,
    budget: Budget | None = None,
    options: Options | None = None,
) -> Tuned[Any]:
    """The best of all candidates: the peer of tuning, for few attributes and options. Raises as `tune_mics`."""
    return _tuned(_Search(model, columns, events, schema, budget, options), exhaustively=True)


def _tuned(search: _Search, *, exhaustively: bool) -> Tuned[Any]:
    best = search.over_all() if exhaustively else search.descend()
    made, budget = search.measured[best], search.budget
    if budget.excess(made.figures) > 0:
        raise budget.refuse(each.figures for each in search.measured.values())
    space, shape, rows = made.space, made.shape, search.rows(best)
    if isinstance(space, ContentSpace):
        counted = Mics.counted(space, search.sample)
        return Tuned("mics", space, None, 1.0, made.figures, counted, budget, len(search.measured), rows)
    assert shape is not None
    rate = min(1.0, max(_LEAST_RATE, shape.rate(int(_ROOM * made.figures.forwarded) + 1)))
    counted = Dls.counted(space, search.sample)
    return Tuned("dls", space, shape, rate, made.figures, counted, budget, len(search.measured), rows)


class _Search:
    """Candidates, each measured once, and the rows that tell of it."""

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        model: str,
        columns: BoxColumns,
        events: pa.RecordBatch | Sequence[AnyEvent],
        schema: Schema,
        budget: Budget | None,
        options: Options | None,
    ) -> None:
        if model not in _MODELS:
            raise TuningError(f"no model is named {model!r}: tune one of {', '.join(_MODELS)}")
        self.model = _MODELS[model]
        self.budget = budget or Budget()
        self.sample = Sample(columns, events)
        asked = {name for name, _ in columns.columns}.union(*(box.names for box in columns.odd.values()))
        self.choices = Choices.of(schema, asked, events, options or Options())
        self.measured: dict[Candidate, Made] = {}
        self._rows: list[Trial] = []

    def rows(self, best: Candidate) -> tuple[Trial, ...]:
        """What was tried, in order, and the choice."""
        made = self.measured[best]
        chosen = self.choices.shown(best)
        if made.shape is not None:
            chosen += f", filter: {made.shape.size} counters of {made.shape.bits} bits, {made.shape.hashes} hashes"
        verdict = f"the best of {len(self.measured)} measured, by {self.budget.goal.replace('_', ' ')}"
        return (*self._rows, Trial("choice", chosen, made.figures, verdict, True))

    def over_all(self) -> Candidate:
        """The best of all."""
        if self.choices.size > _MOST_CANDIDATES:
            raise TuningError(
                f"an exhaustive search would measure {self.choices.size:,} candidates, and {_MOST_CANDIDATES:,} is "
                "the limit: give fewer attributes or options, or tune"
            )
        return min(self.choices, key=self._rank)

    def descend(self) -> Candidate:
        """The best that a few descents find, each from an even grid over some of the attributes."""
        evens = (self._even(members, cap) for members in self._members() for cap in range(len(self.choices.caps)))
        starts = sorted({even for even in evens if even is not None}, key=self._rank)[:_STARTS]
        return min((self._settle(start) for start in starts), key=self._rank)

    def _members(self) -> list[tuple[int, ...]]:
        """Attributes that may do: any of few; of many the most telling alone, the two most telling, and so on."""
        every = range(len(self.choices.ways))
        if len(every) <= _FEW:
            return [some for count in every for some in combinations(every, count + 1)]
        nothing = (*(LEFT_OUT for _ in every), len(self.choices.caps) // 2)
        best = {at: self._best("alone", None, self.choices.line(nothing, at)) for at in every}
        order = sorted(every, key=lambda at: self._rank(best[at]))
        return [tuple(order[: count + 1]) for count in every]

    def _even(self, members: tuple[int, ...], cap: int) -> Candidate | None:
        """The best grid in which some attributes have about as many cells, cut alike; None if none is possible."""
        nothing = (*(LEFT_OUT for _ in self.choices.ways), cap)
        kinds = sorted({(way.size, way.cuts) for at in members for way in self.choices.ways[at][1:]})
        every = dict.fromkeys(self.choices.even(nothing, members, *kind) for kind in kinds)
        possible = [each for each in every if self.choices.possible(each)]
        return self._best("even", None, possible) if possible else None

    def _settle(self, candidate: Candidate) -> Candidate:
        """A candidate that no change of one place betters, nor an exchange between two."""
        while True:
            before = candidate
            for at in self.choices.coordinates:
                candidate = self._best(self._place(at), candidate, self.choices.line(candidate, at))
            if candidate == before:
                candidate = self._best("exchange", candidate, self.choices.exchanges(candidate))
            if candidate == before:
                return candidate

    def _place(self, at: int) -> str:
        return "cap" if at == len(self.choices.ways) else self.choices.ways[at][LEFT_OUT].name

    def _best(self, step: str, held: Candidate | None, others: Sequence[Candidate]) -> Candidate:
        """The best of a candidate and some others; those that are new become rows."""
        tried = [other for other in others if other not in self.measured]
        every = [*([] if held is None else [held]), *others]
        best = min(every, key=self._rank)
        against = self.measured[best if held is None else held].figures
        for other in tried:
            figures = self.measured[other].figures
            kept = other == best
            if kept and held is None:
                verdict = "kept: the start"
            elif kept:
                verdict = self.budget.verdict(figures, against)
            else:
                verdict = self.budget.verdict(figures, self.measured[best].figures)
            self._rows.append(Trial(step, self.choices.shown(other, held), figures, verdict, kept))
        return best

    def _rank(self, candidate: Candidate) -> tuple[Rank, Candidate]:
        """The least is best; of equals the coarser, so that a choice is the same every time."""
        if candidate not in self.measured:
            choices = self.choices
            self.measured[candidate] = self.model.make(
                self.sample, choices.dimensions(candidate), choices.cap(candidate), self.budget
            )
        return self.budget.rank(self.measured[candidate].figures), candidate
