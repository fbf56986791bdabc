"""The search by pieces that events contain. The rows that remain are those whose needs the event meets.

An event is searched once for each of its anchors, and once for the rows without one (see `anchors`); then the other
needs of the rows that were found are checked.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from weft.index.axis import ANCHOR
from weft.index.dimension import Codes
from weft.index.found_slots import Offsets, Slots
from weft.index.pieces import FoundPieces
from weft.index.recycled import RESULTS
from weft.index.segment import Segment
from weft.kernels.needs import meet_needs, spread_codes


def few_at_once(segment: Segment, codes: Codes, pieces: FoundPieces, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of events that are searched at most `most` times together, or one event that is searched more often."""
    if len(pieces.numbers) + len(codes) <= most:
        yield 0, len(codes)
        return
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(segment.anchors[pieces.numbers])])
    ends = before[pieces.offsets[1:]] + np.arange(1, len(codes) + 1)
    first = 0
    while first < len(codes):
        start = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(ends.searchsorted(start + most, "right")))
        yield first, last
        first = last


def spread(
    segment: Segment, codes: Codes, pieces: FoundPieces, first: int, last: int
) -> tuple[Codes, NDArray[np.int64]]:
    """The codes of some events, once for each anchor that they have and once without, and where each event's begin."""
    offsets = pieces.offsets[first : last + 1]
    most = last - first + int(offsets[-1] - offsets[0])
    codes_of_all = RESULTS.array(most * codes.shape[1], np.int32).reshape(most, codes.shape[1])
    firsts, dim = np.empty(last - first + 1, np.int64), segment.rows.axes[ANCHOR]
    spread_codes(codes[first:last], offsets, pieces.numbers, segment.anchors, dim, codes_of_all, firsts)
    return codes_of_all[: firsts[-1]], firsts


def met(segment: Segment, offsets: Offsets, names: Slots, pieces: FoundPieces) -> tuple[Offsets, Slots]:
    """What is found without the rows whose needs are not met."""
    new_offsets = np.empty(len(offsets), np.int64)
    marks = segment.rows.pieces.marks.of_pieces
    left = meet_needs(names, offsets, *segment.needs, *pieces, marks, new_offsets)
    return new_offsets, names[:left]
