"""The models that can be compared on a user's data, the simplest first. Every table is created under one schema; a
model that the schema does not allow raises SchemaError or LabelError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from weft.errors import OptionError, SchemaError
from weft.language.ast import Filter, attributes, predicates_of
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.model.schema import Attribute, Schema
from weft.model.value import Type
from weft.routing.negative.structure import Limit
from weft.routing.options import ModelOptions, table_with
from weft.routing.registry import MODELS, make_table
from weft.routing.table import RoutingTable

K = 50  # additional boxes that a subscription may create in the approximate negative space


@dataclass(frozen=True, slots=True)
class TableTerms:
    """What tables are created with: a schema, the attributes for a grid, and its cells (None: the model's default).

    `unseen` are the attributes that filters use and that no grid can have: predicates on them are ignored there.
    """

    schema: Schema | None
    grid: Schema
    unseen: tuple[str, ...]
    cells: int | None = None
    predicates: Predicates = NO_PREDICATES  # that the filters call

    @staticmethod
    def of(schema: Schema | None, filters: Iterable[Filter], cells: int | None = None) -> TableTerms:
        """A grid of the attributes that filters use and a schema bounds, the most used first.

        >>> from weft import parse
        >>> schema = Schema.of(Attribute("x", Type.INT, 0, 9), Attribute("y", Type.INT, 0, 9), place="string")
        >>> terms = TableTerms.of(schema, [parse("y > 1 AND place = 'here'"), parse("y > 2 OR x = 1")])
        >>> list(terms.grid), terms.unseen
        (['y', 'x'], ('place',))
        """
        some = [*filters]
        used = Counter(name for wanted in some for name in sorted(attributes(wanted)))
        declared = schema or Schema()
        chosen = [declared[name] for name, _ in used.most_common() if name in declared and _bounded(declared[name])]
        grid = Schema(tuple(chosen))
        return TableTerms(schema, grid, tuple(sorted(used.keys() - set(grid))), cells, predicates_of(some))

    def bounded(self) -> Schema:
        """The attributes for a grid. Raises SchemaError if there are none."""
        if not self.grid:
            raise SchemaError("it needs bounds or categories of an attribute that filters use; add them to the schema")
        return self.grid


MakeCandidate = Callable[[TableTerms], RoutingTable]


FLOODING = "flooding"
CANDIDATES: dict[str, MakeCandidate] = {
    FLOODING: lambda terms: make_table(FLOODING, predicates=terms.predicates),
    "identity": lambda terms: make_table("identity", terms.schema, predicates=terms.predicates),
    "covering": lambda terms: make_table("covering", terms.schema, predicates=terms.predicates),
    "merging": lambda terms: make_table("merging", terms.schema, predicates=terms.predicates),
    "negative": lambda terms: make_table("negative", terms.schema, predicates=terms.predicates),
    "negative-approximate": lambda terms: make_table(
        "negative", terms.schema, limit=Limit(K), predicates=terms.predicates
    ),
    "mics": lambda terms: make_table("mics", terms.bounded(), cells=terms.cells, predicates=terms.predicates),
    "dls": lambda terms: make_table("dls", terms.bounded(), cells=terms.cells, predicates=terms.predicates),
}


def options_of(text: str) -> ModelOptions:
    """A model with options, such as "merging:lazy=true:scope=local". Raises OptionError.

    >>> str(options_of("merging:lazy=true"))
    'merging, lazy = true'
    """
    from weft.server.settings import load

    name, *given = text.split(":")
    if name not in MODELS:
        known = ", ".join(dict.fromkeys([*CANDIDATES, *MODELS]))
        raise OptionError(f"there is no model {name!r}: choose one of {known}")
    pairs = [each.partition("=") for each in given]
    flags = {option.strip(): value.strip() for option, _, value in pairs}
    return load(ModelOptions(name), {}, None, {}, flags).config


def candidate(text: str) -> MakeCandidate:
    """A model of `CANDIDATES`, or a model with options, such as "merging:lazy=true:scope=local". Raises OptionError."""
    if text in CANDIDATES:
        return CANDIDATES[text]
    options = options_of(text)
    on_grid = MODELS[options.name].bounded
    return lambda terms: table_with(options, terms.bounded() if on_grid else terms.schema, predicates=terms.predicates)


ON_GRIDS = frozenset({"mics", "mics-exact", "dls"})  # models that see only attributes with bounds or categories


def _bounded(attribute: Attribute) -> bool:
    if attribute.type is Type.STRING:
        return bool(attribute.categories)
    return attribute.type is Type.BOOL or (attribute.low is not None and attribute.high is not None)
