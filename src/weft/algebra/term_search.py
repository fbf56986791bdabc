"""The search for patterns that a long text matches, among many. Each pattern has the answer that it would give by
itself. All literal texts of the patterns are looked for together, in time linear in the text, and only a pattern whose
texts all occur is evaluated by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from weft.language.pattern import Pattern

LONG = 8_192  # characters of a text for which an automaton pays
MANY = 8  # patterns
_WHOLE = 1 << 40  # bytes of a text that are states of the automaton: all, since texts may be long and compare slowly


def pattern_search(text: str, patterns: Iterable[Pattern]) -> Callable[[Pattern], bool]:
    """A function that says whether the text matches one of these patterns. Cost: O(text + patterns), once."""
    sides: dict[bool, list[Pattern]] = {False: [], True: []}
    for pattern in patterns:
        sides[pattern.ignore_case].append(pattern)
    texts = {folded: text.casefold() if folded else text for folded, some in sides.items() if some}
    found = {folded: _occurring(given, sides[folded]) for folded, given in texts.items()}

    def fits(pattern: Pattern) -> bool:
        folded = pattern.ignore_case
        chunks = [chunk for segment in pattern.segments for chunk in segment if chunk]
        if not found[folded].issuperset(chunks):
            return False
        whole = len(pattern.segments) == 3 and pattern.segments == (("",), (*chunks,), ("",)) and len(chunks) == 1
        return whole or pattern.fits(texts[folded])

    return fits


def _occurring(text: str, patterns: Iterable[Pattern]) -> set[str]:
    """The literal texts of patterns that a text contains."""
    from weft.kernels.automaton import DENSE, build_automaton, find_pieces

    chunks = sorted({chunk for pattern in patterns for segment in pattern.segments for chunk in segment if chunk})
    if not chunks:
        return set()
    data = [chunk.encode("utf-8", "surrogatepass") for chunk in chunks]
    ends = np.cumsum([0, *map(len, data)], dtype=np.int64)
    automaton = build_automaton(np.frombuffer(b"".join(data), np.uint8), ends, DENSE, _WHOLE)
    octets = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
    marks, offsets = np.zeros(len(chunks), np.uint8), np.zeros(2, np.int64)
    begins, finishes = np.zeros(1, np.int64), np.array([octets.size], np.int64)
    numbers = find_pieces(automaton, octets, begins, finishes, marks, np.empty(16, np.int32), offsets)
    return {chunks[number] for number in numbers[: offsets[1]].tolist()}
