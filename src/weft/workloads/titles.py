"""W7: rules on the titles of products. The same seed gives the same rules and titles.

A rule asks for one to three words, anywhere in the title, and for a range of prices. Words are made of syllables, so
that some contain others; a few words are in most rules and in most titles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from weft.kernels.arrays import Floats
from weft.workloads.base import zipf

WORDS, TOP_PRICE, WIDTH = 20_000, 49_999, 2_500
_FIRST = ("b", "br", "c", "ch", "d", "f", "fl", "g", "gr", "h", "k", "l", "m", "n", "p", "pr", "r", "s", "st", "t", "v")
_THEN = ("a", "e", "i", "o", "u", "ai", "ea", "oo", "an", "el", "in", "or", "un", "ar")


@dataclass(frozen=True, slots=True)
class Titles:
    """Rules as words and prices, and a table of events with a title and a price."""

    words: list[tuple[str, ...]]
    low: Floats
    high: Floats
    table: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.words)

    def texts(self, first: int | None = None) -> list[str]:
        """The rules as filters, all or the first few.

        >>> w7(1, 1).texts()
        ["title LIKE '%canstinsun%' AND price BETWEEN 34951 AND 37450"]
        """
        ends = zip(self.words[:first], self.low[:first].tolist(), self.high[:first].tolist(), strict=True)
        return [
            " AND ".join([*(f"title LIKE '%{word}%'" for word in words), f"price BETWEEN {int(low)} AND {int(high)}"])
            for words, low, high in ends
        ]

    def batches(self, size: int) -> list[pa.RecordBatch]:
        """The events in batches of the given size; the last one may be shorter. Nothing is copied."""
        return [self.table.slice(start, size) for start in range(0, self.table.num_rows, size)]


def w7(n: int, events: int, seed: int = 1) -> Titles:
    """n rules of one to three different words, and titles of 5 to 15 words."""
    rng = np.random.default_rng(seed)
    rules, happening, language = rng.spawn(3)
    words = _words(language)
    sizes = rules.integers(1, 4, n)
    drawn = zipf(rules, WORDS, int(sizes.sum()))
    ends = np.cumsum(sizes)
    picked = [[words[code] for code in drawn[end - size : end]] for size, end in zip(sizes, ends, strict=True)]
    chosen = [tuple(dict.fromkeys(some)) for some in picked]
    low = rules.integers(0, TOP_PRICE + 1, n).astype(np.float64)
    lengths = happening.integers(5, 16, events)
    said = zipf(happening, WORDS, int(lengths.sum()))
    stops = np.cumsum(lengths)
    spoken = [[words[code] for code in said[stop - size : stop]] for size, stop in zip(lengths, stops, strict=True)]
    titles = [" ".join(some) for some in spoken]
    prices = happening.integers(0, TOP_PRICE + 1, events).astype(np.float64)
    high = np.minimum(low + WIDTH - 1, TOP_PRICE)
    return Titles(chosen, low, high, pa.record_batch({"title": pa.array(titles, pa.string()), "price": prices}))


def _words(rng: np.random.Generator) -> list[str]:
    """The different words of the language, in no order of length: most have two or three syllables."""
    known: dict[str, None] = {}
    while len(known) < WORDS:
        size = int(rng.choice(4, p=(0.02, 0.38, 0.45, 0.15))) + 1
        parts = [_FIRST[int(rng.integers(len(_FIRST)))] + _THEN[int(rng.integers(len(_THEN)))] for _ in range(size)]
        known["".join(parts)] = None
    return list(known)
