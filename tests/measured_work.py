"""What an operation costs. Law: steps and lines of Python depend on the input only, never on the machine or its load.

Steps are those of every budget that the operation makes. Lines find what forgets to spend; they are counted by
tracing, which makes an operation some ten times slower. Compiled kernels have neither.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

from weft.algebra.budget import Budget
from weft.errors import WeftError


class Work(NamedTuple):
    """What an operation gives, an error of Weft's own included, and what it takes."""

    result: Any
    steps: int
    lines: int


def measured(operation: Callable[[], Any], *, traced: bool = True) -> Work:
    """Run an operation and count; lines are 0 unless it is traced. A part of a budget that is charged counts twice."""
    steps = lines = 0
    spend, charge = Budget.spend, Budget.charge

    def spent(budget: Budget, some: int = 1) -> None:
        nonlocal steps
        spend(budget, some)
        steps += some

    def charged(budget: Budget, some: int) -> None:
        nonlocal steps
        charge(budget, some)
        steps += some

    def within(_: FrameType, __: str, ___: object) -> Any:
        nonlocal lines
        lines += 1
        return within

    before = sys.gettrace()
    with patch.object(Budget, "spend", spent), patch.object(Budget, "charge", charged):
        if traced:
            sys.settrace(within)
        try:
            return Work(operation(), steps, lines)
        except WeftError as error:
            return Work(error, steps, lines)
        finally:
            sys.settrace(before)
