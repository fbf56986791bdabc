"""The content space: grids over a schema, space-filling curves."""

from weft.space.content import ContentSpace as ContentSpace
from weft.space.curve import Curve as Curve
from weft.space.curve import Order as Order
from weft.space.grid import CellBoxes as CellBoxes
from weft.space.grid import Grid as Grid
from weft.space.range_set import RangeSet as RangeSet
from weft.space.range_sets import RangeSets as RangeSets
