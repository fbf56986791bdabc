"""Tuning of curve ranges and label sets: which attributes are dimensions and how they are grouped, how each is cut into
cells, the cap, and the filter (the future work of DLS 5.2 and MICS 5). The same samples and budget give the same
choice. A choice keeps the budget on the samples, or there is none. It changes cost, never what matches.

The cost of a grid has no formula, but a sample shows it: all figures are measured. `search` describes how candidates
are found: it takes some hundred measurements, where `exhaustive` takes thousands for three attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.algebra.columns import BoxColumns
from weft.index.base import AnyEvent
from weft.model.progress import RunProgress
from weft.model.schema import Schema
from weft.tuning.budget import CostBudget
from weft.tuning.choices import Options
from weft.tuning.parameters import Tuned
from weft.tuning.search import Search

if TYPE_CHECKING:
    import pyarrow as pa


def tune_mics(  # noqa: PLR0913, PLR0917
    columns: BoxColumns,
    events: pa.RecordBatch | Sequence[AnyEvent],
    schema: Schema,
    budget: CostBudget | None = None,
    options: Options | None = None,
    progress: RunProgress = lambda *_: None,
) -> Tuned[Any]:
    """Dimensions, cells and range cap of a MICS table for such subscriptions and events.

    Raises TuningError if a sample is empty, no attribute can be cut, or the budget cannot be kept.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> low = rng.integers(0, 90, 50)
    >>> wanted = BoxColumns.from_bounds({"x": (low, low + 5.0), "y": (low * 0.0, low * 0.0 + 99)})
    >>> happening = [{"x": float(x), "y": float(y)} for x, y in rng.uniform(0, 100, (500, 2))]
    >>> schema = Schema.from_dict({"attributes": {n: {"type": "float", "bounds": [0, 100]} for n in ("x", "y")}})
    >>> tuned = tune_mics(wanted, happening, schema, CostBudget(forwarded=10))
    >>> tuned.figures.forwarded <= 10, Tuned.from_json(tuned.to_json()) == tuned
    (True, True)
    """
    return Search("mics", columns, events, schema, options, progress).tune(budget)


def tune_dls(  # noqa: PLR0913, PLR0917
    columns: BoxColumns,
    events: pa.RecordBatch | Sequence[AnyEvent],
    schema: Schema,
    budget: CostBudget | None = None,
    options: Options | None = None,
    progress: RunProgress = lambda *_: None,
) -> Tuned[Any]:
    """Granules, label cap and filter of a DLS table for such subscriptions and events. Raises as `tune_mics`."""
    return Search("dls", columns, events, schema, options, progress).tune(budget)


def exhaustive(  # noqa: PLR0913, PLR0917
    model: str,
    columns: BoxColumns,
    events: pa.RecordBatch | Sequence[AnyEvent],
    schema: Schema,
    budget: CostBudget | None = None,
    options: Options | None = None,
) -> Tuned[Any]:
    """The best of all candidates, to check tuning against, for few attributes and options. Raises as `tune_mics`."""
    return Search(model, columns, events, schema, options).tune(budget, exhaustively=True)
