"""Tables with one mistake each: the conformance body must catch every one, or its laws say nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from routing.machine import Network, network
from routing.models import Model, NaiveTable, small_index
from weft.errors import ProtocolError
from weft.index.base import AnyEvent, SubId
from weft.routing.adverts import Advertised, Overlap
from weft.routing.identity import Form, IdentityTable, form_of
from weft.routing.ledger import Revision
from weft.routing.local import EveryRoot, Held, RootChange
from weft.routing.simple import SimpleTable
from weft.routing.table import Item, ItemId, Link, Source, Tell, Update

Wanted = Mapping[int, Held]


class ForgetsTheOthers(IdentityTable):
    """Withdraws a form with the first of its holders, and does not tell it again for the others."""

    def revise(self, source: Source, drop: Wanted, add: Wanted) -> Mapping[Link, Revision[Form]]:
        revisions = dict(super().revise(source, drop, add))
        for held in drop.values():
            for link in self.listening(source):
                form, revision = form_of(held), revisions[link]
                if form in self.ledger.keys(link) and form not in revision.drop:
                    revisions[link] = Revision([*revision.drop, form], revision.add)
        return revisions


class LosesTheUncovered(NaiveTable):
    """Drops a filter without telling those that it alone covered."""

    def revise(self, source: Source, drop: Wanted, add: Wanted) -> Mapping[Link, Revision[Form]]:
        revisions = super().revise(source, drop, add)
        new = {form_of(each) for each in add.values()}
        return {
            link: Revision(revision.drop, {form: item for form, item in revision.add.items() if form in new})
            for link, revision in revisions.items()
        }


class AddsBeforeDrops(IdentityTable):
    """Lets a source hold a form or not, and applies the adds of an update before its drops."""

    def revise(self, source: Source, drop: Wanted, add: Wanted) -> Mapping[Link, Revision[Form]]:
        for held in add.values():
            self.holders.setdefault(form_of(held), {})[source] = 1
            self._items.setdefault(form_of(held), held.item)
        for held in drop.values():
            self.holders.get(form_of(held), {}).pop(source, None)
        self.holders = {form: holders for form, holders in self.holders.items() if holders}
        return {link: self.ledger.revision(link, self.wanted(link)) for link in self.listening(source)}


class AddsRootsBeforeDrops(EveryRoot):
    """A local part that does the same."""

    def change(self, add: Mapping[SubId, Held], drop: Collection[SubId]) -> RootChange:
        super().change(add, drop)
        return RootChange(drop, {sub: held for sub, held in add.items() if sub not in drop})


class ElidesLocals(IdentityTable):
    """Takes a local client's filter for known when a neighbour wants the same."""

    def wanted(self, link: Link) -> Mapping[Form, Item]:
        known = super().wanted(link)
        return {form: item for form, item in known.items() if self.holders[form].keys() != {None, link}}

    def revise(self, source: Source, drop: Wanted, add: Wanted) -> Mapping[Link, Revision[Form]]:
        super().revise(source, drop, add)
        return {link: self.ledger.revision(link, self.wanted(link)) for link in self.listening()}


class ForgetsToWithdraw(IdentityTable):
    """Forgets a link that is gone, and tells nobody."""

    def detach(self, link: Link) -> list[Tell]:
        super().detach(link)
        return []


class KeepsTheGone(SimpleTable):
    """Goes on wanting what a link that is gone had wanted."""

    def detach(self, link: Link) -> list[Tell]:
        self.ledger.detach(link)
        self._matcher.detach(link)
        return []


class ReplacesInTwoSteps(SimpleTable):
    """Drops in one update and adds in the next: every law of a table holds, but an event may fall between."""

    def tell(self, revisions: Mapping[Link, Revision[Any]]) -> list[Tell]:
        first = super().tell({link: Revision(drop, {}) for link, (drop, _) in revisions.items()})
        return first + super().tell({link: Revision((), add) for link, (_, add) in revisions.items()})


