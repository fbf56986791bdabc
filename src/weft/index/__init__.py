"""Indexes: which subscriptions an event matches, among very many.

Modules are imported when one of their names is used: a program that matches with one index waits for no other.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.index.base import Matches as Matches
    from weft.index.base import MatchIndex as MatchIndex
    from weft.index.base import SubId as SubId
    from weft.index.batch_matches import BatchMatches as BatchMatches
    from weft.index.counting import CountingIndex as CountingIndex
    from weft.index.current_version import settle_all as settle_all
    from weft.index.index import Index as Index
    from weft.index.scan import ScanIndex as ScanIndex
    from weft.index.tree import TreeIndex as TreeIndex

_MODULES = {
    "BatchMatches": "batch_matches",
    "CountingIndex": "counting",
    "Index": "index",
    "MatchIndex": "base",
    "Matches": "base",
    "ScanIndex": "scan",
    "SubId": "base",
    "TreeIndex": "tree",
    "settle_all": "current_version",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
