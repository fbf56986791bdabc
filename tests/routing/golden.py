"""Golden runs: what every model tells and delivers on seeded networks. Law: a run says the same whoever computes it.

Before every event and every look at what is told, the network settles: what is recorded does not depend on how many
updates a model needs. Even seeds draw filters over numbers, where covering is complete; odd ones the whole language.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from routing.machine import MOST_STEPS, bits
from routing.models import KNOWN, TABLES, Model
from strategies import SCALAR_EVENTS, A, B, all_tests, number_tests, related_tests
from weft.index.base import SubId
from weft.language.ast import Filter, Is, Not, conjunction, disjunction
from weft.network.tables import BrokerId, TableNetwork
from weft.routing.adverts import Advertised
from weft.routing.dls.items import LabelSet
from weft.routing.mics.items import CurveRange
from weft.routing.table import About, Item, Link

SEEDS = range(200)
FILE = Path(__file__).parents[1] / "golden" / "routing.json"
STEPS = 24

_NUMBERS: Sequence[Filter] = [*number_tests(A), *number_tests(B), Is(A, None), Is(B, None)]
_ALL: Sequence[Filter] = [*all_tests(A), *all_tests(B), *related_tests()]


def drawn(rng: np.random.Generator, tests: Sequence[Filter], depth: int = 2) -> Filter:
    """A random filter of a few tests."""
    kind = int(rng.integers(6)) if depth else 0
    if kind <= 2:
        return tests[int(rng.integers(len(tests)))]
    if kind == 3:
        return Not(drawn(rng, tests, depth - 1))
    parts = [drawn(rng, tests, depth - 1) for _ in range(2)]
    return conjunction(*parts) if kind == 4 else disjunction(*parts)


class Run:
    """One seed's network: changes, and what is told and delivered after each of them."""

    def __init__(self, model: Model, advertised: bool, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tests = _ALL if seed % 2 else _NUMBERS
        self.names = [BrokerId(f"b{n}") for n in range(int(self.rng.integers(3, 8)))]
        self.advertised = advertised
        self.overlay = TableNetwork(self.names, self._maker(model), np.random.default_rng(seed))
        self.subs: dict[SubId, tuple[BrokerId, Filter]] = {}
        self.adverts: dict[SubId, tuple[BrokerId, Filter]] = {}
        self.serial = 0
        self.told: list[Any] = []
        for number in range(1, len(self.names)):
            self.overlay.attach(self.names[number], self.names[int(self.rng.integers(number))])

    def _maker(self, model: Model) -> Callable[[], Any]:
        if self.advertised:
            return lambda: Advertised(model.make(), **KNOWN)
        return model.make

    def play(self) -> tuple[str, str]:
        """A digest of all that was delivered, and one of all that was told."""
        for _ in range(STEPS):
            self._act(int(self.rng.integers(12)))
            self.overlay.settle(MOST_STEPS)
            self.told.append(self._told())
            self._publish()
        return _digest(sorted(self.overlay.deliveries)), _digest(self.told)

    def _act(self, choice: int) -> None:
        at = self.names[int(self.rng.integers(len(self.names)))]
        wanted = drawn(self.rng, self.tests)
        which, cut = int(self.rng.integers(1 << 20)), int(self.rng.integers(1 << 20))
        self.serial += 1
        name = SubId(self.serial)
        if choice < 6:
            self.subs[name] = at, wanted
            self.overlay.subscribe(at, name, wanted)
        elif choice < 8 and self.subs:
            sub = [*self.subs][which % len(self.subs)]
            home, _ = self.subs.pop(sub)
            self.overlay.unsubscribe(home, sub)
        elif choice == 8 and self.subs:
            sub = [*self.subs][which % len(self.subs)]
            home, _ = self.subs[sub]
            self.subs[sub] = home, wanted
            self.overlay.replace(home, sub, wanted)
        elif choice == 9:
            links = sorted((a, b) for a in self.names for b in self.overlay.links(a) if a < b)
            one, other = links[cut % len(links)]
            self.overlay.detach(one, other)
            self.overlay.settle(MOST_STEPS)
            self.overlay.attach(other, one)
        elif self.advertised and (choice == 10 or not self.adverts):
            self.adverts[name] = at, wanted
            self.overlay.advertise(at, name, wanted)
        elif self.adverts and choice == 11:
            advert = [*self.adverts][which % len(self.adverts)]
            home, _ = self.adverts.pop(advert)
            self.overlay.unadvertise(home, advert)

    def _publish(self) -> None:
        for _ in range(3):
            at = self.names[int(self.rng.integers(len(self.names)))]
            event = int(self.rng.integers(len(SCALAR_EVENTS)))
            may = [wanted for home, wanted in self.adverts.values() if home == at]
            if not self.advertised or any(bits(each) >> event & 1 for each in may):
                self.overlay.publish(at, SCALAR_EVENTS[event])
                self.overlay.settle(MOST_STEPS)

    def _told(self) -> list[Any]:
        return [
            (about.value, broker, other, _items(self.overlay.table(broker).told(Link(other), about).values()))
            for about in About
            for broker in self.names
            for other in sorted(self.overlay.links(broker))
        ]


_SCALARS = (1 << len(SCALAR_EVENTS)) - 1  # the runs are older than lists


def _items(items: Any) -> list[Any]:
    """A told set without ids: the events of filters; all ranges together, and all labels."""
    several: list[Item] = list(items)
    labels = sorted(chain.from_iterable(each.labels for each in several if isinstance(each, LabelSet)))
    ranges = _united((each.group, each.start, each.end) for each in several if isinstance(each, CurveRange))
    rest = [each for each in several if not isinstance(each, LabelSet | CurveRange)]
    return [sorted(f"{bits(each) & _SCALARS:x}" for each in rest), ranges, labels]


def _united(ranges: Iterable[tuple[int, int, int]]) -> list[list[int]]:
    united: list[list[int]] = []
    for group, start, end in sorted(ranges):
        if united and united[-1][0] == group and united[-1][2] + 1 == start:
            united[-1][2] = end
        else:
            united.append([group, start, end])
    return united


def _digest(what: Any) -> str:
    return hashlib.blake2b(json.dumps(what, default=str).encode(), digest_size=4).hexdigest()


def play(name: str, advertised: bool, seed: int) -> tuple[str, str]:
    """The digests of one run: deliveries and what is told."""
    return Run(TABLES[name], advertised, seed).play()


def record(path: Path = FILE) -> None:
    """Write the file anew, which is right only if what is told is meant to change."""
    runs = {}
    for name in TABLES:
        for advertised in (False, True):
            played = [play(name, advertised, seed) for seed in SEEDS]
            runs[f"{name}{' with advertisements' if advertised else ''}"] = {
                "delivered": " ".join(delivered for delivered, _ in played),
                "told": " ".join(told for _, told in played),
            }
    path.write_text(json.dumps(runs, indent=1) + "\n")


if __name__ == "__main__":
    record()
