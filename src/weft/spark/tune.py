"""Tuning on Spark: statistics of all subscriptions, a choice by samples, and the cost of the choice with all of them. A
choice is measured on other events than those by which it was made. The file that is written is the one that tables
read. Tuning changes cost, never what matches.

A sample of the subscriptions tells less than all of them: if the choice breaks a limit when it is measured, the limits
of the sample are drawn in by as much, and it is chosen again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from weft.algebra.columns import BoxColumns
from weft.algebra.filter_texts import readable
from weft.errors import PipelineError, TuningError
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.model.progress import RunProgress
from weft.model.schema import Schema
from weft.routing.dls.structure import FilterShape
from weft.spark.events import quoted
from weft.spark.frames import drawn, flat, one_batch, subscriptions_of
from weft.spark.link_costs import LinkCosts, measure_link
from weft.spark.statistics import Statistics, statistics_with
from weft.tuning.budget import Cost, CostBudget, LinkFigures
from weft.tuning.cell_sample import CellSample
from weft.tuning.choices import Options
from weft.tuning.grid_costs import MODELS
from weft.tuning.parameters import Tuned
from weft.tuning.search import Search

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

TunedModel = Literal["mics", "dls"]

_WHOLE = (Cost.MEMORY, Cost.FORWARDED)
_OURS = "all subscriptions"  # our part of a tuning file


@dataclass(frozen=True, slots=True)
class Samples:
    """The size of samples: subscriptions and events to choose with, events to measure on, attributes and rounds."""

    subscriptions: int = 5_000
    events: int = 10_000
    held: int = 50_000
    attributes: int = 8
    rounds: int = 3
    seed: int = 1

    def __post_init__(self) -> None:
        if min(self.subscriptions, self.events, self.held, self.attributes, self.rounds) < 1:
            raise PipelineError(f"samples must have at least one of each, not {self}")


@dataclass(frozen=True, slots=True)
class Tuning:
    """A choice, what it costs as predicted by samples and as measured, and the statistics behind it.

    What is predicted is the cost of the `sampled` subscriptions, what is measured that of all.
    """

    tuned: Tuned[Any]
    measured: LinkCosts
    sampled: int
    facts: Mapping[str, Any]  # the statistics, of JSON's types

    @property
    def kept(self) -> bool:
        """Whether the measured figures keep the budget."""
        return self.tuned.budget.excess(self.measured.figures) == 0

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """Each cost: its limit, and what was predicted and measured."""
        limits, predicted, real = self.tuned.budget.limits, self.tuned.figures, self.measured.figures
        return [
            (
                cost.replace("_", " "),
                cost.shown(limits[cost]) if cost in limits else "",
                cost.shown(predicted.of(cost)),
                cost.shown(real.of(cost)),
            )
            for cost in Cost
        ]

    def to_json(self) -> str:
        """The tuning file's text: what `Tuned.from_json` reads, and besides it the measurement and the facts."""
        whole = {"measured": asdict(self.measured), "sampled": self.sampled, "facts": self.facts}
        return json.dumps({**json.loads(self.tuned.to_json()), _OURS: whole}, indent=1)

    @staticmethod
    def from_json(text: str) -> Tuning:
        """The tuning of a file's text. Raises TuningError for any other text."""
        tuned = Tuned.from_json(text)
        try:
            form = json.loads(text)[_OURS]
            found = dict(form["measured"])
            found["figures"] = LinkFigures(**found["figures"])
            found["shape"] = None if found["shape"] is None else FilterShape(**found["shape"])
            return Tuning(tuned, LinkCosts(**found), form["sampled"], form["facts"])
        except (KeyError, TypeError, ValueError) as error:
            raise TuningError(f"this tuning was not measured on Spark: read it with Tuned.load ({error})") from None

    def save(self, path: str | Path) -> None:
        """Write the tuning file, which `Tuned.load` reads as well."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> Tuning:
        """The tuning in a file. Raises TuningError that names it."""
        try:
            return Tuning.from_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, TuningError) as error:
            raise TuningError(f"{path}: {error}") from None


def tune(  # noqa: PLR0913
    subscriptions: DataFrame,
    events: DataFrame,
    budget: CostBudget | None = None,
    *,
    model: TunedModel = "mics",
    schema: Schema | None = None,
    options: Options | None = None,
    samples: Samples | None = None,
    predicates: Predicates = NO_PREDICATES,
    progress: RunProgress = lambda *_: None,
) -> Tuning:
    """Choose the parameters of a routing table for these subscriptions and events, within the budget.

    Without a schema, one is inferred from the sampled events. Of the attributes that subscriptions constrain, the most
    selective are tried. `progress` is called with the current step and how many steps are done. Raises TuningError if
    no choice keeps the budget, and PipelineError if a column is missing.
    """
    if model not in MODELS:
        raise TuningError(f"there is no model {model!r}: choose one of {', '.join(MODELS)}")
    how, limits = samples or Samples(), budget or CostBudget()
    progress("drawing samples", 0, 0)
    frame = flat(events)
    mixed = one_batch(drawn(frame, how.events + how.held, how.seed))
    chosen_by, held = _apart(mixed, how)
    progress("reading a sample of the subscriptions", 0, 0)
    columns = _columns(subscriptions, how, predicates)
    CellSample(columns, chosen_by)  # raises TuningError if there is nothing to measure, before the long part
    progress("counting what subscriptions ask for", 0, 0)
    found = statistics_with(subscriptions, events, chosen_by, predicates)
    known = schema or Schema.infer(chosen_by)
    telling = most_telling(found, known, how.attributes)
    if not telling:
        raise TuningError(
            "no subscription constrains an attribute that the events have: tune with events that have them"
        )
    known = Schema(tuple(attribute for attribute in known.attributes if attribute.name in telling))
    seen = [name for name in found.asked.uses if name in mixed.schema.names]
    chosen_by, held = chosen_by.select(seen), held.select(seen)
    best: tuple[Tuned[Any], LinkCosts] | None = None
    within = limits
    search = Search(model, columns, chosen_by, known, options, progress)
    for _ in range(how.rounds):
        try:
            tuned = search.tune(within)
        except TuningError:
            if best is None:
                raise
            break  # the sample cannot be drawn in further
        progress("measuring the choice with all subscriptions", 0, 0)
        real = measure_link(subscriptions, held, tuned.space, tuned.shape, tuned.rate, predicates)
        if best is None or limits.rank(real.figures) < limits.rank(best[1].figures):
            best = tuned, real
        if limits.excess(real.figures) == 0:
            break
        within = _drawn_in(within, limits, tuned.figures, real.figures)
    assert best is not None
    tuned, real = best
    return Tuning(
        replace(tuned, budget=limits, shape=real.shape), real, len(set(columns.owners.tolist())), found.to_dict()
    )


def most_telling(found: Statistics, schema: Schema, most: int) -> list[str]:
    """The attributes of a schema that rule out most: looked at by many, passed by few."""
    worth = {
        name: uses * (1 - (found.asked.share(name) or 0.0)) for name, uses in found.asked.uses.items() if name in schema
    }
    return sorted(worth, key=lambda name: (-worth[name], name))[:most]


def _apart(mixed: pa.RecordBatch, how: Samples) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Events to choose by, and others to measure on; of few, a third of them is for measuring."""
    first = min(how.events, -(-mixed.num_rows * 2 // 3))
    if mixed.num_rows - first < 1:
        raise TuningError("tuning needs at least two events, one to choose with and one to measure on")
    return mixed.slice(0, first), mixed.slice(first, how.held)


def _columns(subscriptions: DataFrame, how: Samples, predicates: Predicates) -> BoxColumns:
    """A sample of the subscriptions, the same whatever their order."""
    from pyspark.sql import functions as F  # noqa: N812

    frame = subscriptions_of(subscriptions)
    order = F.xxhash64(F.col(quoted("id")), F.col("filter"), F.lit(how.seed))
    texts = frame.orderBy(order, "id", "filter").limit(how.subscriptions).toArrow().column("filter").to_pylist()
    return readable(texts, None, predicates).columns


def _drawn_in(within: CostBudget, limits: CostBudget, predicted: LinkFigures, real: LinkFigures) -> CostBudget:
    """The limits for the sample, so much tighter as all subscriptions cost more than it."""
    tighter: dict[str, Any] = {}
    for cost, limit in limits.limits.items():
        if real.of(cost) > limit:
            aim = predicted.of(cost) * limit / real.of(cost)
            tighter[cost] = max(1, int(aim)) if cost in _WHOLE else aim
    return replace(within, **tighter)
