"""Filters in every form that users have them. Text, builder expressions and JSON of one filter mean the same.

Wherever a filter is taken, these are: a `Filter`, text, a condition or attribute built with `F`, a bool, and the JSON
dialects, decoded or as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from weft.language import ast
from weft.language.ast import Filter
from weft.language.builder import Field
from weft.language.dialects import from_json, is_json
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse

AnyFilter = Filter | Field | str | bool | Mapping[str, Any] | list[Any]

_SHORT = 256  # characters; longer texts are parsed each time, so that the cache stays small


def as_filter(given: AnyFilter, predicates: Predicates = NO_PREDICATES) -> Filter:
    """The filter that is given. Raises FilterError. Cost: next to nothing for a Filter, or a short text seen before.

    >>> print(as_filter("x>5"), as_filter({"exact": {"type": "order"}}), sep="; ")
    x > 5; type = 'order'
    """
    if isinstance(given, Filter):
        return given
    if isinstance(given, str):
        return _cached(given) if predicates is NO_PREDICATES and len(given) <= _SHORT else _read(given, predicates)
    if isinstance(given, Mapping | list):
        return from_json(given, predicates)
    return ast.as_filter(given)


def _read(text: str, predicates: Predicates = NO_PREDICATES) -> Filter:
    return from_json(text, predicates) if is_json(text) else parse(text, predicates)


_cached = lru_cache(maxsize=1024)(_read)
