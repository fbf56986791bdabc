"""Runs of deliveries: their bytes are those of the deliveries one by one, and the grouping of many matches is that of
few.
"""

from __future__ import annotations

from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.harness import Broker

from weft.broker.delivery_run import BatchBytes, DeliveryRun, RecentBytes, encode_all, one_by_one
from weft.broker.effects import Outgoing
from weft.broker.limits import ClientLimits
from weft.broker.matcher import Frames, LocalMatcher, Matched
from weft.broker.recent import EventBatch
from weft.index.base import SubId
from weft.language.text import parse
from weft.log.base import Offset, SeatId
from weft.protocol.codec import MAX_FRAME, encode
from weft.protocol.messages import Ack, ClientMessage, Deliver, Publish, QueueNumber, SubNumber, Subscribe, pack
from weft.routing.registry import make_table

EDGES = st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, 0x100, 0xFFFF, 0x10000, 0xFFFFFFFF, 1 << 32, 1 << 50, (1 << 62)])
NO_SEATS = np.zeros(1, np.uint32)


def a_batch(first: int, at: int, events: list[tuple[int, int, int]]) -> EventBatch:
    """A frame of each event for one queue: the lengths of its head and payload, and how many numbers it has."""
    numbers = [range(each[2]) for each in events]
    starts = [0]
    for each in numbers:
        starts.append(starts[-1] + 4 * len(each))
    frames = Frames([*range(len(events))], starts, b"".join(map(pack, numbers)), {"q": (0, len(events))})
    heads = [b"\xc4" + bytes([each[0]]) + b"h" * each[0] for each in events]
    payloads = [b"p" * each[1] for each in events]
    return EventBatch(Offset(first), at, heads, payloads, None, Matched(frames, NO_SEATS, NO_SEATS))


LENGTHS = st.tuples(
    st.integers(0, 255), st.sampled_from([0, 1, 255, 256, 65535, 65536]), st.sampled_from([1, 63, 64, 20_000])
)


@settings(deadline=None)
@given(st.tuples(EDGES, EDGES, EDGES), st.lists(LENGTHS, min_size=1, max_size=4), st.booleans(), st.data())
def test_a_run_is_written_as_its_deliveries_would_be(
    numbers: tuple[int, int, int], events: list[tuple[int, int, int]], durable: bool, data: st.DataObject
) -> None:
    queue, first, at = numbers
    low = data.draw(st.integers(0, len(events) - 1))
    high = data.draw(st.integers(low + 1, len(events)))
    whole = BatchBytes(a_batch(first, at, events))
    other = whole.run(QueueNumber(7), 0, 1, durable=durable)
    run = whole.run(QueueNumber(queue), low, high, durable=durable)
    assert run.frames() == encode(run.deliveries())
    assert other.frames() == encode(other.deliveries()), "runs that are written together are written alike"
    late = whole.run(QueueNumber(queue), low, high, durable=durable)
    assert late.frames() == run.frames()
    assert len(run) == len(run.deliveries())
    assert run.last == run.deliveries()[-1]


