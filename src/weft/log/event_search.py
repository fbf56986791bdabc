"""Stored events by filter. Law: exactly the events that match are found, in the order of their offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.log.base import Log, Offset

HeadDecoder = Callable[[bytes], Mapping[str, Any]]  # the attributes in an event's head, as the broker's codec wrote it


FIRST = Offset(1)


class FoundEvent(NamedTuple):
    """An event that matches."""

    offset: Offset
    at: int  # of its group
    attributes: Mapping[str, Any]
    head: bytes
    payload: bytes


class EventSearch:
    """A search that goes through a log step by step.

    `next` is where it goes on, also where nothing was found: a caller can stop and continue later.
    """

    def __init__(self, log: Log, filter: Filter, decode: HeadDecoder, first: Offset = FIRST) -> None:
        self.next = first
        self._log = log
        self._filter = filter
        self._decode = decode

    def step(self, limit: int) -> list[FoundEvent]:
        """Look at the next `limit` events; returns those that match. Cost: about 3 microseconds an event."""
        found = []
        for group in self._log.read(self.next, limit):
            events = group.events
            for at, head in enumerate(events.heads):
                attributes = self._decode(head)
                if matches(self._filter, attributes):
                    offset = Offset(events.first + at)
                    found.append(FoundEvent(offset, group.at, attributes, head, events.payloads[at]))
            self.next = Offset(events.first + len(events))
        return found


def read_matching(
    log: Log, filter: Filter, decode: HeadDecoder, first: Offset = FIRST, limit: int | None = None
) -> Iterator[FoundEvent]:
    """The stored events from an offset on that match, at most `limit` of them, in order."""
    search, left = EventSearch(log, filter, decode, first), limit
    while left is None or left > 0:
        before = search.next
        for event in search.step(1000):
            if left is not None and left <= 0:
                return
            left = None if left is None else left - 1
            yield event
        if search.next == before:
            return
