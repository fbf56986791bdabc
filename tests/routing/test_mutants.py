"""Tables with one mistake each: the conformance body must catch every one, or its laws say nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from routing.machine import Network, network
from routing.models import KNOWN, LeastRoots, Model, NaiveTable
from weft.errors import ProtocolError
from weft.index.base import AnyEvent, SubId
from weft.language.ast import Filter
from weft.model.change import Change
from weft.routing.adverts import Advertised
from weft.routing.filter_table import FilterOverlap
from weft.routing.identity.table import Form, FormKey, IdentityTable, form_key
from weft.routing.interface import TableInterface
from weft.routing.jobs import Job
from weft.routing.local import RootSetChange
from weft.routing.routed_filter import RoutedFilter
from weft.routing.simple.table import Copy, SimpleTable
from weft.routing.table import Link, Source, Tell, Update

At = TableInterface[Any, Any]


class ForgetsTheOthers(IdentityTable):
    """Withdraws a form with the first of its holders, and does not tell it again for the others."""

    def revise(self, source: At, drop: Sequence[Form], add: Sequence[Form]) -> Job:
        yield from super().revise(source, drop, add)
        for form in drop:
            for interface in self.listening(source):
                self.withdraw(interface, form)


class LosesTheUncovered(NaiveTable):
    """Drops a filter without telling those that it alone covered."""

    new: frozenset[FormKey] = frozenset()

    def revise(self, source: At, drop: Sequence[RoutedFilter], add: Sequence[RoutedFilter]) -> Job:
        self.new = frozenset(form_key(each.form) for each in add)
        yield from super().revise(source, drop, add)

    def tell(self, interface: At, key: FormKey) -> None:
        if key in self.new:
            super().tell(interface, key)


class AddsBeforeDrops(IdentityTable):
    """Lets a source hold a form or not, and applies the adds of an update before its drops."""

    def revise(self, source: At, drop: Sequence[Form], add: Sequence[Form]) -> Job:
        for form in add:
            form.holders[source] = 1
        for form in drop:
            form.holders.pop(source, None)
        for form in (*add, *drop):
            for interface in self.listening(source):
                wanted = bool(form.holders.keys() - {interface})
                if wanted and not interface.ledger.knows(form):
                    self.tell(interface, form)
                elif not wanted:
                    self.withdraw(interface, form)
            if not form.holders:
                self.forms.pop(form.key, None)
        yield


class AddsRootsBeforeDrops(LeastRoots):
    """A local part that does the same."""

    def change(self, add: Mapping[SubId, Filter], drop: Collection[SubId]) -> RootSetChange:
        super().change(add, drop)
        return Change(drop, {sub: wanted for sub, wanted in add.items() if sub not in drop})


class ElidesLocals(IdentityTable):
    """Takes a local client's filter for known when a neighbour wants the same."""

    def revise(self, source: At, drop: Sequence[Form], add: Sequence[Form]) -> Job:
        yield from super().revise(source, drop, add)
        for form in (*drop, *add):
            for interface in self.listening():
                if form.holders.keys() == {self.here, interface}:
                    self.withdraw(interface, form)


class AnswersItsSource(IdentityTable):
    """Tells a neighbour its own filter back, as if somebody here wanted it."""

    def revise(self, source: At, drop: Sequence[Form], add: Sequence[Form]) -> Job:
        yield from super().revise(source, drop, add)
        for form in add:
            if source.listening and not source.ledger.knows(form):
                self.tell(source, form)


class ForgetsToWithdraw(IdentityTable):
    """Forgets a link that is gone, and tells nobody."""

    def detach(self, link: Link) -> list[Tell]:
        super().detach(link)
        return []


class KeepsTheGone(SimpleTable):
    """Goes on wanting what a link that is gone had wanted."""

    def _depart(self, interface: At) -> Job:
        yield from self.link_removed(interface)


class ReplacesInTwoSteps(SimpleTable):
    """Drops in one update and adds in the next: every law of a table holds, but an event may fall between."""

    def _flush(self) -> list[Tell]:
        tells = super()._flush()
        return [
            Tell(tell.link, part)
            for tell in tells
            for part in (
                (tell.update,)
                if tell.update.fresh or not (tell.update.drop and tell.update.add)
                else (Update(drop=tell.update.drop), Update(add=tell.update.add))
            )
        ]


class SendsBack(SimpleTable):
    """Sends an event back to where it came from, if it is wanted there."""

    def route(self, event: AnyEvent, source: Source) -> set[Link]:
        return super().route(event, None)


class KeepsFromTheMaster(SimpleTable):
    """Sends its master only what it asked for, which is nothing."""

    def route(self, event: AnyEvent, source: Source) -> set[Link]:
        return self._matcher.wanting(event) - {source}


class KeepsTheDropped(SimpleTable):
    """Goes on telling others what a neighbour has dropped."""

    def revise(self, source: At, drop: Sequence[Copy], add: Sequence[Copy]) -> Job:
        return super().revise(source, drop if source is self.here else (), add)


class IgnoresNewAdvertisements(Advertised):
    """Does not tell a neighbour what it has just advertised."""

    def _compare(self, page: Any, changed: Any) -> Job:
        known = {*page.ledger.keys()}
        yield from super()._compare(page, changed)
        for item_id in [*page.ledger.keys()]:
            if item_id not in known:
                page.ledger.withdraw(item_id)


class WithdrawsTooMuch(Advertised):
    """Withdraws what an advertisement that went had met, whatever others meet it."""

    def _compare(self, page: Any, changed: Any) -> Job:
        gone = [each for each in changed if each not in page.adverts.values()]
        yield from super()._compare(page, changed)
        for item_id in [*page.ledger.keys()]:
            if self._meets_any(page.items[item_id], gone):
                page.ledger.withdraw(item_id)


class NeverWithdraws(Advertised):
    """Keeps telling what nobody advertises any more."""

    def _compare(self, page: Any, changed: Any) -> Job:
        known = {*page.ledger.keys()}
        yield from super()._compare(page, changed)
        for item_id in known:
            if not page.ledger.knows(item_id):
                page.ledger.tell(item_id)


class Misjudges(FilterOverlap):
    """Takes a filter and an advertisement that are not equal for apart."""

    def meets(self, item: object, advertisement: object) -> bool:
        return item == advertisement


class MisjudgesOverlap(SimpleTable):
    """Compares its items with advertisements wrongly."""

    @property
    def overlap(self) -> Misjudges:
        return Misjudges()


TABLES: dict[str, Any] = {
    "forgets the others": ForgetsTheOthers,
    "loses the uncovered": LosesTheUncovered,
    "adds before drops": AddsBeforeDrops,
    "adds roots before drops": lambda **options: SimpleTable(local=AddsRootsBeforeDrops(), **options),
    "elides locals": ElidesLocals,
    "answers its source": AnswersItsSource,
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
    "misjudges overlap": lambda table, **options: Advertised(MisjudgesOverlap(**KNOWN), **options),
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
    make = partial(TABLES[name], **KNOWN)
    assert is_caught(network(Model(make), hierarchical=name == "keeps from the master"))


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrong_advertisements_are_caught(name: str) -> None:
    machine = network(Model(lambda: WRAPPERS[name](SimpleTable(**KNOWN), **KNOWN)), advertised=True)
    machine.make = lambda self: self.model.make()  # type: ignore[method-assign]
    assert is_caught(machine)
