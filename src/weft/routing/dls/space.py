"""The label space: grids of several applications in one numbering (DLS 5.4). An event that matches a filter has one of
the filter's labels at some level in use. Two spaces with equal parameters give equal labels.

A subscription has at most `most` labels, or one per box if it has more boxes. A subscription with more cells drops low
bits of its attributes: its labels are then blocks of cells and never cover fewer cells. The choice of dropped bits is a
*level*. An event has one label at each level, so it is looked up once for each level in use.

Granules are the grid's cells, so each attribute has one for "absent, or of another type" and two half-infinite ones in
addition to those within its bounds (errata, MICS 6). An application is identified by the number of its grid, in the
highest bits. An event is published once and has labels in each application.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.algebra.columns import BoxColumns
from weft.algebra.relate import Region
from weft.errors import LabelError, SchemaError
from weft.index.base import AnyEvent
from weft.kernels.arrays import Ints, Mask
from weft.model.door import shown
from weft.model.schema import Schema
from weft.routing.dls.labels import MOST_BITS, LabelCode, LabelSets
from weft.space.dimension import is_integer
from weft.space.grid import CellBoxes, Grid

if TYPE_CHECKING:
    import pyarrow as pa

MOST_LABELS = 256  # of one subscription, by default
MOST_ALLOWED = 1 << 16  # of one subscription: more could not be sent
PARTS = 2  # an attribute drops none, half or all of its bits, so levels are few
MOST_ATTRIBUTES = MOST_BITS // 2  # of one application: each takes at least one bit for its granule and one for the mark
_GRANULES = 64  # of each attribute, by default
_WIDTH = 56  # bits below the application's number; leaves room to add grids without renumbering


@dataclass(frozen=True, slots=True)
class LabelSpace:
    """Grids, one per application, and the maximal number of labels of a filter.

    >>> schema = Schema.from_dict({"attributes": {n: {"type": "int", "bounds": [0, 12]} for n in ("x", "y")}})
    >>> space = LabelSpace([Grid.uniform(schema, cells=16)], most=4)
    >>> wanted = space.labels("x BETWEEN 3 AND 5")
    >>> [space.text(label) for label in wanted.tolist()]
    ['0101-****', '0110-****', '0111-****']
    >>> event = space.of_events([{"x": 4, "y": 99}, {"x": 7}], space.levels(wanted))
    >>> np.isin(event, wanted).tolist()
    [[True], [False]]
    """

    grids: Sequence[Grid]
    most: int = MOST_LABELS
    parts: int = PARTS
    codes: tuple[LabelCode, ...] = field(init=False, compare=False, repr=False)
    width: int = field(init=False, compare=False, repr=False)  # bits below the application's number
    limits: tuple[int, ...] = field(init=False, compare=False, repr=False)  # the last cell in each dimension

    model: ClassVar[str] = "dls"
    fields: ClassVar[tuple[str, ...]] = ("label",)
    countable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "grids", tuple(self.grids))
        if not self.grids:
            raise LabelError("a label space needs at least one grid; give one")
        for what, number, limit in (
            ("most labels of a filter", self.most, MOST_ALLOWED),
            ("parts of an attribute's bits", self.parts, MOST_BITS),
        ):
            if not is_integer(number) or not 1 <= number <= limit:
                raise LabelError(f"the {what} is {shown(number)}; give an integer from 1 to {limit}")
        object.__setattr__(self, "codes", tuple(LabelCode(grid.shape, self.parts) for grid in self.grids))
        limits = tuple(size - 1 for grid in self.grids for size in grid.shape)
        object.__setattr__(self, "limits", limits)
        object.__setattr__(self, "width", max(_WIDTH, *(code.size for code in self.codes)))
        if self.width + (len(self.grids) - 1).bit_length() > MOST_BITS:
            raise LabelError(
                f"the numbers of {len(self.grids)} applications do not fit above labels of {self.width} bits; "
                "use fewer granules, or only the attributes that matter"
            )

    @staticmethod
    def of(schema: Schema, granules: int | None = None, *, most: int = MOST_LABELS) -> LabelSpace:
        """One application over all attributes of a schema, which must have bounds.

        Raises SchemaError, or LabelError if the granules of all attributes do not fit in one label. By default there
        are as many as fit, for up to 31 attributes.
        """
        count = len(schema.attributes)
        if count > MOST_ATTRIBUTES:
            raise LabelError(
                f"the schema has {count} attributes, and a label has room for at most {MOST_ATTRIBUTES}; choose those "
                "that matter: LabelSpace([Grid.uniform(schema, names=[...])])"
            )
        fitting = max(2, min(_GRANULES, 1 << max(1, MOST_BITS // max(1, count) - 1)))
        return LabelSpace([Grid.uniform(schema, fitting if granules is None else granules)], most)

    def with_grid(self, grid: Grid) -> LabelSpace:
        """The same with one more application, under the next number. Existing labels stay valid. Raises LabelError if
        it does not fit.
        """
        more = LabelSpace((*self.grids, grid), self.most, self.parts)
        if more.width != self.width:
            raise LabelError(
                f"labels of {more.codes[-1].size} bits do not fit in the {self.width} bits below the application's "
                "number; use fewer granules"
            )
        return more

    @property
    def size(self) -> int:
        """The number of bits that distinguish all labels."""
        return max(code.size for code in self.codes) + (len(self.grids) - 1).bit_length()

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Everything that two ends must agree on; hashable, and made of JSON types."""
        return (self.most, self.parts, tuple(grid.parameters for grid in self.grids))

    def to_json(self) -> str:
        """The parameters as JSON."""
        return json.dumps(self.parameters)

    @staticmethod
    def from_json(text: str) -> LabelSpace:
        """The space with these parameters. Raises SchemaError if they are not those of a label space."""
        try:
            most, parts, grids = json.loads(text)
            if type(most) is not int or type(parts) is not int:
                raise ValueError("the cap and the parts must be integers")
            return LabelSpace([Grid.from_parameters(grid) for grid in grids], most, parts)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise SchemaError(f"not the parameters of a label space: {error}; write them with to_json()") from None

    # -- subscriptions -----------------------------------------------------------------------------

    def labels(self, region: Region | str, *among: int) -> Ints:
        """The labels of a filter, ascending, in the application where it takes the smallest share, of all or of those
        given.

        Raises FilterError if the filter never matches.
        """
        every = [(number, self._grid(number).boxes(region)) for number in among or range(len(self.grids))]
        application, boxes = min(every, key=lambda each: _share(each[1], self.grids[each[0]]))
        room = max(1, self.most // len(boxes.rows))
        return np.unique(self._of_boxes(application, boxes, room).labels)

    def label_sets(self, columns: BoxColumns) -> tuple[Ints, LabelSets]:
        """The owners of many boxes, each once and in order, and the labels of each in the first application.

        An owner that never matches has no box and is not included. Cost: O(labels).
        """
        owners, counts, boxes = self._grid(0).boxes_by_owner(columns)
        found = self._of_boxes(0, boxes, np.repeat(np.maximum(self.most // counts, 1), counts))
        if len(owners) == len(boxes.rows):
            return owners, found
        parts = pairwise(found.offsets[np.append(0, np.cumsum(counts))].tolist())
        each = [np.unique(found.labels[begin:end]) for begin, end in parts]
        return owners, LabelSets(np.cumsum([0, *map(len, each)]), np.concatenate([np.zeros(0, np.int64), *each]))

    def _of_boxes(self, application: int, boxes: CellBoxes, room: int | Ints) -> LabelSets:
        return self.codes[application].of_boxes(boxes.lows, boxes.highs, room, application << self.width)

    def _grid(self, application: int) -> Grid:
        if not 0 <= application < len(self.grids):
            raise LabelError(f"there is no application {application}; use 0 to {len(self.grids) - 1}")
        return self.grids[application]

    # -- events ------------------------------------------------------------------------------------

    def of_events(self, batch: pa.RecordBatch | Sequence[AnyEvent], levels: Ints) -> Ints:
        """The labels of events, one row per event and one column per level. Cost: O(events x levels)."""
        needed = set((levels >> self.width).tolist())
        none = np.zeros((len(batch), 0), np.int64)
        return self.of_cells(
            [grid.cells(batch) if at in needed else none for at, grid in enumerate(self.grids)], levels
        )

    def of_cells(self, cells: Sequence[Ints], levels: Ints) -> Ints:
        """The same for the cells of events in each grid."""
        out = np.empty((len(cells[0]), len(levels)), np.int64)
        applications = levels >> self.width
        for application in np.unique(applications).tolist():
            columns = (applications == application).nonzero()[0]
            code = self.codes[application]
            drops = code.drops_of(levels[columns] & self._below)
            out[:, columns] = code.of_cells(cells[application], drops, application << self.width)
        return out

    def of_event(self, event: AnyEvent, levels: Ints) -> list[int]:
        """The labels of one event at these levels. Cost: O(levels x attributes)."""
        out = levels.copy()
        applications = levels >> self.width
        for application in np.unique(applications).tolist():
            mine = applications == application
            code = self.codes[application]
            cells = np.array(self.grids[application].cell(event), np.int64)
            drops = code.drops_of(levels[mine] & self._below)
            out[mine] += ((cells >> drops) << code.places).sum(axis=1)
        found: list[int] = out.tolist()
        return found

    # -- labels ------------------------------------------------------------------------------------

    @property
    def _below(self) -> int:
        return (1 << self.width) - 1

    def levels(self, labels: Ints) -> Ints:
        """The levels of these labels, ascending, each once."""
        return np.unique(self.level_of(labels))

    def level_of(self, labels: Ints) -> Ints:
        """The level of each label: the label of cell 0 of its application at that level."""
        out = np.empty(labels.size, np.int64)
        applications = labels >> self.width
        for application, code in enumerate(self.codes):
            mine = applications == application
            out[mine] = code.levels(labels[mine] & self._below) + (application << self.width)
        return out

    def sound(self, labels: Ints) -> NDArray[np.bool_]:
        """Whether each is a label of this space."""
        out = np.zeros(labels.size, np.bool_)
        applications = labels >> self.width
        for application, code in enumerate(self.codes):
            mine = applications == application
            out[mine] = code.sound(labels[mine] & self._below)
        return out

    def boxes_of_labels(self, labels: Iterable[int]) -> list[tuple[int, Ints, Ints]]:
        """The cells of labels: for each application with labels, its number and the corners of their boxes."""
        found: dict[int, list[tuple[tuple[int, int], ...]]] = {}
        for label in labels:
            application = label >> self.width
            self._grid(application)
            found.setdefault(application, []).append(self.codes[application].cells(label & self._below))
        corners = ((application, np.array(boxes, np.int64)) for application, boxes in found.items())
        return [(application, each[:, :, 0], each[:, :, 1]) for application, each in corners]

    def text(self, label: int) -> str:
        """A label in readable form, preceded by the application's number if there are several."""
        application = label >> self.width
        self._grid(application)
        shown = self.codes[application].text(label & self._below)
        return f"{application}:{shown}" if len(self.grids) > 1 else shown

    # -- as a cell space ---------------------------------------------------------------------------

    def items(self, boxes: Sequence[CellBoxes], owners: Ints) -> Ints:
        """The labels of each owner, in the application where it takes the smallest share, as computed by `labels`."""
        found = [np.zeros(0, np.int64)]
        for application, mine in enumerate(self._least(boxes, owners)):
            _, at, counts = np.unique(owners[mine.rows], return_inverse=True, return_counts=True)
            sets = self._of_boxes(application, mine, np.maximum(self.most // counts, 1)[at])
            holders = np.repeat(at, np.diff(sets.offsets))
            several = (counts > 1)[holders]  # owners of several boxes, which may share labels
            found += [sets.labels[~several], _each_once(holders[several], sets.labels[several])]
        return np.concatenate(found)[:, None]

    def _least(self, boxes: Sequence[CellBoxes], owners: Ints) -> list[CellBoxes]:
        """For each application, the boxes of the owners that take the smallest share there."""
        if len(self.grids) == 1:
            return list(boxes)
        names, numbers = np.unique(owners, return_inverse=True)
        shares = np.full((len(self.grids), len(names)), np.inf)
        for application, (mine, grid) in enumerate(zip(boxes, self.grids, strict=True)):
            holders = numbers[mine.rows]
            there = np.bincount(holders, _shares(mine, grid), len(names))
            shares[application, holders] = there[holders]
        chosen = shares.argmin(axis=0)
        parts = [chosen[numbers[mine.rows]] == application for application, mine in enumerate(boxes)]
        return [CellBoxes(*(array[part] for array in mine)) for mine, part in zip(boxes, parts, strict=True)]

    def united(self, items: Ints) -> Ints:
        """The labels, ascending and each once."""
        return np.unique(items)[:, None]

    def admits(self, items: Ints, cells: Sequence[Ints]) -> Mask:
        """Which events have one of the labels. Cost: O(events) for each level in use."""
        labels = np.sort(items[:, 0])
        level_of = self.level_of(labels)
        admitted = np.zeros(len(cells[0]), np.bool_)
        for level in np.unique(level_of).tolist():
            application = level >> self.width
            left = (~admitted).nonzero()[0]
            drops = [self.codes[application].drops(level & self._below)]
            asked = self.codes[application].of_cells(cells[application][left], drops, application << self.width)
            there = labels[level_of == level]
            admitted[left] = there[np.searchsorted(there, asked[:, 0]) % len(there)] == asked[:, 0]
        return admitted


def _each_once(owners: Ints, labels: Ints) -> Ints:
    """The labels of owners, once per owner."""
    order = np.lexsort((labels, owners))
    owners, labels = owners[order], labels[order]
    again = np.zeros(len(labels), np.bool_)
    again[1:] = (owners[1:] == owners[:-1]) & (labels[1:] == labels[:-1])
    once: Ints = labels[~again]
    return once


def _share(boxes: CellBoxes, grid: Grid) -> float:
    """The share of all cells that boxes cover."""
    return float(_shares(boxes, grid).sum())


def _shares(boxes: CellBoxes, grid: Grid) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = ((boxes.highs - boxes.lows + 1) / np.array(grid.shape)).prod(axis=1)
    return shares
