"""Filter text as tokens. Every character lands in a token, a comment, or an error that points at it.

Comments are those of SQL: from `--` to the end of the line, and between `/*` and `*/`, without nesting.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from weft.errors import FilterSyntaxError, FilterTypeError
from weft.model.limits import LIMITS

MAX_TEXT = LIMITS.text  # bytes of UTF-8

NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
STRING = r"'[^']*(?:''[^']*)*'"
QUOTED = r'"[^"]*(?:""[^"]*)*"'
COMMENT = r"--[^\n]*|/\*(?:[^*]|\*(?!/))*+\*/"

RESERVED = frozenset(("AND", "OR", "NOT", "IN", "LIKE", "BETWEEN", "IS", "NULL", "TRUE", "FALSE"))

_TOKENS = re.compile(
    rf"""(?:\s+|{COMMENT})*+(?:
      (?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)
    | (?P<number>{NUMBER})
    | (?P<string>{STRING})
    | (?P<quoted>{QUOTED})
    | (?P<open>/\*)
    | (?P<bad>==|=>|=<|!(?!=)|&&?|\|\|?)
    | (?P<op><=|>=|<>|!=|=|<|>)
    | (?P<mark>[(),+-])
    | (?P<end>\Z)
    | (?P<odd>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")

NO_ARITHMETIC = "filters have no arithmetic; compare attributes with constants or with each other"
NO_REGULAR_EXPRESSIONS = "filters have no regular expressions; LIKE has % and _"
ONLY_THE_CONDITION = "a filter is only the condition: leave out everything up to WHERE"

_INSTEAD = {
    "==": "did you mean '='?",
    "=>": "did you mean '>='?",
    "=<": "did you mean '<='?",
    "!": "did you mean NOT?",
    "&": "did you mean AND?",
    "&&": "did you mean AND?",
    "|": "did you mean OR?",
    "||": "did you mean OR?",
    "'": "a string ends with a quote; a quote inside it is doubled: 'it''s'",
    '"': "a quoted name ends with a double quote; a double quote inside it is doubled",
    "`": 'names with other characters go in double quotes: "my name"',
    ";": "a filter ends without a semicolon",
    "[": "lists go in parentheses: x IN (1, 2)",
    "≤": "did you mean '<='?",
    "≥": "did you mean '>='?",
    "≠": "did you mean '!='?",
    "~": NO_REGULAR_EXPRESSIONS,
} | dict.fromkeys("*/%^", NO_ARITHMETIC)
_IN_NAMES = "$@#:"  # characters that names in other systems often have
_AROUND = re.compile(r"[\w.$@#:-]+")
_SELECT = re.compile(r"\s*select\s", re.IGNORECASE)


class TextToken(NamedTuple):
    """A token; `kind` is name, quoted, number, string, op, mark, end, or a reserved word."""

    kind: str
    text: str
    start: int
    end: int


def tokenize(text: str, stored: bool = False) -> list[TextToken]:
    """The tokens of a text, followed by one of kind `end`; what Weft has `stored` itself may have any number."""
    most = len(text) if stored else LIMITS.tokens
    tokens: list[TextToken] = []
    at = 0
    while True:
        found = _TOKENS.match(text, at)
        assert found is not None  # `odd` takes any character
        kind = found.lastgroup or ""
        start, at = found.span(kind)
        piece = text[start:at]
        if kind == "name":
            if is_word(piece, RESERVED):
                kind = piece.upper()
        elif kind == "number":
            if at < len(text) and (text[at].isalnum() or text[at] in "._"):
                raise FilterSyntaxError(f"malformed number {piece + text[at]!r}", text, start, at + 1)
        elif kind == "open":
            raise FilterSyntaxError(
                "unterminated comment", text, start, at, "a comment that starts with /* ends with */"
            )
        elif kind in ("bad", "odd"):
            raise _unknown(text, piece, start)
        tokens.append(TextToken(kind, piece, start, at))
        if len(tokens) > most + 1:
            raise FilterSyntaxError(f"the filter has more than {most:,} tokens", text, start, at, "split it")
        if kind == "end":
            return tokens


def doubtful_quotes(text: str) -> list[str]:
    """The names in double quotes that need none and are compared with something: probably meant as strings.

    >>> doubtful_quotes('country = "us" AND "detail-type" IN ("a", 1)')
    ['us', 'a']
    """
    found: dict[str, None] = {}
    before = TextToken("end", "", 0, 0)
    for token in tokenize(text):
        if token.kind == "quoted" and (before.kind == "op" or before.text in ("(", ",")):
            name = token.text[1:-1]
            if is_plain_name(name):
                found[name] = None
        before = token
    return [*found]


def check_size(text: str, limit: int | None = None) -> None:
    """Raise FilterSyntaxError for a text longer than the limit, which is that of users by default, or not Unicode."""
    most = LIMITS.text if limit is None else limit
    if not isinstance(text, str):
        raise FilterTypeError(f"the text of a filter must be a str, not {type(text).__name__}")
    if len(text) > most:
        raise FilterSyntaxError(f"the text is longer than {most} bytes", text, most)
    if not text.isascii():
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise FilterSyntaxError("a lone surrogate is not text", text, error.start, error.end) from None
        if size > most:
            raise FilterSyntaxError(f"the text is longer than {most} bytes", text, len(text) - 1)


def is_longer(text: str, limit: int) -> bool:
    """Whether a text has more bytes than the limit; lone surrogates count as bytes, too."""
    return len(text) > limit or (
        not text.isascii() and 4 * len(text) > limit and len(text.encode(errors="surrogatepass")) > limit
    )


def is_word(text: str, words: Collection[str]) -> bool:
    """Whether a text is one of the words, in upper or lower case ASCII letters."""
    return text.isascii() and text.upper() in words


def is_plain_name(name: str) -> bool:
    """Whether the name of an attribute can be written without quotes."""
    return (_is_plain_name if len(name) > _LONG_NAME else _known_plain_name)(name)


def _is_plain_name(name: str) -> bool:
    return not is_word(name, RESERVED) and _PLAIN_NAME.fullmatch(name) is not None


_LONG_NAME = 64  # longer names are not cached, so that the cache stays small
_known_plain_name = lru_cache(maxsize=4096)(_is_plain_name)


def _unknown(text: str, piece: str, start: int) -> FilterSyntaxError:
    hint = _INSTEAD.get(piece, "")
    if piece == "!" and text[start + 1 : start + 2] == "~":
        hint = NO_REGULAR_EXPRESSIONS
    if _SELECT.match(text):
        hint = ONLY_THE_CONDITION
    if piece in _IN_NAMES:
        meant = next(found[0] for found in _AROUND.finditer(text) if found.start() <= start < found.end())
        hint = f"names with {piece!r} go in double quotes" + (f': "{meant}"' if any(map(str.isalnum, meant)) else "")
        return FilterSyntaxError(f"unexpected character {piece!r}", text, start, start + 1, hint)
    what = (
        "unterminated string"
        if piece == "'"
        else "unterminated name"
        if piece == '"'
        else f"unknown operator {piece!r}"
        if hint
        else f"unexpected character {piece!r}"
    )
    return FilterSyntaxError(what, text, start, start + len(piece), hint)
