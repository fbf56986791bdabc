"""Benchmarks: rates and ratios, measured in one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.bench.report import Result

    Run = Callable[[bool, Callable[[str], None]], list[Result]]


def _language() -> Run:
    from weft.bench.language import run

    return run


BENCHES: dict[str, Callable[[], Run]] = {"language": _language}  # each imported when it is asked for
