"""The mobility laboratory: how many moves it simulates in a second, and what a move costs as networks grow."""

from __future__ import annotations

import resource
from collections.abc import Callable
from time import perf_counter

import numpy as np

from weftlab.bench.report import Result
from weftlab.mobility.protocols import RUNNERS, run_world
from weftlab.mobility.script import BUSY, MobilityArea, ScriptSettings, busy, generate_script
from weftlab.mobility.topology import BrokerTree, generated

_SPEEDS = ("ping-pong", "acyclic", "acyclic-overlay", "rp", "weft", "weft-cores")
_GIGA = 1 << 30
_MINUTES, _MEMORY = 10.0, 4.0  # what a network of 10,000 brokers may take


def run(quick: bool, progress: Callable[[str], None], size: int | None = None) -> list[Result]:
    """All figures; with a size, tiny ones of that many moves."""
    moves = size or (40 if quick else 200)
    sizes: tuple[int, ...] = (25, 250) if size or quick else (25, 250, 2_500)
    if size:
        sizes = (5, 10)
    return [*_speeds(moves, progress), *_growth(sizes, min(moves, 100), progress)]


def _speeds(moves: int, progress: Callable[[str], None]) -> list[Result]:
    """Moves per second, with traffic, on 24 brokers."""
    rng = np.random.default_rng(1)
    tree = BrokerTree(generated(4, 6, rng))
    script = generate_script(tree, busy(moves=moves), rng)
    found = []
    for name in _SPEEDS:
        progress(f"{name} with {moves:,} moves")
        start = perf_counter()
        outcome = RUNNERS[name](tree, script, None)
        assert not outcome.lost, name
        found.append(Result(f"busy/{tree.size}/{name}", moves / (perf_counter() - start), "moves/s"))
    assert BUSY.events
    return found


def _growth(sizes: tuple[int, ...], moves: int, progress: Callable[[str], None]) -> list[Result]:
    """Networks of 4 areas: hops for each link between source and target, which must not grow with the network."""
    found: list[Result] = []
    for routers in sizes:
        brokers = 4 * routers
        progress(f"{brokers:,} brokers")
        start = perf_counter()
        rng = np.random.default_rng(routers)
        tree = BrokerTree(generated(4, routers, rng))
        settings = ScriptSettings(moves=moves, area=MobilityArea.FULL, events=2)
        outcome, _ = run_world("weft", tree, generate_script(tree, settings, rng))
        seconds = perf_counter() - start
        assert not outcome.lost
        per_link = sum(outcome.signals) / sum(outcome.paths)
        large = brokers >= 10_000
        found += [
            Result(f"grows/{brokers}/path", outcome.mean("paths"), "links"),
            Result(f"grows/{brokers}/signals", outcome.mean("signals"), "hops/move"),
            Result(f"grows/{brokers}/signals per link", per_link, "hops/link", 10.0, "lower"),
            Result(f"grows/{brokers}/time", seconds / 60, "minutes", _MINUTES if large else None, "lower"),
            Result(f"grows/{brokers}/memory", _peak() / _GIGA, "GiB", _MEMORY if large else None, "lower"),
        ]
    return found


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
