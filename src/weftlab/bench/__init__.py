"""Benchmarks: rates and ratios, measured in one run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weftlab.bench.report import Result

    Run = Callable[..., list[Result]]  # quick, progress, and the bench's own options


def _bench(name: str) -> Run:
    """What runs a bench, which is imported now. Kernels are compiled ones from the first call on."""
    from weft.kernels.jit import load

    load()
    run: Run = import_module(f"weftlab.bench.{name}").run
    return run


_NAMES = (
    *("language", "match", "order", "routing", "mics", "negative", "dls", "ring", "tune", "spark", "streaming"),
    *("hostile", "core", "links", "broker", "gateway", "mapping", "moves", "mobility", "profiles"),
)
BENCHES: dict[str, Callable[[], Run]] = {name: partial(_bench, name) for name in _NAMES}
OPTIONS: dict[str, frozenset[str]] = {  # which benches take more
    "match": frozenset({"size", "workloads", "note"}),
    "routing": frozenset({"size"}),
    "ring": frozenset({"size"}),
    "mobility": frozenset({"size"}),
    "links": frozenset({"size"}),
    "spark": frozenset({"note"}),
    "streaming": frozenset({"size"}),
    "broker": frozenset({"note", "soak"}),
}
