"""What must hold of a broker's log when everything is mended. Laws: no row belongs to something that is gone; no
publisher has had more events stored than its rate allows.
"""

from __future__ import annotations

from collections import Counter

from weft.broker.limits import ClientLimits
from weft.broker.row_options import SHARED
from weft.log.memory import MemoryLog
from weft.sim.faults.oracle import Oracle
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


def check_rate(oracle: Oracle, limits: ClientLimits, elapsed: int) -> None:
    """A session has at most a burst at each start of the broker, and what the rate allows in between."""
    if not limits.rate:
        return
    most = oracle.starts * limits.burst + limits.rate * elapsed / 1e6 + 1
    for session, many in Counter(event.origin[0] for event in oracle.history.values()).items():
        require(many <= most, f"session {session} has {many} events in the log; {most:.0f} are allowed")
