"""Very many filters merged at once. Laws: a merger matches all that its components and what it covers match, and with
no budget nothing else; every filter is in one of them, once; each can be written as text and read again.
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
    """What some filters are told as: those that it is made of, the first one first, and what else it covers.

    A filter that nothing merges with is its own only component, and has no text but its own: None.
    """

    text: str | None
    components: tuple[int, ...]
    covered: tuple[int, ...] = ()


def merge_all(forms: Sequence[NormalForm], schema: Schema | None = None, budget: float = 0.0) -> list[BulkMerger]:
    """Filters, none of which matches nothing, as few mergers; `budget` is the share of the domain they may add.

    >>> from weft import normalize, parse
    >>> texts = ["x < 10", "y = 1", "x >= 5 AND x < 20", "x > 3 AND y = 1"]
    >>> merge_all([normalize(parse(text)) for text in texts])[0]
    BulkMerger(text='x < 20', components=(0, 2), covered=())
    """
    merging = FilterMerging(schema, MergeBudget(budget) if budget > 0 else None)
    told: MergedSet[Region] = MergedSet(FilterRelation(schema), merging)
    things = [NormalForm(form.boxes, form.schema) for form in forms]  # each one object, however many are equal
    places = {id(thing): place for place, thing in enumerate(things)}
    told.change(enumerate(things), ())
    mergers: list[BulkMerger] = []
    for item in told:
        components = tuple(sorted(places[id(thing)] for thing in told.components(item)))
        covered = tuple(sorted(places[id(thing)] for thing in told.covered(item)))
        text = None if len(components) == 1 else _text(item.thing)
        if len(components) > 1 and text is None:  # it cannot be written: each as it is
            mergers += [BulkMerger(None, (place,)) for place in (*components, *covered)]
        else:
            mergers.append(BulkMerger(text, components, covered))
    return sorted(mergers, key=lambda merger: merger.components)


def _text(thing: Region) -> str | None:
    """The merger as text that can be read again, if it can be written so."""
    if not isinstance(thing, NormalForm):
        return None
    try:
        text = str(to_filter(thing))
        parse(text)
    except WeftError:
        return None
    return text
