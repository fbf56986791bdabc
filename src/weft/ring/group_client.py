"""A subscriber or publisher of a topic group. Law: it asks the root for the views first, and starts again whenever a
member says that they are out of date; so it stores, and looks, where the group is now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.ring.group_messages import (
    Accept,
    ClientEffect,
    Examine,
    Examined,
    FetchViews,
    Stored,
    ToMember,
    ToRoot,
)
from weft.ring.group_placement import GroupView
from weft.ring.identifiers import Key
from weft.ring.messages import Token
from weft.ring.rendezvous_messages import Publication, Record


@dataclass(slots=True)
class _Job:
    """A record to be stored, or an event to be examined under a key."""

    key: Key
    record: Record | None = None
    event: Publication | None = None
    waiting: int = 0  # answers of members
    refused: bool = False


class GroupClient:
    """What a node stores in and publishes to one group; methods return what is to be sent.

    >>> client = GroupClient()
    >>> client.publish(Key(3), Publication(("n1", 1), "t", {}))
    [ToRoot(message=FetchViews(token=1))]
    """

    def __init__(self) -> None:
        self._jobs: dict[Token, _Job] = {}
        self._next = 0

    def store(self, record: Record) -> list[ClientEffect]:
        """Store a record; `Stored` follows."""
        return self._begin(_Job(record.key, record=record))

    def publish(self, key: Key, event: Publication) -> list[ClientEffect]:
        """Find who wants an event under a key; `Examined` follows."""
        return self._begin(_Job(key, event=event))

    def _begin(self, job: _Job) -> list[ClientEffect]:
        self._next += 1
        token = Token(self._next)
        self._jobs[token] = job
        return [ToRoot(FetchViews(token))]

    def fetched(self, token: Token, views: Sequence[GroupView]) -> list[ClientEffect]:
        """The root's answer: a record goes to its place in every view, an event to its place in the first."""
        job = self._jobs.get(token)
        if job is None or job.waiting:
            return []  # an answer that came twice
        if job.event is not None:
            job.waiting = 1
            place = views[0].place(job.key).member
            return [ToMember(place, Examine(token, job.key, job.event, views[0].version))]
        assert job.record is not None
        versions = tuple(view.version for view in views)
        places = dict.fromkeys(view.place(job.key).member for view in views)
        job.waiting, job.refused = len(places), False
        return [ToMember(place, Accept(token, job.record, versions)) for place in places]

    def answered(self, token: Token, answer: bool | tuple[Record, ...] | None) -> list[ClientEffect]:
        """A member's answer; False and None mean that the view was out of date, or that the member is dead."""
        job = self._jobs.get(token)
        if job is None:
            return []
        job.waiting -= 1
        job.refused |= answer is False or answer is None
        if job.waiting:
            return []
        del self._jobs[token]
        if job.refused:
            return self._begin(_Job(job.key, job.record, job.event))
        if job.record is not None:
            return [Stored(job.record)]
        assert job.event is not None
        assert isinstance(answer, tuple)
        return [Examined(job.key, job.event, answer)]
