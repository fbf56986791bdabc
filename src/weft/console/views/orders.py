"""Covering orders side by side (thesis 4.6): four structures of the same filters, what neighbours are told, merging.

Every answer is checked anew against pairwise comparison; a check that fails is part of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from weft.algebra.box import NormalForm
from weft.algebra.measure import volume
from weft.algebra.relate import as_form, covers
from weft.algebra.to_filter import to_filter
from weft.console.views.filter_steps import FilterChange, FilterSource, domain_of, filter_steps
from weft.console.views.panels import panel
from weft.errors import FilterTooComplexError, SchemaError
from weft.language.meaning import matches
from weft.merging.mergeability import FilterMerging, MergeBudget
from weft.merging.root_merging import RootMerging
from weft.model.schema import Schema
from weft.order import (
    BalancedForest,
    FilterRelation,
    Forest,
    Forwarding,
    Node,
    NonRedundantForest,
    Poset,
    Relation,
    Structure,
    match,
)

KINDS: dict[str, Callable[[Relation[Any]], Structure[Any]]] = {
    "FP": Poset,
    "PF": Forest,
    "BF": BalancedForest,
    "NRF": NonRedundantForest,
}
TITLES = {
    "FP": "Filters poset",
    "PF": "Poset-derived forest",
    "BF": "Balanced forest",
    "NRF": "Non-redundant forest",
}
_PAIRWISE = 250  # filters that are compared with each other
_LISTED = 200  # filters of a list
_MEASURED = 40  # roots whose volume is measured

NumberSet = frozenset[int]


class OrdersRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the page shows."""

    source: FilterSource = FilterSource()
    first: Annotated[int, Meta(ge=1, le=2_000)] = 300
    full: str = ""  # the structure that is drawn with whole filters
    budget: Annotated[float, Meta(ge=0, le=1)] = 0.02


class Check(NamedTuple):
    """A promise, whether it holds (None: not looked at), and what was found."""

    name: str
    holds: bool | None
    found: str

    def shown(self) -> dict[str, Any]:
        """For JSON."""
        return self._asdict()


class OrderSet:
    """The four structures of the same filters, kept up to date step by step."""

    def __init__(self, interfaces: Sequence[str]) -> None:
        self.structures = {name: make(FilterRelation()) for name, make in KINDS.items()}
        self.forwarding = {name: Forwarding(self.structures[name], interfaces) for name in ("FP", "PF")}
        self.present: dict[int, FilterChange] = {}
        self._relation = FilterRelation()
        self._keys: dict[int, Hashable] = {}

    def apply(self, change: FilterChange) -> None:
        """Add or remove a filter everywhere."""
        if change.adds:
            self._keys[change.number] = self._relation.key(self._relation.make(change.filter))
            self.present[change.number] = change
            self._each("add", change)
            return
        del self.present[change.number]
        key = self._keys.pop(change.number)
        mine = [each for each in self.present.values() if each.interface == change.interface]
        if any(self._keys[each.number] == key for each in mine):
            return  # the interface has the same filter under another number
        self._each("discard", change)
        for name, structure in self.structures.items():
            if not structure.redundant:  # what only the removed filter had made redundant
                target = self.forwarding.get(name, structure)
                for each in mine:
                    target.add(each.filter, each.interface)

    def _each(self, what: str, change: FilterChange) -> None:
        for name, structure in self.structures.items():
            target = self.forwarding.get(name, structure)
            getattr(target, what)(change.filter, change.interface)

    def numbers(self, structure: Structure[Any]) -> dict[Node[Any], list[int]]:
        """The numbers of each node's filters."""
        by_key: dict[Hashable, list[int]] = {}
        for number, key in self._keys.items():
            by_key.setdefault(key, []).append(number)
        return {node: by_key.get(structure.relation.key(node.made), []) for node in structure}

    def forms(self) -> dict[int, NormalForm]:
        """The filters that are there, one of each, by their lowest number."""
        seen: dict[Hashable, int] = {}
        for number, key in self._keys.items():
            seen.setdefault(key, number)
        return {number: as_form(self.present[number].filter) for number in seen.values()}

    def wanted_by(self, number: int) -> set[str]:
        """The interfaces that want a filter."""
        key = self._keys[number]
        return {each.interface for other, each in self.present.items() if self._keys[other] == key}


