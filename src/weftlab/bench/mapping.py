"""What mapping events at the client costs, and saves brokers: processor time per event of each, in one run.

Three brokers in a row, of a model that maps events, in memory: a publisher at the first, 500 filters on three
attributes at the last. The time of a broker is that of reading frames and of its core, which includes writing frames,
without sockets and disk. Three such networks take turns with the same events:

- *before*: nobody sends places, so each broker maps the events;
- *handed on*: the first broker maps the events, and sends neighbours their places;
- *mapped*: the client does.

The time of the client is that of its session, from events to bytes. Times are of the cheapest of five pieces of a run.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

import msgspec
import numpy as np

from weft.broker.effects import ConnectionId
from weft.broker.limits import ClientLimits
from weft.client.effects import Dial
from weft.client.publisher import UnconfirmedEvent
from weft.client.session import ClientSession
from weft.model.schema import Schema
from weft.network.cores import BrokerNetwork, BrokerWork, LinkEnd, Transport, Travelling
from weft.protocol.codec import broker_messages, encode
from weft.protocol.link_messages import PLACES_WANTED
from weft.protocol.messages import BrokerMessage, SubNumber, Subscribe
from weftlab.bench.report import Result

MODELS = "mics", "dls"
BATCHES = (1, 16, 256)  # events that the broker reads together
FILTERS = 500
QUICK = 400  # events of a short run
_PIECES = 5
_SCHEMA = Schema.from_dict(
    {"attributes": {name: {"type": "float", "bounds": [0, 100]} for name in ("price", "volume", "change")}}
)
_LIMITS = ClientLimits(window_events=1 << 30, window_bytes=1 << 60, heartbeat=1 << 50)
_READERS = ("a", "b", "c")
_encode = msgspec.msgpack.Encoder().encode


class _Network(BrokerNetwork):
    """Brokers that ask for places, or whose neighbours are too old to understand that."""

    places = True

    def arrive(self, end: LinkEnd, data: Travelling | None) -> None:
        if self.places or not isinstance(data, bytes) or PLACES_WANTED not in data:
            super().arrive(end, data)


class _Publisher:
    """A client's session, which publishes at a broker of a network, and the time that both take."""

    def __init__(self, model: str, *, places: bool, maps: bool) -> None:
        self.spent = defaultdict[str, float](float)  # seconds, by broker and of the client
        self.network = _Network(*_READERS, model=model, schema=_SCHEMA, limits=_LIMITS, recorded=False, run=self._timed)
        self.network.places = places
        self.network.chain()
        self.network["c"].hello("subscriber")
        self.network["c"].say("subscriber", *(Subscribe(SubNumber(n), text) for n, text in enumerate(_filters())))
        self.network.settle()
        self.network.transport = Transport.WRITES
        self._reader = broker_messages()
        self._came: list[BrokerMessage] = []
        self._session = ClientSession(map_events=maps)
        (dial, *_) = self._session.start(0)
        assert isinstance(dial, Dial)
        self._connection = dial.connection
        self.network["a"].connect("client", receiver=self._receive)
        self._session.opened(self._connection, 1)
        for _ in range(4):
            self._exchange()
        self.network.settle()
        assert (self._session.publisher.mapping is not None) == maps

    def _timed(self, broker: str, work: BrokerWork, do: Callable[[], Any]) -> Any:
        if work is BrokerWork.STORE:
            return do()
        start = process_time()
        done = do()
        self.spent[broker] += process_time() - start
        return done

    def _receive(self, messages: Any) -> None:
        if messages is not None:
            self._came += messages

    def _exchange(self) -> None:
        """What the client has to send goes to the broker, and what came goes to the client."""
        start = process_time()
        data = encode(self._session.take())
        self.spent["client"] += process_time() - start
        if data:
            self.network["a"].read(ConnectionId("client"), data)
        came, self._came = self._came, []
        if came:
            self._session.received(self._connection, came, 2)

    def publish(self, events: Sequence[UnconfirmedEvent]) -> None:
        """Publish events together, and see them through."""
        self._session.publisher.add(events)
        self._exchange()
        self.network.settle()
        self._exchange()


def _filters() -> list[str]:
    rng = np.random.default_rng(3)
    lows = rng.uniform(0, 70, (FILTERS, 3))
    return [
        f"price BETWEEN {a:.2f} AND {a + 30:.2f} AND volume BETWEEN {b:.2f} AND {b + 30:.2f} AND change > {c:.2f}"
        for a, b, c in lows
    ]


def _events(many: int) -> list[UnconfirmedEvent]:
    drawn = np.random.default_rng(4).uniform(0, 100, (many, 3)).tolist()
    attributes = [{"price": a, "volume": b, "change": c, "symbol": f"S{n % 97}"} for n, (a, b, c) in enumerate(drawn)]
    return [UnconfirmedEvent(msgspec.Raw(_encode(each)), b"x" * 130) for each in attributes]


def run(quick: bool, progress: Callable[[str], None]) -> list[Result]:
    """All figures."""
    results: list[Result] = []
    for model in MODELS:
        ways = {
            "before": _Publisher(model, places=False, maps=False),
            "handed on": _Publisher(model, places=True, maps=False),
            "mapped": _Publisher(model, places=True, maps=True),
        }
        for batch in BATCHES:
            progress(f"{model}, {batch} events at a time")
            results += _measured(model, batch, ways, max(batch, QUICK if quick else 5_000 if batch > 1 else 2_000))
        counts = [ways["mapped"].network[each].core.counts for each in _READERS]
        for each, name in zip(counts, _READERS, strict=True):
            share = 100 * each.get("events mapped", 0) / ways["mapped"].network["a"].core.end
            results.append(Result(f"mapping/{model}/broker_{name}_maps", share, "% of the events, by sample"))
            assert not each.get("wrong places")
    return results


def _measured(model: str, batch: int, ways: dict[str, _Publisher], many: int) -> list[Result]:
    best: dict[tuple[str, str], float] = {}
    events = _events(many)
    for way in ways.values():
        way.publish(events[:batch])  # whatever is computed at first use
    gc.collect()
    gc.disable()
    try:
        for _ in range(_PIECES):
            spent: dict[str, dict[str, float]] = {}
            for way in ways.values():
                way.spent = defaultdict(float)
            for at in range(0, many, batch):
                for way in ways.values():  # they take turns
                    way.publish(events[at : at + batch])
            spent = {name: way.spent for name, way in ways.items()}
            for name, of in spent.items():
                for who, seconds in of.items():
                    best[name, who] = min(best.get((name, who), seconds), seconds)
            gc.collect()
    finally:
        gc.enable()
    results = []
    for who in ("a", "b", "client"):
        before = best["before", who]
        what = "client" if who == "client" else f"broker_{who}"
        results.append(Result(f"mapping/{model}/{batch}/{what}_us", 1e6 * before / many, "us an event, before"))
        for name in ("handed on", "mapped"):
            goal = 1.0 if name == "mapped" and who != "client" else None
            ratio = best[name, who] / before
            figure = f"mapping/{model}/{batch}/{what}_{name.replace(' ', '_')}"
            results.append(Result(figure, ratio, "of before", goal, "lower"))
    return results
