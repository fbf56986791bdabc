"""The ranges that one link is told: those that all others need, as pieces. Pieces are disjoint. Together they are what
is needed, with gaps closed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Sequence

from weft.model.change import Change
from weft.routing.dls.items import Note
from weft.routing.mics.items import CurveRange
from weft.routing.mics.space import Ranges
from weft.routing.mics.structure import RangeTable
from weft.space.range_set import RangeSet
from weft.space.range_sets import RangeSets

PieceChange = Change[list[CurveRange], list[CurveRange]]


class RangesTold:
    """A range table and the pieces told of it, for each curve; gaps of up to `gap` cells are told as well."""

    def __init__(self, groups: int, gap: int) -> None:
        self.needs = [RangeTable(gap=gap) for _ in range(groups)]
        self.pieces = [ToldRanges(group) for group in range(groups)]

    def change(
        self, drop: Iterable[Ranges], add: Iterable[Ranges]
    ) -> tuple[Change[Collection[CurveRange], Collection[CurveRange]], tuple[Note, ...]]:
        """Remove and add ranges; returns the pieces removed and added."""
        old, new = [*drop], [*add]
        gone: list[CurveRange] = []
        came: list[CurveRange] = []
        for group, (table, pieces) in enumerate(zip(self.needs, self.pieces, strict=True)):
            change = table.change(of_group(old, group), of_group(new, group))
            revised = pieces.revise(change.drop, change.add)
            gone += revised.drop
            came += revised.add
        return Change(gone, came), ()

    def improve(self) -> tuple[Change[Collection[CurveRange], Collection[CurveRange]], tuple[Note, ...]]:
        """Combine the pieces of ranges that grew bit by bit, if that saves half of them."""
        gone: list[CurveRange] = []
        came: list[CurveRange] = []
        for table, pieces in zip(self.needs, self.pieces, strict=True):
            if len(pieces) > 2:
                told = table.told()
                if len(pieces) > 2 * len(told):
                    renewed = pieces.renew(told)
                    gone += renewed.drop
                    came += renewed.add
        return Change(gone, came), ()

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def __iter__(self) -> Iterator[CurveRange]:
        for pieces in self.pieces:
            yield from pieces

    def check(self, wanted: Sequence[Ranges]) -> None:
        """Raise AssertionError unless exactly these ranges are needed and told."""
        for group, (table, pieces) in enumerate(zip(self.needs, self.pieces, strict=True)):
            table.check()
            sets = of_group(wanted, group)
            assert table.needed() == RangeSet.union_of(sets.starts, sets.ends), "others need something else"
            pieces.check()
            assert RangeSet.of(*((each.start, each.end) for each in pieces)) == table.told()


def of_group(several: Sequence[Ranges], group: int) -> RangeSets:
    """The range sets of one group."""
    return RangeSets.of([ranges[group] for ranges in several])


class ToldRanges:
    """The ranges of one group as they were told, disjoint and in order."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.starts: list[int] = []
        self.ends: list[int] = []

    def revise(self, drop: RangeSet, add: RangeSet) -> PieceChange:
        """Remove and add ranges; returns the pieces removed and added. A piece that loses a part is told again.

        Cost: O(log pieces + pieces touched) per range, and a memory move.
        """
        gone: dict[CurveRange, None] = {}
        new: dict[CurveRange, None] = {}
        for start, end in drop:
            first, last = bisect_left(self.ends, start), bisect_right(self.starts, end)
            left = [(a, b) for a, b in ((self.starts[first], start - 1), (end + 1, self.ends[last - 1])) if a <= b]
            for piece in map(self._piece, self.starts[first:last], self.ends[first:last]):
                if piece in new:
                    del new[piece]
                else:
                    gone[piece] = None
            self.starts[first:last], self.ends[first:last] = [a for a, _ in left], [b for _, b in left]
            new |= dict.fromkeys(self._piece(a, b) for a, b in left)
        for start, end in add:
            insort(self.starts, start)
            insort(self.ends, end)
            new[self._piece(start, end)] = None
        return Change([piece for piece in gone if piece not in new], [piece for piece in new if piece not in gone])

    def renew(self, told: RangeSet) -> PieceChange:
        """Move the same points into as few pieces as possible; returns the pieces removed and added."""
        old = dict.fromkeys(self)
        self.starts, self.ends = told.starts.tolist(), told.ends.tolist()
        new = dict.fromkeys(self)
        return Change([piece for piece in old if piece not in new], [piece for piece in new if piece not in old])

    def _piece(self, start: int, end: int) -> CurveRange:
        return CurveRange(self.group, start, end)

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[CurveRange]:
        return map(self._piece, self.starts, self.ends)

    def check(self) -> None:
        """Raise AssertionError unless the pieces are disjoint and in order."""
        assert all(a <= b for a, b in zip(self.starts, self.ends, strict=True))
        assert all(b < a for b, a in zip(self.ends, self.starts[1:], strict=False))
