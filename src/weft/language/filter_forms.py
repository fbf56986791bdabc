"""Filters in any form: text, the JSON dialects, or an EventBridge pattern. The form follows from the filter alone, and
errors are those of that form.

A text that starts with a bracket is JSON. A JSON object is an EventBridge pattern if it has a list under its keys and
none of them is the name of a dialect: `{"source": ["aws.ec2"]}`, unlike `{"exact": {"source": "aws.ec2"}}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from weft.language.ast import Filter
from weft.language.dialects import DIALECTS, from_json, is_json
from weft.language.eventbridge import from_eventbridge, is_eventbridge
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse

AnyForm = str | Mapping[str, Any] | list[Any]


class FilterForm(StrEnum):
    """How a filter is given."""

    TEXT = "text"
    JSON = "json"
    EVENTBRIDGE = "eventbridge"


def form_of(source: AnyForm) -> FilterForm:
    """The form of a filter; JSON for a text that starts as JSON but cannot be decoded.

    >>> [str(form_of(each)) for each in ("x > 5", '{"exact": {"x": "a"}}', '{"detail": {"x": [5]}}')]
    ['text', 'json', 'eventbridge']
    """
    if isinstance(source, str):
        if not is_json(source):
            return FilterForm.TEXT
        try:
            source = json.loads(source)
        except (ValueError, RecursionError):
            return FilterForm.JSON
    return FilterForm.EVENTBRIDGE if is_eventbridge(source, DIALECTS) else FilterForm.JSON


def read_any(source: AnyForm, predicates: Predicates = NO_PREDICATES) -> Filter:
    """The filter, whatever its form. Raises FilterSyntaxError.

    >>> print(read_any('{"detail": {"state": [{"prefix": "run"}]}}'))
    detail.state LIKE 'run%'
    """
    match form_of(source):
        case FilterForm.TEXT:
            assert isinstance(source, str)
            return parse(source, predicates)
        case FilterForm.EVENTBRIDGE:
            assert not isinstance(source, list)
            return from_eventbridge(source)
    return from_json(source, predicates)
