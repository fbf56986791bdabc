"""Seeded subscriptions and events for benchmarks, tests and examples. The same seed gives the same workload.

>>> from weft.workloads import WORKLOADS
>>> market = WORKLOADS["W3"](1_000, 50, seed=7)
>>> len(market), market.table.num_rows, list(market.bounds)
(1000, 50, ['symbol', 'price', 'volume'])
"""

from weft.workloads.base import Workload as Workload
from weft.workloads.mixed import Mixed as Mixed
from weft.workloads.mixed import mixed as mixed
from weft.workloads.standard import WORKLOADS as WORKLOADS
