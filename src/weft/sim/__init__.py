"""Simulations: tables and brokers on networks that exist in memory only."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.sim.evidence import Data as Data
    from weft.sim.evidence import compare as compare
    from weft.sim.overlay import Expected as Expected
    from weft.sim.overlay import scenario as scenario
    from weft.sim.overlay import simulate as simulate
    from weft.sim.range_workloads import WORKLOADS as WORKLOADS
    from weft.sim.recommendation import Weights as Weights
    from weft.sim.recommendation import recommend as recommend
    from weft.sim.trees import tree as tree

_LATER = {
    "Data": "weft.sim.evidence",
    "compare": "weft.sim.evidence",
    "Expected": "weft.sim.overlay",
    "scenario": "weft.sim.overlay",
    "simulate": "weft.sim.overlay",
    "WORKLOADS": "weft.sim.range_workloads",
    "Weights": "weft.sim.recommendation",
    "recommend": "weft.sim.recommendation",
    "tree": "weft.sim.trees",
}

__all__ = ["WORKLOADS", "Data", "Expected", "Weights", "compare", "recommend", "scenario", "simulate", "tree"]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'weft.sim' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
