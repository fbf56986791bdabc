"""Subscriptions that a broker has before its first client comes. Laws: what was loaded is what clients would have made
by subscribing, and passed the same checks; a table that is loaded again changes nothing.

The load is stored under a digest of the files, when all of it is stored. What a client has changed since then stays as
the client left it. A load that was interrupted begins again, and passes over what is there. So it does if the files are
new: subscriptions that exist are not touched, whatever the files say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, islice

from weft.algebra.normalize import normalize
from weft.broker.core import Core
from weft.broker.effects import ConnectionId, Effect, Persist, Send
from weft.broker.identity import Authenticate, Identity
from weft.broker.messages import Bye, Failed, Hello, QueueNumber, Subscribe
from weft.errors import FilterError, OptionError
from weft.language.text import parse
from weft.log.base import Group, Log, SetMeta, State
from weft.net.clock import clock
from weft.net.initial_table import InitialSubscription, InitialTable

_KEY = "load."  # and the digest: an entry of the log's description
_STORED = 500  # groups that are stored together
_ASKED = 100  # subscriptions of one connection: as many as any client may ask for at once
_SHOWN = 3  # reasons


@dataclass(slots=True)
class LoadReport:
    """What a load did: how many subscriptions are new, were there, or were refused, and why."""

    added: int = 0
    known: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def reasons(self) -> str:
        """Why subscriptions were refused, the most frequent reasons first."""
        return "; ".join(f"{why} ({count:,} times)" for why, count in self.refused.most_common(_SHOWN))


def is_loaded(stored: State, digest: str) -> bool:
    """Whether a table was loaded before, completely, as the state of the log says."""
    return _KEY + digest in stored.meta


def check_rows(table: InitialTable, *, named: bool) -> int:
    """Read every row; returns how many there are. Raises OptionError that says how many cannot be loaded, and why."""
    count, wrong, first = 0, 0, ""
    for count, row in enumerate(table.rows(), 1):  # noqa: B007 - counted
        try:
            normalize(parse(row.filter))
        except FilterError as error:
            wrong, first = wrong + 1, first or f"session {row.session!r}: {error}"
        if named and not row.owner:
            raise _no_owner(row.session)
    if wrong:
        raise OptionError(f"{table.path}: {wrong:,} of {count:,} subscriptions cannot be loaded; the first is {first}")
    return count


def load(  # noqa: PLR0913 - what it puts together
    core: Core,
    log: Log,
    rows: Iterable[InitialSubscription],
    digest: str,
    *,
    is_home: Callable[[str], bool] = lambda _: True,
    named: bool = False,
) -> LoadReport:
    """Subscribe for sessions whose clients are not there. Nothing else drives the core meanwhile.

    Only the sessions for which `is_home` holds belong to this broker. `named` says that clients of this broker have
    names: then every row must have an owner. Raises OptionError, or LogError if nothing can be stored.
    """
    loading = _Loading(core, log, named)
    for some in _requests(row for row in rows if is_home(row.session)):
        loading.subscribe(some)
    loading.store()
    log.commit([Group(max(loading.at, clock().utc), None, (SetMeta(_KEY + digest, b""),))])
    return loading.report


def _requests(rows: Iterable[InitialSubscription]) -> Iterator[list[InitialSubscription]]:
    """Rows of the same session that follow each other, not too many at once."""
    for _, each in groupby(rows, lambda row: (row.session, row.owner)):
        while some := list(islice(each, _ASKED)):
            yield some


class _Loading:
    """A load: connections that come, subscribe and go, and groups that wait to be stored together."""

    def __init__(self, core: Core, log: Log, named: bool) -> None:
        self._core, self._log, self._named = core, log, named
        self._waiting: list[Persist] = []
        self._count = 0
        self.report = LoadReport()
        self.at = log.restore().at  # of the last group

    def subscribe(self, rows: list[InitialSubscription]) -> None:
        """Subscribe for one session, unless it has these subscriptions."""
        first, report = rows[0], self.report
        if self._named and not first.owner:
            raise _no_owner(first.session)
        there = self._core.subscriptions(first.session)
        new = {row.number: row for row in rows if row.number not in there}
        report.known += len(rows) - len(new)
        if not new:
            return
        self._count += 1
        connection, now = ConnectionId(f"load-{self._count}"), clock()
        effects = self._core.connected(connection, now, _as(first.owner) if self._named else None)
        asked = [Subscribe(row.number, row.filter, QueueNumber(row.number), durable=True) for row in new.values()]
        effects += self._core.receive(connection, [Hello(session=first.session), *asked], now)
        while self._core.is_behind(connection):
            effects += self._core.tick(now)
        effects += self._core.closed(connection, now)
        refused = 0
        for message in (each for effect in effects if isinstance(effect, Send) for each in effect.messages):
            if isinstance(message, Failed | Bye):
                count = 1 if isinstance(message, Failed) else len(new)
                report.refused[message.reason] += count
                refused += count
        report.added += len(new) - refused
        self._wait(effects)
        if len(self._waiting) >= _STORED:
            self.store()

    def store(self) -> None:
        """Store what waits, and what follows from that."""
        while self._waiting:
            some, self._waiting = self._waiting, []
            self._log.commit([each.group for each in some])
            for each in some:
                self.at = max(self.at, each.group.at)
                self._wait(self._core.committed(each.ticket, clock()))

    def _wait(self, effects: list[Effect]) -> None:
        self._waiting += [effect for effect in effects if isinstance(effect, Persist)]


def _no_owner(session: str) -> OptionError:
    return OptionError(
        f"session {session!r} has no owner, and clients of this broker have names: add a column 'owner' with the "
        "principal that each session belongs to"
    )


def _as(owner: str) -> Authenticate:
    return lambda _: Identity(owner)
