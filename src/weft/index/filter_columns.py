"""The boxes of filters as columns for an index. The columns hold the boxes, in arrays if these are small.

A box of too many tests becomes rows of its own (see `coding`), and so do the boxes of a filter that test many different
attributes: each attribute would be a column over all boxes. These never enter the arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.algebra.box import Box
from weft.algebra.columns import BoxColumns
from weft.index.alternatives import fits

_SPARSE = 16  # entries of arrays for each that is used
_FEW_BOXES = 32  # of a filter, whose arrays are short


def columns_of_filters(filters: Iterable[Sequence[Box]]) -> BoxColumns:
    """The columns of filters, each given as its boxes; those of filter n have owner n.

    >>> from weft import normalize, parse
    >>> columns = columns_of_filters([normalize(parse("x > 5")).boxes, normalize(parse("y > 5 OR z > 5")).boxes])
    >>> columns.owners.tolist(), len(columns.odd)
    ([0, 1, 1], 0)
    """
    boxes: list[Box] = []
    owners: list[int] = []
    beside: set[int] = set()
    for owner, some in enumerate(filters):
        sparse = len(some) > _FEW_BOXES and _is_sparse(some)
        for box in some:
            if sparse or (len(box.sets) > 1 and not fits(len(box.sets), len(some))):
                beside.add(len(boxes))
            boxes.append(box)
            owners.append(owner)
    return BoxColumns.of(boxes, owners, beside=beside)


def _is_sparse(boxes: Sequence[Box]) -> bool:
    names = len({name for box in boxes for name in box.sets})
    return names * len(boxes) > _SPARSE * sum([len(box.sets) for box in boxes])
