"""An index that changes while two threads match. Laws: what they find is right, and memory stays flat.

Run as a program: `python churn.py SECONDS` prints a line each minute: changes, matches, resident memory.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from weft.index import TreeIndex

LIVE = 300  # subscriptions that come and go, beside those that nobody changes


class Wish(NamedTuple):
    """What a changing subscription asks for: a bound and an ending, or once replaced a bound and a word."""

    bound: int
    tail: str
    replaced: bool = False

    def text(self) -> str:
        if self.replaced:
            return f"s IN ('a', 'b{self.tail}') AND x < {self.bound}"
        return f"x > {self.bound} AND s LIKE '%{self.tail}'"

    def wants(self, x: int, s: str) -> bool:
        if self.replaced:
            return s in ("a", f"b{self.tail}") and x < self.bound
        return x > self.bound and s.endswith(self.tail)


class Churn:
    """Changes in the calling thread while two others match; subscriptions below `fixed` never change."""

    def __init__(self, fixed: int) -> None:
        self.fixed = fixed
        self.index = TreeIndex(tail=16, fan=4, large=400)
        self.index.add_texts(range(fixed), [f"x >= {n % 100} AND s != 'q{n % 7}'" for n in range(fixed)])
        self.changes = 0
        self.matches = [0, 0]
        self.live_found = 0
        self.wrong: list[object] = []
        self.live: list[int] = []
        self.wishes: dict[int, Wish | None] = {}  # of the live ones; None of one that is being changed
        self.newest = fixed - 1  # the last subscription that was added
        self._stop = threading.Event()

    def run(self, more: Callable[[int], bool]) -> None:
        """Change the index while `more` says so of the number of turns; then settle and check it."""
        threads = [threading.Thread(target=self._look, args=(seed,)) for seed in range(2)]
        for thread in threads:
            thread.start()
        try:
            self._change(more)
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        self.index.settle()
        self.index.check()

    def _change(self, more: Callable[[int], bool]) -> None:
        rng = np.random.default_rng(9)
        turn = 0
        while more(turn) and not self.wrong:
            sub, wish = self.fixed + turn, Wish(int(rng.integers(100)), str(turn % 10))
            self.index.add(sub, wish.text())
            self.wishes[sub] = wish
            self.newest = sub
            self.live.append(sub)
            self.changes += 1
            if len(self.live) > LIVE:
                gone = self.live.pop(int(rng.integers(len(self.live))))
                self.wishes[gone] = None
                self.index.discard(gone)
                del self.wishes[gone]
                self.changes += 1
            if turn % 50 == 0:
                other = Wish(int(rng.integers(100)), str(turn), replaced=True)
                self.wishes[self.live[0]] = None
                self.index.replace(self.live[0], other.text())
                self.wishes[self.live[0]] = other
                self.changes += 1
            turn += 1

    def _look(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        wanted = [[n for n in range(self.fixed) if n % 100 <= x] for x in range(100)]
        try:
            while not self._stop.is_set() and not self.wrong:
                x, s = int(rng.integers(0, 100)), f"a{rng.integers(0, 10)}" if rng.random() < 0.8 else "a"
                newest, before = self.newest, dict(self.wishes)
                found = self.index.match({"x": x, "s": s}).tolist()
                after = dict(self.wishes)
                fixed = sorted(sub for sub in found if sub < self.fixed)
                if len(found) != len(set(found)) or fixed != wanted[x]:
                    self.wrong.append((x, s, len(found)))
                live = {sub for sub in found if sub >= self.fixed}
                steady = {sub: wish for sub, wish in before.items() if wish and after.get(sub) is wish}
                if live & steady.keys() != {sub for sub, wish in steady.items() if wish.wants(x, s)}:
                    self.wrong.append((x, s, sorted(live)))
                if any(sub <= newest and sub not in before for sub in live):
                    self.wrong.append(("discarded before", x, s, sorted(live)))
                self.live_found += len(live)
                self.matches[seed] += 1
        except Exception as error:  # a thread that ends unnoticed would look like one that finds no fault
            self.wrong.append(error)


def resident() -> float:
    """The resident memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def main(seconds: float) -> None:
    """Churn for so long, and say each minute how it goes."""
    churn = Churn(1_000)
    start = reported = time.monotonic()

    def more(_: int) -> bool:
        nonlocal reported
        now = time.monotonic()
        if now - reported >= 60:
            reported = now
            print(f"{now - start:.0f} s: {churn.changes} changes, {churn.matches} matches, {resident():.1f} MB")
            sys.stdout.flush()
        return now - start < seconds

    churn.run(more)
    print(f"end: {churn.changes} changes, {churn.matches} matches, {resident():.1f} MB, wrong: {churn.wrong}")
    print(churn.index.stats())


if __name__ == "__main__":
    main(float(sys.argv[1]))
