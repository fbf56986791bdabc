"""Filters and events on the curves of a table, one for each group of attributes (MICS 3, 8). The point of an event that
matches a filter lies in the filter's ranges on every curve.

All of this is arithmetic on public parameters: a client that knows them can map its own subscriptions and events.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from weft.algebra.box import NormalForm
from weft.algebra.relate import as_form
from weft.errors import LocalProtocolError
from weft.index.base import AnyEvent
from weft.kernels.arrays import Ints
from weft.language.ast import Filter
from weft.model.schema import Schema
from weft.routing.mics.items import CurveRange
from weft.routing.table import Item
from weft.space.content import ContentSpace
from weft.space.grid import Grid
from weft.space.range_set import RangeSet

Ranges = tuple[RangeSet, ...]  # on each curve

_GROUP = 3  # attributes per curve, by default
_CELLS = 256  # per attribute


class CurveSpaces(tuple[ContentSpace, ...]):
    """The content spaces of the groups.

    >>> schema = Schema.from_dict({"attributes": {n: {"type": "float", "bounds": [0, 100]} for n in ("x", "y")}})
    >>> spaces = CurveSpaces.of(schema)
    >>> from weft import parse
    >>> ranges = spaces.ranges(parse("x BETWEEN 10 AND 20 AND y > 50"))
    >>> [each.contains(points).tolist() for each, points in zip(ranges, spaces.points([{"x": 15, "y": 60}, {}]).T)]
    [[True, False]]
    """

    @staticmethod
    def of(schema: Schema, cells: int = _CELLS, group: int = _GROUP) -> CurveSpaces:
        """All attributes of a schema, which must have bounds, with `group` attributes per curve. Raises SchemaError."""
        names = [attribute.name for attribute in schema.attributes]
        groups = [names[start : start + group] for start in range(0, len(names), group)]
        return CurveSpaces(ContentSpace(Grid.uniform(schema, cells, group)) for group in groups)

    @property
    def parameters(self) -> list[Any]:
        """Everything that two ends must agree on, in JSON types."""
        return [space.parameters for space in self]

    @staticmethod
    def from_parameters(parameters: Iterable[Any]) -> CurveSpaces:
        """The spaces with these parameters. Raises SchemaError."""
        return CurveSpaces(ContentSpace.from_json(json.dumps(each)) for each in parameters)

    def ranges(self, wanted: Filter | NormalForm) -> Ranges | None:
        """The ranges of a filter on each curve; None if it never matches."""
        form = as_form(wanted)
        return tuple(space.ranges(form) for space in self) if form else None

    def items(self, wanted: Filter) -> tuple[CurveRange, ...]:
        """The ranges in the form in which a neighbour, or a client's broker, is told them."""
        return tuple(
            CurveRange(group, start, end)
            for group, ranges in enumerate(self.ranges(wanted) or ())
            for start, end in ranges
        )

    def of_items(self, items: Iterable[Item]) -> Ranges:
        """The ranges that a client mapped. Raises LocalProtocolError for anything that is not a range of
        these curves.
        """
        groups: list[list[tuple[int, int]]] = [[] for _ in self]
        for item in items:
            if not self.admits(item):
                raise LocalProtocolError(
                    f"a subscription was mapped to {item!r}, which is not a range of our curves; "
                    "map it with this table's fingerprint"
                )
            assert isinstance(item, CurveRange)
            groups[item.group].append((item.start, item.end))
        return tuple(RangeSet.of(*ranges) for ranges in groups)

    def admits(self, item: object) -> bool:
        """Whether an item is a range of one of the curves."""
        return (
            isinstance(item, CurveRange)
            and 0 <= item.group < len(self)
            and 0 <= item.start <= item.end <= self[item.group].curve.last
        )

    @property
    def limits(self) -> tuple[int, ...]:
        """The last point of each curve."""
        return tuple(space.curve.last for space in self)

    def point(self, event: AnyEvent) -> list[int]:
        """The points of one event as it is."""
        return [space.index(event) for space in self]

    def points(self, events: Sequence[AnyEvent], schema: Schema | None = None) -> Ints:
        """The points of events as they conform to a schema: one row per event, one column per curve."""
        return np.stack([space.indexes(events, schema) for space in self], axis=1)
