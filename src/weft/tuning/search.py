"""The search of tuning: candidates, each measured once, and the rows that report it. The same samples, options and
budgets give the same choice, because the limit of the search is counted in steps and never in seconds. A candidate that
is rejected early cannot be better than the one kept.

1. *Starts.* Even grids: over every subset of a few attributes; of many attributes, over the one that rules out most
   events, over the best two, and so on. Attributes are in one group, or in groups of those that the same
   subscriptions constrain.
2. *Descents* from the best starts. One position of a candidate after another (an attribute's cells, the cap) is set to
   its best value as long as that helps. Then attributes are regrouped: one moves to another group or to its own, or two
   groups are combined. Then one position is made finer and another coarser, because two that share a budget block each
   other.

A candidate is first measured on a part of the subscriptions. More subscriptions let no fewer events pass, so a
candidate that already lets more pass than the best one may is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.algebra.columns import BoxColumns
from weft.errors import TuningError
from weft.index.base import AnyEvent
from weft.model.progress import RunProgress
from weft.model.schema import Schema
from weft.tuning.budget import Cost, CostBudget, LinkFigures, Rank
from weft.tuning.cell_sample import CellSample
from weft.tuning.choices import LEFT_OUT, Candidate, Choices, Options
from weft.tuning.grid_costs import MODELS, Made, Seen, look
from weft.tuning.parameters import Trial, Tuned

if TYPE_CHECKING:
    import pyarrow as pa


_ROOM = 1.25  # more labels than the sample has, before a filter grows
_LEAST_RATE = 1e-9
_STARTS = 5
_FEW = 4  # attributes of which every subset is a start
_MOST_CANDIDATES = 200_000
_AGAIN = 4  # the share of the work that another budget may take
_SHARE = 16  # no candidate takes more than this share of the work
_EACH, _CELL = 200_000, 8  # steps per candidate, and per dimension of each box and event


class Search:
    """A search on one pair of samples. It can be tuned for one budget after another and measures nothing twice."""

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        model: str,
        columns: BoxColumns,
        events: pa.RecordBatch | Sequence[AnyEvent],
        schema: Schema,
        options: Options | None = None,
        progress: RunProgress = lambda *_: None,
    ) -> None:
        if model not in MODELS:
            raise TuningError(f"there is no model {model!r} to tune; choose one of {', '.join(MODELS)}")
        options = options or Options()
        self.model, self.budget = MODELS[model], CostBudget()
        self.sample = CellSample(columns, events)
        asked = {name for name, _ in columns.columns}.union(*(box.names for box in columns.odd.values()))
        self.choices = Choices.of(schema, asked, events, options)
        self.seen: dict[Candidate, Seen] = {}
        self.spent = 0
        self._made: dict[Candidate, Made] = {}  # for the current budget
        self._large: set[Candidate] = set()  # too much work to measure
        self._steps = options.work
        self._half = self._limit = 0  # steps after which no more starts are tried, and after which the search ends
        self._progress = progress
        self._rows: list[Trial] = []

    def tune(self, budget: CostBudget | None = None, *, exhaustively: bool = False) -> Tuned[Any]:
        """The choice for a budget. Raises TuningError if no choice keeps it."""
        self.budget, self._made, self._rows = budget or CostBudget(), {}, []
        allowed = self._steps if not self.seen else self._steps // _AGAIN
        self._half, self._limit = self.spent + allowed // 2, self.spent + allowed
        best = self._over_all() if exhaustively else self._descend()
        made = self._made[best]
        if self.budget.excess(made.figures) > 0:
            raise self.budget.refuse(each.figures for of, each in self._made.items() if self.seen[of].whole)
        rate = 1.0
        if made.shape is not None:
            rate = min(1.0, max(_LEAST_RATE, made.shape.rate(int(_ROOM * made.figures.forwarded) + 1)))
        boxes = [self.sample.boxes(grid) for grid in made.space.grids]
        counted = self.model.counted(made.space, made.space.items(boxes, self.sample.columns.owners))
        rows, number = self._told(best), len(self._made)
        return Tuned(self.model.name, made.space, made.shape, rate, made.figures, counted, self.budget, number, rows)

    def _told(self, best: Candidate) -> tuple[Trial, ...]:
        """What was tried, in order, and the choice."""
        made = self._made[best]
        chosen = self.choices.shown(best)
        if made.shape is not None:
            chosen += f", filter: {made.shape.size} counters of {made.shape.bits} bits, {made.shape.hashes} hashes"
        verdict = f"the best of {len(self._made)} measured, by {self.budget.goal.replace('_', ' ')}"
        if self.spent >= self._limit:
            verdict += f"; the search ended after {self._steps:,} steps"
        return (*self._rows, Trial("choice", chosen, made.figures, verdict, True))

    # -- the search --------------------------------------------------------------------------------

    def _over_all(self) -> Candidate:
        """The best of all candidates."""
        if self.choices.size > _MOST_CANDIDATES:
            raise TuningError(
                f"an exhaustive search would measure {self.choices.size:,} candidates, and {_MOST_CANDIDATES:,} is "
                "the limit; give fewer attributes or options, or use tune_mics or tune_dls"
            )
        best = None
        for candidate in self.choices:
            if self._measured(candidate, best, endless=True) and (
                best is None or self._rank(candidate) < self._rank(best)
            ):
                best = candidate
        assert best is not None
        return best

    def _descend(self) -> Candidate:
        """The best candidate that a few descents find."""
        starts = self._starts()
        best = starts[0]
        for start in starts:
            best = min(best, self._settle(start), key=self._rank)
        return best

    def _starts(self) -> list[Candidate]:
        """The best even grids, each over different attributes or in different groups."""
        found: list[Candidate] = []
        for members, groups in self._members():
            if found and self.spent >= self._half:
                break  # the other half is for descents
            against = found[_STARTS - 1] if len(found) >= _STARTS else None
            best = self._best("even", None, self._evens(members, groups), against)
            if best is not None:
                found = sorted({*found, best}, key=self._rank)
        return found[:_STARTS]

    def _members(self) -> list[tuple[Sequence[int], Sequence[int]]]:
        """Promising sets of attributes, and their groups."""
        every = range(len(self.choices.ways))
        alone = [0 for _ in every]
        if len(every) <= _FEW:
            sets: list[Sequence[int]] = [some for count in every for some in combinations(every, count + 1)]
        else:
            telling = {at: self.sample.outside(self._finest(at)) for at in every}
            order = sorted(every, key=lambda at: -telling[at])
            sets = [order[: count + 1] for count in every]
        return [(some, groups) for some in sets for groups in (alone, *self._together(some))]

    def _finest(self, at: int) -> Any:
        return self.choices.ways[at][-1].dimension

    def _together(self, members: Sequence[int]) -> list[list[int]]:
        """Groups of attributes that the same subscriptions constrain: those that share most are combined first."""
        asking = {at: self.sample.asking(self.choices.ways[at][LEFT_OUT].name) for at in members}
        groups = [[at] for at in members]
        found = []
        while len(groups) > 1:
            if len(groups) <= self.choices.most:
                numbers = [0 for _ in self.choices.ways]
                for number, group in enumerate(groups):
                    for at in group:
                        numbers[at] = number
                found.append(numbers)
            _, one, other = max(
                (sum(_shared(asking[a], asking[b]) for a in one for b in other) / (len(one) * len(other)), -i, -j)
                for (i, one), (j, other) in combinations(enumerate(groups), 2)
            )
            groups[-one] += groups[-other]
            del groups[-other]
        return found

    def _evens(self, members: Sequence[int], groups: Sequence[int]) -> list[Candidate]:
        """Grids in which some attributes have about the same number of cells, cut in the same way."""
        choices = self.choices
        few = len(choices.ways) <= _FEW
        caps = range(len(choices.caps)) if few else [len(choices.caps) // 2]
        kinds = [(size, cuts) for size in choices.sizes[:: 1 if few else 2] for cuts in ("equi-depth", "uniform")]
        nothing = [LEFT_OUT for _ in choices.ways]
        every = (choices.even((*nothing, cap, *groups), members, *kind) for kind in kinds for cap in caps)
        return [each for each in dict.fromkeys(every) if choices.possible(each)]

    def _settle(self, candidate: Candidate) -> Candidate:
        """A candidate that no change of one position, no regrouping and no exchange between two positions improves."""
        while True:
            before = candidate
            for at in self.choices.coordinates:
                candidate = self._better(self._place(at), candidate, self.choices.line(candidate, at))
            if candidate == before:
                candidate = self._better("group", candidate, self.choices.regroupings(candidate))
            if candidate == before:
                candidate = self._better("exchange", candidate, self.choices.exchanges(candidate))
            if candidate == before:
                return candidate

    def _place(self, at: int) -> str:
        return "cap" if at == len(self.choices.ways) else self.choices.ways[at][LEFT_OUT].name

    # -- one step ----------------------------------------------------------------------------------

    def _better(self, step: str, held: Candidate, others: Iterable[Candidate]) -> Candidate:
        return self._best(step, held, others, None) or held

    def _best(
        self, step: str, held: Candidate | None, others: Iterable[Candidate], against: Candidate | None
    ) -> Candidate | None:
        """The best of a candidate and some others, if it is better than the one against; new ones become rows."""
        best, tried = held, []
        for other in others:
            new = other not in self._made
            if not self._measured(other, best if best is not None else against):
                continue
            if new:
                tried.append(other)
            if self.seen[other].whole and (best is None or self._rank(other) < self._rank(best)):
                best = other
        for other in tried:
            self._rows.append(self._trial(step, held, other, best, against))
        return best

    def _trial(
        self, step: str, held: Candidate | None, other: Candidate, best: Candidate | None, against: Candidate | None
    ) -> Trial:
        figures, kept = self._made[other].figures, other == best
        if not self.seen[other].whole:
            verdict = f"more false positives with {self.seen[other].part:.0%} of the subscriptions"
        elif kept and held is None:
            verdict = "kept: the start"
        else:
            peer = held if kept else best if best is not None else against
            verdict = self.budget.verdict(figures, self._made[peer or other].figures)
        return Trial(step, self.choices.shown(other, held), figures, verdict, kept)

    def _rank(self, candidate: Candidate) -> tuple[Rank, Candidate]:
        """The smallest is best; the coarser of equal ones, so that the choice is always the same."""
        return self.budget.rank(self._made[candidate].figures), candidate

    def _measured(self, candidate: Candidate, against: Candidate | None, *, endless: bool = False) -> bool:
        """Measure a candidate, unless that is done or would be too much work; returns whether there are figures.

        For a candidate that cannot be better than the one against, these may be of a part of the subscriptions only.
        """
        bound = None if against is None else self._made[against].figures
        seen = self.seen.get(candidate)
        if seen is None or not (seen.whole or self._hopeless(seen.passed, bound)):
            seen = self._look(candidate, bound, endless)
            if seen is None:
                return False
            self.seen[candidate] = seen
            self._made.pop(candidate, None)
        if candidate not in self._made:
            partial = Made(seen.space, None, LinkFigures(seen.passed, seen.items, seen.nbytes))
            self._made[candidate] = self.model.made(seen, self.budget) if seen.whole else partial
        return True

    def _look(self, candidate: Candidate, bound: LinkFigures | None, endless: bool) -> Seen | None:
        if not endless and self._made and (self.spent >= self._limit or candidate in self._large):
            return None
        space = self.model.space(self.choices.groups(candidate), self.choices.cap(candidate))
        sample, cap = self.sample, self.choices.cap(candidate)
        boxes = [sample.boxes(grid) for grid in space.grids]
        dimensions = sum(len(grid.dimensions) for grid in space.grids)
        self.spent += _EACH + _CELL * dimensions * (len(sample.columns) + len(sample.events))
        parts = list(sample.parts(boxes))
        works = [
            int(sum(self.model.work(mine, cap, grid) for mine, grid in zip(some, space.grids, strict=True)))
            for _, some in parts
        ]
        if self._made and not endless:  # the first is measured whatever it costs
            some = [part for part, done in zip(parts, np.cumsum(works), strict=True) if done <= self._steps // _SHARE]
        else:
            some = parts
        seen = look(space, some, sample, lambda passed: self._hopeless(passed, bound))
        self.spent += sum(work for (part, _), work in zip(parts, works, strict=True) if part <= seen.part)
        self._progress(f"{len(self._made) + 1:,} candidates measured", min(self.spent, self._limit), self._limit)
        if not seen.whole and not self._hopeless(seen.passed, bound):
            self._large.add(candidate)
            return None
        return seen

    def _hopeless(self, passed: float, bound: LinkFigures | None) -> bool:
        """Whether a candidate that lets this share or more pass cannot rank before the given figures."""
        if bound is None:
            return False
        if passed == 1 and self.budget.goal is Cost.FALSE_POSITIVES and self.budget.excess(bound) == 0:
            return True  # a table that filters nothing does not improve with fewer items
        return self.budget.rank(LinkFigures(passed, 1, 0)) > self.budget.rank(bound)


def _shared(one: Any, other: Any) -> float:
    """How often two attributes are constrained together, relative to how often the rarer one is."""
    return float((one & other).sum() / max(1, min(one.sum(), other.sum())))
