"""Filters in the plane of two attributes: boxes, a Hilbert curve with ranges, cells, negative boxes, labels, a point.

The same grids, curves, tables and label spaces as in the routing models `mics`, `negative` and `dls`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from weft.algebra.box import Box, NormalForm
from weft.algebra.relate import as_form
from weft.console.views.filter_steps import FilterChange, FilterSource, domain_of, filter_steps
from weft.errors import OptionError
from weft.language.meaning import matches
from weft.model.schema import Schema
from weft.routing.dls.space import LabelSpace
from weft.routing.mics.structure import RangeTable
from weft.routing.negative.structure import NegativeSpace
from weft.space.content import ContentSpace
from weft.space.grid import Grid
from weft.space.line_cells import LineCells
from weft.space.range_set import RangeSet

Rect = tuple[float, float, float, float]  # left, bottom, right, top: in values of the two attributes

_DRAWN = 200  # filters
_SAMPLE = 2_000  # events by which false positives are counted
_LABELS = 64  # of a filter


class SpaceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the page shows."""

    source: FilterSource = FilterSource()
    x: str = ""  # the attributes of the two axes; empty: the first two
    y: str = ""
    bits: Annotated[int, Meta(ge=2, le=6)] = 4  # 2**bits cells on each axis, with those for "below", "above" and absent
    variable: bool = False  # cells of equal numbers of events, instead of equal width
    chosen: int | None = None  # the filter whose ranges and labels are shown
    gap: Annotated[int, Meta(ge=0, le=4_096)] = 0  # points between ranges that are told as well
    labels: Annotated[int, Meta(ge=1, le=256)] = 16  # most labels of a filter
    point: tuple[float, float] | None = None


class AttributePlane(NamedTuple):
    """Two attributes, their bounds, and the grid over them."""

    x: str
    y: str
    schema: Schema
    grid: Grid

    @property
    def low(self) -> tuple[float, float]:
        """The lower left corner."""
        return float(self.schema[self.x].low), float(self.schema[self.y].low)  # type: ignore[arg-type]

    @property
    def high(self) -> tuple[float, float]:
        """The upper right corner."""
        return float(self.schema[self.x].high), float(self.schema[self.y].high)  # type: ignore[arg-type]

    def edges(self, axis: int) -> list[float]:
        """The ends of the cells of an axis from cell 1 on; the outer cells, which have no end, are drawn narrow."""
        cells = self.grid.dimensions[axis]
        assert isinstance(cells, LineCells)
        cuts = [float(value) for value, _ in cells.cuts]
        low, high = self.low[axis], self.high[axis]
        margin = (high - low) * 0.04
        return [min([low, *cuts[:1]]) - margin, *cuts, max([high, *cuts[-1:]]) + margin]

    def cell_rect(self, low: Sequence[int], high: Sequence[int]) -> Rect | None:
        """A box of cells; None if it has only the cell for "absent" on an axis."""
        sides = []
        for axis in (0, 1):
            edges = self.edges(axis)
            first, last = max(int(low[axis]), 1), int(high[axis])
            if last < first:
                return None
            sides.append((edges[first - 1], edges[min(last, len(edges) - 1)]))
        (left, right), (bottom, top) = sides
        return left, bottom, right, top


