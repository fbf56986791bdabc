"""Attributes in groups, each with its own curve: a cell space (MICS 8). An event passes if every group admits it, so a
subscription that constrains attributes of several groups lets more events pass than on one curve.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from weft.errors import SchemaError
from weft.kernels.arrays import Ints, Mask
from weft.space.content import ContentSpace
from weft.space.grid import CellBoxes, Grid


@dataclass(frozen=True, slots=True)
class CurveGroups:
    """Content spaces over different attributes. `MicsTable(space.groups)` is the table.

    >>> from weft import Schema
    >>> schema = Schema.from_dict({"attributes": {n: {"type": "int", "bounds": [0, 12]} for n in ("x", "y")}})
    >>> space = CurveGroups([ContentSpace(Grid.uniform(schema, 16, [name])) for name in schema])
    >>> CurveGroups.from_json(space.to_json()) == space, len(space.groups)
    (True, 2)
    """

    groups: Sequence[ContentSpace]

    model: ClassVar[str] = "mics"
    fields: ClassVar[tuple[str, ...]] = ("group", "start", "end")
    countable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        if not self.groups:
            raise SchemaError("there are no groups; give at least one content space")

    @property
    def grids(self) -> tuple[Grid, ...]:
        """The grid of each group."""
        return tuple(space.grid for space in self.groups)

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Everything that two ends must agree on; hashable, and made of JSON types."""
        return ("groups", tuple(space.parameters for space in self.groups))

    def to_json(self) -> str:
        """The parameters as JSON."""
        return json.dumps(self.parameters)

    @staticmethod
    def from_json(text: str) -> CurveGroups:
        """The space with these parameters. Raises SchemaError if they are not those of groups."""
        try:
            match json.loads(text):
                case ["groups", [*groups]]:
                    return CurveGroups([ContentSpace.from_json(json.dumps(each)) for each in groups])
        except (ValueError, RecursionError):
            pass
        raise SchemaError("not the parameters of groups of content spaces; write them with to_json()")

    # -- as a cell space ---------------------------------------------------------------------------

    def by_group(self, items: Ints) -> list[Ints]:
        """The ranges (start, end) of each group."""
        return [_of(items, at) for at in range(len(self.groups))]

    def items(self, boxes: Sequence[CellBoxes], owners: Ints) -> Ints:
        """The ranges of each owner, group by group."""
        found = [space.items([boxes[at]], owners) for at, space in enumerate(self.groups)]
        return np.concatenate([_numbered(at, each) for at, each in enumerate(found)])

    def united(self, items: Ints) -> Ints:
        """The union of the ranges of each group."""
        parts = zip(self.groups, self.by_group(items), strict=True)
        return np.concatenate([_numbered(at, space.united(each)) for at, (space, each) in enumerate(parts)])

    def admits(self, items: Ints, cells: Sequence[Ints]) -> Mask:
        """Which events every group admits."""
        admitted = np.ones(len(cells[0]), np.bool_)
        for space, mine, there in zip(self.groups, self.by_group(items), cells, strict=True):
            left = admitted.nonzero()[0]
            admitted[left] = space.admits(mine, [there[left]])
        return admitted


def _numbered(group: int, ranges: Ints) -> Ints:
    return np.concatenate([np.full((len(ranges), 1), group, np.int64), ranges], axis=1)


def _of(items: Ints, group: int) -> Ints:
    return items[items[:, 0] == group, 1:]
