"""The known name that a writer probably meant. A hint is another spelling of the name, or nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

_MOST_EDITS = 8  # more than so many letters are no slip, however long the name
_MOST_LETTERS = 10_000  # of names that are compared letter by letter with one word; the others are not
_MOST_IN_ALL = 100_000  # with all words


class KnownNames:
    """Names to choose a hint from. Each name is prepared once, and most are passed over by their lengths and letters.

    >>> known = KnownNames(["magnitude", "data.depth", "place"])
    >>> known.nearest("magntiude"), known.nearest("Place"), known.nearest("depth"), known.nearest("altitude_m")
    ('magnitude', 'place', 'data.depth', None)
    """

    def __init__(self, known: Iterable[str]) -> None:
        names = sorted(known)
        self._room = _MOST_IN_ALL
        self._names = frozenset(names)
        self._folded: dict[str, str] = {}  # the first name of each folding
        self._ends: dict[str, str] = {}  # the first name with each end of a path
        self._of_length: dict[int, list[tuple[str, int, str]]] = defaultdict(list)  # folding, letters, name
        for name in names:
            folded = name.casefold()
            self._folded.setdefault(folded, name)
            self._of_length[len(folded)].append((folded, _letters(folded), name))
            at = name.find(".")
            while at >= 0:
                self._ends.setdefault(name[at + 1 :], name)
                at = name.find(".", at + 1)

    def nearest(self, word: str) -> str | None:
        """The name that differs in case, in the path before it, or by few letters; None if none is near.

        Cost: O(names of about the same length), and a bounded number of letters that are compared.
        """
        folded = word.casefold()
        if folded in self._folded:
            return self._folded[folded]
        if (longer := self._longer_or_shorter(word)) is not None:
            return longer
        most = min(max(1, len(word) // 4), len(word) - 1, _MOST_EDITS)  # of one letter nothing would be left
        letters, room = _letters(folded), min(_MOST_LETTERS, self._room)
        self._room -= room
        best: tuple[int, str] | None = None
        for length in sorted(
            range(len(folded) - most, len(folded) + most + 1), key=lambda size: abs(size - len(folded))
        ):
            for other, has, name in self._of_length.get(length, ()):
                if (letters ^ has).bit_count() > 2 * most:
                    continue
                if room < 0:
                    break
                room -= length
                distance = edits(folded, other, most)
                if distance <= most and (best is None or (distance, name) < best):
                    best = distance, name
                    most = distance
        self._room += max(0, room)
        return None if best is None else best[1]

    def _longer_or_shorter(self, word: str) -> str | None:
        """The first name that ends with the word, or that the word ends with, at a dot."""
        found = {self._ends[word]} if word in self._ends else set()
        at = word.find(".")
        while at >= 0:
            if word[at + 1 :] in self._names:
                found.add(word[at + 1 :])
            at = word.find(".", at + 1)
        return min(found, default=None)


def _letters(text: str) -> int:
    """A bit for each kind of letter in a text: an edit changes two of them at most."""
    bits = 0
    for sign in set(text):
        bits |= 1 << (ord(sign) & 63)
    return bits


def nearest_name(word: str, known: Iterable[str]) -> str | None:
    """The known name that differs in case, in the path before it, or by few letters; None if none is near.

    >>> nearest_name("magntiude", ["magnitude", "data.depth", "place"])
    'magnitude'
    """
    return KnownNames(known).nearest(word)


def _shared(one: str, other: str) -> int:
    """How many letters two texts have in common at their beginnings. Cost: O(log n) comparisons."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def edits(one: str, other: str, most: int) -> int:
    """How many letters must be inserted, removed, replaced or swapped; `most` + 1 if more than `most`.

    >>> edits("depth", "dpeth", 2), edits("depth", "depths", 2), edits("depth", "magnitude", 2)
    (1, 1, 3)
    """
    if abs(len(one) - len(other)) > most:
        return most + 1
    begin = _shared(one, other)
    one, other = one[begin:][::-1], other[begin:][::-1]
    end = _shared(one, other)
    one, other = one[end:], other[end:]
    far, size = most + 1, len(other)
    before: list[int] = []
    row = [min(j, far) for j in range(size + 1)]
    for i, a in enumerate(one, 1):
        last, before, row = before, row, [far] * (size + 1)
        low, high = max(1, i - most), min(size, i + most)  # further from the diagonal there are more than `most`
        row[0] = min(i, far)
        for j in range(low, high + 1):
            b = other[j - 1]
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b), far)
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, last[j - 2] + 1)
            row[j] = cost
        if row[0] > most and min(row[low : high + 1], default=far) > most:
            return far
    return min(row[-1], far)