def test_a_delivery_that_fits_no_frame_is_split_as_ever() -> None:
    whole = BatchBytes(a_batch(1, 2, [(3, 4, 5), (3, 4, MAX_FRAME // 4)]))
    run, beside = whole.run(QueueNumber(0), 0, 2), whole.run(QueueNumber(1), 0, 1)
    assert run.frames() is None
    assert encode_all([run]) == encode(run.deliveries())
    assert encode_all([beside]) == encode(beside.deliveries())


def test_runs_keep_their_place_among_other_messages() -> None:
    run = BatchBytes(a_batch(1, 2, [(3, 4, 5), (3, 4, 5)])).run(QueueNumber(0), 0, 2)
    single = a_batch(9, 2, [(1, 1, 1)])
    other = BatchBytes(single).run(QueueNumber(3), 0, 1).last
    messages = [other, run, run, other]
    assert encode_all(messages) == encode([*one_by_one(messages)])


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 40), unique=True), min_size=1, max_size=8), st.booleans())
def test_many_matches_are_grouped_as_few_are(events: list[list[int]], durable: bool) -> None:
    seats, queues = LocalMatcher(make_table("simple")), ["a", "b", "c"]
    for slot in range(41):
        seat = SeatId(slot + 1) if durable or slot % 2 else None
        seats.add(parse(f"x = {slot}"), seat, queues[slot * slot % 3], SubNumber(1000 - slot))
    offsets = np.cumsum([0, *map(len, events)])
    slots = np.array([slot for each in events for slot in each], np.int64)
    for _ in range(2):  # what grouping leaves behind is what it found
        few, many = seats._few(events, 7), seats._many(offsets, slots, 8)
        assert shown(few) == shown(many)
    for slot in range(41):
        times = 2 * sum(slot in each for each in events)  # in two rounds
        assert seats.matched(SubId(slot)) == (2 * times, 8 if times else 0), "each way counts by itself"


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 90), st.integers(1, 200), st.booleans()), min_size=1, max_size=12))
def test_moving_averages_are_those_of_the_definition(batches: list[tuple[int, int, bool]]) -> None:
    """Against the sum over all seconds, with both ways of grouping."""
    seats, second = LocalMatcher(make_table("simple")), 1_000
    for slot in range(2):
        seats.add(parse(f"x >= {slot}"), SeatId(slot + 1), "q", SubNumber(slot))
    found: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
    for passed, events, many in batches:
        second += passed
        found[many].append((second, events))
        slots, size = np.zeros(events, np.int64), np.arange(events + 1)
        if many:
            seats._many(size, slots, second)
        else:
            seats._few([[0]] * events, second)
    later = second + 10
    expected = 0.0
    for every in filter(None, found.values()):
        weight = sum(events * exp((at - later) / 60) for at, events in every)
        expected += weight / sum(exp(-age / 60) for age in range(later - every[0][0] + 1))
    assert seats.rate(SubId(0), later * 1_000_000) == pytest.approx(expected, rel=1e-4)
    assert seats.rates(later * 1_000_000) == [pytest.approx(expected, rel=1e-4), 0]
    seats.replace(SubId(0), parse("x = 1"))
    assert seats.rate(SubId(0), later * 1_000_000) == 0, "it was another filter's"


def shown(matched: Matched) -> object:
    """The frames of each queue with sorted numbers, and the sorted seats of each event."""
    frames = matched.frames
    found = {
        queue: [
            (frames.events[i], sorted(np.frombuffer(frames.packed[frames.starts[i] : frames.starts[i + 1]], "<u4")))
            for i in range(low, high)
        ]
        for queue, (low, high) in frames.segments.items()
    }
    bounds = zip(matched.starts[:-1].tolist(), matched.starts[1:].tolist(), strict=True)
    return found, [sorted(matched.consumers[a:b].tolist()) for a, b in bounds]


@pytest.mark.parametrize("session", ["named", ""])
@pytest.mark.parametrize("sequence", [1, 0])
def test_many_deliveries_leave_as_one_run(session: str, sequence: int) -> None:
    broker, runs = Broker(limits=ClientLimits(run=5, ack_delay=0)), []

    def watched(messages: list[Outgoing]) -> list[ClientMessage]:
        runs.extend(each for each in messages if isinstance(each, DeliveryRun))
        return []

    broker.hello("c", session, answer=watched)
    broker.say("c", Subscribe(SubNumber(1), "x >= 0"))
    found = broker.say("c", *[Publish.of(sequence and n + 1, {"x": n}) for n in range(6)])
    assert [len(run) for run in runs] == [6]
    assert len([each for each in found if isinstance(each, Deliver)]) == 6
    if session and sequence:
        assert broker.core.status().furthest[0].open == 6
        broker.say("c", Ack(QueueNumber(0), Offset(7)))
        assert broker.core.status().furthest[0].open == 0


def test_the_bytes_of_recent_batches_are_made_once_and_bounded():
    batches = [a_batch(1 + n, 5, [(10, 100, 1)] * 4) for n in range(6)]
    weight = BatchBytes(batches[0]).weight
    assert weight > batches[0].weight + sum(batches[0].sizes), "a batch lives as long as its bytes"
    recent = RecentBytes(most=3 * weight)
    made = [recent.of(batch) for batch in batches[:3]]
    assert [recent.of(batch) for batch in batches[:3]] == made
    recent.of(batches[3])
    assert recent.of(batches[1]) is made[1]
    assert recent.of(batches[0]) is not made[0]
    large = a_batch(9, 5, [(10, 1_000, 1)] * 40)
    assert recent.of(large) is recent.of(large)
