"""Workloads with ranges of many sizes, so that some cover others. The same seed gives the same workload.

W1 and W2 have ranges of one size, of which none covers another; these are the same with varying sizes.

| name | subscriptions: a range on each of x, y, z in 0..255 | events |
|---|---|---|
| uniform | lower bound uniform, width uniform in 1..64 | uniform |
| zipf | lower bound Zipf; width 8, 16, 4, 32, 64 or 128, the first most often (Zipf) | Zipf |
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from weft.kernels.arrays import Ints
from weft.workloads.base import Bounds, MakeWorkload, Workload, ranges, zipf
from weft.workloads.standard import WORKLOADS as STANDARD

SIZES = (8, 16, 4, 32, 64, 128)  # by popularity
_VALUES, _WIDEST = 256, 64

Draw = Callable[[np.random.Generator, int], Ints]


def uniform(n: int, events: int, seed: int = 1) -> Workload:
    """Uniform interest in all values.

    >>> uniform(1, 0).texts()
    ['x BETWEEN 3 AND 47 AND y BETWEEN 212 AND 223 AND z BETWEEN 212 AND 253']
    """
    return _ranges("uniform", _anywhere, lambda rng, size: rng.integers(1, _WIDEST + 1, size), n, events, seed)


def crowded(n: int, events: int, seed: int = 1) -> Workload:
    """Interest crowded in the same places, in one of a few sizes; most events are there, too."""
    return _ranges("zipf", _popular, lambda rng, size: np.array(SIZES)[zipf(rng, len(SIZES), size)], n, events, seed)


WORKLOADS: dict[str, MakeWorkload] = {"uniform": uniform, "zipf": crowded, **STANDARD}


def _anywhere(rng: np.random.Generator, size: int) -> Ints:
    return rng.integers(0, _VALUES, size)


def _popular(rng: np.random.Generator, size: int) -> Ints:
    return zipf(rng, _VALUES, size)


def _ranges(name: str, places: Draw, widths: Draw, n: int, events: int, seed: int) -> Workload:  # noqa: PLR0913, PLR0917
    subscriptions, happening = np.random.default_rng(seed).spawn(2)
    bounds: Bounds = {
        axis: ranges(places(subscriptions, n), widths(subscriptions, n), _VALUES - 1) for axis in ("x", "y", "z")
    }
    return Workload(name, bounds, pa.record_batch({axis: places(happening, events) * 1.0 for axis in bounds}))
