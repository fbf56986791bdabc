"""The known name that a writer probably meant. Law: a hint is another spelling of the name, or nothing."""

from __future__ import annotations

from collections.abc import Iterable


def nearest_name(word: str, known: Iterable[str]) -> str | None:
    """The known name that differs in case, in the path before it, or by few letters; None if none is near.

    >>> known = ["magnitude", "data.depth", "place"]
    >>> nearest_name("magntiude", known), nearest_name("Place", known), nearest_name("depth", known)
    ('magnitude', 'place', 'data.depth')
    >>> nearest_name("altitude_m", known) is None
    True
    """
    names = sorted(known)
    folded = word.casefold()
    for name in names:
        if name.casefold() == folded:
            return name
    for name in names:
        if name.endswith(f".{word}") or word.endswith(f".{name}"):
            return name
    most = min(max(1, len(word) // 4), len(word) - 1)  # of one letter nothing would be left
    near = [(distance, name) for name in names if (distance := edits(folded, name.casefold(), most)) <= most]
    return min(near)[1] if near else None


def edits(one: str, other: str, most: int) -> int:
    """How many letters must be inserted, removed, replaced or swapped; `most` + 1 if more than `most`.

    >>> edits("depth", "dpeth", 2), edits("depth", "depths", 2), edits("depth", "magnitude", 2)
    (1, 1, 3)
    """
    if abs(len(one) - len(other)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        last, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)
