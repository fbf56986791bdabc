"""Tables whose items are filters. Laws: those of `table`, EXACT; a model says what should be told, and nothing else.

A model gives `wanted(link)`, the whole set, and where it can also `revise`, the change of it. What is not told may be
elided by the model, but `heard` and `held` keep every item, so that it can be told when what elided it goes.
A filter that surely matches nothing is held by nobody.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Generic

import numpy as np

from weft.algebra.box import NormalForm
from weft.algebra.normalize import MAX_BOXES
from weft.algebra.relate import as_form
from weft.errors import FilterTooComplexError, RemoteProtocolError, WeftError
from weft.index.base import AnyEvent, SubId
from weft.language.ast import Filter
from weft.model.schema import Schema
from weft.routing.ledger import Key, Ledger, Ledgered, Revision
from weft.routing.local import EveryRoot, Held, Local
from weft.routing.matcher import BESIDE, LinkMatcher, MakeIndex, without_tail
from weft.routing.table import Exactness, Filters, Item, Link, Role, Routes, Source, Tell, Update


class ExactTable(Ledgered[Key], ABC, Generic[Key]):
    """What the tables of filters share; a subclass gives `model`, `wanted` and perhaps `revise`.

    `local` is the local part; `index` makes the index that routes, `beside` is how many items may wait beside it. With
    `refresh`, `tidy` tells a master everything anew: a slave's whole root set replaces the old one, which heals a
    master that has lost it (thesis 2.2).
    """

    model: ClassVar[str]
    exactness: ClassVar[Exactness] = Exactness.EXACT

    def __init__(
        self,
        schema: Schema | None = None,
        *,
        local: Local | None = None,
        index: MakeIndex = without_tail,
        beside: int = BESIDE,
        refresh: bool = False,
    ) -> None:
        self.schema = schema
        self.ledger: Ledger[Key] = Ledger()
        self.held: dict[Source, dict[int, Held]] = {None: {}}  # by source and id; local roots are of None
        self._local = EveryRoot() if local is None else local
        self._matcher = LinkMatcher(schema, index, beside)
        self._refresh = refresh

    # -- what a model says ----------------------------------------------------------------------

    @abstractmethod
    def wanted(self, link: Link) -> Mapping[Key, Item]:
        """All that should be told to the link now, from `held` without the link's own.

        A key stands for the same events as long as it is told; the item may be any filter of those events.
        """

    def revise(
        self,
        source: Source,
        drop: Mapping[int, Held],  # noqa: ARG002 - for models that can do better
        add: Mapping[int, Held],  # noqa: ARG002
    ) -> Mapping[Link, Revision[Key]]:
        """How what should be told changes when a source drops some and then adds some; `held` has it already.

        A link that is not listening must not be in it, nor need be one whose revision is empty. As it stands, compares
        everything: a model that can do better does.
        """
        return {link: self.ledger.revision(link, self.wanted(link)) for link in self.listening(source)}

    def listening(self, source: Source = None) -> Iterator[Link]:
        """The links that are told anything, but for the source."""
        return (link for link in self.ledger.listening if link != source)

    # -- the contract ---------------------------------------------------------------------------

    @property
    def parameters(self) -> Mapping[str, object]:
        """The schema, for normal forms under another one do not compare."""
        return {"schema": self.schema}

    def attach(self, link: Link, role: Role = Role.PEER) -> list[Tell]:
        """All that the neighbour should know, fresh; what it told us holds until it tells us anew."""
        self.ledger.attach(link, role)
        self.held.setdefault(link, {})
        self._matcher.attach(link)
        return [] if role is Role.SLAVE else [self.ledger.retell(link, self.wanted(link))]

    def detach(self, link: Link) -> list[Tell]:
        """Withdraw what nobody else wants."""
        self.ledger.detach(link)
        self._matcher.detach(link)
        gone = self.held.pop(link)
        return self.tell(self.revise(link, gone, {})) if gone else []

    def change(self, add: Filters, drop: Collection[SubId]) -> list[Tell]:
        """Change local subscriptions. Raises LocalProtocolError or FilterTooComplexError, then nothing has changed."""
        held = {sub: Held(wanted, as_form(wanted, self.schema)) for sub, wanted in add.items()}
        roots = self._local.change(held, drop)
        return self._changed(None, roots.drop, roots.add.items())

    def learn(self, link: Link, update: Update) -> list[Tell]:
        """Take over what a neighbour told."""
        news = self.ledger.news(link, update)
        held = {item_id: self._held(link, item) for item_id, item in news.add.items()}
        self.ledger.hear(link, news)
        self._matcher.change(link, news.drop, {each: what for each, what in held.items() if what.form})
        return self._changed(link, news.drop, held.items())

    def _held(self, link: Link, item: Item) -> Held:
        try:
            if not isinstance(item, Filter | NormalForm):
                raise TypeError(f"it is a {type(item).__name__}")
            form = as_form(item, self.schema)
            if len(form.boxes) > MAX_BOXES:
                raise FilterTooComplexError(f"it has more than {MAX_BOXES} boxes")
            return Held(item, form)
        except (WeftError, TypeError) as error:
            raise RemoteProtocolError(f"{link} tells an item that is no filter to us: {error}") from error

    def _changed(self, source: Source, drop: Iterable[int], add: Iterable[tuple[int, Held]]) -> list[Tell]:
        held = self.held[source]
        gone = {each: held.pop(each) for each in drop if each in held}
        new = {each: what for each, what in add if what.form}
        held.update(new)
        return self.tell(self.revise(source, gone, new)) if gone or new else []

    def tell(self, revisions: Mapping[Link, Revision[Key]]) -> list[Tell]:
        """What a model has revised, as updates to send, noted as told; for a model's own `tidy` too."""
        return [tell for link, revision in revisions.items() for tell in self.ledger.tell(link, revision)]

    def route(self, event: AnyEvent, source: Source) -> set[Link]:
        """The neighbours that want the event, and the master. Cost: that of a match, about 10 us."""
        links = self._matcher.wanting(event, source)
        master = self.ledger.master
        return links if master is None or master == source else links | {master}

    def route_batch(self, events: Sequence[AnyEvent], source: Source) -> Routes:
        """`route` for many events at once. Cost: a few us an event."""
        routes = self._matcher.wanting_batch(events, source)
        master = self.ledger.master
        if master is not None and master != source and len(events):
            routes[master] = np.arange(len(events))
        return routes

    def tidy(self, budget: int) -> list[Tell]:  # noqa: ARG002 - nothing here takes long
        """Tell the master everything anew, if that is asked for."""
        master = self.ledger.master
        return [self.ledger.retell(master, self.wanted(master))] if self._refresh and master is not None else []

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        self.ledger.check()
        assert set(self.held) == {None, *self.ledger.links}
        for link in self.ledger.links:
            forms = {item_id: self._held(link, item).form for item_id, item in self.heard(link).items()}
            assert {i: each.form for i, each in self.held[link].items()} == {i: f for i, f in forms.items() if f}
        roots = {root: each.form for root, each in self._local.roots().items() if each.form}
        assert {root: each.form for root, each in self.held[None].items()} == roots
        for link in self.ledger.listening:
            assert set(self.ledger.keys(link)) == set(self.wanted(link)), f"{link} knows other items than it should"
        self._matcher.check({link: held.keys() for link, held in self.held.items() if link is not None})  # type: ignore[misc]
