"""A filter on its way to a neighbour: the item that is told, and what a model has computed of it.

Every table of filters passes on this one value, from the subscription or the neighbour's item to what is told. It is
compared by identity: two subscriptions with equal filters are two of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from weft.algebra.box import NormalForm
from weft.language.ast import Filter

AxisSpan = tuple[int, float, float, int]  # the number of an axis, low, high and marks, as in kernels.boxes


class RoutedFilter:
    """A filter and its normal form, its hull and its canonical key, as far as they are known.

    The normal form is None while nobody needs it: a filter that is a box is compared by its hull, and then `exact` is
    true. Filters with equal keys match the same events. A table that compares no hulls leaves the key None.
    """

    __slots__ = ("exact", "form", "item", "key", "spans")

    def __init__(
        self,
        item: Filter | NormalForm,
        form: NormalForm | None = None,
        key: Hashable = None,
        spans: Sequence[AxisSpan] = (),
        exact: bool = False,
    ) -> None:
        self.item = item
        self.form = form
        self.key = key
        self.spans = spans
        self.exact = exact

    @property
    def normal_form(self) -> NormalForm:
        """The normal form of a filter of a table that needs it."""
        assert self.form is not None, "this table computes normal forms"
        return self.form

    def __repr__(self) -> str:
        return f"RoutedFilter({self.item!s})"
