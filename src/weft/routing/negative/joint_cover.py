"""Very many subscriptions reduced at once, by what several cover together and by what they cover on a curve. The
subscriptions that stand for another are kept themselves, and together they admit everything that it admits. This is
proven independently of the structure that found it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.algebra.box import Box, NormalForm
from weft.algebra.columns import BoxColumns
from weft.algebra.measure import volume
from weft.algebra.subtract import cut
from weft.errors import FilterTooComplexError, SchemaError
from weft.kernels.arrays import Ints
from weft.model.schema import Schema
from weft.routing.mics.subscription_index import SubscriptionIndex
from weft.routing.negative.structure import NegativeSpace
from weft.space.range_sets import RangeSets

JointCoverers = list[tuple[int, ...]]  # for each subscription, those that stand for it together; empty if it is kept

_MOST_PIECES = 1024
_MOST_BOXES = 1 << 18  # of one temporary space
_TOGETHER = 512  # queries that are answered at once


def subsumption(forms: Sequence[NormalForm], schema: Schema) -> JointCoverers:
    """Which subscriptions are covered by others together, by negative space, the largest first so that few are kept.

    Cost: that of the space, which grows with dimensions and faster than the subscriptions, up to a bound on its boxes.
    Beyond it, some subscriptions are kept although others cover them together, so pass only a few.

    >>> from weft import normalize, parse
    >>> schema = Schema.from_dict({"attributes": {"x": {"type": "float", "bounds": [0, 10]}}})
    >>> texts = ["x BETWEEN 3 AND 6", "x BETWEEN 0 AND 5", "x BETWEEN 5 AND 9"]
    >>> subsumption([normalize(parse(text), schema) for text in texts], schema)
    [(1, 2), (), ()]
    """
    sizes = [_size(form, schema) for form in forms]
    order = sorted(range(len(forms)), key=lambda at: (-sizes[at], at))
    space: NegativeSpace[int] = NegativeSpace(schema, most_boxes=_MOST_BOXES)
    space.change({at: forms[at] for at in order})
    active = [at for at in order if at in space.active]
    boxes = [(at, box) for at in active for box in forms[at].boxes]
    columns = BoxColumns.of([box for _, box in boxes])
    standing: JointCoverers = [()] * len(forms)
    for at in space.passive:
        standing[at] = _together(forms[at], boxes, columns, schema)
    return standing


def _together(
    form: NormalForm, others: Sequence[tuple[int, Box]], columns: BoxColumns, schema: Schema
) -> tuple[int, ...]:
    """The first subscriptions that leave nothing of a form; empty if they leave something, or if deciding takes too
    long.
    """
    used: dict[int, None] = {}
    for box in form.boxes:
        pieces = [box]
        for place in np.flatnonzero(columns.overlapping(box)).tolist():
            owner, cutter = others[place]
            if cutter.residuals:
                continue
            met = [piece for piece in pieces if piece.overlaps(cutter)]
            if met:
                used[owner] = None
                pieces = [piece for piece in pieces if not piece.overlaps(cutter)]
                pieces += [left for piece in met for left in cut(piece, cutter, schema)]
            if not pieces or len(pieces) > _MOST_PIECES:
                break
        if pieces:
            return ()
    return tuple(sorted(used))


def _size(form: NormalForm, schema: Schema) -> float:
    try:
        return volume(form, schema)
    except (SchemaError, FilterTooComplexError):
        return 0.0


def range_cover(sets: RangeSets) -> Ints:
    """For each set, a kept set that has all of its points: itself if it is kept. The first of equal sets is kept.

    The largest set around each set is kept: a set around that one would also be around the first, and larger.

    >>> from weft.space.range_set import RangeSet
    >>> range_cover(RangeSets.of([RangeSet.of((1, 3)), RangeSet.of((0, 5), (8, 9)), RangeSet.of((2, 6))])).tolist()
    [1, 1, 2]
    """
    number = len(sets)
    coverers = np.arange(number)
    index = SubscriptionIndex()
    index.add_batch(np.arange(number), sets)
    lengths = np.append(0, np.cumsum((sets.ends - sets.starts).astype(np.float64) + 1))
    sizes = lengths[sets.offsets[1:]] - lengths[sets.offsets[:-1]]
    rank = np.empty(number, np.int64)  # larger sets rank higher, and of equal ones the earlier
    rank[np.lexsort((-np.arange(number), sizes))] = np.arange(number)
    ranked = np.argsort(rank)
    for start in range(0, number, _TOGETHER):
        rows = np.arange(start, min(start + _TOGETHER, number))
        found = index.covering_batch(sets.taken(rows))
        best = np.maximum.reduceat(rank[found.ids], found.offsets[:-1])  # each set contains itself
        coverers[rows] = ranked[best]
    return coverers
