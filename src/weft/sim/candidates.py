"""The models that can be compared on a user's data, the simplest first. Law: every table is made under one schema; a
model that the schema does not allow says so with a SchemaError or a LabelError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from weft.errors import SchemaError
from weft.interest.negative import Limit
from weft.language.ast import Filter, attributes
from weft.model.schema import Attribute, Schema
from weft.model.value import Type
from weft.routing.covering import CoveringTable
from weft.routing.dls import DlsTable
from weft.routing.flooding import FloodingTable
from weft.routing.identity import IdentityTable
from weft.routing.merging import MergingTable
from weft.routing.mics import MicsTable
from weft.routing.negative import NegativeTable
from weft.routing.table import RoutingTable
from weft.space.content import ContentSpace
from weft.space.grid import Grid
from weft.space.label_space import LabelSpace

K = 50  # boxes more that a subscription may make, of the approximate negative space
_CELLS = 256  # of each attribute, on a curve
_GROUP = 3  # attributes on one curve


@dataclass(frozen=True, slots=True)
class Terms:
    """What tables are made under: a schema, the attributes for a grid, and its cells (None: as the model has them).

    `unseen` are the attributes that filters use and no grid can have: what is asked of them is not asked there.
    """

    schema: Schema | None
    grid: Schema
    unseen: tuple[str, ...]
    cells: int | None = None

    @staticmethod
    def of(schema: Schema | None, filters: Iterable[Filter], cells: int | None = None) -> Terms:
        """A grid of the attributes that filters use and a schema bounds, those that most use first.

        >>> from weft import parse
        >>> schema = Schema.of(Attribute("x", Type.INT, 0, 9), Attribute("y", Type.INT, 0, 9), place="string")
        >>> terms = Terms.of(schema, [parse("y > 1 AND place = 'here'"), parse("y > 2 OR x = 1")])
        >>> list(terms.grid), terms.unseen
        (['y', 'x'], ('place',))
        """
        used = Counter(name for wanted in filters for name in sorted(attributes(wanted)))
        declared = schema or Schema()
        chosen = [declared[name] for name, _ in used.most_common() if name in declared and _bounded(declared[name])]
        grid = Schema(tuple(chosen))
        return Terms(schema, grid, tuple(sorted(used.keys() - set(grid))), cells)

    def bounded(self) -> Schema:
        """The attributes for a grid. Raises SchemaError if there is none."""
        if not self.grid:
            raise SchemaError("it needs bounds or categories of an attribute that filters use, and there are none")
        return self.grid


Make = Callable[[Terms], RoutingTable]


def _mics(terms: Terms) -> RoutingTable:
    names = list(terms.bounded())
    groups = [names[start : start + _GROUP] for start in range(0, len(names), _GROUP)]
    return MicsTable([ContentSpace(Grid.uniform(terms.grid, terms.cells or _CELLS, group)) for group in groups])


FLOODING = "flooding"
CANDIDATES: dict[str, Make] = {
    FLOODING: lambda _: FloodingTable(),
    "identity": lambda terms: IdentityTable(terms.schema),
    "covering": lambda terms: CoveringTable(terms.schema),
    "merging": lambda terms: MergingTable(terms.schema),
    "negative": lambda terms: NegativeTable(terms.schema),
    "negative-approximate": lambda terms: NegativeTable(terms.schema, limit=Limit(K)),
    "mics": _mics,
    "dls": lambda terms: DlsTable(LabelSpace.of(terms.bounded(), terms.cells)),
}
ON_GRIDS = frozenset({"mics", "dls"})  # models that see only attributes with bounds or categories


def _bounded(attribute: Attribute) -> bool:
    if attribute.type is Type.STRING:
        return bool(attribute.categories)
    return attribute.type is Type.BOOL or (attribute.low is not None and attribute.high is not None)
