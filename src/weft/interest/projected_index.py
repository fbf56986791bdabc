"""Subscriptions of many attributes, found by the few most selective ones (MICS 5). Answers are exact; the curve only
excludes subscriptions that need not be compared.

Attributes are chosen greedily by how many pairs of sample subscriptions and events they rule out. Candidates come from
one look-up on the curve over these attributes, and each is then compared exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from weft.algebra.box import NormalForm
from weft.algebra.columns import BoxColumns
from weft.algebra.relate import Region, as_form, covers
from weft.errors import FilterError
from weft.index.base import AnyEvent, SubId
from weft.interest.subscription_index import SubscriptionIndex
from weft.model.schema import Schema
from weft.space.content import ContentSpace
from weft.space.grid import Grid
from weft.space.projection import DimensionChoice, choose

_SAMPLE = 1_000


class ProjectedIndex:
    """Subscriptions by a few attributes of a space.

    >>> from weft import parse
    >>> schema = Schema.from_dict({"attributes": {n: {"type": "float", "bounds": [0, 100]} for n in "abcd"}})
    >>> texts = ["a < 9 AND b > 1 AND c BETWEEN 5 AND 6", "c BETWEEN 50 AND 53 AND d > 2", "c > 98"]
    >>> filters = {SubId(number): parse(text) for number, text in enumerate(texts)}
    >>> index = ProjectedIndex.of(schema, filters, [{"a": n, "b": n, "c": n, "d": n} for n in range(100)], count=1)
    >>> index.space.grid.names, index.match({"a": 3, "b": 3, "c": 5.5}), index.covering(parse("c > 99 AND a = 1"))
    (('c',), [0], [2])
    """

    def __init__(self, space: ContentSpace) -> None:
        self.space = space
        self.asked = 0  # candidates that were compared
        self._forms: dict[SubId, NormalForm] = {}
        self._curve = SubscriptionIndex()

    @staticmethod
    def of(
        schema: Schema,
        subscriptions: Mapping[SubId, Region],
        events: Sequence[AnyEvent],
        *,
        count: int = 3,
        cells: int = 64,
    ) -> ProjectedIndex:
        """Choose `count` attributes of the schema by samples of both, and add the subscriptions."""
        forms = {sub: as_form(region) for sub, region in subscriptions.items()}
        names = chosen_names(schema, list(forms.values())[:_SAMPLE], events[:_SAMPLE], count, cells)
        index = ProjectedIndex(ContentSpace(Grid.uniform(schema, cells, names)))
        for sub, form in forms.items():
            index.add(sub, form)
        return index

    def __len__(self) -> int:
        return len(self._forms)

    def add(self, sub: SubId, region: Region) -> None:
        """Add a subscription. Raises FilterError if it never matches, DuplicateIdError if its id already exists."""
        form = as_form(region)
        self._curve.add(sub, self.space.ranges(form))
        self._forms[sub] = form

    def discard(self, sub: SubId) -> None:
        """Remove a subscription, if it exists."""
        self._curve.discard(sub)
        self._forms.pop(sub, None)

    def match(self, event: AnyEvent) -> list[SubId]:
        """The subscriptions that an event matches. Cost: O(log n + candidates)."""
        return self._exact(self._curve.at(self.space.index(event)).tolist(), lambda form: event in form)

    def covering(self, region: Region) -> list[SubId]:
        """The subscriptions that are proven to cover a filter."""
        form = as_form(region)
        return self._exact(self._curve.covering(self.space.ranges(form)).tolist(), lambda wide: covers(wide, form))

    def covered(self, region: Region) -> list[SubId]:
        """The subscriptions that a filter is proven to cover."""
        form = as_form(region)
        return self._exact(self._curve.within(self.space.ranges(form)).tolist(), lambda narrow: covers(form, narrow))

    def subsumes(self, region: Region) -> bool:
        """Whether the subscriptions together are proven to cover a filter. Only those that overlap it are compared."""
        form = as_form(region)
        near = self._curve.overlapping(self.space.ranges(form)).tolist()
        self.asked += len(near)
        boxes = tuple(box for sub in near for box in self._forms[SubId(sub)].boxes)
        return covers(NormalForm(boxes), form)

    def _exact(self, candidates: list[int], holds: Callable[[NormalForm], bool]) -> list[SubId]:
        self.asked += len(candidates)
        return sorted(SubId(sub) for sub in candidates if holds(self._forms[SubId(sub)]))


def chosen_names(
    schema: Schema, forms: Sequence[NormalForm], events: Sequence[AnyEvent], count: int, cells: int
) -> list[str]:
    """The attributes that rule out most pairs of sample subscriptions and events, the most selective first."""
    boxes = [box for form in forms for box in form.boxes]
    if not boxes:
        raise FilterError("attributes are chosen by a sample; give some subscriptions that can match")
    grid = Grid.uniform(schema, cells)
    found: DimensionChoice = choose(
        grid.boxes_of_columns(BoxColumns.of(boxes)), grid.cells(events), min(count, len(grid.names))
    )
    return [grid.names[place] for place in found.dimensions]
