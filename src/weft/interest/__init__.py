"""Interest as ranges, labels and uncovered space: the models of the papers as library components.

Modules are imported when one of their names is used: who only reads messages about labels needs no kernels.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.interest.label_counts import LabelCounts as LabelCounts
    from weft.interest.label_filter import CountingFilter as CountingFilter
    from weft.interest.label_filter import FilterShape as FilterShape
    from weft.interest.negative_space import Limit as Limit
    from weft.interest.negative_space import NegativeSpace as NegativeSpace
    from weft.interest.tiles import SplitChoice as SplitChoice

_MODULES = {
    "LabelCounts": "label_counts",
    "CountingFilter": "label_filter",
    "FilterShape": "label_filter",
    "Limit": "negative_space",
    "NegativeSpace": "negative_space",
    "SplitChoice": "tiles",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
