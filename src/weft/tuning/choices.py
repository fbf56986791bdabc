"""The choices of tuning: for each attribute the ways to cut it, or none, and its group; and a cap. Every way but "left
out" is a dimension, and none occurs twice. A possible candidate has an attribute, and each of its groups fits in a
curve's index and in a label. Groups are numbered in order of appearance, so a grouping has a single form.

A candidate is a tuple of numbers: for each attribute the position of its way, then the position of the cap, then for
each attribute the number of its group.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product
from typing import TYPE_CHECKING, NamedTuple

from weft.errors import SchemaError, TuningError
from weft.index.base import AnyEvent
from weft.index.events import EventColumns
from weft.model.schema import Attribute, Schema
from weft.model.value import Value
from weft.routing.dls import labels
from weft.space import curve, partition
from weft.space.dimension import GridDimension

if TYPE_CHECKING:
    import pyarrow as pa

Candidate = tuple[int, ...]

LEFT_OUT = 0
_LABEL_BITS = 56  # below the number of an application
_MOST_CUTS = 1 << 16  # of a dimension: a curve of one dimension could have many more
_MOST_GROUPS = 16
_VALUES = 4_096  # of an attribute, to see where they lie
WORK = 400_000_000  # steps: about ten seconds


@dataclass(frozen=True, slots=True)
class Options:
    """The numbers of cells (granules) that an attribute may have, and the numbers of ranges or labels that a filter may
    have.

    Attributes are divided into at most this many `groups`. `work` limits the search, in elementary steps: cells and
    events that are visited. The same search therefore ends at the same place on every machine.

    >>> Options(cells=(8, 64), caps=(16,)).caps
    (16,)
    """

    cells: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256)
    caps: tuple[int, ...] = (4, 16, 64, 256)
    groups: int = 3
    work: int = WORK

    def __post_init__(self) -> None:
        for name, most in (("groups", _MOST_GROUPS), ("work", None)):
            number = getattr(self, name)
            if type(number) is not int or not 1 <= number <= (most or number):
                valid = f"from 1 to {most}" if most else "of 1 or more"
                raise TuningError(f"{name} is {number!r}; give an integer {valid}")
        for name, least, most in (("cells", partition.LEAST_CELLS + 1, _MOST_CUTS), ("caps", 1, curve.MOST_ALLOWED)):
            given = tuple(sorted(set(getattr(self, name))))
            object.__setattr__(self, name, given)
            if not given or not least <= given[0] <= given[-1] <= most:
                raise TuningError(f"{name} is {given}; give numbers from {least} to {most} to choose from")


class Way(NamedTuple):
    """One way to cut an attribute. Without a dimension, the attribute is left out."""

    name: str
    dimension: GridDimension | None = None
    cuts: str = ""

    @property
    def size(self) -> int:
        """The number of cells; 1 if it is left out."""
        return 1 if self.dimension is None else self.dimension.size

    def __str__(self) -> str:
        return f"{self.name}: " + ("left out" if self.dimension is None else f"{self.size} {self.cuts}")


@dataclass(frozen=True, slots=True)
class Choices:
    """The ways of each attribute, from coarse to fine, beginning with "left out"; the caps; the approximate numbers of
    cells; and the maximal number of groups.
    """

    ways: tuple[tuple[Way, ...], ...]
    caps: tuple[int, ...]
    sizes: tuple[int, ...]
    most: int

    @staticmethod
    def of(
        schema: Schema, names: Collection[str], events: pa.RecordBatch | Sequence[AnyEvent], options: Options
    ) -> Choices:
        """Uniform cells where the schema has bounds or categories, equi-depth cells where the events have values.

        An attribute with neither is left out, as is one that is not in `names`, because no subscription tests it.
        Raises TuningError if all are left out.
        """
        asked = [attribute for attribute in schema.attributes if attribute.name in names]
        columns = EventColumns.of(events, [attribute.name for attribute in asked])
        step = max(1, -(-columns.size // _VALUES))
        ways = [_ways(attribute, columns.values(attribute.name)[::step], options.cells) for attribute in asked]
        kept = tuple(some for some in ways if len(some) > 1)
        if not kept:
            wanted = ", ".join(sorted(names)) or "none"
            raise TuningError(
                f"no attribute that the subscriptions test ({wanted}) can be cut into cells; declare one in the "
                "schema, with bounds or categories, or give events that have values of it"
            )
        return Choices(kept, options.caps, options.cells, options.groups)

    @property
    def coordinates(self) -> range:
        """The positions of a candidate: attributes, then the cap."""
        return range(len(self.ways) + 1)

    @property
    def size(self) -> int:
        """The number of candidates, possible or not."""
        return math.prod(map(len, self.ways)) * len(self.caps) * len(self._partitions)

    @property
    def _partitions(self) -> list[tuple[int, ...]]:
        """All groupings of all attributes."""
        found: list[tuple[int, ...]] = [()]
        for _ in self.ways:
            found = [(*some, group) for some in found for group in range(min(max(some, default=-1) + 2, self.most))]
        return found

    def __iter__(self) -> Iterator[Candidate]:
        """All possible candidates, each once and in order."""
        places = (range(len(some)) for some in (*self.ways, self.caps))
        every = ((*some, *groups) for some in product(*places) for groups in self._partitions)
        return (candidate for candidate in every if candidate == self.tidied(candidate) and self.possible(candidate))

    def candidate(self, places: Sequence[int], cap: int, groups: Sequence[int] = ()) -> Candidate:
        """The candidate with these ways and this cap, in one group unless groups are given."""
        return self.tidied((*places, cap, *(groups or (0 for _ in self.ways))))

    def tidied(self, candidate: Candidate) -> Candidate:
        """The same with its groups numbered in order of appearance; an attribute that is left out counts as in the
        first.
        """
        width = len(self.ways)
        numbers: dict[int, int] = {}
        groups = [
            numbers.setdefault(group, len(numbers)) if place != LEFT_OUT else 0
            for place, group in zip(candidate[:width], candidate[width + 1 :], strict=True)
        ]
        return (*candidate[: width + 1], *groups)

    def possible(self, candidate: Candidate) -> bool:
        """Whether it has an attribute, and each of its grids fits in a curve and in labels."""
        groups = self.groups(candidate)
        return bool(groups) and len(groups) <= self.most and all(map(_fits, groups))

    def groups(self, candidate: Candidate) -> tuple[tuple[GridDimension, ...], ...]:
        """The dimensions of each of its grids, in the order of the schema."""
        found: dict[int, list[GridDimension]] = {}
        for some, place, group in zip(self.ways, candidate, candidate[len(self.ways) + 1 :], strict=False):
            dimension = some[place].dimension
            if dimension is not None:
                found.setdefault(group, []).append(dimension)
        return tuple(map(tuple, found.values()))

    def cap(self, candidate: Candidate) -> int:
        """Its cap."""
        return self.caps[candidate[len(self.ways)]]

    def line(self, candidate: Candidate, at: int) -> list[Candidate]:
        """All possible candidates that differ from this one only in one attribute's way, or in the cap."""
        room = len(self.caps) if at == len(self.ways) else len(self.ways[at])
        every = ((*candidate[:at], place, *candidate[at + 1 :]) for place in range(room) if place != candidate[at])
        return [other for other in map(self.tidied, every) if self.possible(other)]

    def regroupings(self, candidate: Candidate) -> list[Candidate]:
        """All candidates with one attribute moved to another group or to its own, or with two groups combined."""
        width = len(self.ways)
        places, groups = candidate[:width], candidate[width + 1 :]
        number = len(self.groups(candidate))
        moves = (
            (*groups[:at], group, *groups[at + 1 :])
            for at, place in enumerate(places)
            if place != LEFT_OUT
            for group in range(number + 1)
        )
        unions = (
            tuple(one if group == other else group for group in groups) for one, other in combinations(range(number), 2)
        )
        found = dict.fromkeys(self.candidate(places, candidate[width], some) for some in (*moves, *unions))
        return [other for other in found if other != candidate and self.possible(other)]

    def exchanges(self, candidate: Candidate) -> list[Candidate]:
        """All possible candidates that are one step finer at one position and one step coarser at another."""
        found: list[Candidate] = []
        for finer, coarser in permutations(self.coordinates, 2):
            for up, down in product(self._steps(candidate, finer, 1), self._steps(candidate, coarser, -1)):
                other = list(candidate)
                other[finer], other[coarser] = up, down
                found.append(tuple(other))
        return [other for other in map(self.tidied, found) if self.possible(other)]

    def even(self, candidate: Candidate, members: Sequence[int], size: int, cuts: str) -> Candidate:
        """The candidate with some attributes in about this many cells each, cut in this way where possible."""
        other = list(candidate)
        for at in members:
            some = self.ways[at]
            near = [
                (abs(math.log(way.size / size)), way.cuts != cuts, place) for place, way in enumerate(some) if place
            ]
            other[at] = min(near)[-1]
        return self.tidied(tuple(other))

    def _steps(self, candidate: Candidate, at: int, direction: int) -> list[int]:
        """The next positions up or down; for an attribute, the next size with each kind of cuts."""
        place = candidate[at]
        if at == len(self.ways):
            return [place + direction] if 0 <= place + direction < len(self.caps) else []
        some = self.ways[at]
        nearest: dict[str, tuple[int, int]] = {}
        for other, way in enumerate(some):
            far = direction * (way.size - some[place].size)
            if far > 0:
                nearest[way.cuts] = min(nearest.get(way.cuts, (far, other)), (far, other))
        return [other for _, other in nearest.values()]

    def shown(self, candidate: Candidate, before: Candidate | None = None) -> str:
        """A candidate as text for people: all of it, or its difference from another."""
        width = len(self.ways)
        said = [
            f"{some[place]}"
            for at, (some, place) in enumerate(zip(self.ways, candidate, strict=False))
            if (place != LEFT_OUT if before is None else place != before[at])
        ]
        if before is None or candidate[width] != before[width]:
            said.append(f"cap: {self.cap(candidate)}")
        groups = self.groups(candidate)
        if len(groups) > 1 if before is None else candidate[width + 1 :] != before[width + 1 :]:
            said.append("groups: " + " | ".join(" ".join(each.name for each in group) for group in groups))
        return ", ".join(said)


def _fits(group: Sequence[GridDimension]) -> bool:
    """Whether a grid of these dimensions fits in a curve and in labels."""
    bits = [(dimension.size - 1).bit_length() for dimension in group]
    fits_curve = len(bits) * max(bits) <= curve.MOST_BITS
    return fits_curve and sum(bits) + len(bits) <= min(_LABEL_BITS, labels.MOST_BITS)


def _ways(attribute: Attribute, values: list[Value | None], cells: Sequence[int]) -> tuple[Way, ...]:
    found: dict[GridDimension, Way] = {}
    for count in cells:
        try:
            even = partition.uniform(attribute, count)
            found.setdefault(even, Way(attribute.name, even, "uniform"))
        except SchemaError:  # no bounds
            pass
        try:
            deep = partition.equi_depth(attribute, values, count)
            found.setdefault(deep, Way(attribute.name, deep, "equi-depth"))
        except SchemaError:  # no values
            pass
    telling = (way for way in found.values() if way.size > partition.LEAST_CELLS)
    return (Way(attribute.name), *sorted(telling, key=lambda way: (way.size, way.cuts)))
