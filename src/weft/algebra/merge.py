"""Merging of filters (thesis, Appendix A.4 to A.6). Laws: a merger covers its parts; it is called perfect only when it
matches nothing else; an imperfect one states the volume that it adds. Where the budget does not suffice, there is no
perfect merger, and the added volume is unknown.

Every rule of Table A.2 is the union of two value sets, with its errata: the existence test is typed (`x < 10 OR
x != 7` holds for every number x, not for a string), and integers merge across the gap between neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from weft.algebra.box import Box, NormalForm
from weft.algebra.budget import Budget
from weft.algebra.measure import volume
from weft.algebra.normalize import simplify
from weft.algebra.relate import Region, as_form, covers
from weft.algebra.residual import Outcomes, Subject
from weft.algebra.to_filter import to_filter
from weft.algebra.valueset import ValueSet
from weft.errors import FilterError, FilterTooComplexError, SchemaError
from weft.model.schema import Schema


@dataclass(frozen=True, slots=True)
class Merger:
    """A merged filter: what it matches, by which rule, and the volume that its parts do not have.

    `added` is 0 for a perfect merger, and None where it cannot be measured: the schema has no bounds, or the budget is
    used up.
    """

    form: NormalForm
    rule: str
    added: float | None

    @property
    def perfect(self) -> bool:
        """Whether it matches exactly what its parts match."""
        return self.rule in ("covering", "perfect")

    def __repr__(self) -> str:
        added = "an unknown volume" if self.added is None else f"a volume of {self.added:g}"
        kind = self.rule if self.perfect else f"{self.rule}, adds {added}"
        try:
            return f"<weft.Merger, {kind}: {to_filter(self.form)}>"
        except FilterTooComplexError:
            return f"<weft.Merger, {kind}: a filter of {len(self.form.boxes):,} boxes>"

    def _repr_html_(self) -> str:
        return f"<code>{escape(repr(self).strip('<>'))}</code>"


def merge(regions: Iterable[Region], schema: Schema | None = None) -> Merger:
    """The best merger: a perfect one if there is one, else the imperfect one that adds the least.

    Cost: at most n * n comparisons of n regions, and the steps of a few budgets. Filters are normalised first.

    >>> from weft import to_filter
    >>> print(to_filter(merge(["x < 10 AND a", "x >= 5 AND a"]).form))
    (x < 0 OR x >= 0) AND a
    """
    forms = _forms(regions, schema)
    perfect = merge_perfect(forms, schema)
    if perfect is not None:
        return perfect
    found = [m for m in (merge_attributes(forms, schema), merge_bounding(forms, schema)) if m is not None]
    return min(found, key=lambda m: (m.added is None, m.added or 0.0))


def merge_perfect(regions: Iterable[Region], schema: Schema | None = None) -> Merger | None:
    """The exact union, if it is no more complex than the most complex part; else None.

    For filters with one box each, this is one box, in which an attribute may have a disjunction.
    """
    forms = _forms(regions, schema)
    widest = max(forms, key=lambda form: len(form.boxes))
    budget = Budget()
    try:
        for form in forms:
            if all(form is other or covers(form, other, schema, budget) for other in forms):
                return Merger(form, "covering", 0.0)
        union = simplify((box for form in forms for box in form.boxes), schema, Budget())
    except FilterTooComplexError:
        return None
    if len(union.boxes) <= max(1, len(widest.boxes)):
        return Merger(union, "perfect", 0.0)
    return None


def merge_attributes(regions: Iterable[Region], schema: Schema | None = None) -> Merger | None:
    """Attribute by attribute, for structurally equal filters (A.6): one box each, with the same attributes of the
    same types and the same residuals; else None.
    """
    forms = _forms(regions, schema)
    if any(len(form.boxes) != 1 for form in forms):
        return None
    boxes = [form.boxes[0] for form in forms]
    if any(_structure(box) != _structure(boxes[0]) for box in boxes):
        return None
    budget = Budget()
    try:
        sets = {name: ValueSet.union_of([box.sets[name] for box in boxes], budget) for name in boxes[0].sets}
        whole = Box.of(sets, boxes[0].residuals, schema, budget)
    except FilterTooComplexError:
        return None
    return _imperfect(whole, "attributes", forms, schema)


def merge_bounding(regions: Iterable[Region], schema: Schema | None = None) -> Merger:
    """The bounding box: for each attribute that all parts test, the smallest interval around them."""
    forms = _forms(regions, schema)
    boxes = [box for form in forms for box in form.boxes]
    if not boxes:
        return Merger(NormalForm((), schema), "covering", 0.0)
    shared = set.intersection(*(set(box.sets) for box in boxes))
    sets = {
        name: ValueSet.union_of([box.sets[name].hull() for box in boxes]).hull()
        for name in boxes[0].sets
        if name in shared
    }
    return _imperfect(Box.of(sets, _shared_residuals(boxes), schema), "bounding", forms, schema)


def _forms(regions: Iterable[Region], schema: Schema | None) -> list[NormalForm]:
    forms = [as_form(region, schema) for region in regions]
    if not forms:
        raise FilterError("merging needs at least one filter")
    return forms


def _imperfect(box: Box | None, rule: str, forms: Sequence[NormalForm], schema: Schema | None) -> Merger:
    form = NormalForm(() if box is None else (box,), schema)
    return Merger(form, rule, _added(form, forms, schema))


def _added(form: NormalForm, parts: Sequence[NormalForm], schema: Schema | None) -> float | None:
    if schema is None:
        return None
    union = NormalForm(tuple(box for part in parts for box in part.boxes), schema)
    try:
        return max(0.0, volume(form, schema) - volume(union, schema))
    except (SchemaError, FilterTooComplexError):
        return None


def _structure(box: Box) -> tuple[object, object]:
    parts = {
        name: (bool(v.numbers), bool(v.strings), bool(v.bools), bool(v.timestamps), v.absent)
        for name, v in box.sets.items()
    }
    return parts, dict(box.residuals)


def _shared_residuals(boxes: Sequence[Box]) -> dict[Subject, Outcomes]:
    """The subjects that all boxes restrict, with every outcome that one of them allows."""
    subjects = set.intersection(*(set(box.residuals) for box in boxes))
    return {s: frozenset().union(*(box.residuals[s] for box in boxes)) for s in boxes[0].residuals if s in subjects}
