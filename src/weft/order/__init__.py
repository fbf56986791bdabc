"""The covering order of filters: posets, forests, forwards sets, matching and rates."""

from weft.model.rate import Rate as Rate
from weft.order.event_search import match as match
from weft.order.filter_relation import FilterRelation as FilterRelation
from weft.order.forest import BalancedForest as BalancedForest
from weft.order.forest import Forest as Forest
from weft.order.forest import NonRedundantForest as NonRedundantForest
from weft.order.forwards import ForwardChange as ForwardChange
from weft.order.forwards import Forwarding as Forwarding
from weft.order.node import Interface as Interface
from weft.order.node import Node as Node
from weft.order.poset import Poset as Poset
from weft.order.rates import RateControl as RateControl
from weft.order.rates import Rated as Rated
from weft.order.relation import Relation as Relation
from weft.order.structure import RootChange as RootChange
from weft.order.structure import Structure as Structure
