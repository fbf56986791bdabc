"""Events mapped by their publisher, in the space that its broker has sent (MICS 6.1, DLS 5.3).

An event that cannot be mapped is sent without a place, and so is everything while there is no space that this program
can read: the broker then maps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from weft.client.publisher import EventMapping, UnconfirmedEvent
from weft.errors import RemoteProtocolError, WeftError

if TYPE_CHECKING:
    from weft.routing.mapping import Mapper

_attributes = msgspec.msgpack.Decoder(dict[str, Any]).decode


class SpaceMapping:
    """Maps events in one space; see `EventMapping`."""

    def __init__(self, number: int, mapper: Mapper) -> None:
        self.number, self._mapper = number, mapper

    def places(self, events: Sequence[UnconfirmedEvent]) -> Sequence[bytes] | None:
        """The place of each event; None if one of them cannot be read. Cost: 5 to 10 us for one, 2 us each for many."""
        try:
            return self._mapper.written([_attributes(event.attributes) for event in events])
        except (WeftError, ValueError, OverflowError, RecursionError):
            return None  # the broker will say what is wrong with it


def mapping_of(number: int, packed: bytes) -> EventMapping | None:
    """How events are mapped in a space that a broker has sent; None if it is not one, or empty."""
    if not packed:
        return None
    from weft.routing.mapping import Mapper

    try:
        return SpaceMapping(number, Mapper.of(packed))
    except RemoteProtocolError:
        return None


def warm_up() -> None:
    """Load what mapping needs, and compile its kernels: the network thread must not be held up by that."""
    from weft.model.schema import Schema
    from weft.routing.mapping import Mapper
    from weft.routing.place_format import pack_space
    from weft.routing.registry import make_table

    schema = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 1]} for name in ("x", "y")}})
    for model in ("mics", "dls"):
        mapper = Mapper.of(pack_space(make_table(model, schema).fingerprint, schema))
        for many in (1, 8):
            mapper.written([{"x": 0.5, "y": 0.5}] * many)