class SendsBack(SimpleTable):
    """Sends an event back to where it came from, if it is wanted there."""

    def route(self, event: AnyEvent, source: Source) -> set[Link]:
        return super().route(event, None)


class KeepsFromTheMaster(SimpleTable):
    """Sends its master only what it asked for, which is nothing."""

    def route(self, event: AnyEvent, source: Source) -> set[Link]:
        return self._matcher.wanting(event, source)


class KeepsTheDropped(SimpleTable):
    """Goes on telling others what a neighbour has dropped."""

    def learn(self, link: Link, update: Update) -> list[Tell]:
        held = {**self.held[link]}
        tells = super().learn(link, update)
        for item_id in update.drop:  # the index forgets it, the table does not
            self.held[link][item_id] = held[item_id]
        return tells


class IgnoresNewAdvertisements(Advertised):
    """Does not tell a neighbour what it has just advertised."""

    def _advertisements_changed(self, link: Link) -> Revision[ItemId]:
        revision = super()._advertisements_changed(link)
        return Revision(revision.drop, {})


class WithdrawsTooMuch(Advertised):
    """Withdraws what an advertisement that went had met, whatever others meet it."""

    def _is_due(self, link: Link, item_id: ItemId) -> bool:
        return not self._withdrawing and super()._is_due(link, item_id)

    def _advertisements_changed(self, link: Link) -> Revision[ItemId]:
        self._withdrawing = True
        try:
            return super()._advertisements_changed(link)
        finally:
            self._withdrawing = False

    _withdrawing = False


class NeverWithdraws(Advertised):
    """Keeps telling what nobody advertises any more."""

    def _advertisements_changed(self, link: Link) -> Revision[ItemId]:
        return Revision((), super()._advertisements_changed(link).add)


class Misjudges(Overlap):
    """Takes a filter and an advertisement that are not equal for apart."""

    def meets(self, item: Any, advertisement: Any) -> bool:
        return bool(item == advertisement)


TABLES: dict[str, Any] = {
    "forgets the others": ForgetsTheOthers,
    "loses the uncovered": LosesTheUncovered,
    "adds before drops": AddsBeforeDrops,
    "adds roots before drops": lambda **options: SimpleTable(local=AddsRootsBeforeDrops(), **options),
    "elides locals": ElidesLocals,
    "forgets to withdraw": ForgetsToWithdraw,
    "keeps the gone": KeepsTheGone,
    "replaces in two steps": ReplacesInTwoSteps,
    "sends back": SendsBack,
    "keeps from the master": KeepsFromTheMaster,
    "keeps what is dropped": KeepsTheDropped,
}
WRAPPERS: dict[str, Any] = {
    "ignores new advertisements": IgnoresNewAdvertisements,
    "withdraws too much": WithdrawsTooMuch,
    "never withdraws": NeverWithdraws,
    "misjudges overlap": partial(Advertised, overlap=Misjudges()),
}


def is_caught(machine: type[Network]) -> bool:
    """Whether a law fails within a moderate number of examples; shrinking them is no use here."""
    once = settings(phases=[Phase.generate], derandomize=True, database=None, report_multiple_bugs=False)
    quick = settings(once, max_examples=300, deadline=None, suppress_health_check=[*HealthCheck])
    machine.check = _nothing  # type: ignore[method-assign]  # the laws must do without the table's own check
    try:
        run_state_machine_as_test(machine, settings=quick)  # type: ignore[no-untyped-call]
    except (AssertionError, ProtocolError):
        return True
    return False


def _nothing(self: Network) -> None:
    pass


@pytest.mark.parametrize("name", TABLES)
def test_a_wrong_table_is_caught(name: str) -> None:
    make = partial(TABLES[name], index=small_index)
    assert is_caught(network(Model(make), hierarchical=name == "keeps from the master"))


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrong_advertisements_are_caught(name: str) -> None:
    machine = network(Model(lambda: WRAPPERS[name](SimpleTable(index=small_index), index=small_index)), advertised=True)
    machine.make = lambda self: self.model.make()  # type: ignore[method-assign]
    assert is_caught(machine)
