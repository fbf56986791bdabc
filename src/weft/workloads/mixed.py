"""A market in which a tenth of the filters use predicates that are not ranges: suffixes, compared attributes, IS NULL.

An odd filter differs in one predicate from the plain one in its place, so that its time compared with the plain set
shows what odd predicates cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from weft.workloads.base import Words
from weft.workloads.standard import SYMBOL, w3


@dataclass(frozen=True, slots=True)
class Mixed:
    """Filters with odd ones among them, the same set without odd ones, and the events for both."""

    texts: list[str]
    plain: list[str]
    table: pa.RecordBatch


def mixed(n: int, events: int, seed: int = 1) -> Mixed:
    """W3 in which every tenth filter, in turn, has a suffix, compares attributes, or requires an absent volume.

    One event in twenty has no volume.

    >>> for text in mixed(30, 1).texts[9::10]:
    ...     print(text)
    symbol LIKE '%6' AND price BETWEEN 35317 AND 37816 AND volume >= 46208
    symbol = 'S3' AND price BETWEEN 21580 AND 24079 AND price > volume
    symbol = 'S10' AND price BETWEEN 46088 AND 48587 AND volume IS NULL
    """
    market = w3(n, events, seed)
    plain = market.texts()
    texts = list(plain)
    symbols = cast("Words", market.bounds["symbol"]).to_pylist()
    for turn, row in enumerate(range(9, n, 10)):
        symbol, volume = f"symbol = '{symbols[row]}'", plain[row].rpartition(" AND ")[2]
        old, new = (
            (symbol, f"symbol LIKE '%{symbols[row][len(SYMBOL) :][-2:]}'"),  # matches 10 or 100 symbols
            (volume, "price > volume"),
            (volume, "volume IS NULL"),
        )[turn % 3]
        texts[row] = plain[row].replace(old, new)
    rng = np.random.default_rng(seed)
    absent = rng.spawn(3)[2].random(events) < 0.05  # the first two generators drew the market
    volumes = market.table.column("volume").to_numpy()
    return Mixed(texts, plain, market.table.set_column(2, "volume", pa.array(volumes, mask=absent)))
