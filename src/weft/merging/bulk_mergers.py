"""Very many filters merged at once. A merger matches every event that its components and the filters it covers match,
and without a budget no others. Every filter is in exactly one merger. Every merger can be written as text and parsed
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.algebra.box import NormalForm
from weft.algebra.relate import Region
from weft.algebra.to_filter import to_filter
from weft.errors import WeftError
from weft.language.text import parse
from weft.merging.mergeability import FilterMerging, MergeBudget
from weft.merging.merged_set import MergedSet
from weft.model.schema import Schema
from weft.order.filter_relation import FilterRelation


@dataclass(frozen=True, slots=True)
class BulkMerger:
    """A filter that stands for several: its components, the first one first, and the other filters that it covers.

    A filter that merges with no other is its own only component, and its text is None.
    """

    text: str | None
    components: tuple[int, ...]
    covered: tuple[int, ...] = ()


def merge_all(forms: Sequence[NormalForm], schema: Schema | None = None, budget: float = 0.0) -> list[BulkMerger]:
    """Merge satisfiable filters into few mergers; `budget` is the share of the domain that these may add.

    >>> from weft import normalize, parse
    >>> texts = ["x < 10", "y = 1", "x >= 5 AND x < 20", "x > 3 AND y = 1"]
    >>> merge_all([normalize(parse(text)) for text in texts])[0]
    BulkMerger(text='x < 20', components=(0, 2), covered=())
    """
    merging = FilterMerging(schema, MergeBudget(budget) if budget > 0 else None)
    told: MergedSet[Region] = MergedSet(FilterRelation(schema), merging)
    things = [NormalForm(form.boxes, form.schema) for form in forms]  # one object each, even for equal forms
    places = {id(thing): place for place, thing in enumerate(things)}
    told.change(enumerate(things), ())
    mergers: list[BulkMerger] = []
    for item in told:
        components = tuple(sorted(places[id(thing)] for thing in told.components(item)))
        covered = tuple(sorted(places[id(thing)] for thing in told.covered(item)))
        text = None if len(components) == 1 else _text(item.thing)
        if len(components) > 1 and text is None:  # it cannot be written as text: keep each filter as it is
            mergers += [BulkMerger(None, (place,)) for place in (*components, *covered)]
        else:
            mergers.append(BulkMerger(text, components, covered))
    return sorted(mergers, key=lambda merger: merger.components)


def _text(thing: Region) -> str | None:
    """The merger as text that can be parsed again, or None if it cannot be written that way."""
    if not isinstance(thing, NormalForm):
        return None
    try:
        text = str(to_filter(thing))
        parse(text)
    except WeftError:
        return None
    return text
