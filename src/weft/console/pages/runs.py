"""The player of recorded simulations, and rings among them."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.console.page import ConsoleCall, ConsolePage, get, post
from weft.console.views.ring import RingPageRequest, live_ring, ring_view
from weft.console.views.runs import RunRequest, compare_view, run_view, runs_list


class TwoRuns(msgspec.Struct, forbid_unknown_fields=True):
    """A run, and perhaps another one at the same time."""

    one: RunRequest
    other: str = ""


async def runs(call: ConsoleCall) -> Any:
    """The recordings that there are."""
    return await call.services.worker.run(runs_list, str(call.services.config.runs))


async def run(call: ConsoleCall) -> Any:
    """One run, or two on one clock."""
    given: TwoRuns = await call.body(TwoRuns)
    folder = str(call.services.config.runs)
    if given.other:
        return await call.services.worker.run(compare_view, folder, given.one, given.other)
    return {"one": await call.services.worker.run(run_view, folder, given.one)}


async def ring(call: ConsoleCall) -> Any:
    """A recorded ring."""
    return await call.services.worker.run(ring_view, str(call.services.config.runs), await call.body(RingPageRequest))


async def live(call: ConsoleCall) -> Any:
    """The ring that the gateway was told of, as its nodes report it; without one, nothing."""
    from weft.server.ring_config import SPACE, read_key
    from weft.server.ring_status import walk

    config = call.services.config
    if not config.ring:
        return {"nodes": None}
    await call.client.client.status(queues=0)  # raises AccessError without the right `status`
    reports = await walk(config.ring, read_key(config.ring_key))
    return live_ring(reports, SPACE.size, call.query.get("node", ""))


PAGE = ConsolePage(
    "runs",
    "Runs",
    "Understand",
    "Play recorded simulations: step, scrub, follow a client, compare two protocols on one clock",
    (get("/runs", runs), post("/runs/view", run)),
)
