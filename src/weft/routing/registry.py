"""The models of routing tables, by name. Every table is created here; a new model adds its line."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from weft.errors import LocalProtocolError, SchemaError
from weft.language.predicate import NO_PREDICATES
from weft.model.schema import Schema, did_you_mean
from weft.routing.engine import TableEngine
from weft.routing.table import RoutingTable


class ModelEntry(NamedTuple):
    """Where a model is defined, its one-line description, and whether it needs a schema with bounds."""

    module: str
    name: str
    summary: str
    bounded: bool = False


MODELS: dict[str, ModelEntry] = {
    "flooding": ModelEntry("flooding.table", "FloodingTable", "every event goes everywhere; nothing is told"),
    "simple": ModelEntry("simple.table", "SimpleTable", "every subscription is told to every neighbour"),
    "identity": ModelEntry("identity.table", "IdentityTable", "equal filters are told once"),
    "covering": ModelEntry("covering.table", "CoveringTable", "a filter is not told if one that covers it is"),
    "merging": ModelEntry("merging.table", "MergingTable", "what covering would tell, as few mergers"),
    "negative": ModelEntry("negative.table", "NegativeTable", "a filter is not told if others together cover it"),
    "mics": ModelEntry("mics.table", "MicsTable", "ranges of a Hilbert curve (MICS)", bounded=True),
    "mics-exact": ModelEntry("mics.exact", "MicsExactTable", "filters, found behind a curve (MICS 5)", bounded=True),
    "dls": ModelEntry("dls.table", "DlsTable", "sets of labels (DLS)", bounded=True),
}


def make_table(model: str, schema: Schema | None = None, *, advertised: bool = False, **options: Any) -> RoutingTable:
    """A table of a model, under a schema; with `advertised`, one that supports advertisements.

    Options are those of the model: see its class. Models on cells need a schema with bounds, or their own `spaces`
    (mics, mics-exact) or `space` (dls). The models mics and dls take only the bounds from it, and map the values that
    an event has: where subscriptions are matched under a schema, conform events to it first, as a broker does.

    Raises LocalProtocolError for an unknown model, SchemaError without bounds.

    >>> make_table("covering").model, make_table("identity", advertised=True).model
    ('covering', 'identity with advertisements')
    """
    entry = MODELS.get(model)
    if entry is None:
        raise LocalProtocolError(f"there is no model {model!r}{did_you_mean(model, MODELS)}")
    made: Callable[..., TableEngine[Any, Any]] = getattr(import_module(f"weft.routing.{entry.module}"), entry.name)
    try:
        table = _on_cells(model, made, schema, options) if entry.bounded else made(schema, **options)
    except TypeError as error:
        raise LocalProtocolError(f"the model {model} does not have this option: {error}; see its class") from None
    if not advertised:
        return table
    from weft.routing.adverts import Advertised

    return Advertised(table, predicates=options.get("predicates", NO_PREDICATES))


def _on_cells(
    model: str, made: Callable[..., TableEngine[Any, Any]], schema: Schema | None, options: dict[str, Any]
) -> TableEngine[Any, Any]:
    from weft.routing.dls.space import LabelSpace
    from weft.routing.mics.space import CurveSpaces

    rest = dict(options)
    space = rest.pop("space" if model == "dls" else "spaces", None)
    cells = rest.pop("cells", None)
    if space is None:
        if schema is None:
            raise SchemaError(f"the model {model} needs bounds of attributes; give a schema that has them")
        if model == "dls":
            space = LabelSpace.of(schema, cells)
        else:
            together = {} if model == "mics" else {"group": len(schema.attributes)}
            space = CurveSpaces.of(schema, **together) if cells is None else CurveSpaces.of(schema, cells, **together)
    return made(space, schema, **rest) if model == "mics-exact" else made(space, **rest)


def engine_of(table: RoutingTable) -> TableEngine[Any, Any]:
    """The table itself, without its advertisements."""
    inner = getattr(table, "table", table)
    assert isinstance(inner, TableEngine)
    return inner
