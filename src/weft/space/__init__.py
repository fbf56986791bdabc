"""The content space: grids over a schema, space-filling curves, labels."""

from weft.space.content import ContentSpace as ContentSpace
from weft.space.curve import Curve as Curve
from weft.space.curve import Order as Order
from weft.space.grid import CellBoxes as CellBoxes
from weft.space.grid import Grid as Grid
from weft.space.label_space import LabelSpace as LabelSpace
from weft.space.labels import LabelCode as LabelCode
from weft.space.range_set import RangeSet as RangeSet
from weft.space.range_sets import RangeSets as RangeSets