def space_view(request: SpaceRequest) -> dict[str, Any]:
    """What the page shows. Raises OptionError if the filters have no two attributes with numbers."""
    steps = filter_steps(request.source)
    present = steps.present()
    forms = {number: as_form(change.filter) for number, change in present.items()}
    every = [as_form(change.filter) for change in steps.changes if change.adds]  # the plane stays the same
    names, bounds = _numeric(request.source, every)
    if len(names) < 2:
        if present:
            raise OptionError("a plane needs two attributes that filters compare with numbers; these have fewer")
        return {"names": names, "filters": [], "step": steps.shown, "steps": len(steps.changes), "notes": steps.notes}
    x = request.x if request.x in names else names[0]
    y = request.y if request.y in names and request.y != x else next(name for name in names if name != x)
    plane = _plane(request, x, y, bounds)
    chosen = request.chosen if request.chosen in present else next(reversed(present), None)
    edges = [plane.edges(axis) for axis in (0, 1)]
    view = (edges[0][0], edges[1][0], edges[0][-1], edges[1][-1])
    shown = list(present.items())[:_DRAWN]
    content = ContentSpace(plane.grid)
    cells = _all_cells(plane.grid)
    indexes = content.of_cells(cells)
    flat = {number: _flat(form, plane) for number, form in forms.items()}
    sets = {number: content.ranges(form) for number, form in flat.items()}
    spaces = LabelSpace([plane.grid], most=request.labels)
    labels = {number: spaces.labels(form) for number, form in flat.items()}
    negative = _negative(steps.changes[: steps.shown], plane)
    told = _merged(sets.values(), request.gap)
    events = _events(request, plane)
    return {
        "names": names,
        "x": x,
        "y": y,
        "view": view,
        "low": plane.low,
        "high": plane.high,
        "edges": edges,
        "step": steps.shown,
        "steps": len(steps.changes),
        "last": steps.changes[steps.shown - 1].text if steps.shown else "",
        "notes": steps.notes,
        "filters": [_filter(number, change, flat[number], plane, view) for number, change in shown],
        "hidden": len(present) - len(shown),
        "chosen": chosen,
        "curve": _curve(plane, cells, indexes),
        "ranges": None if chosen is None else _ranges(plane, cells, indexes, sets[chosen], flat[chosen], events),
        "merged": _told(plane, cells, indexes, told, sets.values()),
        "labels": None if chosen is None else _labels(plane, spaces, labels[chosen], flat[chosen], events),
        "negative": negative,
        "point": _point(request, plane, content, spaces, present, sets, labels, told, negative),
    }


def _numeric(source: FilterSource, forms: Sequence[NormalForm]) -> tuple[list[str], dict[str, tuple[float, float]]]:
    """The attributes that filters compare with numbers, and the ends that occur."""
    schema = domain_of(source, forms)
    if schema is not None:
        bounds = {name: (float(each.low), float(each.high)) for name, each in schema.items()}  # type: ignore[arg-type]
        return list(bounds), bounds
    ends: dict[str, list[float]] = {}
    for form in forms:
        for box in form.boxes:
            for name, values in box.sets.items():
                ends.setdefault(name, []).extend(float(end) for end, _ in values.numbers if math.isfinite(end))
    found = {name: (min(some), max(some)) for name, some in ends.items() if some}
    return list(found), {name: (low, high if high > low else low + 1) for name, (low, high) in found.items()}


def _plane(request: SpaceRequest, x: str, y: str, bounds: dict[str, tuple[float, float]]) -> AttributePlane:
    attributes = {name: {"type": "float", "bounds": list(bounds[name])} for name in (x, y)}
    schema = Schema.from_dict({"attributes": attributes})
    cells = 1 << request.bits
    plane = AttributePlane(x, y, schema, Grid.uniform(schema, cells))
    if request.variable:
        plane = plane._replace(grid=Grid.equi_depth(schema, _events(request, plane), cells))
    return plane


def _events(request: SpaceRequest, plane: AttributePlane) -> list[dict[str, float]]:
    """Events for cells and false positives: many in the lower left, few elsewhere, as published things often are."""
    rng = np.random.default_rng([request.source.generator.seed, 2])
    drawn = rng.beta(1.2, 3.0, (_SAMPLE, 2))
    low, high = np.array(plane.low), np.array(plane.high)
    return [{plane.x: a, plane.y: b} for a, b in (low + drawn * (high - low)).round(6).tolist()]


def _flat(form: NormalForm, plane: AttributePlane) -> NormalForm:
    """A filter without the attributes that are not drawn."""
    boxes = [Box({name: box.sets[name] for name in (plane.x, plane.y) if name in box.sets}) for box in form.boxes]
    return NormalForm(tuple(boxes), None)


# -- boxes -----------------------------------------------------------------------------------------------------------


