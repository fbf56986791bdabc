"""Filters in JSON: the text, the places in it, and how much of it is read. Whatever is not a filter raises
FilterSyntaxError, with the place if there is a text, else with the path of keys and numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from weft.errors import FilterError, FilterSyntaxError
from weft.language.ast import Filter
from weft.language.lexer import check_size
from weft.model.limits import LIMITS, MAX_DEPTH

JsonPath = tuple[str | int, ...]


class JsonFault(Exception):  # noqa: N818 - never leaves the readers of JSON
    """What is wrong in a tree of JSON, and where."""

    def __init__(self, message: str, path: JsonPath, hint: str = "") -> None:
        self.message, self.path, self.hint = message, path, hint


class JsonRoom:
    """How many more characters are read: a tree that was decoded elsewhere has no text to measure."""

    def __init__(self, limit: int | None) -> None:
        self.limit = LIMITS.text if limit is None else limit
        self.left = self.limit

    def take(self, size: int, path: JsonPath) -> None:
        """Count a number of values as read. Raises JsonFault past the limit."""
        self.left -= size
        if self.left < 0:
            raise JsonFault(f"the filter is longer than {self.limit} bytes", path)


def read_json(source: Any, limit: int | None, read: Callable[[Any], Filter]) -> Filter:
    """What `read` makes of a JSON text, or of what it decodes to; a JsonFault becomes a FilterSyntaxError."""
    text = source if isinstance(source, str) else ""
    tree = decode(text, limit) if isinstance(source, str) else source
    try:
        return read(tree)
    except JsonFault as fault:
        start, end = locate(text, fault.path)
        where = "" if text else f" (in {show_path(fault.path)})" if fault.path else ""
        raise FilterSyntaxError(fault.message + where, text, start, end, fault.hint) from None
    except RecursionError:
        raise FilterSyntaxError("the filter is nested too deeply for the remaining stack", text) from None


def checked(build: Callable[[], Filter], path: JsonPath) -> Filter:
    """What `build` makes; where it raises FilterError, the path is the place."""
    try:
        return build()
    except FilterSyntaxError:
        raise
    except FilterError as error:
        raise JsonFault(str(error), path) from error


def decode(text: str, limit: int | None) -> Any:
    """The value of a JSON text. Raises FilterSyntaxError, with the place."""
    check_size(text, limit)
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise FilterSyntaxError(f"malformed JSON: {error.msg}", text, error.pos) from None
    except RecursionError:
        raise FilterSyntaxError(f"a filter can be nested at most {MAX_DEPTH} levels deep", text) from None
    except (JsonFault, ValueError) as error:  # ValueError: a number of thousands of digits
        message = error.message if isinstance(error, JsonFault) else "a number does not fit in 64 bits"
        raise FilterSyntaxError(message, text, *_fault(text, getattr(error, "hint", ""))) from None


_PIECES = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


def _fault(text: str, sought: str) -> tuple[int, int]:
    """Where a JSON text has what is refused although a decoder reads it: a repeated key, NaN, a very long number."""
    keys: list[set[str]] = [set()]
    pieces = list(_PIECES.finditer(text))
    for piece, after in zip(pieces, [*pieces[1:], None], strict=True):
        sign = piece[0]
        if sign == "{":
            keys.append(set())
        elif sign == "}" and len(keys) > 1:
            keys.pop()
        elif sign[0] == '"' and after is not None and after[0] == ":":
            if sign in keys[-1] and sign == sought:
                return piece.span()
            keys[-1].add(sign)
        elif sign == sought or (not sought and sign.lstrip("-").isdigit() and len(sign) > 4000):
            return piece.span()
    return 0, 0


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in pairs:
        if key in tree:
            raise JsonFault(f"an object repeats the key {key!r}", (), json.dumps(key, ensure_ascii=False))
        tree[key] = value
    return tree


def _no_constant(name: str) -> Any:
    raise JsonFault(f"{name} is not valid JSON", (), name)


def show_path(path: JsonPath) -> str:
    """A path as it is written: `$.all[1].exact`."""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def locate(text: str, path: JsonPath) -> tuple[int, int]:
    """Where the last step of a path stands in a valid JSON text: a key, or the start of an item."""
    decoder, at, end = json.JSONDecoder(), 0, 0
    for step in path if text else ():
        at = _next(text, at, "") + 1  # past the bracket
        number = 0
        while True:
            at = end = _next(text, at, ",")
            if isinstance(step, str):
                key, end = decoder.raw_decode(text, at)
                value = _next(text, end, ":")
                if key == step:
                    start, at = at, value
                    break
                at = decoder.raw_decode(text, value)[1]
            elif number == step:
                start, end = at, at + 1
                break
            else:
                at = decoder.raw_decode(text, at)[1]
                number += 1
    return (start, end) if path and text else (0, 0)


def _next(text: str, at: int, skip: str) -> int:
    while text[at].isspace() or text[at] in skip:
        at += 1
    return at
