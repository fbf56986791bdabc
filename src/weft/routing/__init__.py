"""Routing tables: what neighbours are told, and where events go."""

from weft.routing.overlay import Overlay
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

__all__ = [
    "MODELS",
    "About",
    "ClientId",
    "Exactness",
    "Heard",
    "ItemId",
    "Kept",
    "Link",
    "Overlay",
    "Placed",
    "Places",
    "Role",
    "RoutingTable",
    "Tell",
    "Update",
    "make_table",
]
