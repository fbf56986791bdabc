"""What a broker drops is freed at once: its objects form no cycles that only the garbage collector would find."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from weft.network.cores import MemoryBroker
from weft.protocol.messages import SubNumber, Subscribe, Unsubscribe
from weftlab.bench.core import subscriptions
from weftlab.bench.links import Chain


@pytest.fixture
def no_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def _churn(chain: Chain, broker: MemoryBroker, client: str, texts: list[str]) -> None:
    numbers = [SubNumber(number) for number in range(len(texts))]
    added = [Subscribe(number, text) for number, text in zip(numbers, texts, strict=True)]
    for messages in (added, [Unsubscribe(number) for number in numbers]):
        broker.say(client, *messages)
        chain.settle()


@pytest.mark.usefixtures("no_collections")
def test_subscriptions_and_sessions_of_links_leave_no_cycles():
    chain = Chain(2)
    one, other = chain.brokers
    chain.hello(one, "durable")
    chain.hello(other, "")
    clients = [(one, "durable"), (other, "")]
    texts = subscriptions(400)
    for broker, client in clients:
        _churn(chain, broker, client, texts[:300])  # also whatever is made once
    gc.collect()
    for broker, client in clients:
        _churn(chain, broker, client, texts[300:])
    chain.network.cut(one.name, other.name)
    chain.network.dial(one.name, other.name)
    chain.settle()
    assert gc.collect() == 0
