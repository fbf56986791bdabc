"""What must hold of a broker's log when everything is mended. Law: no row belongs to something that is gone."""

from __future__ import annotations

from weft.broker.row_options import SHARED
from weft.log.memory import MemoryLog
from weft.sim.faults.violation import require


def check_rows(log: MemoryLog) -> None:
    """Every queue, subscription and advertisement has its session, and every dead letter its queue."""
    state = log.restore()
    sessions = {*state.sessions, SHARED}
    for sub in state.subs.values():
        require(sub.session in sessions, f"seat {sub.seat} in the log belongs to a session that is gone")
    for advert in state.adverts.values():
        require(advert.session in sessions, f"advertisement {advert.id} in the log belongs to a session that is gone")
    for seat in state.dead:
        require(seat in state.subs, f"dead letters in the log belong to seat {seat}, which is gone")
