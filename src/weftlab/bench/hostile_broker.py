"""The cost of a hostile filter to a whole broker, from its frame to the answer, in processor time and bytes.

A client subscribes at a broker with two neighbours. `home` is everything that its broker does: frames read and written,
parsing, access rules, normal form, routing table, log, and the index, which an event makes it join. `neighbour` is what
the busier of the two neighbours does until it has learnt the filter. Every filter meets a broker that already holds
others, of the same kind and of other kinds. Garbage is collected as in a broker's process.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from itertools import count
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from weft.broker.delivery_run import encode_all
from weft.broker.effects import ConnectionId, Outgoing
from weft.broker.limits import ClientLimits
from weft.broker.rules import Rights, Rules
from weft.log.opening import LogOptions, open_log
from weft.model.limits import LIMITS
from weft.model.schema import Schema
from weft.network.cores import BrokerNetwork, BrokerWork, Transport
from weft.protocol.codec import encode
from weft.protocol.messages import Accepted, ClientMessage, Failed, Hello, Publish, Refused, Subscribe, Unsubscribe
from weft.routing.registry import MODELS
from weftlab.bench.report import Result
from weftlab.bench.short_pauses import short_pauses
from weftlab.bench.traced_memory import TracedMemory

_LIMITS = ClientLimits(heartbeat=1 << 50, link_silence=1 << 60, idle=0)
_CLIENT = ConnectionId("client")
_EVENTS = 65  # of which a batch makes young subscriptions join the index
NEIGHBOURS = ("north", "south")


def bounded_schema() -> Schema:
    """Attributes that models on cells divide: three floats, an int and a string."""
    attributes: dict[str, Any] = {name: {"type": "float", "bounds": [0, 1000]} for name in ("x", "y", "z")}
    attributes["n"] = {"type": "int", "bounds": [0, 1000]}
    attributes["s"] = {"type": "string", "categories": [f"w{n}" for n in range(20)]}
    return Schema.from_dict({"attributes": attributes})


class AdmissionCost(NamedTuple):
    """Milliseconds of CPU and bytes that an admission took; `refused` is the reason why there was none."""

    home: float
    neighbour: float
    peak: float  # bytes at home, at their highest
    refused: str


class HostileNetwork:
    """A broker with its log on disk, its two neighbours, and a client."""

    def __init__(self, model: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="weft-hostile-"))
        schema = bounded_schema() if MODELS[model].bounded else None
        self._numbers = count(1)
        self._sequences = count(1)  # of events
        self._answers: list[Outgoing] = []
        self._spent = dict.fromkeys(("home", *NEIGHBOURS), 0.0)  # seconds
        self._network = BrokerNetwork(
            "home",
            *NEIGHBOURS,
            transport=Transport.WRITES,
            open_log=lambda name: open_log(self._folder / name, LogOptions(schema=schema)).log,
            model=model,
            schema=schema,
            rules=Rules(default=Rights(subscribe=RULES), schema=schema),
            limits=_LIMITS,
            executor=None,
            recorded=False,
            run=self._timed,
        )
        self.home = self._network["home"]
        for name in NEIGHBOURS:
            self._network.link("home", name)
        self.home.connect(_CLIENT, answer=self._read_answers)
        self.home.read(_CLIENT, encode([Hello(session="client")]))
        self._network.settle()
        self._ends = ExitStack()
        self._ends.enter_context(short_pauses())

    def _timed(self, broker: str, _: BrokerWork, work: Callable[[], Any]) -> Any:
        start = process_time()
        done = work()
        self._spent[broker] += process_time() - start
        return done

    def _read_answers(self, messages: list[Outgoing]) -> list[ClientMessage]:
        encode_all(messages)
        self._answers += messages
        return []

    def close(self) -> None:
        """Close the logs and remove them."""
        for broker in self._network.brokers.values():
            broker.log.close()
        self._ends.close()
        shutil.rmtree(self._folder)

    def admit(self, text: str, memory: bool = False) -> AdmissionCost:
        """Subscribe, publish events that make the subscription join the index, and unsubscribe, which is not counted.

        With `memory`, bytes are measured in place of time.
        """
        number = next(self._numbers)
        frames = encode([Subscribe(number, text)])  # type: ignore[arg-type]
        events = encode([Publish.of(next(self._sequences), {"other": n}) for n in range(_EVENTS)])
        self._answers.clear()
        gc.collect()
        self._spent = dict.fromkeys(self._spent, 0.0)
        peak = 0.0
        with TracedMemory(self._rest) if memory else nullcontext() as traced:
            self.home.read(_CLIENT, frames)
            self.home.read(_CLIENT, events)
            if traced is not None:
                peak = float(traced.peak_so_far())
        self._network.settle()
        took = {name: 1e3 * seconds for name, seconds in self._spent.items()}
        refused = [each.reason for each in self._answers if isinstance(each, Failed)]
        assert refused or any(isinstance(each, Accepted) for each in self._answers), self._answers
        assert not any(isinstance(each, Refused) for each in self._answers), self._answers
        if not refused:
            self.home.read(_CLIENT, encode([Unsubscribe(number)]))  # type: ignore[arg-type]
            self._network.settle()
        return AdmissionCost(took["home"], max(took[name] for name in NEIGHBOURS), peak, "".join(refused))

    def worst(self, text: Callable[[int], str], times: int) -> AdmissionCost:
        """The admission of a kind of filter, the least time of some; another of its kind is there already."""
        self.admit(text(0))
        self.home.read(_CLIENT, encode([Subscribe(next(self._numbers), text(1))]))  # type: ignore[arg-type]
        self._network.settle()
        found = [self.admit(text(2 + n)) for n in range(times)]
        peak = self.admit(text(2 + times), memory=True).peak / 1e6
        return AdmissionCost(
            min(each.home for each in found), min(each.neighbour for each in found), peak, found[-1].refused
        )

    def _rest(self) -> None:
        """Wait for threads that join parts of an index: Python 3.11 may crash when tracing ends while another thread
        asks for memory.
        """
        for broker in self._network.brokers.values():
            broker.core.settle()


RULES = ("x < 500 AND y < 500", "s LIKE 'w%'", "x >= 500 OR y >= 500", "TRUE")


def admissions(quick: bool, progress: Callable[[str], None]) -> list[Result]:
    """The most expensive admission of each model, of all `hostile_filters`: at home, at a neighbour, and in memory."""
    results: list[Result] = []
    for model in MODELS:
        progress(f"admission in a broker, {model}")
        network = HostileNetwork(model)
        found = {name: network.worst(texts, 1 if quick else 3) for name, texts in hostile_filters().items()}
        network.close()
        for figure, unit, goal in (("home", "ms", 50.0), ("neighbour", "ms", 50.0), ("peak", "MB", 4.0)):
            name = max(found, key=lambda name: getattr(found[name], figure))
            value = getattr(found[name], figure)
            results.append(Result(f"admission_{model}/{name}/{figure}", value, unit, goal, "lower"))
    return results


def hostile_filters() -> dict[str, Callable[[int], str]]:
    """The most expensive kinds of filters that are known, as long as is legal; a seed makes another of its kind."""

    def words(seed: int, many: int) -> list[str]:
        return [f"{word:08x}" for word in np.random.default_rng(seed).integers(0, 2**32, many)]

    def boxes(seed: int, names: Sequence[str], many: int, width: int) -> Iterator[str]:
        for lows in np.random.default_rng(seed).integers(0, 800, (many, len(names))).tolist():
            ends = zip(names, lows, strict=True)
            yield f"({' AND '.join(f'{name} BETWEEN {low} AND {low + width}' for name, low in ends)})"

    def unequal(seed: int) -> Iterator[str]:
        for row in np.random.default_rng(seed).integers(0, 10**6, (LIMITS.sets // 26, 26)).tolist():
            yield f"({' AND '.join(f'a{place} != {value}' for place, value in enumerate(row))})"

    def excluded(seed: int, many: int) -> str:
        return " AND ".join(f"a{k} NOT IN ({seed}, 5, 7, 9)" for k in range(many))

    def cells(seed: int) -> str:
        lists = (f"{name} IN ({','.join(str(8 * k + seed % 8) for k in range(120))})" for name in "xyz")
        return f"{' AND '.join(lists)} AND ({' OR '.join(f'q{k} = {seed}' for k in range(64))})"

    half, names = LIMITS.tests // 2, LIMITS.names
    return {
        "list": lambda n: f"x IN ({_fit((str(2 * k + n) for k in range(20_000)), ',')})",
        "words": lambda n: f"s IN ({_listed(words(n, 9_000))})",
        "not_equal": lambda n: _fit((f"x != {3 * k + n}" for k in range(LIMITS.tests)), " AND "),
        "intervals": lambda n: _fit((f"x BETWEEN {4 * k + n} AND {4 * k + 2 + n}" for k in range(2 * half)), " OR "),
        "pairs": lambda n: _fit((f"(x > {4 * k + n} AND x < {4 * k + 2 + n})" for k in range(half)), " OR "),
        "prefixes": lambda n: _fit((f"s LIKE '{word[:4]}%'" for word in words(n, LIMITS.likes)), " OR "),
        "contains": lambda n: _fit((f"s LIKE '%{word}%'" for word in words(n, 250)), " OR "),
        "comparisons": lambda n: _fit((f"(a{k % 50} > {k + n} AND b < {k})" for k in range(half)), " OR "),
        "boxes": lambda n: _fit(boxes(n, "xyz", LIMITS.sets // 3, 30), " OR "),
        "wide_boxes": lambda n: _fit(boxes(n, ("x", "y", "z", "n", "m"), LIMITS.sets // 5, 300), " OR "),
        "boxes_and_list": lambda n: (
            f"({_fit(boxes(n, 'xyz', LIMITS.sets // 4, 30), ' OR ')}) AND s IN ({_listed(words(n, 4_000))})"
        ),
        "unequal_boxes": lambda n: _fit(unequal(n), " OR "),
        "own_attributes": lambda n: _fit((f"(a{k} > {n} AND b{k} < 5)" for k in range(250)), " OR "),
        "conjunction": lambda n: excluded(n, names),
        "conjunctions": lambda n: f"{excluded(n, names)} OR {excluded(n + 1, names)}",
        "cells": cells,
        "calls": lambda n: _fit((f"cidr(ip, '10.{k}.{n % 256}.0/24')" for k in range(250)), " OR "),
    }


def _listed(words: Iterable[str]) -> str:
    return _fit(map(repr, words), ",")


def _fit(parts: Iterable[str], between: str) -> str:
    """As many parts as a text has room for."""
    kept: list[str] = []
    size = 100
    for part in parts:
        size += len(part) + len(between)
        if size > LIMITS.text:
            break
        kept.append(part)
    return between.join(kept)
