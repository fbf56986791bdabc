"""The player of recorded simulations, and rings among them."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.console.page import ConsoleCall, ConsolePage, get, post
from weft.console.views.ring import RingPageRequest, ring_view
from weft.console.views.runs import RunRequest, compare_view, run_view, runs_list


class TwoRuns(msgspec.Struct, forbid_unknown_fields=True):
    """A run, and perhaps another one at the same time."""

    one: RunRequest
    other: str = ""


async def runs(call: ConsoleCall) -> Any:
    """The recordings that there are."""
    return await call.services.worker.run(runs_list, str(call.services.runs))


async def run(call: ConsoleCall) -> Any:
    """One run, or two on one clock."""
    given: TwoRuns = await call.body(TwoRuns)
    folder = str(call.services.runs)
    if given.other:
        return await call.services.worker.run(compare_view, folder, given.one, given.other)
    return {"one": await call.services.worker.run(run_view, folder, given.one)}


async def ring(call: ConsoleCall) -> Any:
    """A recorded ring."""
    return await call.services.worker.run(ring_view, str(call.services.runs), await call.body(RingPageRequest))


PAGE = ConsolePage(
    "runs",
    "Runs",
    "Understand",
    "Play recorded simulations: step, scrub, follow a client, compare two protocols on one clock",
    (get("/runs", runs), post("/runs/view", run)),
)
