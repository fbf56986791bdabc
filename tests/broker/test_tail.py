"""The weight of recent events is about the memory that they take, however many subscriptions get them."""

import gc
import tracemalloc

import pytest

from weft.broker.matcher import LocalMatcher
from weft.broker.recent import EventBatch
from weft.language.text import parse
from weft.log.base import Offset, SeatId
from weft.routing.registry import make_table


@pytest.mark.parametrize("events", [1, 20, 400])
@pytest.mark.parametrize("subscriptions", [0, 20, 400])
def test_the_weight_of_a_batch_is_about_its_memory(events, subscriptions):
    seats = LocalMatcher(make_table("simple"))
    for number in range(subscriptions):
        seats.add(parse(f"x >= {number % 7}"), SeatId(number + 1), f"queue {number % 8}", number)
    attributes = [{"x": n % 10} for n in range(events)]
    seats.match(attributes)  # whatever is made once
    gc.collect()
    tracemalloc.start()
    try:
        batches = []
        for _ in range(5):
            heads, payloads = ([bytes(size) for _ in range(events)] for size in (90, 130))
            batches.append(EventBatch(Offset(1), 1, heads, payloads, None, seats.match(attributes)))
        del heads, payloads
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    weight = sum(batch.weight for batch in batches)
    assert 0.6 * taken <= weight <= 2 * taken
