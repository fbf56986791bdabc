"""The texts that filters name, and their codes. `codes_of` gives each text its code, or reports that it does not know
the text.

A column of events stays as Arrow has it: its bytes are looked up, and no string of Python's is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.kernels.text_table import fill_table, find_texts

UNKNOWN = -1


class KnownTexts(NamedTuple):
    """Texts by their bytes (see `text_table`), with a code each.

    >>> import pyarrow as pa
    >>> KnownTexts.of({"red": 7, "blue": 9}).codes_of(pa.array(["blue", "green", "red"])).tolist()
    [9, -1, 7]
    """

    letters: NDArray[np.uint8]
    starts: NDArray[np.int64]
    table: NDArray[np.int32]
    codes: NDArray[np.int32]

    @staticmethod
    def of(codes: Mapping[str, int]) -> KnownTexts:
        """Texts with these codes. Cost: O(letters)."""
        texts = [text.encode() for text in codes]
        starts = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        table = np.full(1 << max(2, (2 * len(texts)).bit_length()), -1, np.int32)
        letters = np.frombuffer(b"".join(texts), np.uint8)
        fill_table(letters, starts, table)
        return KnownTexts(letters, starts, table, np.fromiter(codes.values(), np.int32, len(codes)))

    def codes_of(self, array: Any) -> NDArray[np.int32]:
        """The codes of a valid Arrow array of strings, UNKNOWN where there is none; NULLs may have any."""
        import pyarrow as pa

        found = np.empty(len(array), np.int32)
        _, ends, given = array.buffers()
        if len(array):
            kind = np.int64 if pa.types.is_large_string(array.type) else np.int32
            here = np.frombuffer(ends, kind)[array.offset : array.offset + len(array) + 1].astype(np.int64)
            find_texts(*self, np.frombuffer(given or b"", np.uint8), here, found)
        return found