def _rects(boxes: Iterable[Box], plane_names: tuple[str, str], view: Rect) -> list[Rect]:
    """Boxes as rectangles, cut off at the edges of the view."""
    found = []
    for box in boxes:
        sides = []
        for axis, name in enumerate(plane_names):
            low, high = view[axis], view[axis + 2]
            cuts = box.sets[name].numbers if name in box.sets else ((low, 0), (high, 1))
            spans = _spans([float(value) for value, _ in cuts], low, high)
            sides.append(spans)
        found += [(a, c, b, d) for a, b in sides[0] for c, d in sides[1]]
    return found


def _spans(cuts: Sequence[float], low: float, high: float) -> list[tuple[float, float]]:
    """The intervals between cuts, within bounds."""
    ends = [*cuts, math.inf] if len(cuts) % 2 else list(cuts)
    pairs = ((max(a, low), min(b, high)) for a, b in zip(ends[::2], ends[1::2], strict=True))
    return [(a, b) for a, b in pairs if a <= b]


def _filter(number: int, change: FilterChange, flat: NormalForm, plane: AttributePlane, view: Rect) -> dict[str, Any]:
    """A filter's rectangles, and the attributes that it tests besides."""
    boxes = as_form(change.filter).boxes
    others = {name for box in boxes for name in (*box.sets, *map(str, box.residuals))} - {plane.x, plane.y}
    return {
        "number": number,
        "filter": str(change.filter),
        "interface": change.interface,
        "rects": _rects(flat.boxes, (plane.x, plane.y), view),
        "others": sorted(others),
    }


def _negative(changes: Sequence[FilterChange], plane: AttributePlane) -> dict[str, Any]:
    """What nothing that is told covers, before and after the last step."""
    space: NegativeSpace[int] = NegativeSpace(plane.schema)
    before: list[Box] = []
    for at, change in enumerate(changes):
        if at == len(changes) - 1:
            before = space.negative()
        if change.adds:
            space.add(change.number, _schemed(change, plane))
        else:
            space.discard(change.number)
            while space.pending:
                space.step(1 << 20)
    after = space.negative()
    edges = [plane.edges(axis) for axis in (0, 1)]
    view = (edges[0][0], edges[1][0], edges[0][-1], edges[1][-1])
    names = plane.x, plane.y
    kept = [box for box in after if box in before]
    return {
        "boxes": _rects(kept, names, view),
        "appeared": _rects([box for box in after if box not in before], names, view),
        "vanished": _rects([box for box in before if box not in after], names, view),
        "told": sorted(space.told),
        "passive": sorted(space.passive),
        "exact": space.exact,
        "count": len(after),
    }


def _schemed(change: FilterChange, plane: AttributePlane) -> NormalForm:
    """A filter in the plane, under its schema."""
    flat = _flat(as_form(change.filter), plane)
    return NormalForm(flat.boxes, plane.schema)


# -- the curve ---------------------------------------------------------------------------------------------------------


def _all_cells(grid: Grid) -> Any:
    """Every cell but those for "absent", as rows."""
    wide, tall = grid.shape
    rows = np.stack(np.meshgrid(np.arange(1, wide), np.arange(1, tall), indexing="ij"), -1)
    return np.ascontiguousarray(rows.reshape(-1, 2), np.int64)


def _curve(plane: AttributePlane, cells: Any, indexes: Any) -> list[list[tuple[float, float]]]:
    """The curve through the centres of cells, in pieces: it also passes the cells for "absent", which are not drawn."""
    order = np.argsort(indexes)
    pieces: list[list[tuple[float, float]]] = []
    last = None
    for index, cell in zip(indexes[order].tolist(), cells[order].tolist(), strict=True):
        rect = plane.cell_rect(cell, cell)
        assert rect is not None
        if last is None or index != last + 1:
            pieces.append([])
        pieces[-1].append((round((rect[0] + rect[2]) / 2, 4), round((rect[1] + rect[3]) / 2, 4)))
        last = index
    return pieces


def _cells_of(plane: AttributePlane, cells: Any, mask: Any) -> list[Rect]:
    rects = (plane.cell_rect(cell, cell) for cell in cells[mask].tolist())
    return [rect for rect in rects if rect is not None]


