"""Case folding of texts, character by character. The folding of a text is that of its characters, one after another.
Folding twice equals folding once. A character folds to between one and `MOST_FOLDED` characters.

`str.casefold` is Unicode's full case folding, and depends on no locale: `ß` becomes `ss`, the long s becomes
`s`, the Kelvin sign becomes `k`, and a sigma at the end of a word is a sigma.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

MOST_FOLDED: Final = 3  # characters that one character may become
_CASED_BELOW = 0x20000  # no character from here on has a case
_LONG = 1_024  # characters of a text whose folding is remembered


class _Last:
    """The last long text that was folded, and its folding."""

    pair = "", ""  # replaced as a whole: threads never see a half


def folded_text(text: str) -> str:
    """The folding of a text. The last long one is remembered: one event may meet hundreds of patterns.

    >>> folded_text("Straße")
    'strasse'
    """
    if len(text) < _LONG:
        return text.casefold()
    known, folded = _Last.pair
    if known is not text:
        folded = text.casefold()
        _Last.pair = text, folded
    return folded


def has_case(sign: str) -> bool:
    """Whether a character is involved in case: it folds to something else, or is part of what another folds to.

    >>> has_case("a"), has_case("7"), has_case("-"), has_case("\\u0307")
    (True, False, False, True)
    """
    if sign.isascii():
        return sign.isalpha()
    return sign in _cased()


def caseless_head(text: str) -> str:
    """The longest start of a text without case: whatever folds to the text starts with just that."""
    for at, sign in enumerate(text):
        if has_case(sign):
            return text[:at]
    return text


def spellings(folded: str, most: int) -> list[str] | None:
    """All texts that fold to this one; None if there are more than `most`.

    >>> sorted(spellings("k1", 8))
    ['K1', 'k1', '\\u212a1']
    """
    found: list[list[str]] = [[""]]  # the spellings of each start of the text
    for end, last in enumerate(folded, 1):
        if not has_case(last):
            found.append([before + last for before in found[-1]])
            continue
        here: list[str] = []
        for size in range(1, min(MOST_FOLDED, end) + 1):
            signs = _foldings().get(folded[end - size : end], ())
            here += [before + sign for before in found[end - size] for sign in signs]
            if len(here) > most:
                return None
        found.append(here)
    return found[-1] if len(found[-1]) <= most else None


def folding_table() -> Iterator[tuple[str, str]]:
    """Every character that folds to something else, with what it folds to."""
    for first in range(0, _CASED_BELOW, 256):
        if first in range(0xD800, 0xE000):
            continue
        block = "".join(map(chr, range(first, first + 256)))
        if block.casefold() != block:
            yield from ((sign, sign.casefold()) for sign in block if sign.casefold() != sign)


@cache
def _cased() -> frozenset[str]:
    return frozenset(part for sign, folded in folding_table() for part in sign + folded)


@cache
def _foldings() -> dict[str, tuple[str, ...]]:
    """The characters that fold to a text, for every text that some cased character folds to."""
    table: dict[str, list[str]] = {}
    for sign, folded in folding_table():
        table.setdefault(folded, []).append(sign)
    for sign in _cased():
        if sign.casefold() == sign:
            table.setdefault(sign, []).append(sign)
    return {folded: tuple(signs) for folded, signs in table.items()}
