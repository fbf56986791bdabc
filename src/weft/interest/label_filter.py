"""A counting Bloom filter of labels (DLS 3.2). Laws: what is in is found; two filters of one shape that took in the
same labels are equal, so filters can be sent and merged.

A counter that is full stays full for ever (errata, DLS 6): it can make false positives, never false negatives. How many
there are is told by `saturated`; only a filter made anew from the labels is rid of them.
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
    """All that two ends must agree on: size is not enough, the hashes must be the same ones (errata, DLS 4).

    >>> FilterShape(1 << 16, hashes=4).rate(8000) < 0.025
    True
    """

    size: int  # counters: m
    hashes: int = 4
    bits: Literal[4, 8] = 4  # of a counter
    seed: int = 0

    def __post_init__(self) -> None:
        if self.bits not in (4, 8):
            raise LabelError(f"a counter has 4 or 8 bits, not {self.bits}")
        if not 1 <= self.hashes <= _MOST_HASHES:
            raise LabelError(f"a filter has between 1 and {_MOST_HASHES} hashes, not {self.hashes}")
        if self.size & (self.size - 1) or not max(2, self.hashes) <= self.size <= 1 << 32:
            raise LabelError(f"the number of counters is a power of two, and at least that of hashes: not {self.size}")
        if not 0 <= self.seed < 1 << 32:
            raise LabelError(f"a seed has 32 bits: {self.seed} has not")

    @staticmethod
    def fitting(labels: int, rate: float = 0.01, *, bits: Literal[4, 8] = 4, seed: int = 0) -> FilterShape:
        """The smallest shape that takes so many labels with at most such a rate of false positives."""
        if not 0 < rate < 1:
            raise LabelError(f"a rate is between 0 and 1, not {rate}")
        size = 2
        while True:
            best = round(size / max(labels, 1) * math.log(2))
            shape = FilterShape(size, max(1, min(best, _MOST_HASHES, size)), bits, seed)
            if shape.rate(labels) <= rate:
                return shape
            size *= 2

    def rate(self, labels: int) -> float:
        """The expected rate of false positives with so many different labels (DLS, equation 1)."""
        return (1 - (1 - 1 / self.size) ** (self.hashes * labels)) ** self.hashes

    def resized(self, size: int) -> FilterShape:
        """The same with so many counters."""
        return FilterShape(size, self.hashes, self.bits, self.seed)

    @property
    def nbytes(self) -> int:
        """The memory of its counters."""
        return max(1, self.size * self.bits // 8)

    @property
    def parameters(self) -> tuple[int, ...]:
        """As JSON's types."""
        return (self.size, self.hashes, self.bits, self.seed)


class CountingFilter:
    """Labels in, out, and asked for.

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
        """Count labels in. Cost: O(hashes) a label."""
        some = as_labels(labels)
        kernel.add(*self._how, some)
        self._labels += some.size

    def remove(self, labels: ArrayLike) -> None:
        """Count labels out, all or none; who does it knows that they are in, for a filter cannot be sure.

        Raises LabelError if one is certainly not.
        """
        some = as_labels(labels)
        done = kernel.remove(*self._how, some)
        if done < some.size:
            kernel.add(*self._how, some[:done])
            raise LabelError(f"label {some[done]} is not in the filter: remove only what was added, and only once")
        self._labels -= some.size

    def merge(self, other: CountingFilter) -> None:
        """Take in all that another filter of the same shape holds. Raises LabelError if its shape is another."""
        if other.shape != self.shape:
            raise LabelError(f"filters of {self.shape} and of {other.shape} cannot be merged: make them alike")
        kernel.merge(self._counters, self.shape.bits == 8, other._counters.copy())
        self._labels += other._labels

    # -- questions ---------------------------------------------------------------------------------

    def contains(self, labels: ArrayLike) -> NDArray[np.bool_]:
        """Whether each label may be in. Cost: O(hashes) each, less for one that is not."""
        return self.counts(labels) > 0

    def counts(self, labels: ArrayLike) -> NDArray[np.uint8]:
        """The least of each label's counters: how often it is in at most, unless that is full."""
        some = as_labels(labels)
        out = np.zeros(some.size, np.uint8)
        kernel.counts(*self._how, some, out)
        return out

    def __len__(self) -> int:
        """How many labels are in, each as often as it was added."""
        return self._labels

    def _census(self) -> tuple[int, int]:
        out = np.zeros(2, np.int64)
        kernel.census(self._counters, self.shape.bits == 8, out)
        return int(out[0]), int(out[1])

    @property
    def likely(self) -> float:
        """The rate of false positives as its counters are now: all of a stranger's are above 0. Cost: O(size)."""
        return float((self._census()[0] / self.shape.size) ** self.shape.hashes)

    @property
    def saturated(self) -> int:
        """How many counters are full, and stay so. Cost: O(size)."""
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

    __hash__ = None  # type: ignore[assignment]  # it changes

    # -- on the wire -------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The filter as bytes, with a checksum."""
        shape = self.shape
        head = _HEAD.pack(_NAME, 1, shape.bits, shape.hashes, shape.seed, shape.size, self._labels)
        body = head + self._counters.tobytes()
        return body + struct.pack("<I", zlib.crc32(body))

    @staticmethod
    def from_bytes(data: bytes) -> CountingFilter:
        """The filter that these bytes are. Raises LabelError for what is none."""
        if len(data) < _HEAD.size + 4 or zlib.crc32(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
            raise LabelError("these bytes are no counting filter, or torn: send it again")
        name, version, bits, hashes, seed, size, labels = _HEAD.unpack_from(data)
        if name != _NAME or version != 1:
            raise LabelError(f"these bytes are no counting filter of version 1: {name!r}, {version}")
        made = CountingFilter(FilterShape(size, hashes, cast("Any", bits), seed))
        counters = np.frombuffer(data[_HEAD.size : -4], np.uint8)
        if counters.size != made._counters.size:
            raise LabelError(f"a filter of {size} counters cannot have {counters.size} bytes of them")
        made._counters[:] = counters
        made._labels = labels
        return made
