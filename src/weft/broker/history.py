"""History: events of this broker's log, read by offset, and searched by a filter.

Law: reading changes nothing, here or at a neighbour: it is not a subscription, and no event is routed because of it.

An answer takes a bounded number of bytes and a bounded amount of work, and says where the next one begins. A connection
gets one answer in a turn, and none while its write buffer is full.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count
from typing import NamedTuple

from msgspec import Raw

from weft.broker.admission import read_head
from weft.broker.effects import Now
from weft.broker.limits import RefusalError
from weft.broker.parts import BrokerParts
from weft.broker.sessions import Connection
from weft.errors import LogError, LogFailedError
from weft.language.ast import Filter, Truth
from weft.language.lexer import is_longer
from weft.language.meaning import matches
from weft.log.base import NEVER, Offset, StoredGroup
from weft.model.event import Event
from weft.protocol.messages import History, PastEvent, ReadHistory
from weft.protocol.questions import MOST_ROWS, FoundEvents, SearchEvents

MOST_BYTES = 200 << 10  # of the events that are read for one answer, besides the first
MOST_EVENTS = 2_000  # that are read for one answer
MOST_GROUPS = 64  # that are decoded for one answer
MOST_TESTED = 200  # events that are compared with a filter for one answer
MOST_FILTER = 1 << 13  # bytes of a filter
_LONG = 50  # characters of a filter; with one that is n times as long, as many fewer events are compared
_FRAMING = 24  # bytes of an event besides its head and payload
_KEPT_FILTERS = 16  # of recent requests
_KEPT_READS = 4  # that were not at their end when an answer was full


class _Stored(NamedTuple):
    """An event as it is read from the log, and how many groups were read by then."""

    offset: int
    at: int
    head: bytes
    payload: bytes
    groups: int


class _Read(NamedTuple):
    """Events of the log, where to go on, and where the log begins and ends."""

    events: list[PastEvent]
    next: Offset
    oldest: Offset
    end: Offset


def _stored(groups: Iterator[StoredGroup]) -> Iterator[_Stored]:
    for number, group in enumerate(groups, 1):
        events = group.events
        publishers = events.origins[:, 0].tolist()
        stored = zip(count(events.first), publishers, events.heads, events.payloads, strict=False)
        for offset, publisher, head, payload in stored:
            if publisher >= 0:  # otherwise it is a copy for a session that has moved here
                yield _Stored(offset, group.at, head, payload, number)


class HistoryReads:
    """Answers `ReadHistory` and `SearchEvents`."""

    def __init__(self, parts: BrokerParts) -> None:
        self._journal, self._access, self._out, self._counts = parts.journal, parts.access, parts.out, parts.counts
        self._parse, self._longest = parts.parse, min(MOST_FILTER, parts.limits.filter)
        self._filters: dict[str, Filter] = {}  # of recent requests, parsed
        self._reads: dict[int, Iterator[_Stored]] = {}  # that are not at their end, by the offset of their next event

    def read(self, connection: Connection, message: ReadHistory, _: Now) -> None:
        """Send some events, now or when the connection has room. Raises RefusalError, FilterError or AccessError."""
        self._access.of(connection.principal).check("history")
        wanted = self.wanted(connection.principal, message.filter)
        if connection.paused:
            if connection.put_off is not None:
                raise RefusalError(
                    "busy", "the answer to an earlier request for history is not read yet; read it first"
                )
            connection.put_off = message
            return
        read = self._read(message.first, message.end, wanted, len(message.filter))
        self._counts["history"] += 1
        answer = History(message.request, self._journal.log_id, read.oldest, read.end, read.next, tuple(read.events))
        self._out.send(connection.id, answer)

    def search(self, principal: str, question: SearchEvents) -> FoundEvents:
        """Some events that match a filter, and how far the search is. Raises what `wanted` raises."""
        journal, wanted = self._journal, self.wanted(principal, question.filter)
        first, end = max(question.first, journal.first), min(question.end, journal.end)
        if question.since is not None:
            first = max(first, journal.log.find(question.since))
        if question.until is not None:
            end = min(end, journal.log.find(question.until))
        read = self._read(first, end, wanted, len(question.filter), MOST_ROWS)
        self._counts["searches"] += 1
        last = Offset(max(end, first))
        return FoundEvents(journal.log_id, read.oldest, Offset(first), read.next, last, tuple(read.events))

    def wanted(self, principal: str, text: str) -> Filter:
        """The filter of a request, to which one may subscribe. Raises RefusalError, FilterError or AccessError."""
        if is_longer(text, self._longest):
            raise RefusalError("filter", f"a filter for history has at most {self._longest:,} bytes")
        known = self._filters.pop(text) if text in self._filters else self._parse(text)
        self._access.of(principal).check_subscribe(known)
        self._filters[text] = known
        if len(self._filters) > _KEPT_FILTERS:
            del self._filters[next(iter(self._filters))]
        return known

    def _read(self, first: int, before: int, wanted: Filter, characters: int, most_found: int = MOST_EVENTS) -> _Read:
        """Some events between two offsets; the filter has so many characters.

        A damaged group fails the request, not the broker.
        """
        try:
            return self._scan(first, before, wanted, characters, most_found)
        except LogFailedError:
            raise
        except LogError as error:
            raise RefusalError("log", str(error)) from error

    def _scan(self, first: int, before: int, wanted: Filter, characters: int, most_found: int) -> _Read:
        """Cost: O(events read). The log fetches some groups at a time, at most 4 MB or one group."""
        journal = self._journal
        oldest, last = journal.first, journal.end
        at, end = max(first, oldest), min(before, last)
        everything = isinstance(wanted, Truth) and wanted.value is True
        most = MOST_EVENTS if everything else max(1, MOST_TESTED * _LONG // max(_LONG, characters))
        found: list[PastEvent] = []
        seen = size = groups = 0
        reading = self._reads.pop(at, None) or _stored(journal.log.read(Offset(at), NEVER))
        while at < end:
            event = next(reading, None)
            if event is None:
                at = end  # nothing is stored from here on
                break
            if event.offset > at:  # offsets are skipped, or their events have just been removed
                oldest, at = max(oldest, journal.log.find(0)), Offset(min(event.offset, end))
            length = len(event.head) + len(event.payload) + _FRAMING
            groups = groups or event.groups
            full = seen >= most or len(found) >= most_found
            full = full or event.groups - groups >= MOST_GROUPS or size + length > MOST_BYTES
            if at == end or (seen and full):
                self._reads[at] = chain([event], reading)  # what was fetched is not fetched again
                if len(self._reads) > _KEPT_READS:
                    del self._reads[next(iter(self._reads))]
                break
            seen, size, at = seen + 1, size + length, Offset(event.offset + 1)
            if everything or matches(wanted, Event(read_head(event.head).attributes)):
                found.append(PastEvent(Offset(event.offset), event.at, Raw(event.head), event.payload))
        return _Read(found, Offset(at), oldest, last)
