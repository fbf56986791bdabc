"""The labels of a table: exact counts, and a counting filter that both ends of a link have.

Exact counts of the subscriptions that want each label. A label is new if its count was 0 before, and gone if it is 0
after. A failed change changes nothing.

The paper lets a counting Bloom filter decide what is forwarded and withdrawn. A label that was held back because of a
collision is then lost when the other label is removed (errata, DLS 3). Here exact counts decide, with one table per
neighbour that excludes what came from it (errata, DLS 5).

A counting Bloom filter of labels (DLS 3.2). Every label in it is found. Two filters of the same shape with the same
labels are equal, so filters can be sent and merged.

A full counter stays full (errata, DLS 6): it can cause false positives, never false negatives. `saturated` counts them.
Only rebuilding the filter from its labels removes them.

A counting filter at both ends of a link (DLS 4.4). Ends that processed the same updates are equal bit for bit.

The sender decides the size, because it knows the number of labels before the other end does. A new size is announced
with the update that needs it: a *switch*, which is numbered, and at which both ends rebuild their filter from all
labels told. Links are FIFO and updates are atomic, so an update never meets a filter of another size. A switch to the
same size frees a filter of permanently full counters.
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
from weft.kernels.arrays import Ints
from weft.routing.dls.items import Switch
from weft.routing.dls.kernels import bloom, label_counts
from weft.routing.dls.labels import as_labels


class LabelCounts:
    """Reference counts of labels, initially in `slots` slots.

    >>> wanted = LabelCounts()
    >>> wanted.add([3, 5]).tolist(), wanted.add([5, 7]).tolist(), wanted.remove([3, 5]).tolist()
    ([3, 5], [7], [3])
    """

    def __init__(self, *, slots: int = 16) -> None:
        if slots < 2 or slots & (slots - 1):
            raise LabelError(f"the number of slots is {slots}; give a power of two")
        self._least = slots
        self._head = np.zeros(1, np.int64)
        self._keys: Ints = np.full(slots, label_counts.EMPTY, np.int64)
        self._counts: NDArray[np.int32] = np.zeros(slots, np.int32)

    # -- changes -----------------------------------------------------------------------------------

    def add(self, labels: ArrayLike) -> Ints:
        """Add labels; returns those that were not present before, in their order. Cost: O(1) per label."""
        some = as_labels(labels)
        new = np.empty(some.size, np.int64)
        done, found = 0, 0
        while done < some.size:
            done, found = label_counts.add(self._keys, self._counts, self._head, some, done, new, found)
            if done < some.size:
                self._resize(2 * self._keys.size)
        return new[:found]

    def remove(self, labels: ArrayLike) -> Ints:
        """Remove labels, all or none; returns those that are no longer present. Cost: O(1) per label.

        Raises LabelError if a label is not present: only what was added can be removed (errata, DLS 2).
        """
        some = as_labels(labels)
        gone = np.empty(some.size, np.int64)
        done, found = label_counts.remove(self._keys, self._counts, self._head, some, gone)
        if done < some.size:
            self.add(some[:done])
            raise LabelError(f"label {some[done]} is not present; remove only what was added, and only once")
        if self._keys.size > self._least and 8 * len(self) < self._keys.size:
            self._resize(max(self._least, self._keys.size // 4))
        return gone[:found]

    def change(self, drop: ArrayLike, add: ArrayLike) -> tuple[Ints, Ints]:
        """Remove and add as one change, all or none; returns the labels removed and added in total, ascending."""
        lost = self.remove(drop)
        gained = self.add(add)
        return np.setdiff1d(lost, gained), np.setdiff1d(gained, lost)

    def _resize(self, slots: int) -> None:
        keys, counts = np.full(slots, label_counts.EMPTY, np.int64), np.zeros(slots, np.int32)
        label_counts.moved(self._keys, self._counts, keys, counts)
        self._keys, self._counts = keys, counts

    # -- queries -----------------------------------------------------------------------------------

    def contains(self, labels: ArrayLike) -> NDArray[np.bool_]:
        """Whether each label is wanted. Cost: one look-up each."""
        return self.counts(labels) > 0

    def counts(self, labels: ArrayLike) -> NDArray[np.int32]:
        """How many subscriptions want each label."""
        some = as_labels(labels)
        out = np.zeros(some.size, np.int32)
        label_counts.held(self._keys, self._counts, some, out)
        return out

    def labels(self) -> Ints:
        """All labels that are wanted, ascending. Cost: O(n log n)."""
        return np.sort(self._keys[self._keys != label_counts.EMPTY])

    def __len__(self) -> int:
        """The number of different labels."""
        return int(self._head[0])

    @property
    def nbytes(self) -> int:
        """The memory of the arrays."""
        return self._keys.nbytes + self._counts.nbytes

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        taken = self._keys != label_counts.EMPTY
        assert int(taken.sum()) == len(self), "labels are miscounted"
        assert 2 * len(self) <= self._keys.size, "too few slots"
        assert ((self._counts > 0) == taken).all(), "a label that nobody wants, or a count without a label"
        for at in taken.nonzero()[0].tolist():
            assert label_counts.find(self._keys, self._keys[at]) == at, "a label cannot be found where it is"


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
    def fitting(labels: int, rate: float = 0.01) -> FilterShape:
        """The smallest shape that holds this many labels with at most this rate of false positives."""
        if not 0 < rate < 1:
            raise LabelError(f"the rate is {rate}; give a number between 0 and 1")
        size = 2
        while True:
            best = round(size / max(labels, 1) * math.log(2))
            shape = FilterShape(size, max(1, min(best, _MOST_HASHES, size)))
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
        bloom.add(*self._how, some)
        self._labels += some.size

    def remove(self, labels: ArrayLike) -> None:
        """Remove labels, all or none. The caller must know that they are present, because a filter cannot be certain.

        Raises LabelError if a label is certainly not present.
        """
        some = as_labels(labels)
        done = bloom.remove(*self._how, some)
        if done < some.size:
            bloom.add(*self._how, some[:done])
            raise LabelError(f"label {some[done]} is not in the filter; remove only what was added, and only once")
        self._labels -= some.size

    def merge(self, other: CountingFilter) -> None:
        """Add everything in another filter of the same shape. Raises LabelError if its shape differs."""
        if other.shape != self.shape:
            raise LabelError(f"filters of {self.shape} and of {other.shape} cannot be merged; give both the same shape")
        bloom.merge(self._counters, self.shape.bits == 8, other._counters.copy())
        self._labels += other._labels

    # -- queries -----------------------------------------------------------------------------------

    def contains(self, labels: ArrayLike) -> NDArray[np.bool_]:
        """Whether each label may be present. Cost: O(hashes) each, less for one that is not."""
        return self.counts(labels) > 0

    def counts(self, labels: ArrayLike) -> NDArray[np.uint8]:
        """The smallest counter of each label: unless it is full, the label was added at most that often."""
        some = as_labels(labels)
        out = np.zeros(some.size, np.uint8)
        bloom.counts(*self._how, some, out)
        return out

    def __len__(self) -> int:
        """The number of labels, each counted as often as it was added."""
        return self._labels

    def _census(self) -> tuple[int, int]:
        out = np.zeros(2, np.int64)
        bloom.census(self._counters, self.shape.bits == 8, out)
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


MOST_COUNTERS = 1 << 28  # a filter never grows beyond this: a neighbour must not control how much memory we allocate
_SLACK = 4  # a filter shrinks only when it is this many times too large, so that it does not oscillate


class TwinFilter:
    """One end's filter, which begins with a base shape; a neighbour has its twin.

    >>> import numpy as np
    >>> here, there = (TwinFilter(FilterShape(16), 0.1) for _ in range(2))
    >>> labels = np.arange(20)
    >>> switch = here.due(len(labels))
    >>> switch
    Switch(number=1, counters=128)
    >>> here.switch(switch, labels), there.switch(switch, labels), here.held == there.held
    (None, None, True)
    """

    def __init__(self, base: FilterShape, rate: float) -> None:
        self.held = CountingFilter(base)
        self.number = 0
        self._base = base
        self._rate = rate

    # -- the sending end -----------------------------------------------------------------------------

    def due(self, labels: int) -> Switch | None:
        """The switch that an update must carry if there are this many labels after it, or None."""
        least, size = self._base.size, self.held.shape.size
        while least < MOST_COUNTERS and self._base.resized(least).rate(labels) > self._rate:
            least *= 2
        return Switch(self.number + 1, least) if size < least or size >= _SLACK * least else None

    def renewal(self, labels: Ints) -> Switch | None:
        """A switch that frees permanently full counters, or None if there are none. Cost: O(size), or
        O(labels) more.
        """
        full = self.held.saturated
        if full and CountingFilter.of(self.held.shape, [labels]).saturated < full:
            return Switch(self.number + 1, self.held.shape.size)
        return None

    @property
    def state(self) -> tuple[Switch, ...]:
        """What an end without any state must be told in addition to the labels."""
        return (Switch(self.number, self.held.shape.size),) if self.number else ()

    # -- both ends -----------------------------------------------------------------------------------

    def change(self, drop: Ints, add: Ints) -> None:
        """Apply an update without a switch. Cost: O(1) per label."""
        self.held.remove(drop)
        self.held.add(add)

    def admit(self, switch: Switch, *, fresh: bool) -> None:
        """Raise LabelError for an impossible switch: one out of turn, or to an invalid size."""
        if not (fresh or switch.number == self.number + 1):
            raise LabelError(
                f"switch {switch.number} of a filter cannot follow {self.number}; send every switch in order"
            )
        if not self._base.size <= switch.counters <= max(self._base.size, MOST_COUNTERS):
            raise LabelError(
                f"a filter of {self._base.size} counters cannot switch to {switch.counters}; "
                f"use {self._base.size} to {MOST_COUNTERS}"
            )
        self._base.resized(switch.counters)

    def switch(self, switch: Switch | None, labels: Ints) -> None:
        """Rebuild the filter from all labels as a switch demands; without one, in the size with which a link begins.
        Cost: O(labels).
        """
        self.number, size = (switch.number, switch.counters) if switch else (0, self._base.size)
        self.held = CountingFilter.of(self._base.resized(size), [labels])

    def check(self, labels: Ints) -> None:
        """Raise AssertionError unless exactly these labels are held."""
        assert self.held.contains(labels).all(), "a label that was told is not found"
        assert len(self.held) == len(labels), "labels are miscounted"
