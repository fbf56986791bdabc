"""Benchmarks: rates and ratios, measured in one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.bench.report import Result

    Run = Callable[..., list[Result]]  # quick, progress, and the bench's own options


def _language() -> Run:
    from weft.bench.language import run

    return run


def _match() -> Run:
    from weft.bench.match import run

    return run


def _order() -> Run:
    from weft.bench.order import run

    return run


def _routing() -> Run:
    from weft.bench.routing import run

    return run


def _mics() -> Run:
    from weft.bench.mics import run

    return run


def _negative() -> Run:
    from weft.bench.negative import run

    return run


def _dls() -> Run:
    from weft.bench.dls import run

    return run


def _ring() -> Run:
    from weft.bench.ring import run

    return run


def _tune() -> Run:
    from weft.bench.tune import run

    return run


def _spark() -> Run:
    from weft.bench.spark import run

    return run


def _streaming() -> Run:
    from weft.bench.streaming import run

    return run


def _hostile() -> Run:
    from weft.bench.hostile import run

    return run


def _core() -> Run:
    from weft.bench.core import run

    return run


def _links() -> Run:
    from weft.bench.links import run

    return run


def _broker() -> Run:
    from weft.bench.broker import run

    return run


BENCHES: dict[str, Callable[[], Run]] = {  # each imported when it is asked for
    "language": _language,
    "match": _match,
    "order": _order,
    "routing": _routing,
    "mics": _mics,
    "negative": _negative,
    "dls": _dls,
    "ring": _ring,
    "tune": _tune,
    "spark": _spark,
    "streaming": _streaming,
    "hostile": _hostile,
    "core": _core,
    "links": _links,
    "broker": _broker,
}
OPTIONS: dict[str, frozenset[str]] = {  # which benches take more
    "match": frozenset({"size", "workloads", "note"}),
    "routing": frozenset({"size"}),
    "ring": frozenset({"size"}),
    "links": frozenset({"size"}),
    "spark": frozenset({"note"}),
    "streaming": frozenset({"size"}),
    "broker": frozenset({"note", "soak"}),
}
