"""Routing tables: what neighbours are told, and where events go."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft.routing.registry import MODELS, make_table
from weft.routing.table import (
    About,
    ClientId,
    Exactness,
    Heard,
    ItemId,
    Kept,
    Link,
    Placed,
    Places,
    Role,
    RoutingTable,
    Tell,
    Update,
)

if TYPE_CHECKING:
    from weft.routing.codec import Codec as Codec
    from weft.routing.dls.table import DlsTable as DlsTable
    from weft.routing.item_codec import FilterItems as FilterItems
    from weft.routing.local_forest import ForestLocal as ForestLocal
    from weft.routing.mapping import Mapper as Mapper
    from weft.routing.mics.table import MicsTable as MicsTable
    from weft.routing.negative.table import NegativeTable as NegativeTable

_LATER = {  # imported when they are used: each brings the kernels of its model
    "Codec": "weft.routing.codec",
    "DlsTable": "weft.routing.dls.table",
    "FilterItems": "weft.routing.item_codec",
    "ForestLocal": "weft.routing.local_forest",
    "Mapper": "weft.routing.mapping",
    "MicsTable": "weft.routing.mics.table",
    "NegativeTable": "weft.routing.negative.table",
}

__all__ = [
    "MODELS",
    "About",
    "ClientId",
    "Codec",
    "DlsTable",
    "Exactness",
    "FilterItems",
    "ForestLocal",
    "Heard",
    "ItemId",
    "Kept",
    "Link",
    "Mapper",
    "MicsTable",
    "NegativeTable",
    "Placed",
    "Places",
    "Role",
    "RoutingTable",
    "Tell",
    "Update",
    "make_table",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'weft.routing' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