def _ranges(  # noqa: PLR0913, PLR0917 - what is drawn, and on what
    plane: AttributePlane,
    cells: Any,
    indexes: Any,
    ranges: RangeSet,
    form: NormalForm,
    events: Sequence[dict[str, float]],
) -> dict[str, Any]:
    """The ranges of one filter on the curve, the cells that they are, and what else they admit."""
    inside = ranges.contains(indexes)
    points = ContentSpace(plane.grid).indexes(events)
    admitted = ranges.contains(points)
    return {
        "ranges": list(zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True)),
        "cells": _cells_of(plane, cells, inside),
        **_false(admitted, form, events),
    }


def _false(admitted: Any, form: NormalForm, events: Sequence[dict[str, float]]) -> dict[str, Any]:
    """How many of the events are admitted, match, and are false positives; and whether one is missed."""
    truth = np.array([event in form for event in events])
    return {
        "admitted": int(admitted.sum()),
        "matching": int(truth.sum()),
        "false": int((admitted & ~truth).sum()),
        "missed": int((truth & ~admitted).sum()),
        "events": len(events),
    }


def _merged(sets: Iterable[RangeSet], gap: int) -> RangeTable:
    table = RangeTable(gap=gap)
    for each in sets:
        table.insert(each)
    return table


def _told(
    plane: AttributePlane, cells: Any, indexes: Any, table: RangeTable, sets: Iterable[RangeSet]
) -> dict[str, Any]:
    """What a neighbour is told of all filters: ranges that touch are one, gaps up to a size are closed."""
    told, needed = table.told(), table.needed()
    return {
        "ranges": len(told),
        "separately": sum(len(each) for each in sets),
        "points": told.size,
        "needless": table.needless,
        "cells": _cells_of(plane, cells, needed.contains(indexes)),
        "extra": _cells_of(plane, cells, told.contains(indexes) & ~needed.contains(indexes)),
    }


# -- labels -----------------------------------------------------------------------------------------------------------


def _labels(
    plane: AttributePlane, space: LabelSpace, labels: Any, form: NormalForm, events: Sequence[dict[str, float]]
) -> dict[str, Any]:
    """The labels of one filter, the cells that they stand for, and what else they admit."""
    rows = []
    for _, lows, highs in space.boxes_of_labels(labels.tolist()):
        rows += [plane.cell_rect(low, high) for low, high in zip(lows.tolist(), highs.tolist(), strict=True)]
    admitted = np.isin(space.of_events(events, space.levels(labels)), labels).any(axis=1)
    return {
        "labels": [
            {"label": space.text(label), "rect": rect} for label, rect in zip(labels.tolist(), rows, strict=True)
        ][:_LABELS],
        "count": len(labels),
        **_false(admitted, form, events),
    }


# -- a point ----------------------------------------------------------------------------------------------------------


def _point(  # noqa: PLR0913, PLR0917 - one part for each model
    request: SpaceRequest,
    plane: AttributePlane,
    content: ContentSpace,
    spaces: LabelSpace,
    present: dict[int, FilterChange],
    sets: dict[int, RangeSet],
    labels: dict[int, Any],
    told: RangeTable,
    negative: dict[str, Any],
) -> dict[str, Any] | None:
    """Who matches at a point, and by which model an event there is forwarded."""
    if request.point is None:
        return None
    event = {plane.x: request.point[0], plane.y: request.point[1]}
    index = content.index(event)
    rows = []
    for number, change in present.items():
        levels = spaces.levels(labels[number])
        rows.append(
            {
                "number": number,
                "filter": str(change.filter),
                "exact": matches(change.filter, event),
                "curve": index in sets[number],
                "labels": not set(spaces.of_event(event, levels)).isdisjoint(labels[number].tolist()),
                "told": number in negative["told"],
            }
        )
    wanted = [row for row in rows if row["exact"]]
    return {
        "event": event,
        "index": index,
        "cell": plane.grid.cell(event),
        "rows": [row for row in rows if row["exact"] or row["curve"] or row["labels"]][:_DRAWN],
        "forwards": {
            "exact": bool(wanted),
            "curve": bool(told.matches(index)),
            "labels": any(row["labels"] for row in rows),
            "negative": any(row["exact"] for row in rows if row["told"]),
        },
    }
