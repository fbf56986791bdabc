"""The search for the first place where a segment of a LIKE pattern that contains `_` fits. Results are exact. The work
is proportional to the length of the text, at most times the logarithm of the length of the segment.

The longest literal chunk is searched for first, and the others are compared where it is found. That is fastest for
ordinary texts. After too many failed comparisons, a short segment is compared at all places at once, character by
character, and a long one by a convolution: characters are roots of unity, so the sum of products is as large as the
number of characters only where all of them are equal. Both only propose places; each is then compared exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PatternSegment = tuple[str, ...]  # literal chunks with one `_` between each two

_PATIENCE = 512  # failed comparisons of chunks before all places are compared at once
_FEW_SIGNS = 256  # characters of a segment; more are compared by convolution
_FIRST_BLOCK, _BLOCK = 512, 65536  # places compared at once
_PLANE = 256  # values that one plane of the convolution distinguishes


def fits(segment: PatternSegment, text: str, at: int) -> bool:
    """Whether the segment fits the text at this place."""
    for chunk in segment:
        if not text.startswith(chunk, at):
            return False
        at += len(chunk) + 1
    return True


class SegmentSearch:
    """Searches in one text, which share one count of work.

    >>> SegmentSearch("abcabd").find(("a", "d"), 3, 0, 6)
    3
    """

    def __init__(self, text: str, patience: int = _PATIENCE, few_signs: int = _FEW_SIGNS) -> None:
        self.text = text
        self.patience = patience
        self.few_signs = few_signs
        self._codes: NDArray[Any] | None = None

    def find(self, segment: PatternSegment, length: int, start: int, end: int) -> int:
        """The first place in text[start:end] where the segment, of that length, fits; -1 if there is none."""
        anchor = max(segment, key=len)
        offset = 0
        for chunk in segment:
            if chunk is anchor:
                break
            offset += len(chunk) + 1
        text, at = self.text, start
        last = end - (length - offset - len(anchor))  # where the anchor must have ended
        while at + length <= end:
            if self.patience < 0:
                return self._find_in_bulk(segment, length, at, end)
            found = text.find(anchor, at + offset, last)
            if found < 0:
                return -1
            at = place = found - offset
            compared = 0
            for chunk in segment:
                compared += 1
                if not text.startswith(chunk, place):
                    break
                place += len(chunk) + 1
            else:
                return at
            self.patience -= compared
            at += 1
        return -1

    def _find_in_bulk(self, segment: PatternSegment, length: int, start: int, end: int) -> int:
        import numpy as np

        if self._codes is None:
            plain = self.text.isascii()
            raw = self.text.encode("ascii") if plain else self.text.encode("utf-32-le", "surrogatepass")
            self._codes = np.frombuffer(raw, np.uint8 if plain else np.uint32)
        signs, places = _signs(segment)
        if len(signs) <= self.few_signs:
            return _by_signs(self._codes, signs, places, start, end - length + 1)
        return self._by_convolution(segment, length, start, end)

    def _by_convolution(self, segment: PatternSegment, length: int, start: int, end: int) -> int:
        import numpy as np

        assert self._codes is not None
        signs, places = _signs(segment)
        known, ranks = np.unique(signs, return_inverse=True)
        planes = [1] if len(known) <= _PLANE else [1, _PLANE]  # a rank's lower and higher digits
        size = 1 << (4 * length - 1).bit_length()
        roots = np.exp(2j * np.pi * np.arange(_PLANE) / _PLANE)
        sought = []
        for plane in planes:
            kernel = np.zeros(size, np.complex128)
            kernel[places] = roots[ranks // plane % _PLANE]
            sought.append(np.conj(np.fft.fft(kernel)))
        step = size - length + 1
        for at in range(start, end - length + 1, step):
            codes = self._codes[at : min(at + size, end)]
            rank = np.minimum(np.searchsorted(known, codes), len(known) - 1)
            same = known[rank] == codes
            number = min(step, end - length + 1 - at)
            alive = np.ones(number, bool)
            for plane, kernel in zip(planes, sought, strict=True):
                values = np.zeros(size, np.complex128)
                values[: len(codes)] = np.where(same, roots[rank // plane % _PLANE], 0)
                sums = np.fft.ifft(np.fft.fft(values) * kernel).real[:number]
                alive &= sums > len(signs) - 1e-5  # a character of another rank takes 3e-4 from the sum
            for found in np.flatnonzero(alive).tolist():
                if fits(segment, self.text, at + found):
                    return int(at + found)
        return -1


def _signs(segment: PatternSegment) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The literal characters of a segment, and their places in it."""
    import numpy as np

    signs = np.frombuffer("".join(segment).encode("utf-32-le", "surrogatepass"), np.uint32)
    sizes = np.array([len(chunk) for chunk in segment])
    return signs, np.arange(len(signs)) + np.repeat(np.arange(len(segment)), sizes)


def _by_signs(codes: NDArray[Any], signs: NDArray[Any], places: NDArray[Any], start: int, stop: int) -> int:
    """The first place from start to stop where all characters are equal; a block of places costs characters x block."""
    import numpy as np

    pairs = list(zip(places.tolist(), signs.tolist(), strict=True))
    at, size = start, _FIRST_BLOCK
    while at < stop:
        number = min(size, stop - at)
        offset, sign = pairs[0]
        alive = codes[at + offset : at + offset + number] == sign
        for done, (offset, sign) in enumerate(pairs[1:], 1):
            alive &= codes[at + offset : at + offset + number] == sign
            if done % 16 == 0 and not alive.any():
                break
        if alive.any():
            return int(at + np.argmax(alive))
        at, size = at + number, min(_BLOCK, size * 2)
    return -1
