"""Networks of routing tables in memory, and what each model sends in them."""

from weftlab.overlay.overlay import Expected as Expected
from weftlab.overlay.overlay import scenario as scenario
from weftlab.overlay.overlay import simulate as simulate
from weftlab.overlay.range_workloads import WORKLOADS as WORKLOADS
from weftlab.overlay.trees import tree as tree
