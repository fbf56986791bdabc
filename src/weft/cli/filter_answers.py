"""Answers of the algebra about a user's filters, as JSON-able facts, for `weft filter`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.algebra.box import Box
from weft.algebra.measure import volume
from weft.algebra.merge import Merger, merge
from weft.algebra.normalize import normalize
from weft.algebra.relate import covers, intersect, overlaps
from weft.algebra.to_filter import to_filter, values_to_filter
from weft.errors import SchemaError
from weft.language.any_filter import FilterForm, form_of
from weft.language.ast import TRUE, Filter, attributes
from weft.language.dialects import to_json
from weft.language.lexer import doubtful_quotes
from weft.language.membership import attribute_of
from weft.model.schema import Schema, did_you_mean

Facts = dict[str, Any]


def checked(filter: Filter, schema: Schema | None, text: str = "") -> Facts:
    """Whether it can be used, and what is odd about it and its text. Raises FilterTooComplexError.

    >>> from weft import parse
    >>> checked(parse("x<3 AND x>5"), None)
    {'filter': 'x < 3 AND x > 5', 'notes': ['it matches no event']}
    """
    empty = not normalize(filter, schema)
    notes = undeclared([filter], schema) + quoted(text) + (["it matches no event"] if empty else [])
    return {"filter": str(filter), "notes": notes}


def explained(filter: Filter, schema: Schema | None) -> Facts:
    """Its attributes, its normal form, and whether it is proven to match nothing or everything."""
    form = normalize(filter, schema)
    return {
        "filter": str(filter),
        "attributes": sorted(attributes(filter)),
        "empty": not form,
        "everything": covers(form, TRUE, schema),
        "boxes": [conditions(box, schema) for box in form.boxes],
        "json": to_json(filter),
        "notes": undeclared([filter], schema),
    }


def conditions(box: Box, schema: Schema | None = None) -> list[Facts]:
    """What a box asks of each attribute, then of attributes together.

    >>> from weft import parse
    >>> [test["condition"] for test in conditions(normalize(parse("NOT x < 5 AND a > b")).boxes[0])]
    ['x >= 5', 'a IS NOT NULL', 'b IS NOT NULL', 'a > b']
    """
    alone = [((attribute_of(name),), values_to_filter(name, values, schema)) for name, values in box.sets.items()]
    together = [(subject.names, subject.to_filter(allowed)) for subject, allowed in box.residuals.items()]
    return [{"attributes": list(names), "condition": str(test)} for names, test in [*alone, *together]]


def compared(wide: Filter, narrow: Filter, schema: Schema | None) -> Facts:
    """Which of the two covers the other, if one does, and whether they overlap.

    >>> from weft import parse
    >>> facts = compared(parse("x < 10"), parse("x < 5"), None)
    >>> facts["covers"], facts["covered"], facts["equivalent"], facts["overlaps"]
    (True, False, False, True)
    """
    outer, inner = normalize(wide, schema), normalize(narrow, schema)
    forth, back = covers(outer, inner, schema), covers(inner, outer, schema)
    return {
        "wide": str(wide),
        "narrow": str(narrow),
        "covers": forth,
        "covered": back,
        "equivalent": forth and back,
        "overlaps": overlaps(outer, inner, schema),
        "notes": undeclared([wide, narrow], schema),
    }


def shared(one: Filter, other: Filter, schema: Schema | None) -> Facts:
    """Whether both can match an event, and the filter of the events that they share.

    >>> from weft import parse
    >>> shared(parse("x < 10"), parse("x > 5"), None)["both"]
    'x > 5 AND x < 10'
    """
    both = intersect(one, other, schema)
    return {
        "one": str(one),
        "other": str(other),
        "overlaps": bool(both),
        "both": str(to_filter(both)) if both else None,
        "notes": undeclared([one, other], schema),
    }


def merged(filters: Sequence[Filter], schema: Schema | None) -> Facts:
    """The best merger, its rule, the volume that it adds and the share of its own volume that this is.

    Where there is none, `unknown` says why.
    """
    merger = merge(filters, schema)
    share, unknown = _cost(merger, schema)
    return {
        "filters": [str(part) for part in filters],
        "merged": str(to_filter(merger.form)),
        "rule": merger.rule,
        "perfect": merger.perfect,
        "added": merger.added,
        "share": share,
        "unknown": unknown,
        "notes": undeclared(filters, schema),
    }


def undeclared(filters: Iterable[Filter], schema: Schema | None) -> list[str]:
    """A sentence for each attribute that the schema does not declare: usually a mistake.

    >>> from weft import parse
    >>> undeclared([parse("magntude > 5")], Schema.of(magnitude="float"))
    ["'magntude' is not in the schema: did you mean 'magnitude'?"]
    """
    if schema is None:
        return []
    return [
        f"{name!r} is not in the schema{did_you_mean(name, schema)}" for name in sorted(_names(filters) - set(schema))
    ]


def quoted(text: str) -> list[str]:
    """A sentence for each name in a filter's text that is probably meant as a string.

    >>> quoted('country = "us"')
    ["'us' in double quotes is the name of an attribute; strings go in single quotes"]
    """
    if form_of(text) is not FilterForm.TEXT:
        return []
    said = "in double quotes is the name of an attribute; strings go in single quotes"
    return [f"{name!r} {said}" for name in doubtful_quotes(text)]


def _names(filters: Iterable[Filter]) -> frozenset[str]:
    return frozenset().union(*map(attributes, filters))


def _cost(merger: Merger, schema: Schema | None) -> tuple[float | None, str | None]:
    """The share of the merger's volume that its parts do not have, or why it is unknown."""
    if merger.perfect:
        return 0.0, None
    if schema is None:
        return None, "unknown: a schema with bounds tells (--schema FILE)"
    try:
        whole = volume(merger.form, schema)
    except SchemaError as error:
        return None, f"unknown: {error}"
    if merger.added is None:
        return None, "unknown: the schema does not bound all attributes of the filters"
    return merger.added / whole if whole else 0.0, None
