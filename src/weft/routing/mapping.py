"""Subscriptions and events mapped by clients (MICS 6.1). A client computes exactly what its broker would compute, for
every broker with the same fingerprint.

A broker publishes its fingerprint, which contains everything that mapping needs. Clients thus do the work of finding
ranges and labels, and an event is mapped once, not at every broker on its way.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from weft.errors import LabelError, LocalProtocolError, RemoteProtocolError, SchemaError
from weft.index.base import AnyEvent
from weft.kernels.arrays import Ints
from weft.language.ast import Filter
from weft.model.event import Event, attributes_of
from weft.model.schema import Schema
from weft.routing.dls.items import LabelSet
from weft.routing.dls.label_sides import LabelSides, cells_of, items_of
from weft.routing.dls.space import LabelSpace
from weft.routing.mics.items import CurveRange
from weft.routing.mics.space import CurveSpaces
from weft.routing.place_format import PlaceFormat, unpack_space
from weft.routing.table import Placed, Places

_FEW = 3  # events that are mapped one by one: a batch costs as much as three


class _Space(Protocol):
    @property
    def limits(self) -> tuple[int, ...]: ...

    def point(self, event: AnyEvent) -> list[int]: ...

    def items(self, wanted: Filter) -> tuple[CurveRange | LabelSet, ...]: ...

    def points(self, events: Sequence[AnyEvent], schema: Schema | None) -> Ints: ...


class _Labels:
    """A label space, for mapping at a client."""

    def __init__(self, space: LabelSpace, side: int) -> None:
        self._sides, self.limits = LabelSides.of(space, side), space.limits

    def point(self, event: AnyEvent) -> list[int]:
        return [cell for grid in self._sides.space.grids for cell in grid.cell(event)]

    def items(self, wanted: Filter) -> tuple[LabelSet, ...]:
        return items_of(wanted, self._sides)

    def points(self, events: Sequence[AnyEvent], schema: Schema | None) -> Ints:
        return cells_of(events, self._sides.space, schema)


class Mapper:
    """Maps for the brokers of one fingerprint. Raises LocalProtocolError if their model does not map.

    `schema` is the brokers' own, if they conform events to another one than that of their table.

    >>> from weft import parse, Schema
    >>> from weft.routing import Link, make_table
    >>> schema = Schema.from_dict({"attributes": {n: {"type": "float", "bounds": [0, 100]} for n in ("x", "y")}})
    >>> table, north = make_table("mics", schema), Link("north")
    >>> mapper = Mapper(table.fingerprint)
    >>> _ = table.attach(north), table.change({1: mapper.subscription(parse("x > 50"))}, ())
    >>> events = [{"x": 60}, {"x": 40}]
    >>> table.route_batch(events, None, mapper.events(events))
    {}
    """

    def __init__(self, fingerprint: str, schema: Schema | None = None) -> None:
        self.fingerprint = fingerprint
        self._space, agreed = _agreed(fingerprint)
        self._schema = schema or agreed
        self.format = PlaceFormat(fingerprint, self._space.limits)

    @staticmethod
    def of(packed: bytes) -> Mapper:
        """The mapper of a space that a broker has sent. Raises RemoteProtocolError."""
        fingerprint, schema = unpack_space(packed)
        try:
            return Mapper(fingerprint, schema)
        except (LocalProtocolError, OverflowError, RecursionError) as error:
            raise RemoteProtocolError(f"a space that was received cannot be read: {error}") from None

    def subscription(self, wanted: Filter) -> Placed:
        """A filter with its ranges or labels. Raises FilterTooComplexError."""
        return Placed(wanted, self.fingerprint, self._space.items(wanted))

    def events(self, events: Sequence[AnyEvent]) -> Places:
        """The positions of events."""
        return Places(self.fingerprint, self._points(events))

    def written(self, events: Sequence[AnyEvent]) -> list[bytes]:
        """The place of each event, as it is sent. Raises EventError."""
        return self.format.divide(self.format.encode(self._points(events)))

    def _points(self, events: Sequence[AnyEvent]) -> Ints:
        """The keys of events. A few are mapped one by one, because a batch has a price of its own."""
        if not 0 < len(events) <= _FEW:
            return self._space.points(events, self._schema)
        schema = self._schema
        plain = events if schema is None else [schema.conform(Event(dict(attributes_of(each)))) for each in events]
        return np.array([self._space.point(each) for each in plain], np.int64)


def _agreed(fingerprint: str) -> tuple[_Space, Schema | None]:
    """The space, and the schema to which events conform before they are mapped."""
    try:
        said = json.loads(fingerprint)
        if "table" in said:
            said = said["table"]  # with advertisements
        schema = None if said.get("schema") is None else Schema.from_dict(said["schema"])
        if "spaces" in said:
            return CurveSpaces.from_parameters(said["spaces"]), schema
        if "space" in said:
            return _Labels(LabelSpace.from_json(json.dumps(said["space"])), said["side"]), schema
        model = said["model"]
    except (KeyError, TypeError, ValueError, SchemaError, LabelError) as error:
        raise LocalProtocolError(f"not the fingerprint of a table: {error}; pass the one that a broker sent") from None
    raise LocalProtocolError(f"a table of model {model} does not map; send filters and events unchanged")
