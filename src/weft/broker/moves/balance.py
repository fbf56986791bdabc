"""Balance: brokers share their loads, and one that has much more than the mean invites others to take sessions over.

The load of a session is the moving average of events per second that it publishes, and that its subscriptions match.
Every few seconds each broker adds up its sessions and reports the sum to all others. What an overloaded broker then
does is decided by `chosen`, from these numbers alone. Sessions rest after a move, and a broker after a round of
invitations, so that what has moved is measured before anything moves again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from weft.broker.effects import Now
from weft.broker.limits import BalanceLimits
from weft.broker.links.links import Links
from weft.broker.parts import BrokerParts
from weft.errors import LocalProtocolError
from weft.log.base import SessionId
from weft.protocol.link_messages import LinkRelay, RelayKind
from weft.protocol.move_messages import BrokerLoadReport, encode_move
from weft.protocol.questions import BalanceReport, BrokerLoad
from weft.routing.table import Link

Invite = Callable[[str, str, str, Now], None]  # a session, a broker, and the address of that

_STALE = 3  # periods after which a report counts no more
_RESTS = 2  # periods that a broker rests after it has invited others


class SessionLoad(NamedTuple):
    """A session that may be moved, and its events per second."""

    name: str
    rate: float


class Invitation(NamedTuple):
    """A session, and the broker that is to take it over."""

    session: str
    broker: str


def chosen(
    here: str, loads: Mapping[str, float], sessions: Iterable[SessionLoad], limits: BalanceLimits
) -> list[Invitation]:
    """The sessions that an overloaded broker moves, and where to; nothing if its load is near the mean.

    Nobody gets more than `until` times the mean. What several overloaded brokers may give to one that has room is
    shared between them, so that they do not all fill it.

    >>> loads = {"a": 90.0, "b": 6.0, "c": 6.0}
    >>> [each.broker for each in chosen("a", loads, [SessionLoad(str(n), 10.0) for n in range(9)], BalanceLimits())]
    ['b', 'c', 'b', 'c']
    >>> chosen("a", {"a": 100.0, "b": 90.0}, [SessionLoad("s", 5.0)], BalanceLimits())
    []
    """
    mean = sum(loads.values()) / len(loads)
    load = loads[here]
    if load <= limits.above * mean or load - mean < limits.least:
        return []
    excess = sum(each - mean for each in loads.values() if each > limits.above * mean)
    share = (load - mean) / excess
    rooms = {name: share * (limits.until * mean - each) for name, each in loads.items() if each < mean and name != here}
    found: list[Invitation] = []
    for session in sorted(sessions, key=lambda each: (-each.rate, each.name)):
        if load <= limits.until * mean or len(found) == limits.most or not rooms:
            break
        broker = max(rooms, key=lambda name: (rooms[name], name < here))
        if 0 < session.rate <= rooms[broker] and load - session.rate >= (2 - limits.until) * mean:
            found.append(Invitation(session.name, broker))
            rooms[broker] -= session.rate
            load -= session.rate
    return found


class Balance:
    """Measures the sessions of a broker, reports their load, and invites other brokers to take some of them."""

    def __init__(self, parts: BrokerParts, links: Links, came: dict[SessionId, int], invite: Invite) -> None:
        self._sessions, self._matcher, self._timers = parts.sessions, parts.matcher, parts.timers
        self._journal = parts.journal
        self._counts, self._links, self._came, self._invite = parts.counts, links, came, invite
        self.limits = BalanceLimits()
        self.enabled = False
        self.address = ""  # where clients reach this broker
        self._reports: dict[str, tuple[int, BrokerLoadReport]] = {}  # by broker, with the monotonic time
        self._here: set[SessionId] = set()  # the sessions that were here when they were last measured
        self._measured = False  # at least once
        self._rests_until = 0
        self._serial = 0

    def configure(self, enabled: bool, address: str, limits: BalanceLimits | None, now: Now) -> None:
        """Begin or stop to report, and to move sessions."""
        self.enabled, self.address, self.limits = enabled, address or self.address, limits or self.limits
        self._here, self._reports, self._measured = set(), {}, False
        self._serial += 1
        if enabled:
            self._later(now)

    def _later(self, now: Now) -> None:
        serial = self._serial
        self._timers.add(now.monotonic + self.limits.every, lambda later: self._turn(serial, later))

    def _turn(self, serial: int, now: Now) -> None:
        if serial != self._serial:
            return
        first, sessions = not self._measured, self._measure()
        if not first:
            load = sum(each.rate for each in sessions.values())
            report = BrokerLoadReport(load, len(self._sessions.by_name), self.address)
            self._reports[self.name] = now.monotonic, report
            for broker in self._others():
                body = encode_move(report)
                self._links.relay(LinkRelay(broker, self.name, body, kind=RelayKind.MOVE), now)
            self._move(sessions, now)
        self._later(now)

    @property
    def name(self) -> str:
        """The name of this broker."""
        return self._links.reach.name

    def _others(self) -> Sequence[str]:
        return [name for name, _ in self._links.reach.brokers(Link(""))[1:]]

    def _measure(self) -> dict[SessionId, SessionLoad]:
        """The load of each session; one that has come since the last time has none yet."""
        at = self._journal.at
        before, self._here = self._here, {*self._sessions.by_id}
        rates = self._matcher.rates(at)
        found: dict[SessionId, SessionLoad] = {}
        for key, session in self._sessions.by_id.items():
            if key in before:
                matched = sum(rates[sub.slot] for sub in session.subs.values())
                found[key] = SessionLoad(session.name, session.published.per_second(at // 1_000_000) + matched)
        for gone in self._came.keys() - self._here:
            del self._came[gone]
        self._measured = True
        return found

    def received(self, report: BrokerLoadReport, source: str, now: Now) -> None:
        """Another broker has reported its load."""
        if self.enabled:
            self._reports[source] = now.monotonic, report

    def _known(self, now: Now) -> dict[str, BrokerLoadReport]:
        oldest = now.monotonic - _STALE * self.limits.every
        members = {self.name, *self._others()}
        self._reports = {name: each for name, each in self._reports.items() if each[0] >= oldest and name in members}
        return {name: report for name, (_, report) in self._reports.items()}

    def _move(self, sessions: Mapping[SessionId, SessionLoad], now: Now) -> None:
        """Invite other brokers, if this one has too much, and everything that has moved before is measured."""
        reports = self._known(now)
        if len(reports) < 2 or now.monotonic < self._rests_until:
            return
        loads = {name: each.load for name, each in reports.items() if each.address or name == self.name}
        rested = now.monotonic - self.limits.rest
        movable = [
            load
            for key, load in sessions.items()
            if load.name and not self._sessions.by_id[key].is_moving and self._came.get(key, rested) <= rested
        ]
        invitations = chosen(self.name, loads, movable, self.limits)
        for session, broker in invitations:
            try:
                self._invite(session, broker, reports[broker].address, now)
            except LocalProtocolError:
                continue  # its client is too old, or it has begun to move
            self._counts["sessions moved to balance"] += 1
        if invitations:
            self._rests_until = now.monotonic + _RESTS * self.limits.every

    def report(self, now: Now) -> BalanceReport:
        """What this broker knows of all loads."""
        rows = [
            BrokerLoad(name, each.load, each.sessions, each.address) for name, each in sorted(self._known(now).items())
        ]
        return BalanceReport(self.enabled, tuple(rows), self._counts["sessions moved to balance"])
