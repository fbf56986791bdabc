"""A failing plan made smaller. Law: what is returned fails too."""

from __future__ import annotations

from collections.abc import Callable

from weft.sim.faults.plan import Plan, Step


def shrink(plan: Plan, fails: Callable[[Plan], bool], most: int = 400) -> Plan:
    """A plan with as few steps as can be found in `most` runs; each removal alone would make it succeed, or nearly.

    Cost: about n log n runs for n steps.
    """
    steps, size, runs = list(plan.steps), max(1, len(plan.steps) // 2), 0
    while size and runs < most:
        at, shorter = 0, False
        while at < len(steps) and runs < most:
            fewer: list[Step] = steps[:at] + steps[at + size :]
            runs += 1
            if fails(plan._replace(steps=tuple(fewer))):
                steps, shorter = fewer, True
            else:
                at += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return plan._replace(steps=tuple(steps))