def orders_view(request: OrdersRequest) -> dict[str, Any]:
    """What the page shows."""
    steps = filter_steps(request.source)
    interfaces = sorted({change.interface for change in steps.changes}, key=lambda name: (len(name), name))
    orders = OrderSet(interfaces)
    for change in steps.changes[: steps.shown]:
        orders.apply(change)
    forms = orders.forms()
    naive = Naive(orders, forms) if len(forms) <= _PAIRWISE else None
    last = steps.changes[steps.shown - 1] if steps.shown else None
    forwards = _forwards(orders, interfaces, naive)
    merging = _merging(orders, domain_of(request.source, list(forms.values())), request.budget)
    return {
        "step": steps.shown,
        "steps": len(steps.changes),
        "last": last.text if last is not None else "",
        "notes": steps.notes,
        "filters": _filters(orders),
        "panels": {
            name: {
                "title": TITLES[name],
                **panel(structure, orders.numbers(structure), request.first, full=request.full == name),
            }
            for name, structure in orders.structures.items()
        },
        "cover": sorted(_roots(orders, "PF")),
        "forwards": forwards,
        "merging": merging,
        "checks": [each.shown() for each in _checks(request, orders, naive, forwards, merging)],
    }


def _filters(orders: OrderSet) -> list[dict[str, Any]]:
    rows = list(orders.present.values())[-_LISTED:]
    return [{"number": each.number, "interface": each.interface, "filter": str(each.filter)} for each in rows]


def _roots(orders: OrderSet, name: str) -> NumberSet:
    structure = orders.structures[name]
    numbers = orders.numbers(structure)
    return frozenset(min(numbers[node], default=0) for node in structure.roots)


# -- by comparing each with each ------------------------------------------------------------------------------


class Naive:
    """What follows from comparing each filter with each, without any structure. Cost: O(n^2)."""

    def __init__(self, orders: OrderSet, forms: dict[int, NormalForm]) -> None:
        self._wanted = {number: orders.wanted_by(number) for number in forms}
        self._above = {
            number: {
                other
                for other, wide in forms.items()
                if other != number and covers(wide, form) and not (covers(form, wide) and other > number)
            }
            for number, form in forms.items()
        }

    def cover(self, among: NumberSet | None = None) -> NumberSet:
        """The filters that no other one covers."""
        numbers = frozenset(self._above) if among is None else among
        return frozenset(number for number in numbers if not self._above[number] & numbers)

    def forwards(self, neighbour: str) -> NumberSet:
        """What a neighbour must be told: the minimal cover of what others want (Theorem 3.1)."""
        return self.cover(frozenset(number for number, by in self._wanted.items() if by - {neighbour}))


def _forwards(orders: OrderSet, interfaces: Sequence[str], naive: Naive | None) -> list[dict[str, Any]]:
    """For each neighbour what it is told by each mechanism, and where they differ."""
    numbers = {name: orders.numbers(orders.structures[name]) for name in ("FP", "PF")}
    rows = []
    for neighbour in interfaces:
        told = {"naive": None if naive is None else naive.forwards(neighbour)}
        for mechanism, name in (("poset", "FP"), ("forest", "PF")):
            nodes = orders.forwarding[name].told(neighbour)
            told[mechanism] = frozenset(min(numbers[name].get(node, []), default=0) for node in nodes)
        sets = [each for each in told.values() if each is not None]
        rows.append(
            {
                "neighbour": neighbour,
                "equal": all(each == sets[0] for each in sets),
                **{mechanism: None if found is None else sorted(found) for mechanism, found in told.items()},
            }
        )
    return rows


# -- merging ---------------------------------------------------------------------------------------------------


def _merging(orders: OrderSet, domain: Schema | None, budget: float) -> dict[str, Any]:
    """The root set, merged perfectly, and within a budget of added volume."""
    given = [(each.filter, each.interface) for each in orders.present.values()]
    perfect = RootMerging(Forest(FilterRelation(domain)), FilterMerging(domain))
    within = RootMerging(Forest(FilterRelation(domain)), FilterMerging(domain, MergeBudget(budget)))
    for filter_, interface in given:
        perfect.add(filter_, interface)
        if domain is not None:
            within.add(filter_, interface)
    roots = [node.thing for node in perfect.structure.roots]
    return {
        "roots": len(roots),
        "budget": budget,
        "measured": domain is not None,
        "perfect": _merged(perfect, roots, domain),
        "imperfect": _merged(within, roots, domain) if domain is not None else None,
    }


