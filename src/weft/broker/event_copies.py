"""Copies of events, and notices: events that go to certain subscriptions of this broker, and nowhere else.

They are stored like events, with a negative publisher, by which links, history, Spark and `since=` leave them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from weft.broker.admission import expiry
from weft.broker.journal import Journal
from weft.broker.matcher import Frames, Matched
from weft.broker.queue import Queue
from weft.broker.recent import EventBatch
from weft.broker.sessions import ClientSubscription
from weft.log.base import NEVER
from weft.protocol.messages import SubNumber


class CopiedEvent(NamedTuple):
    """An event for some subscriptions; those that are not durable get nothing."""

    origin: tuple[int, int, int]  # a negative publisher session, its epoch and sequence
    subs: Sequence[ClientSubscription]
    head: bytes
    payload: bytes


def write_copies(journal: Journal, copies: Sequence[CopiedEvent]) -> None:
    """Add copies to the pending write, behind everything that is matched."""
    write, first = journal.write, journal.next
    assert not write.attributes, "events that came before the copies are not matched"
    held: dict[Queue, list[tuple[int, list[SubNumber]]]] = {}
    consumers: list[int] = []
    starts = [0]
    for at, copy in enumerate(copies):
        mine: dict[Queue, list[SubNumber]] = {}
        for sub in copy.subs:
            if isinstance(sub.queue, Queue) and sub.consumer_id is not None:
                mine.setdefault(sub.queue, []).append(sub.number)
                consumers.append(sub.consumer_id)
        starts.append(len(consumers))
        for queue, numbers in mine.items():
            held.setdefault(queue, []).append((at, numbers))
    publishers = [copy.origin for copy in copies]
    write.origins += [(*origin, 1) for origin in publishers]
    write.heads, write.payloads = [copy.head for copy in copies], [copy.payload for copy in copies]
    expires = [expiry(head) for head in write.heads]
    matched = Matched(_frames(held), np.array(starts, np.uint32), np.array(consumers, np.uint32))
    batch = EventBatch(
        first,
        journal.at,
        write.heads,
        write.payloads,
        None if all(each == NEVER for each in expires) else expires,
        matched,
        np.array(publishers, np.int64).reshape(len(copies), 3),
        {},
    )
    write.add_batch(batch, matched.starts, matched.consumers)
    journal.next = batch.end
    write.urgent = True


def _frames(held: dict[Queue, list[tuple[int, list[SubNumber]]]]) -> Frames:
    events: list[int] = []
    starts: list[int] = [0]
    numbers: list[SubNumber] = []
    segments: dict[Queue, tuple[int, int]] = {}
    for queue, frames in held.items():
        segments[queue] = len(events), len(events) + len(frames)
        for event, some in frames:
            events.append(event)
            numbers += some
            starts.append(4 * len(numbers))
    return Frames(events, starts, np.array(numbers, "<u4").tobytes(), segments)  # type: ignore[arg-type]
