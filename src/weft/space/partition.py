"""The cuts of a dimension into cells: even, at given boundaries, or even by what is published (MICS 6.3). There are
never more cells than requested, including "absent" and the half-infinite ones.

Finer cells where much is published cost no more bits and give fewer false positives.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from weft.algebra.interval import Cut
from weft.errors import SchemaError
from weft.language.taxonomy import Taxonomy
from weft.model.schema import Attribute
from weft.model.value import Type, Value, to_micros, type_of
from weft.space.categories import Categories
from weft.space.dimension import GridDimension, is_integer
from weft.space.line_cells import LineCells

LEAST_CELLS = 2  # absent, and everything else
MOST_CELLS = 2**20  # of an attribute: each cell is a stored cut


def uniform(attribute: Attribute, cells: int) -> GridDimension:
    """Cells of equal width between the attribute's bounds; for strings, its categories in their order.

    >>> uniform(Attribute("x", Type.INT, low=0, high=9), 8).parameters[3]
    ((0, 0), (2, 0), (4, 0), (6, 0), (8, 0), (10, 0))
    """
    cells = _check(attribute, cells)
    name, kind = attribute.name, attribute.type
    if kind is Type.BOOL:
        return LineCells(name, kind, ((1, 0),) if cells > 2 else ())
    if kind is Type.STRING:
        if not attribute.categories:
            raise SchemaError(
                f"attribute {name!r} has no categories; list them in the schema, or give its boundaries or a sample"
            )
        return categories(attribute, attribute.categories, cells)
    if attribute.low is None or attribute.high is None:
        raise SchemaError(
            f"attribute {name!r} has no bounds; add them to the schema, or give its boundaries or a sample"
        )
    low, high = _plain(attribute.low), _plain(attribute.high)
    if kind is Type.FLOAT:
        return LineCells(name, kind, _even_floats(low, high, cells - 2))
    edges = _even_ints(low, high + 1, cells - 2)
    return LineCells(name, kind, tuple((edge, 0) for edge in edges))


def at(attribute: Attribute, boundaries: Sequence[Any], names: Sequence[str] = ()) -> GridDimension:
    """Cells between given boundaries. Each boundary belongs to the cell above it; n boundaries can name n + 1 cells.

    >>> heat = at(Attribute("heat", Type.FLOAT), [36, 38], ["Low", "Normal", "Fever"])
    >>> [heat.label(heat.cell(value)) for value in (35.9, 36, 37.9, 41)]
    ['Low', 'Normal', 'Normal', 'Fever']
    """
    kind = attribute.type
    if kind is Type.BOOL:
        raise SchemaError(f"attribute {attribute.name!r} is a bool and has no boundaries; use uniform cells")
    for boundary in boundaries:
        found = type_of(boundary)
        if found is None or not found.compares_with(kind):
            raise SchemaError(
                f"the boundary {boundary!r} of attribute {attribute.name!r} is not of type {kind}; use that type"
            )
    return LineCells(attribute.name, kind, tuple((_plain(each), 0) for each in boundaries), tuple(names))


def categories(
    attribute: Attribute, order: Iterable[str], cells: int | None = None, weights: Sequence[float] | None = None
) -> GridDimension:
    """A cell for each string, in a given order. If there are more strings than cells, neighbours share a cell.

    With weights (how often each was seen), shared cells get about the same weight.
    """
    texts = tuple(order)
    room = len(texts) if cells is None else _check(attribute, cells) - 2
    if attribute.type is not Type.STRING:
        raise SchemaError(f"attribute {attribute.name!r} is a {attribute.type}; only strings have categories")
    if len(texts) <= room:
        return Categories(attribute.name, tuple((text,) for text in texts))
    if room == 0:
        return Categories(attribute.name, ())
    each = np.ones(len(texts)) if weights is None else np.asarray(weights, np.float64) + 1e-9
    middles = np.cumsum(each) - each / 2
    shares = np.minimum(middles * room / each.sum(), room - 1).astype(np.int64)
    groups = (tuple(t for t, s in zip(texts, shares, strict=True) if s == share) for share in range(room))
    return Categories(attribute.name, tuple(group for group in groups if group))


def by_taxonomy(
    attribute: Attribute, taxonomy: Taxonomy, roots: Iterable[str] = (), cells: int | None = None
) -> GridDimension:
    """A cell for each concept, in an order in which a concept and all concepts below it are neighbours wherever it has
    one parent.

    The concepts are those below the roots, or the attribute's categories.

    >>> kinds = Taxonomy({"car": ["vehicle"], "rose": ["plant"], "truck": ["vehicle"]})
    >>> by_taxonomy(Attribute("kind", Type.STRING), kinds, ["vehicle", "plant"]).parameters[2]
    (('vehicle',), ('car',), ('truck',), ('plant',), ('rose',))
    """
    tops = list(roots)
    concepts = [*tops, *sorted(set().union(*(taxonomy.below(root) for root in tops)) - set(tops))]
    concepts = concepts or list(attribute.categories)
    if not concepts:
        raise SchemaError(f"attribute {attribute.name!r} has no categories; list them, or name the taxonomy's roots")
    widest = sorted(concepts, key=lambda concept: -len(taxonomy.below(concept)))  # stable
    ordered: dict[str, None] = {}
    stack = widest[::-1]
    while stack:
        concept = stack.pop()
        if concept not in ordered:
            ordered[concept] = None
            stack += [each for each in reversed(widest) if each not in ordered and taxonomy.is_a(each, concept)]
    return categories(attribute, ordered, cells)


def equi_depth(attribute: Attribute, sample: Iterable[Value | None], cells: int) -> GridDimension:
    """Cells that contain about the same number of values of a sample. A value that fills two shares or more has its own
    cell.

    >>> equi_depth(Attribute("x", Type.INT), [1, 2, 3, 5, 8, 13, 21, 34, 55], 4).parameters[3]
    ((5, 0), (21, 0))
    """
    cells = _check(attribute, cells)
    if attribute.type is Type.BOOL:
        return uniform(attribute, cells)
    typed = ((type_of(value), value) for value in sample)
    values = sorted(_plain(value) for kind, value in typed if kind is not None and kind.compares_with(attribute.type))
    if not values:
        raise SchemaError(f"the sample has no value of {attribute.name!r}; take a larger one, or use uniform cells")
    if attribute.type is Type.STRING and attribute.categories:
        seen = dict.fromkeys(attribute.categories, 0)
        for text in values:
            if text in seen:
                seen[text] += 1
        return categories(attribute, seen, cells, list(seen.values()))
    cuts: list[Cut] = []
    for share in range(1, cells - 1):
        value = values[share * len(values) // (cells - 1)]
        if isinstance(value, float) and math.isinf(value):
            continue  # the last cell is unbounded anyway
        cut = (value, 0)
        if cuts and cut <= cuts[-1]:  # a value of more than one share: the next cut is above it
            cut = (value, 1)
        if not cuts or cut > cuts[-1]:
            cuts.append(cut)
    return LineCells(attribute.name, attribute.type, tuple(cuts))


def _check(attribute: Attribute, cells: int) -> int:
    """The number of cells as an int. Raises SchemaError if an attribute cannot have that many."""
    if not is_integer(cells):
        raise SchemaError(f"attribute {attribute.name!r} has {cells!r} cells; give an integer")
    if cells < LEAST_CELLS:
        raise SchemaError(f"attribute {attribute.name!r} has {cells} cells; give at least {LEAST_CELLS}")
    if cells > MOST_CELLS:
        raise SchemaError(f"attribute {attribute.name!r} has {cells} cells; give at most {MOST_CELLS}")
    return int(cells)


def _even_ints(low: int, high: int, count: int) -> list[int]:
    """At most `count` evenly spaced integers from low to high; the middle if there is only one."""
    if count <= 1:
        return [(low + high) // 2] * count
    return sorted({low + at * (high - low) // (count - 1) for at in range(count)})


def _even_floats(low: float, high: float, count: int) -> tuple[Cut, ...]:
    """As many cuts. The last one is above `high`, which therefore belongs to the last bounded cell."""
    if count <= 1:
        return ((low / 2 + high / 2, 0),) * count
    shares = [at / (count - 1) for at in range(count - 1)]
    edges = (low * (1 - share) + high * share for share in shares)  # high - low may be infinite
    return (*((edge, 0) for edge in sorted({min(max(edge, low), high) for edge in edges})), (high, 1))


def _plain(value: Any) -> Any:
    return to_micros(value) if isinstance(value, datetime) else value
