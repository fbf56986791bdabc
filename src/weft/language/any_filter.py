"""Filters in any form that users have them. Text, builder expressions and JSON of one filter mean the same.

Wherever a filter is taken, these are: a `Filter`, text, a condition or attribute built with `F`, a bool, the JSON
dialects, and an EventBridge pattern, both decoded or as text. The form follows from the filter alone, and errors are
those of that form.

A text that starts with a bracket is JSON. A JSON object is an EventBridge pattern if it has a list under its keys and
none of them is the name of a dialect: `{"source": ["aws.ec2"]}`, unlike `{"exact": {"source": "aws.ec2"}}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any

from weft.language import ast
from weft.language.ast import Filter
from weft.language.builder import Field
from weft.language.dialects import DIALECTS, from_json, is_json
from weft.language.eventbridge import from_eventbridge, is_eventbridge
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse
from weft.model.limits import LIMITS

AnyFilter = Filter | Field | str | bool | Mapping[str, Any] | list[Any]

_SHORT = 256  # characters; longer texts are parsed each time, so that the cache stays small


class FilterForm(StrEnum):
    """How a filter is given."""

    TEXT = "text"
    JSON = "json"
    EVENTBRIDGE = "eventbridge"


def form_of(source: str | Mapping[str, Any] | list[Any]) -> FilterForm:
    """The form of a filter; JSON for a text that starts as JSON but cannot be decoded. Cost: O(characters).

    >>> [str(form_of(each)) for each in ("x > 5", '{"exact": {"x": "a"}}', '{"detail": {"x": [5]}}')]
    ['text', 'json', 'eventbridge']
    """
    if isinstance(source, str):
        if not is_json(source):
            return FilterForm.TEXT
        if len(source) > LIMITS.text:  # refused by the reader of JSON
            return FilterForm.JSON
        try:
            source = json.loads(source)
        except (ValueError, RecursionError):
            return FilterForm.JSON
    return FilterForm.EVENTBRIDGE if is_eventbridge(source, DIALECTS) else FilterForm.JSON


def as_filter(given: AnyFilter, predicates: Predicates = NO_PREDICATES) -> Filter:
    """The filter that is given. Raises FilterError. Cost: next to nothing for a Filter, or a short text seen before.

    >>> print(as_filter("x>5"), as_filter({"exact": {"type": "order"}}), as_filter({"type": ["order"]}), sep="; ")
    x > 5; type = 'order'; type = 'order'
    """
    if isinstance(given, Filter):
        return given
    if isinstance(given, str):
        return _cached(given) if predicates is NO_PREDICATES and len(given) <= _SHORT else _read(given, predicates)
    if isinstance(given, Mapping | list):
        return _read(given, predicates)
    return ast.as_filter(given)


def _read(source: str | Mapping[str, Any] | list[Any], predicates: Predicates = NO_PREDICATES) -> Filter:
    match form_of(source):
        case FilterForm.TEXT:
            assert isinstance(source, str)
            return parse(source, predicates)
        case FilterForm.EVENTBRIDGE:
            assert not isinstance(source, list)
            return from_eventbridge(source)
        case FilterForm.JSON:
            return from_json(source, predicates)


_cached = lru_cache(maxsize=1024)(_read)
