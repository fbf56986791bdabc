"""Traces of runs, and what must hold over them (thesis 5.2): Property 5.1, liveness, and Property 5.2, safety.

A trace has the operations that clients see: Sub, Pub and Notify. It is checked by itself, without asking brokers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from weft.language.meaning import matches
from weft.language.text import parse


class PubId(NamedTuple):
    """An event: its publisher, and the number that the publisher gave it, from 1."""

    publisher: str
    sequence: int


class MobileEvent(NamedTuple):
    """Pub(B, n)."""

    at: int
    event: PubId
    x: int
    kind: int


class Notified(NamedTuple):
    """Notify(A, n)."""

    at: int
    client: str
    event: PubId


@dataclass(slots=True)
class MobilityTrace:
    """What clients did and saw. Subscriptions were complete before the first event, and nobody unsubscribed."""

    subscriptions: dict[str, str] = field(default_factory=dict)  # of each subscriber
    published: list[MobileEvent] = field(default_factory=list)
    notified: list[Notified] = field(default_factory=list)


def delivered(trace: MobilityTrace) -> str:
    """A digest of who was notified of what. Two runs of a script agree if they have the same one."""
    found = sorted({(each.client, *each.event) for each in trace.notified})
    return sha256(repr(found).encode()).hexdigest()


class Judgement(NamedTuple):
    """What a trace violates. Whoever is not notified of an event that matches is a false negative (5.1)."""

    due: int
    lost: list[tuple[str, MobileEvent]]  # 5.1
    twice: int  # 5.2: notified again
    unpublished: int  # 5.2: notified of what nobody had published by then
    unmatched: int  # 5.2: false positives at clients
    disordered: int  # later than an event that its publisher published after it

    @property
    def safe(self) -> bool:
        """Whether Property 5.2 holds."""
        return not (self.twice or self.unpublished or self.unmatched)


def judge(trace: MobilityTrace, *, by_kind: bool = False) -> Judgement:
    """Check both properties, and the order of each publisher's events; with `by_kind`, of those of one type."""
    wanted = _wanted(trace)
    moments = {each.event: each for each in trace.published}
    times: dict[str, Counter[PubId]] = {client: Counter() for client in trace.subscriptions}
    latest: dict[tuple[str, str, int], int] = {}
    twice = unpublished = unmatched = disordered = 0
    for at, client, event in trace.notified:
        times[client][event] += 1
        twice += times[client][event] > 1
        known = moments.get(event)
        if known is None or known.at > at:
            unpublished += 1
            continue
        unmatched += not wanted[client][known.x]
        stream = client, event.publisher, known.kind if by_kind else 0
        disordered += event.sequence < latest.get(stream, 0)
        latest[stream] = max(latest.get(stream, 0), event.sequence)
    due, lost = 0, []
    for each in trace.published:
        for client in trace.subscriptions:
            if wanted[client][each.x]:
                due += 1
                if not times[client][each.event]:
                    lost.append((client, each))
    return Judgement(due, lost, twice, unpublished, unmatched, disordered)


def _wanted(trace: MobilityTrace) -> Mapping[str, dict[int, bool]]:
    values = {each.x for each in trace.published}
    by_filter: dict[str, dict[int, bool]] = {}
    for text in set(trace.subscriptions.values()):
        wanted = parse(text)
        by_filter[text] = {x: matches(wanted, {"x": x}) for x in values}
    return {client: by_filter[text] for client, text in trace.subscriptions.items()}
