"""The workload of every broker: content subscriptions and events, and how many deliveries are due. What is due is
computed by the index, or counted by symbol, and never taken from what a broker delivered.

A subscription is `symbol = X AND price in a range of 5%`, over 1,000 symbols that are popular as Zipf says. The
subscriptions are dealt to the connections in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from time import process_time

import msgspec

from weft.index.tree import TreeIndex
from weftlab.bench.core import events, subscriptions

CONNECTIONS = 10
WARM = 500  # events before a measurement

PlainEvent = dict[str, object]


class Quote(msgspec.Struct):
    """What a consumer looks at in an event."""

    price: float


class BrokerWorkload:
    """Subscriptions and events, and how many deliveries are due, by what a broker filters."""

    def __init__(self, size: int, many: int, connections: int = CONNECTIONS) -> None:
        self.size, self.connections = size, connections
        self.texts, self.events = subscriptions(size), events(many)
        self.warm = events(WARM, seed=9)
        self.index = TreeIndex()
        self.index.add_texts(range(size), self.texts)
        symbols = [text.split("'")[1] for text in self.texts]
        self.symbols = [symbols[number::connections] for number in range(connections)]
        self._every = Counter(symbols)
        self._wide = Counter(symbol for mine in self.symbols for symbol in set(mine))

    def due(self, given: Sequence[PlainEvent]) -> int:
        """Deliveries by content: one for each connection that has a subscription that matches."""
        found = self.index.match_batch(given)
        offsets, ids = found.offsets.tolist(), found.ids.tolist()
        return sum(len({i % self.connections for i in ids[a:b]}) for a, b in pairwise(offsets))

    def matches(self, given: Sequence[PlainEvent]) -> int:
        """Pairs of an event and a subscription that it matches."""
        return len(self.index.match_batch(given).ids)

    def due_by_symbol(self, given: Sequence[PlainEvent], *, each: bool = False) -> int:
        """Deliveries by symbol: one for each connection, or for each subscription."""
        count = self._every if each else self._wide
        return sum(count[symbol] for symbol in map(symbol_of, given))

    def ranges(self, number: int) -> dict[str, list[tuple[float, float]]]:
        """The ranges of prices that a connection wants, by symbol: what the consumer of a topic must filter."""
        found: dict[str, list[tuple[float, float]]] = {}
        for text in self.texts[number :: self.connections]:
            words = text.split()
            found.setdefault(words[2].strip("'"), []).append((float(words[6]), float(words[10])))
        return found

    def matcher(self) -> float:
        """Microseconds of matching alone, for each event, in batches as the broker has them."""
        some = self.events[:2_000]
        self.index.match_batch(some[:100])
        start = process_time()
        for at in range(0, len(some), 100):
            self.index.match_batch(some[at : at + 100])
        return 1e6 * (process_time() - start) / len(some)


def symbol_of(event: PlainEvent) -> str:
    """The symbol of an event: its topic for brokers that have topics."""
    return str(event["symbol"])
