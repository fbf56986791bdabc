"""Results about one filter that the spaces of all neighbours share. The answer is the one that each space would compute
by itself.

Only the newest filter is remembered: neighbours get the same filter one after the other.
"""

from __future__ import annotations

from typing import NamedTuple

from weft.algebra.box import NormalForm
from weft.algebra.budget import Budget
from weft.algebra.relate import covers
from weft.interest.label_axes import LabelAxes, TileSpans
from weft.model.limits import LIMITS

_SHARE = 20  # one comparison gets this part of the steps of an operation


class FilterProducts(NamedTuple):
    """A filter as products of intervals around all of it; the first `exact` ones are parts of it."""

    around: list[TileSpans]
    exact: int
    whole: bool  # all are parts of it, so together they are the filter


class SharedFilters:
    """The products and comparisons of the newest filter.

    >>> from weft import normalize, parse
    >>> shared, wide, narrow = SharedFilters(), normalize(parse("x > 1")), normalize(parse("x > 2 OR x = 5 AND y = 1"))
    >>> shared.products(narrow, LabelAxes()).exact, shared.covers(wide, narrow)[0]
    (1, True)
    """

    def __init__(self) -> None:
        self._form: NormalForm | None = None
        self._products: dict[tuple[frozenset[str], int], FilterProducts] = {}  # by the axes that the filter has
        self._compared: dict[int, tuple[NormalForm, bool, int]] = {}

    def _renew(self, form: NormalForm) -> None:
        if form is not self._form:
            self._form, self._products, self._compared = form, {}, {}

    def products(self, form: NormalForm, axes: LabelAxes, *, widen: bool = True) -> FilterProducts:
        """A filter by the axes of a space. Its attributes become axes if they may `widen` the space."""
        self._renew(form)
        names = dict.fromkeys([name for box in form.boxes for name in box.sets])
        if widen:
            axes.widen(names)
        key = axes.known(names), axes.most_rows
        found = self._products.get(key)
        if found is None:
            found = self._products[key] = _products(form, axes)
        return found

    def covers(self, other: NormalForm, form: NormalForm) -> tuple[bool, int]:
        """Whether another filter covers this one, and the steps that this took; False when they are used up."""
        self._renew(form)
        known = self._compared.get(id(other))
        if known is None:
            budget = Budget(LIMITS.steps // _SHARE)
            covered = covers(other, form, form.schema, budget)
            known = self._compared[id(other)] = other, covered, budget.used  # keeps `other`, so that its id stays its
        return known[1:]


def _products(form: NormalForm, axes: LabelAxes) -> FilterProducts:
    """There are at most `most_rows` exact ones; beyond that, the remaining boxes get one around them together."""
    exact: list[TileSpans] = []
    others: list[TileSpans] = []
    for number, box in enumerate(form.boxes):
        most = axes.most_rows - len(exact) - len(others)
        if most < 1:
            others.append(axes.around(form.boxes[number:]))
            break
        parts = axes.spans(box, most=most)
        if parts is None:
            others += axes.hull(box, most=most)
        else:
            exact += parts
    return FilterProducts(exact + others, len(exact), not others)
