"""The covering order of filters: posets, forests, merging, and the forests of queries and profiles."""

from weft.order.aggregate import AggregateMerging as AggregateMerging
from weft.order.boxed import Filters as Filters
from weft.order.directory import Change as Change
from weft.order.directory import Directory as Directory
from weft.order.double_forest import DoubleForest as DoubleForest
from weft.order.forest import BalancedForest as BalancedForest
from weft.order.forest import Forest as Forest
from weft.order.forest import NonRedundantForest as NonRedundantForest
from weft.order.forwards import Forwarded as Forwarded
from weft.order.forwards import Forwarding as Forwarding
from weft.order.local_merging import LocalMerging as LocalMerging
from weft.order.matching import match as match
from weft.order.mergeability import Budget as Budget
from weft.order.mergeability import FilterMerging as FilterMerging
from weft.order.mergeability import Merging as Merging
from weft.order.node import Interface as Interface
from weft.order.node import Node as Node
from weft.order.poset import Poset as Poset
from weft.order.rates import Rate as Rate
from weft.order.rates import RateControl as RateControl
from weft.order.rates import Rated as Rated
from weft.order.relation import Relation as Relation
from weft.order.root_merging import RootMerging as RootMerging
from weft.order.structure import RootChange as RootChange
from weft.order.structure import Structure as Structure
from weft.order.two_sets import TwoSets as TwoSets
