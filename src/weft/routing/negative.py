"""Subsumption-based routing by negative space (Jafarpour et al.). Law: what is told to a link covers what all others
want, and is some of it, each item as it is.

Each listening link has a space of its own, of what all others want (errata, negative space 6): an item that the told
ones together cover is not told, but it is kept, and comes when they no longer do. With a limit the spaces are
approximate: smaller and quicker, and a little more is told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from weft.algebra.box import NormalForm
from weft.interest.negative import Limit, NegativeSpace
from weft.model.change import Change
from weft.routing.exact import ExactTable
from weft.routing.ledger import Revision
from weft.routing.local import Held
from weft.routing.table import Item, Link, Role, Source, Tell

Key = tuple[Source, int]  # whose item, and its id there


class NegativeTable(ExactTable[Key]):
    """A key is an item of a source. `options` are those of a `NegativeSpace`.

    >>> from weft import parse
    >>> from weft.index.base import SubId
    >>> table, north = NegativeTable(), Link("north")
    >>> _ = table.attach(north)
    >>> filters = ["x BETWEEN 0 AND 6", "x BETWEEN 4 AND 9", "x BETWEEN 2 AND 8"]
    >>> _ = table.change({SubId(n): parse(text) for n, text in enumerate(filters)}, ())
    >>> [str(item) for item in table.told(north).values()]
    ['x BETWEEN 0 AND 6', 'x BETWEEN 4 AND 9']
    >>> [[str(item) for item in tell.update.add.values()] for tell in table.change({}, [SubId(0)])]
    [['x BETWEEN 2 AND 8']]
    """

    model = "negative"

    def __init__(self, *args: Any, limit: Limit | None = None, space: Mapping[str, Any] | None = None, **options: Any):
        super().__init__(*args, **options)
        self.limit = limit
        self.spaces: dict[Link, NegativeSpace[Key]] = {}
        self._options = dict(space or {})
        self._untidy: dict[Link, None] = {}  # changed since they were rebuilt, the longest waiting first

    # -- what should be told ----------------------------------------------------------------------

    def wanted(self, link: Link) -> Mapping[Key, Item]:
        """The active items of the link's space."""
        return {key: self._item(key) for key in self.spaces[link].active}

    def revise(self, source: Source, drop: Mapping[int, Held], add: Mapping[int, Held]) -> Mapping[Link, Revision[Key]]:
        """What becomes active or passive in each space. Cost: that of finding the negative boxes that they meet."""
        forms = {(source, each): held.form for each, held in add.items()}
        gone = [(source, each) for each in drop]
        return {link: self._revision(link, _changed(self.spaces[link], forms, gone)) for link in self.listening(source)}

    def _revision(self, link: Link, change: Change[list[Key], list[Key]]) -> Revision[Key]:
        self._untidy.setdefault(link)
        return Revision(change.drop, {key: self._item(key) for key in change.add})

    def _item(self, key: Key) -> Item:
        source, each = key
        return self.held[source][each].item

    # -- links ------------------------------------------------------------------------------------

    def attach(self, link: Link, role: Role = Role.PEER) -> list[Tell]:
        """All that the neighbour should know, fresh."""
        self.ledger.attach(link, role)
        if role is not Role.SLAVE and link not in self.spaces:
            space = self.spaces[link] = NegativeSpace(self.schema, self.limit, **self._options)
            others = {
                (s, each): held for s, several in self.held.items() if s != link for each, held in several.items()
            }
            _changed(space, {key: held.form for key, held in others.items()}, ())
            self._untidy.setdefault(link)
        return super().attach(link, role)

    def detach(self, link: Link) -> list[Tell]:
        """Withdraw what nobody else wants, and tell what its items had covered."""
        self.spaces.pop(link, None)
        self._untidy.pop(link, None)
        return super().detach(link)

    def tidy(self, budget: int) -> list[Tell]:
        """Rebuild spaces that have changed, at least one, and tell what changes in each as one update.

        `budget` is how many items may be looked at; boxes are coalesced as far as it then allows.
        """
        revisions: dict[Link, Revision[Key]] = {}
        for link in list(self._untidy):
            space = self.spaces[link]
            if revisions and budget < len(space):
                break
            revisions[link] = self._revision(link, space.rebuild())
            del self._untidy[link]
            budget -= len(space)
            space.coalesce(max(0, budget))
        return self.tell(revisions) + super().tidy(budget)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().check()
        assert self.spaces.keys() == set(self.ledger.listening)
        for link, space in self.spaces.items():
            space.check()
            others = {(source, each) for source, held in self.held.items() if source != link for each in held}
            assert {*space.active, *space.passive} == others, "a space has what all others want"


def _changed(
    space: NegativeSpace[Key], forms: Mapping[Key, NormalForm], gone: Collection[Key]
) -> Change[list[Key], list[Key]]:
    """Change a space, and decide all that is pending."""
    drop, add = space.change(forms, gone)
    told = dict.fromkeys(add)
    while space.pending:
        more = space.step(1 << 10)
        drop += [key for key in more.drop if key not in told]
        told = {key: None for key in told if key not in more.drop} | dict.fromkeys(more.add)
    return Change(drop, list(told))