def _merged(merging: RootMerging[Any], roots: list[Any], domain: Schema | None) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for item in merging.merged:
        parts = merging.merged.components(item)
        added = _added([item.thing], parts, domain) if len(parts) > 1 else 0.0
        items.append({"filter": _text(item.thing), "parts": [_text(part) for part in parts], "added": added})
    items.sort(key=lambda each: -len(each["parts"]))
    try:
        merging.check()
        broken = ""
    except AssertionError as error:
        broken = str(error) or "an invariant of the merged set is broken"
    everything = [item.thing for item in merging.merged]
    measured = len(roots) <= _MEASURED
    return {
        "items": items[:_LISTED],
        "count": len(items),
        "mergers": sum(len(each["parts"]) > 1 for each in items),
        "lets_through": _added(everything, roots, domain) if measured else None,
        "waste": merging.merged.waste,
        "broken": broken,
    }


def _added(wide: Sequence[Any], parts: Sequence[Any], domain: Schema | None) -> float | None:
    """How much more some regions let through than others, as a share of these; None where it cannot be measured."""
    if domain is None:
        return None
    try:
        one, other = (
            volume(
                NormalForm(tuple(box for region in regions for box in as_form(region, domain).boxes), domain), domain
            )
            for regions in (wide, parts)
        )
    except (FilterTooComplexError, SchemaError):
        return None
    return one / other - 1 if other else None


def _text(thing: Any) -> str:
    return str(to_filter(thing) if isinstance(thing, NormalForm) else thing)


# -- checks ------------------------------------------------------------------------------------------------------


def _checks(
    request: OrdersRequest,
    orders: OrderSet,
    naive: Naive | None,
    forwards: list[dict[str, Any]],
    merging: dict[str, Any],
) -> list[Check]:
    found = [_invariants(name, structure) for name, structure in orders.structures.items()]
    for name, table in orders.forwarding.items():
        try:
            table.check()
        except AssertionError as error:
            found.append(Check(f"forwards sets of {name}", False, str(error) or "an invariant is broken"))
    if naive is None:
        found.append(Check("minimal cover", None, f"each with each is compared up to {_PAIRWISE} filters"))
    else:
        cover = naive.cover()
        wrong = [name for name in KINDS if _roots(orders, name) != cover]
        said = f"{len(cover)} roots in each structure" if not wrong else f"{', '.join(wrong)} has other roots"
        found.append(Check("minimal cover", not wrong, said))
        different = [row["neighbour"] for row in forwards if not row["equal"]]
        said = f"naive, poset and forest agree for {len(forwards)} neighbours"
        said = said if not different else f"mechanisms differ for {', '.join(different)}"
        found.append(Check("forwards sets", not different, said))
    found.append(_notifications(request, orders))
    broken = merging["perfect"]["broken"] or (merging["imperfect"] or {}).get("broken", "")
    added = merging["perfect"]["lets_through"]
    sound = not broken and (added is None or abs(added) < 1e-9)
    said = broken or (f"{merging['roots']} roots as {merging['perfect']['count']} filters, nothing added")
    found.append(Check("perfect merging", sound, said if sound or broken else f"lets through {added:.2%} more"))
    return found


def _invariants(name: str, structure: Structure[Any]) -> Check:
    try:
        structure.check()
    except AssertionError as error:
        return Check(f"invariants of {name}", False, str(error) or "an invariant is broken")
    return Check(f"invariants of {name}", True, "hold")


def _notifications(request: OrdersRequest, orders: OrderSet) -> Check:
    """Whether every structure finds the interfaces that want each event."""
    names = sorted({name for each in orders.forms().values() for box in each.boxes for name in box.sets})
    domain = domain_of(request.source, list(orders.forms().values()))
    spans: dict[str, tuple[float, float]] = dict.fromkeys(names, (0.0, 100.0))
    if domain is not None:
        spans |= {name: (float(domain[name].low), float(domain[name].high)) for name in domain}  # type: ignore[arg-type]
    low, high = min((s[0] for s in spans.values()), default=0), max((s[1] for s in spans.values()), default=100)
    events = request.source.generator.events(names, low, high)
    count = 0
    for event in events:
        wanted = {each.interface for each in orders.present.values() if matches(each.filter, event)}
        count += len(wanted)
        for name, structure in orders.structures.items():
            got = match(structure, event)
            if got != wanted:
                said = f"{name} sends {event} to {sorted(map(str, got))}, not to {sorted(wanted)}"
                return Check("notifications", False, said)
    return Check("notifications", True, f"{len(events)} events, {count} times an interface wants one")
