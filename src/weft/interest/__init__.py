"""Interest as ranges, labels and uncovered space: the models of the papers as library components."""

from weft.interest.label_counts import LabelCounts as LabelCounts
from weft.interest.label_filter import CountingFilter as CountingFilter
from weft.interest.label_filter import FilterShape as FilterShape
from weft.interest.negative_space import Limit as Limit
from weft.interest.negative_space import NegativeSpace as NegativeSpace
from weft.interest.tiles import SplitChoice as SplitChoice
