"""An index that changes while two threads match. Laws: what they find is right, and memory stays flat.

Run as a program: `python churn.py SECONDS` prints a line each minute: changes, matches, resident memory.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from weft.index import TreeIndex

LIVE = 300  # subscriptions that come and go, beside those that nobody changes


class Churn:
    """Changes in the calling thread while two others match; subscriptions below `fixed` never change."""

    def __init__(self, fixed: int) -> None:
        self.fixed = fixed
        self.index = TreeIndex(tail=16, fan=4, large=400)
        self.index.add_texts(range(fixed), [f"x >= {n % 100} AND s != 'q{n % 7}'" for n in range(fixed)])
        self.changes = 0
        self.matches = [0, 0]
        self.wrong: list[object] = []
        self.live: list[int] = []
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
            sub = self.fixed + turn
            self.index.add(sub, f"x > {rng.integers(100)} AND s LIKE '%{turn % 10}'")
            self.live.append(sub)
            self.changes += 1
            if len(self.live) > LIVE:
                self.index.discard(self.live.pop(int(rng.integers(len(self.live)))))
                self.changes += 1
            if turn % 50 == 0:
                self.index.replace(self.live[0], f"s IN ('a', 'b{turn}') AND x < {rng.integers(100)}")
                self.changes += 1
            turn += 1

    def _look(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        wanted = [[n for n in range(self.fixed) if n % 100 <= x] for x in range(100)]
        while not self._stop.is_set():
            x = int(rng.integers(0, 100))
            found = self.index.match({"x": x, "s": "a"}).tolist()
            fixed = sorted(sub for sub in found if sub < self.fixed)
            if len(found) != len(set(found)) or fixed != wanted[x]:
                self.wrong.append((x, len(found)))
                return
            self.matches[seed] += 1


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
            print(f"{now - start:.0f} s: {churn.changes} changes, {sum(churn.matches)} matches, {resident():.1f} MB")
            sys.stdout.flush()
        return now - start < seconds

    churn.run(more)
    print(f"end: {churn.changes} changes, {sum(churn.matches)} matches, {resident():.1f} MB, wrong: {churn.wrong}")
    print(churn.index.stats())


if __name__ == "__main__":
    main(float(sys.argv[1]))
