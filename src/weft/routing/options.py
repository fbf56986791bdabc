"""The options of routing models: what each means, which models have it, and how a table is made with them.

Every option of the papers is here once. A broker reads them from `[model]` of its settings; `weft models` and the guide
list them. An option that differs from its default is part of the table's fingerprint, so neighbours that differ are
refused with a sentence that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from weft.errors import OptionError, SchemaError
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.model.schema import Schema, did_you_mean
from weft.model.value import Type, Value, parse_timestamp
from weft.routing.local import Local
from weft.routing.registry import MODELS, engine_of, make_table
from weft.routing.table import RoutingTable

_FILTERS = ("simple", "identity", "covering", "merging", "negative", "mics-exact")
_COVERED = ("covering", "merging", "mics-exact")
_CELLS = ("mics", "mics-exact", "dls")
_ALL = tuple(MODELS)


class ModelOption(NamedTuple):
    """An option: the models that have it, the paper that it comes from, what it does, and when to change it."""

    models: tuple[str, ...]
    paper: str
    summary: str
    when: str


OPTIONS: Mapping[str, ModelOption] = {
    "local": ModelOption(
        tuple(name for name in _ALL if name != "flooding"),
        "thesis 4.8, 8.2",
        "what stands for local clients in the table: every subscription, the roots of a forest, or merged roots",
        "many clients of one broker want the same or nested things",
    ),
    "structure": ModelOption(
        _COVERED,
        "thesis 4.2, 4.5",
        "below how many filters a covered filter is placed: one (forest), or all that cover it (poset)",
        "wide filters come and go: a poset searches less when one is removed, and more when one is added",
    ),
    "tests": ModelOption(
        ("covering",),
        "thesis 3.7",
        "filters that are tested for one event; then all remaining neighbours count as interested; 0 is no limit",
        "a bound on the work for each event matters more than unwanted events",
    ),
    "scope": ModelOption(
        ("merging",),
        "thesis 8.3 to 8.5",
        "what is merged with each other: everything that is sent to a neighbour (root-set), what comes from the same "
        "source (local), or from the same set of sources (aggregate)",
        "mergers across sources change too often",
    ),
    "added_volume": ModelOption(
        ("merging",),
        "thesis 8.8",
        "the share of the schema's volume that imperfect mergers may add; 0 allows perfect mergers only",
        "fewer items matter more than unwanted events; needs a schema with bounds",
    ),
    "saturation": ModelOption(
        ("merging",),
        "thesis 8.8",
        "the number of items at which the whole added_volume may be used; 0 is at once",
        "few filters should stay precise",
    ),
    "lazy": ModelOption(
        ("merging",),
        "thesis 8.8",
        "keep a merger that has lost a part until there is nothing else to do",
        "subscriptions come and go quickly",
    ),
    "k": ModelOption(
        ("negative",),
        "001, section 4",
        "boxes that a subscription may add to the negative space, which is then approximate; 0 is exact",
        "exact spaces grow too large or too slow",
    ),
    "zeta": ModelOption(
        ("negative",),
        "001, section 4",
        "let a subscription also add the boxes that earlier ones did not use",
        "subscriptions differ much in size",
    ),
    "selection": ModelOption(
        ("negative",),
        "001, figures 14 and 15",
        "which boxes are split first: most covered volume per box (ratio), most volume (benefit), fewest boxes (cost)",
        "weft models compare finds another one better on your data",
    ),
    "boxes": ModelOption(
        ("negative",),
        "001, section 4",
        "boxes of the space of one neighbour; beyond that it is approximate; 0 is the built-in bound",
        "memory is short",
    ),
    "rebuild": ModelOption(
        ("negative",),
        "001, section 4.3",
        "rebuild spaces that have changed when there is nothing else to do",
        "processor time is short, and subscriptions change all the time",
    ),
    "attributes": ModelOption(
        _CELLS,
        "MICS 5",
        "the attributes that are mapped to cells, most selective first; empty is all that the schema bounds",
        "many attributes, of which few decide",
    ),
    "dimensions": ModelOption(
        ("mics",),
        "MICS 8",
        "attributes of one curve; an event must be wanted on every curve; 0 is 3",
        "filters test more, or fewer, attributes together",
    ),
    "cells": ModelOption(
        _CELLS,
        "MICS 3.2, DLS 4.1",
        "cells (granules) per attribute; 0 is 256 for curves, and as many as fit up to 64 for labels",
        "too many unwanted events, or too many ranges or labels",
    ),
    "cuts": ModelOption(
        _CELLS,
        "MICS 6.3",
        'boundaries of cells of variable width, an attribute each: "magnitude 4 5 6"',
        "events are crowded in a part of the domain; weft tune finds such cells",
    ),
    "gap": ModelOption(
        ("mics",),
        "MICS 3.6",
        "gaps of up to this many cells between ranges are sent as well",
        "fewer ranges matter more than unwanted events",
    ),
    "cap": ModelOption(
        _CELLS,
        "MICS 3.5, DLS 4.2",
        "ranges or labels that one filter may become; beyond that it is widened; 0 is the built-in bound",
        "wide filters become too many items",
    ),
    "counters": ModelOption(
        ("dls",),
        "DLS 3.2",
        "counters of the filter in which events are looked up, a power of two; 0 looks up exact labels",
        "neighbours hold so many labels that memory matters",
    ),
    "hashes": ModelOption(
        ("dls",), "DLS 3.2", "hashes of the counting filter", "a filter is much fuller or emptier than usual"
    ),
    "growth": ModelOption(
        ("dls",),
        "DLS 4.4",
        "the share of unwanted events that may pass a counting filter before it is made larger",
        "unwanted events or memory matter more",
    ),
    "bundle": ModelOption(
        ("dls",),
        "DLS 4.3",
        "labels that are sent as one item",
        "labels come and go one by one (smaller), or all at once (larger)",
    ),
}


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """`[model]`: the routing model and its options; `weft models` explains them.

    >>> ModelOptions("merging", lazy=True).chosen
    {'lazy': True}
    >>> ModelOptions("covering", gap=3)
    Traceback (most recent call last):
    ...
    weft.errors.OptionError: model.gap is an option of mics, not of covering; leave it out, or set model.name
    """

    name: str = "covering"
    local: Literal["none", "forest", "merged"] = "none"
    structure: Literal["forest", "poset"] = "forest"
    tests: int = 0
    scope: Literal["root-set", "local", "aggregate"] = "root-set"
    added_volume: float = 0.0
    saturation: int = 0
    lazy: bool = False
    k: int = 0
    zeta: bool = False
    selection: Literal["ratio", "benefit", "cost"] = "ratio"
    boxes: int = 0
    rebuild: bool = True
    attributes: tuple[str, ...] = ()
    dimensions: int = 0
    cells: int = 0
    cuts: tuple[str, ...] = ()
    gap: int = 0
    cap: int = 0
    counters: int = 0
    hashes: int = 4
    growth: float = 0.01
    bundle: int = 64

    def __post_init__(self) -> None:
        if self.name not in MODELS:
            raise OptionError(f"model.name is {self.name!r}, which is not a model{did_you_mean(self.name, MODELS)}")
        for option in self.chosen:
            models = OPTIONS[option].models
            if self.name not in models:
                raise OptionError(
                    f"model.{option} is an option of {_listed(models)}, not of {self.name}; leave it out, or set "
                    "model.name"
                )
        if self.added_volume > 1:
            raise OptionError(f"model.added_volume is {self.added_volume}; give a share from 0 to 1")
        if self.saturation and not self.added_volume:
            raise OptionError("model.saturation needs model.added_volume: the share that may be added")
        if not self.k and (self.zeta or self.selection != "ratio"):
            option = "zeta" if self.zeta else "selection"
            raise OptionError(f"model.{option} needs model.k: the boxes that a subscription may add")
        if self.hashes != 4 and not self.counters:
            raise OptionError("model.hashes needs model.counters: the size of the counting filter")
        if not 0 < self.growth <= 1:
            raise OptionError(f"model.growth is {self.growth}; give a share above 0, up to 1")
        if self.bundle < 1:
            raise OptionError("model.bundle is 0; give at least one label per item")
        if self.cells == 1:
            raise OptionError("model.cells is 1; give at least 2, or 0 for the default")

    @property
    def chosen(self) -> dict[str, Any]:
        """The options that differ from their defaults, in JSON types."""
        given = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name != "name" and value != each.default:
                given[each.name] = list(value) if isinstance(value, tuple) else value
        return given

    def __str__(self) -> str:
        return ", ".join([self.name, *(f"{name} = {_written(value)}" for name, value in self.chosen.items())])


def table_with(
    options: ModelOptions,
    schema: Schema | None = None,
    *,
    advertised: bool = False,
    predicates: Predicates = NO_PREDICATES,
    tuned: Mapping[str, Any] | None = None,
) -> RoutingTable:
    """A table with these options. `tuned` are a space and a filter that were chosen by `weft tune`, if any.

    Raises OptionError or SchemaError.

    >>> from weft import parse
    >>> from weft.routing import Link
    >>> table = table_with(ModelOptions("simple", local="forest"))
    >>> _ = table.attach(Link("north")), table.change({1: parse("x > 0"), 2: parse("x > 5")}, ())
    >>> [str(item) for item in table.told(Link("north")).values()]
    ['x > 0']
    """
    given = {**_of_model(options, schema, dict(tuned or {})), **_local(options, schema)}
    table = make_table(options.name, schema, advertised=advertised, predicates=predicates, **given)
    engine_of(table).chosen = options.chosen
    return table


def _local(options: ModelOptions, schema: Schema | None) -> dict[str, Local]:
    from weft.routing.local_forest import ForestLocal, MergedLocal

    if options.name in ("mics", "dls"):
        schema = None  # cells are of events as they are
    match options.local:
        case "forest":
            return {"local": ForestLocal(schema)}
        case "merged":
            return {"local": MergedLocal(schema)}
    return {}


def _of_model(options: ModelOptions, schema: Schema | None, tuned: dict[str, Any]) -> dict[str, Any]:
    """The options that the class of a model takes."""
    match options.name:
        case "covering":
            return {"structure": options.structure, "tests": options.tests}
        case "mics-exact":
            return {"structure": options.structure, **_curves(options, schema, tuned)}
        case "merging":
            return {"structure": options.structure, "lazy": options.lazy, "scope": options.scope, **_budget(options)}
        case "negative":
            return _negative(options)
        case "mics":
            return {"gap": options.gap, **_curves(options, schema, tuned)}
        case "dls":
            return _labels(options, schema, tuned)
    return {}


def _budget(options: ModelOptions) -> dict[str, Any]:
    from weft.merging import MergeBudget

    return {"budget": MergeBudget(options.added_volume, options.saturation)} if options.added_volume else {}


def _negative(options: ModelOptions) -> dict[str, Any]:
    from weft.routing.negative.structure import Limit
    from weft.routing.negative.tiles import SplitChoice

    given: dict[str, Any] = {"rebuild": options.rebuild}
    if options.k:
        given["limit"] = Limit(options.k, options.zeta, SplitChoice[options.selection.upper()])
    if options.boxes:
        given["space"] = {"most_boxes": options.boxes}
    return given


def _curves(options: ModelOptions, schema: Schema | None, tuned: dict[str, Any]) -> dict[str, Any]:
    from weft.routing.mics.space import CurveSpaces
    from weft.space.content import ContentSpace
    from weft.space.curve import MOST_RANGES
    from weft.space.grid import Grid

    if tuned:
        _refuse_beside_tuning(options, "attributes", "dimensions", "cells", "cuts", "cap")
        return tuned
    if not (options.attributes or options.dimensions or options.cells or options.cuts or options.cap):
        return {}  # the model's own
    dimensions = _dimensions(options, schema, 256)
    group = len(dimensions) if options.name == "mics-exact" else options.dimensions or 3
    grids = [Grid(tuple(dimensions[at : at + group])) for at in range(0, len(dimensions), group)]
    return {"spaces": CurveSpaces(ContentSpace(grid, most=options.cap or MOST_RANGES) for grid in grids)}


def _labels(options: ModelOptions, schema: Schema | None, tuned: dict[str, Any]) -> dict[str, Any]:
    from weft.routing.dls.space import MOST_LABELS, LabelSpace
    from weft.routing.dls.structure import FilterShape
    from weft.space.grid import Grid

    given: dict[str, Any] = {"bundle": options.bundle, "rate": options.growth}
    if options.counters:
        given["shape"] = FilterShape(options.counters, options.hashes)
    if tuned:
        _refuse_beside_tuning(options, "attributes", "cells", "cuts", "cap", "counters", "hashes", "growth")
        return {"bundle": options.bundle, **tuned}
    if options.attributes or options.cells or options.cuts or options.cap:
        cap = options.cap or MOST_LABELS
        if not options.attributes and not options.cuts:
            if schema is None:
                raise SchemaError("the model dls needs bounds of attributes; give a schema that has them")
            given["space"] = LabelSpace.of(schema, options.cells or None, most=cap)
        else:
            given["space"] = LabelSpace([Grid(tuple(_dimensions(options, schema, 64)))], most=cap)
    return given


def _refuse_beside_tuning(options: ModelOptions, *names: str) -> None:
    for name in names:
        if name in options.chosen:
            raise OptionError(f"model.{name} is part of the tuning; leave out one of the two")


def _dimensions(options: ModelOptions, schema: Schema | None, cells: int) -> list[Any]:
    """The cells of each attribute, in the order in which the options name them."""
    from weft.space import partition

    if schema is None:
        raise SchemaError(f"the model {options.name} needs bounds of attributes; give a schema that has them")
    cuts = dict(_cut(text, schema) for text in options.cuts)
    names = options.attributes or tuple(attribute.name for attribute in schema.attributes)
    for name in (*names, *cuts):
        if name not in schema:
            raise OptionError(f"model.attributes: the schema has no attribute {name!r}{did_you_mean(name, schema)}")
    return [
        partition.at(schema[name], cuts[name])
        if name in cuts
        else partition.uniform(schema[name], options.cells or cells)
        for name in names
    ]


def _cut(text: str, schema: Schema) -> tuple[str, list[Value]]:
    """An attribute and its boundaries, as in "magnitude 4 5 6"."""
    name, *given = text.split()
    if name not in schema:
        raise OptionError(f"model.cuts: the schema has no attribute {name!r}{did_you_mean(name, schema)}")
    read: Any = {Type.INT: int, Type.FLOAT: float, Type.TIMESTAMP: parse_timestamp}.get(schema[name].type, str)
    try:
        boundaries = [read(each) for each in given]
    except ValueError:
        raise OptionError(
            f"model.cuts: {text!r} is not an attribute and its boundaries; write them as 'x 4 5 6'"
        ) from None
    if not boundaries or sorted(boundaries) != boundaries:
        raise OptionError(f"model.cuts: the boundaries in {text!r} must ascend; write them as 'x 4 5 6'")
    return name, boundaries


def _listed(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _written(value: Any) -> str:
    return (
        str(value).lower() if isinstance(value, bool) else ", ".join(value) if isinstance(value, list) else str(value)
    )
