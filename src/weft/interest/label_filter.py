"""A counting Bloom filter of labels (DLS 3.2). Every label in it is found. Two filters of the same shape with the same
labels are equal, so filters can be sent and merged.

A full counter stays full (errata, DLS 6): it can cause false positives, never false negatives. `saturated` counts them.
Only rebuilding the filter from its labels removes them.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import LabelError
from weft.kernels import bloom as kernel
from weft.space.labels import as_labels

_HEAD = struct.Struct("<4sBBHIQQ")  # name, version, bits, hashes, seed, size, labels
_NAME = b"WLCF"
_MOST_HASHES = 32


@dataclass(frozen=True, slots=True)
class FilterShape:
    """Everything that two ends must agree on: the size is not enough, the hashes must be the same (errata, DLS 4).

    >>> FilterShape(1 << 16, hashes=4).rate(8000) < 0.025
    True
    """

    size: int  # number of counters: m
    hashes: int = 4
    bits: Literal[4, 8] = 4  # per counter
    seed: int = 0

    def __post_init__(self) -> None:
        if self.bits not in (4, 8):
            raise LabelError(f"a counter of {self.bits} bits is not supported; use 4 or 8")
        if not 1 <= self.hashes <= _MOST_HASHES:
            raise LabelError(f"the filter has {self.hashes} hashes; give 1 to {_MOST_HASHES}")
        if self.size & (self.size - 1) or not max(2, self.hashes) <= self.size <= 1 << 32:
            raise LabelError(f"the filter has {self.size} counters; give a power of two, at least the number of hashes")
        if not 0 <= self.seed < 1 << 32:
            raise LabelError(f"the seed {self.seed} does not fit in 32 bits; give one from 0 to {2**32 - 1}")

    @staticmethod
    def fitting(labels: int, rate: float = 0.01, *, bits: Literal[4, 8] = 4, seed: int = 0) -> FilterShape:
        """The smallest shape that holds this many labels with at most this rate of false positives."""
        if not 0 < rate < 1:
            raise LabelError(f"the rate is {rate}; give a number between 0 and 1")
        size = 2
        while True:
            best = round(size / max(labels, 1) * math.log(2))
            shape = FilterShape(size, max(1, min(best, _MOST_HASHES, size)), bits, seed)
            if shape.rate(labels) <= rate:
                return shape
            size *= 2

    def rate(self, labels: int) -> float:
        """The expected rate of false positives with this many different labels (DLS, equation 1)."""
        return (1 - (1 - 1 / self.size) ** (self.hashes * labels)) ** self.hashes

    def resized(self, size: int) -> FilterShape:
        """The same with another number of counters."""
        return FilterShape(size, self.hashes, self.bits, self.seed)

    @property
    def nbytes(self) -> int:
        """The memory of its counters."""
        return max(1, self.size * self.bits // 8)

    @property
    def parameters(self) -> tuple[int, ...]:
        """The shape as JSON types."""
        return (self.size, self.hashes, self.bits, self.seed)


class CountingFilter:
    """A set of labels that supports adding, removing and looking up.

    >>> some = CountingFilter(FilterShape(64))
    >>> some.add([3, 5, 5])
    >>> some.remove([5])
    >>> some.contains([3, 5]).tolist(), len(some), some.saturated
    ([True, True], 2, 0)
    """

    def __init__(self, shape: FilterShape) -> None:
        self.shape = shape
        self._counters = np.zeros(shape.nbytes, np.uint8)
        self._labels = 0

    @staticmethod
    def of(shape: FilterShape, batches: Iterable[ArrayLike]) -> CountingFilter:
        """A filter of these labels."""
        made = CountingFilter(shape)
        for labels in batches:
            made.add(labels)
        return made

    @property
    def _how(self) -> tuple[NDArray[np.uint8], bool, int, int]:
        return self._counters, self.shape.bits == 8, self.shape.hashes, self.shape.seed

    # -- changes -----------------------------------------------------------------------------------

    def add(self, labels: ArrayLike) -> None:
        """Add labels. Cost: O(hashes) per label."""
        some = as_labels(labels)
        kernel.add(*self._how, some)
        self._labels += some.size

    def remove(self, labels: ArrayLike) -> None:
        """Remove labels, all or none. The caller must know that they are present, because a filter cannot be certain.

        Raises LabelError if a label is certainly not present.
        """
        some = as_labels(labels)
        done = kernel.remove(*self._how, some)
        if done < some.size:
            kernel.add(*self._how, some[:done])
            raise LabelError(f"label {some[done]} is not in the filter; remove only what was added, and only once")
        self._labels -= some.size

    def merge(self, other: CountingFilter) -> None:
        """Add everything in another filter of the same shape. Raises LabelError if its shape differs."""
        if other.shape != self.shape:
            raise LabelError(f"filters of {self.shape} and of {other.shape} cannot be merged; give both the same shape")
        kernel.merge(self._counters, self.shape.bits == 8, other._counters.copy())
        self._labels += other._labels

    # -- queries -----------------------------------------------------------------------------------

    def contains(self, labels: ArrayLike) -> NDArray[np.bool_]:
        """Whether each label may be present. Cost: O(hashes) each, less for one that is not."""
        return self.counts(labels) > 0

    def counts(self, labels: ArrayLike) -> NDArray[np.uint8]:
        """The smallest counter of each label: unless it is full, the label was added at most that often."""
        some = as_labels(labels)
        out = np.zeros(some.size, np.uint8)
        kernel.counts(*self._how, some, out)
        return out

    def __len__(self) -> int:
        """The number of labels, each counted as often as it was added."""
        return self._labels

    def _census(self) -> tuple[int, int]:
        out = np.zeros(2, np.int64)
        kernel.census(self._counters, self.shape.bits == 8, out)
        return int(out[0]), int(out[1])

    @property
    def likely(self) -> float:
        """The rate of false positives with the current counters: the chance that all of another label's are above 0.
        Cost: O(size).
        """
        return float((self._census()[0] / self.shape.size) ** self.shape.hashes)

    @property
    def saturated(self) -> int:
        """The number of full counters, which stay full. Cost: O(size)."""
        return self._census()[1]

    @property
    def nbytes(self) -> int:
        """The memory of the counters."""
        return self._counters.nbytes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CountingFilter):
            return NotImplemented
        return (
            self.shape == other.shape
            and self._labels == other._labels
            and np.array_equal(self._counters, other._counters)
        )

    __hash__ = None  # type: ignore[assignment]  # mutable

    # -- on the wire -------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The filter as bytes, with a checksum."""
        shape = self.shape
        head = _HEAD.pack(_NAME, 1, shape.bits, shape.hashes, shape.seed, shape.size, self._labels)
        body = head + self._counters.tobytes()
        return body + struct.pack("<I", zlib.crc32(body))

    @staticmethod
    def from_bytes(data: bytes) -> CountingFilter:
        """The filter in these bytes. Raises LabelError if they are not a filter."""
        if len(data) < _HEAD.size + 4 or zlib.crc32(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
            raise LabelError("these bytes are not a counting filter, or they are damaged; send it again")
        name, version, bits, hashes, seed, size, labels = _HEAD.unpack_from(data)
        if name != _NAME or version != 1:
            raise LabelError(f"these bytes are not a counting filter of version 1: {name!r}, {version}; send one")
        shape = FilterShape(size, hashes, cast("Any", bits), seed)
        counters = np.frombuffer(data[_HEAD.size : -4], np.uint8)
        if counters.size != shape.nbytes:  # before room is made for them
            raise LabelError(f"a filter of {size} counters cannot have {counters.size} bytes of them; send it again")
        made = CountingFilter(shape)
        made._counters[:] = counters
        made._labels = labels
        return made
