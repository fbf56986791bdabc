"""The verification of a segment from elsewhere. What passes `check_arrays` and `check_tree` lets no search read outside
its arrays or run forever, and its tree finds exactly the events in the rows' ranges. What passes `check_filters` as
well finds what its filters mean. Whatever does not pass raises ValueError.

The filter of most slots is told from their ranges, so for them there is nothing to disagree with. The others keep their
boxes as bytes, and `check_filters` derives their rows from these again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import Box
from weft.algebra.residual import Subject
from weft.errors import FilterError
from weft.index.alternatives import alternatives
from weft.index.axis import ANCHOR, Axis
from weft.index.box_codec import decode_boxes
from weft.index.coding import Choice, rows_of_box
from weft.index.dimension import CodeDimension
from weft.index.pieces import MOST_NEEDS, Need
from weft.index.rows import FilterRows
from weft.index.segment import Segment
from weft.kernels.partition import NODE
from weft.kernels.tree_check import FAULTS, FINE, rows_fault, tree_fault
from weft.language.predicate import Predicates

Arrays = Mapping[str, NDArray[Any]]


def check_arrays(rows: Arrays, arrays: Arrays, axes: Mapping[Axis, int], dimensions: Sequence[CodeDimension]) -> None:
    """Check what rows are made of: `rows` as `Rows` names them, `arrays` as a snapshot does."""
    for dimension in dimensions:
        _check_dimension(dimension)
    slots, subs = rows["slots"], rows["subs"]
    _need(len(rows["starts"]) == len(slots) + 1, "rows and their starts are not equally many")
    _need(len(rows["dims"]) == len(rows["lows"]) == len(rows["highs"]), "ranges are not equally many")
    _need(rows["lows"].dtype == rows["highs"].dtype, "ranges have two types")
    firsts = rows["firsts"]
    size = len(firsts) - 1
    _need(
        size >= 0 and firsts[0] == 0 and firsts[-1] == len(subs) and _ascending(firsts), "a slot has no subscriptions"
    )
    _need(_within(slots, size) and bool((slots[1:] >= slots[:-1]).all()), "rows are not in the order of slots")
    wide = [rows[name].astype(np.int32, copy=False) for name in ("dims", "lows", "highs")]
    _need(not rows_fault(rows["starts"].astype(np.int64), *wide, _sizes(dimensions)), "a row has an impossible range")
    by_sub, of_sub = arrays["sorted_subs"], arrays["sorted_places"]
    _need(len(by_sub) == len(of_sub) == len(subs) and _within(of_sub, len(subs)), "subscriptions are missing")
    _need(_ascending(by_sub) and bool((subs[of_sub] == by_sub).all()), "a subscription comes twice")
    checked, shared, odd = arrays["checked_rows"], arrays["shared"], arrays["source_slots"]
    for name, some, most in (("row", checked, len(slots)), ("slot", shared, size), ("slot", odd, size)):
        _need(_within(some, most) and _ascending(some), f"there is no such {name}")
    ends = arrays["source_ends"]
    _need(len(ends) == len(odd) and bool((np.diff(ends, prepend=0) >= 0).all()), "filters overlap")
    _need(int(ends[-1] if len(ends) else 0) == len(arrays["sources"]), "filters are cut off")
    _need(len(checked) == len(arrays["checked_boxes"]), "rows and boxes are not equally many")
    has_source = np.zeros(size, bool)
    has_source[odd] = True
    _need(bool(has_source[slots[checked]].all()), "a row refers to a box that does not exist")
    split = np.zeros(size, bool)
    split[shared] = True
    _need(bool((split | has_source)[slots][1:][slots[1:] == slots[:-1]].all()), "a slot has two rows for one box")
    named = arrays["special"]
    _need(_within(named, len(slots)) and _ascending(named), "rows are not named as they must be")
    special = np.zeros(len(slots), bool)
    special[named] = True
    _need(bool((special[1:] == special[:-1])[slots[1:] == slots[:-1]].all()), "a slot has rows of two kinds")
    beside = np.zeros(max(1, len(dimensions)), bool)
    beside[[dim for axis, dim in axes.items() if not axis.is_plain and axis != ANCHOR]] = True
    whose = np.repeat(slots, np.diff(rows["starts"].astype(np.int64)).astype(np.int64))
    _need(bool(has_source[whose[beside[rows["dims"]]]].all()), "a row has a range that tells no filter")


def check_needs(rows: Arrays, arrays: Arrays, axes: Mapping[Axis, int], pieces: int) -> None:
    """Check the pieces that rows need, and their anchors. Rows with a need must have their filter stored."""
    starts, needs, slots = arrays["need_starts"], arrays["needs"], rows["slots"]
    if not pieces:
        _need(not len(starts) and not len(needs) and ANCHOR not in axes, "rows need pieces that do not exist")
        return
    _need(len(starts) == len(slots) + 1 and ANCHOR in axes, "rows and their needs are not equally many")
    counts = np.diff(starts)
    _need(starts[0] == 0 and starts[-1] == len(needs) > 0, "needs belong to no row")
    _need(not len(counts) or bool(counts.min() >= 0 and counts.max() <= MOST_NEEDS), "a row has too many needs")
    numbers = np.where(needs < 0, ~needs, needs).astype(np.int64)
    _need(_within(numbers, pieces), "a row needs a piece that does not exist")
    whose = np.repeat(np.arange(len(slots)), counts)
    _need(len(np.unique(whose * np.int64(pieces) + numbers)) == len(numbers), "a row needs a piece twice")
    has_source = np.zeros(len(rows["firsts"]) - 1, bool)
    has_source[arrays["source_slots"]] = True
    _need(bool(has_source[slots[whose]].all()), "a row needs pieces and has no filter")
    here = np.flatnonzero(rows["dims"] == axes[ANCHOR])
    owners = np.searchsorted(rows["starts"], here, "right") - 1
    _need(np.array_equal(owners, np.arange(len(slots))), "a row has no anchor")
    codes = rows["lows"][here].astype(np.int64)
    _need(np.array_equal(codes, rows["highs"][here].astype(np.int64)), "an anchor is not one piece")
    wanted = np.bincount(whose[needs >= 0], minlength=len(slots))
    _need(bool(((codes > 0) == (wanted > 0)).all()), "a row needs pieces and has no anchor")
    told = np.bincount(whose[(needs >= 0) & (numbers + 1 == codes[whose])], minlength=len(slots))
    _need(bool((told == (codes > 0)).all()), "an anchor is not a piece that its row needs")


def check_tree(segment: Segment) -> None:
    """Check that the tree is one of the rows. Cost: O(size of the tree)."""
    tree, rows = segment.tree, segment.rows
    _need(len(tree.nodes) >= NODE and len(tree.nodes) % NODE == 0, "the tree has half a node")
    _need(len(tree.ids) == 32 * len(tree.live) and len(tree.data) % 32 == 0, "the tree has half a block")
    # those of empty lanes too: where no row is special, all names of a block are read together
    least, most = int(tree.ids.min(initial=0)), int(tree.ids.max(initial=-1))
    _need(-len(segment.special) <= least and most < rows.slot_count, "a block names a row that does not exist")
    special = np.zeros(len(rows), bool)
    special[segment.special] = True
    held = (
        rows.starts.astype(np.int64),
        *(part.astype(np.int32, copy=False) for part in (rows.dims, rows.lows, rows.highs)),
    )
    first = rows.first_rows()
    fault = tree_fault(*tree, held, first, segment.special, special, _sizes(rows.dimensions))
    _need(fault == FINE, FAULTS[fault])


def check_filters(segment: Segment, predicates: Predicates) -> None:
    """Check that rows are those of the stored boxes. Cost: about that of adding these filters, without parsing."""
    rows = segment.rows
    subjects = {dim: axis.subject for axis, dim in rows.axes.items() if axis.subject is not None}
    first = rows.first_rows().tolist()
    for slot, source in rows.sources.items():
        try:
            stored, used = _stored(rows, range(first[slot], first[slot + 1]), subjects)
            derived, split = _derived(decode_boxes(source, predicates), used, rows)
            _need(stored == derived, "its rows are others")
            _need(split == (slot in rows.shared), "its rows are not named as they must be")
        except FilterError:
            raise
        except (KeyError, ValueError) as error:
            sub = int(rows.subs[rows.firsts[slot]])
            raise ValueError(f"the filter of subscription {sub} is not the one stored: {error}") from error


# a row's ranges and needs, sorted, and the number of the box that is evaluated, or -1
Named = tuple[list[Choice], list[Need], int]


def _stored(
    rows: FilterRows, of_slot: range, subjects: Mapping[int, Subject]
) -> tuple[list[Named], frozenset[Subject]]:
    """The rows of a slot, and the subjects that they test."""
    starts = rows.starts[of_slot.start : of_slot.stop + 1].tolist()
    here = slice(starts[0], starts[-1])
    dims = rows.dims[here].tolist()
    anchor = rows.axes.get(ANCHOR, -1)
    pieces = rows.pieces.pieces
    ranges = list(zip(dims, zip(rows.lows[here].tolist(), rows.highs[here].tolist(), strict=True), strict=True))
    found: list[Named] = []
    for at, row in enumerate(of_slot):
        asked = rows.boxes.get(row)
        every = ranges[starts[at] - starts[0] : starts[at + 1] - starts[0]]
        own = sorted(each for each in every if each[0] != anchor)
        needs = sorted(Need(pieces[max(need, ~need)], need >= 0) for need in rows.needs_of(row))
        found.append((own, needs, -1 if asked is None else asked.number))
    return sorted(found), frozenset(subjects[dim] for dim in dims if dim in subjects)


def _derived(boxes: Sequence[Box], used: frozenset[Subject], rows: FilterRows) -> tuple[list[Named], bool]:
    """The rows that boxes make if these subjects are axes, and whether one event may meet several of them."""
    found: list[Named] = []
    split = len(boxes) > 1
    for number, box in enumerate(boxes):
        parts = list(alternatives(box, used, len(boxes)))
        split = split or len(parts) > 1
        for chosen, needs, check in rows_of_box(parts, rows.axes, rows.dimensions):
            found.append((sorted(chosen), sorted(needs), number if check else -1))
    return sorted(found), split


def _check_dimension(dimension: CodeDimension) -> None:
    numbers, sides, moments, strings = dimension.numbers, dimension.sides, dimension.moments, dimension.strings
    if dimension.inexact:
        cuts = dimension.cuts()[0]
        _need(all(cuts[at] < cuts[at + 1] for at in range(len(cuts) - 1)), "the cuts of numbers do not ascend")
    elif len(numbers):
        _need(bool(np.isfinite(numbers).all() and (sides <= 1).all()), "a cut of numbers is not finite")
        later, equal = numbers[1:] > numbers[:-1], numbers[1:] == numbers[:-1]
        _need(bool((later | (equal & (sides[1:] > sides[:-1]))).all()), "the cuts of numbers do not ascend")
    _need(_ascending(moments), "the cuts of timestamps do not ascend")
    _need(all(strings[at] < strings[at + 1] for at in range(len(strings) - 1)), "the cuts of strings do not ascend")


def _sizes(dimensions: Sequence[CodeDimension]) -> NDArray[np.int64]:
    return np.array([dimension.size for dimension in dimensions] or [1], np.int64)


def _within(places: NDArray[Any], size: int) -> bool:
    return not len(places) or bool(places.min() >= 0 and places.max() < size)


def _ascending(values: NDArray[Any]) -> bool:
    return bool((values[1:] > values[:-1]).all())


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)
