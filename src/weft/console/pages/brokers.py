"""One broker and its three parts: the order of its own subscriptions, a table per link, and the index."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.console.page import ConsoleCall, ConsolePage, get, post
from weft.console.pages.listing import listed, number_of
from weft.gateway.problems import REQUEST, UNKNOWN, ProblemError
from weft.protocol.questions import AskItems, AskOrder


async def broker(call: ConsoleCall) -> dict[str, Any]:
    """A broker in short; of the one that the gateway is connected to, everything that its status says."""
    name = call.query.get("name", "")
    client = call.client.client
    brokers = await client.overlay()
    known = next((each for each in brokers if each.name == name), None)
    if known is None:
        names = ", ".join(each.name or "(no name)" for each in brokers[:20])
        raise ProblemError(UNKNOWN, f"there is no broker {name[:100]!r} in the network; there are {names}")
    found: dict[str, Any] = {"broker": msgspec.to_builtins(known), "asked": known is brokers[0]}
    if known is brokers[0]:
        status = await client.status(queues=20)
        found["status"] = msgspec.to_builtins(status)
    return found


async def items(call: ConsoleCall) -> dict[str, Any]:
    """What a link was sent, and why, or what was received from it."""
    direction = call.query.get("direction", "sent")
    if direction not in ("sent", "received"):
        raise ProblemError(REQUEST, "direction is sent or received")
    about = call.query.get("about", "subscriptions")
    if about not in ("subscriptions", "advertisements"):
        raise ProblemError(REQUEST, "about is subscriptions or advertisements")
    link = call.query.get("link", "")
    return await listed(call, AskItems(link, direction, about == "advertisements"))  # type: ignore[arg-type]


async def order(call: ConsoleCall) -> dict[str, Any]:
    """One level of the covering order of a broker's own subscriptions."""
    return await listed(call, AskOrder(number_of(call.query.get("node", ""), "node")))


class DetachRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A neighbour that is to be ended."""

    link: str
    broker: str = ""


async def detach(call: ConsoleCall) -> dict[str, Any]:
    """End a neighbour for good."""
    given: DetachRequest = await call.body(DetachRequest)
    await call.client.client.detach(given.link, broker=given.broker)
    call.audit("link detached", broker=given.broker, link=given.link)
    return {"done": True}


PAGE = ConsolePage(
    "brokers",
    "Brokers",
    "Operate",
    "One broker: its covering order, a table per link with reasons, its index",
    (
        get("/brokers", broker, "name"),
        get("/brokers/items", items, "broker", "link", "direction", "about", "page"),
        get("/brokers/order", order, "broker", "node", "page"),
        post("/brokers/detach", detach),
    ),
)
