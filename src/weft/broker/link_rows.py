"""How links are stored as rows. Law: a row that was stored is read back as what it was.

A link takes two seats: its own, for events that the neighbour must have, and the next one, for events of which that is
not known yet. The row says as what the neighbour is attached, and whether it is still cold.
"""

from __future__ import annotations

from weft.broker.link_items import Hashes
from weft.broker.link_messages import ABOUT
from weft.errors import LogError
from weft.log.base import HeardRow, LinkRow, Offset, Put, Remove, SeatId, State, StateChange
from weft.routing.table import Heard, Link, Role, UpdateCodec

SETTINGS = "table.settings"  # the key of what a table must keep besides its items
_COLD = "cold "


def link_row(  # noqa: PLR0913, PLR0917 - its columns
    seat: SeatId, peer: Link, role: Role, warm: bool, peer_log: str, got: int, floor: Offset
) -> Put:
    """Store a link."""
    return Put(LinkRow(seat, peer, ("" if warm else _COLD) + role.value, peer_log, got, floor))


def read_role(row: LinkRow) -> tuple[Role, bool]:
    """What the neighbour is, and whether it is warm. Raises LogError."""
    try:
        return Role(row.role.removeprefix(_COLD)), not row.role.startswith(_COLD)
    except ValueError:
        raise LogError(f"the link to {row.peer!r} in the log has the unknown role {row.role!r}") from None


def removal(seat: SeatId, items: tuple[Hashes, Hashes]) -> list[StateChange]:
    """Remove a link with everything that was heard."""
    rows: list[StateChange] = [
        Remove(HeardRow, (seat, about, item)) for about, some in enumerate(items) for item in some
    ]
    return [*rows, Remove(LinkRow, (seat,))]


def heard(kept: State, codec: UpdateCodec) -> dict[Link, Heard]:
    """What each neighbour told before a restart. Raises RemoteProtocolError for an item that cannot be read."""
    items: dict[SeatId, tuple[dict[int, object], dict[int, object]]] = {seat: ({}, {}) for seat in kept.links}
    for row in kept.heard.values():
        if row.link in items:
            items[row.link][row.about][row.item] = codec.decode_item(ABOUT[row.about], row.body)
    found: dict[Link, Heard] = {}
    for seat, link in kept.links.items():
        subscriptions, advertisements = items[seat]
        found[Link(link.peer)] = Heard(read_role(link)[0], subscriptions, advertisements)  # type: ignore[arg-type]
    return found
