"""Simple routing: every subscription is told to every neighbour (thesis 2.3). Law: each is an item of its own.

The yardstick of the other models: each broker knows every subscription of the network.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.routing.exact import ExactTable
from weft.routing.ledger import Revision
from weft.routing.local import Held
from weft.routing.table import Item, Link, Source

Origin = tuple[Source, int]


class SimpleTable(ExactTable[Origin]):
    """A key is where an item comes from and its id there.

    >>> from weft import parse
    >>> from weft.routing.table import Update
    >>> table, north, south = SimpleTable(), Link("north"), Link("south")
    >>> _ = table.attach(north), table.attach(south)
    >>> [tell.link for tell in table.learn(north, Update(add={1: parse("x > 5")}))]
    ['south']
    >>> table.route({"x": 7}, south), table.route({"x": 7}, north)
    ({'north'}, set())
    """

    model = "simple"

    def wanted(self, link: Link) -> Mapping[Origin, Item]:
        """Everything from elsewhere."""
        return {
            (source, each): what.item
            for source, held in self.held.items()
            if source != link
            for each, what in held.items()
        }

    def revise(
        self, source: Source, drop: Mapping[int, Held], add: Mapping[int, Held]
    ) -> Mapping[Link, Revision[Origin]]:
        """The same for every link. Cost: O(links x changes)."""
        keys = [(source, each) for each in drop]
        items: dict[Origin, Item] = {(source, each): what.item for each, what in add.items()}
        return dict.fromkeys(self.listening(source), Revision(keys, items))
