"""Covering orders: generated ones, one's own rules, the live subscriptions, and a broker's own forest."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from weft.console.page import ConsoleCall, ConsolePage, post
from weft.console.views.filter_steps import MOST_FILTERS, FilterSource
from weft.console.views.orders import OrdersRequest, orders_view
from weft.console.views.space import SpaceRequest, space_view


class LivePlane(msgspec.Struct, forbid_unknown_fields=True):
    """What the page of the plane asks; with `live`, of the subscriptions of the broker."""

    request: SpaceRequest
    live: bool = False


class LiveOrders(msgspec.Struct, forbid_unknown_fields=True):
    """What the page of orders asks; with `live`, of the subscriptions of the broker."""

    request: OrdersRequest
    live: bool = False


@lru_cache(16)
def cached_orders(request: OrdersRequest) -> dict[str, Any]:
    """The answer to a request; the last ones are kept. Runs in the worker."""
    return orders_view(request)


@lru_cache(16)
def cached_space(request: SpaceRequest) -> dict[str, Any]:
    """The answer to a request; the last ones are kept. Runs in the worker."""
    return space_view(request)


async def orders(call: ConsoleCall) -> Any:
    """The four structures of some filters."""
    given: LiveOrders = await call.body(LiveOrders)
    request = given.request
    if given.live:
        request = msgspec.structs.replace(request, source=await live_source(call, request.source))
    return await call.services.worker.run(cached_orders, request)


async def space(call: ConsoleCall) -> Any:
    """The plane of two attributes."""
    given: LivePlane = await call.body(LivePlane)
    request = given.request
    if given.live:
        request = msgspec.structs.replace(request, source=await live_source(call, request.source))
    return await call.services.worker.run(cached_space, request)


async def live_source(call: ConsoleCall, source: FilterSource) -> FilterSource:
    """The subscriptions of the broker as rules, each with its session as interface."""
    rules = []
    async for each in call.client.client.subscriptions():
        session = each.session or each.share or "anonymous"
        if not {"\n", "\r", "\t"} & {*session, *each.filter}:
            rules.append(f"{session}\t{each.filter}")
        if len(rules) > MOST_FILTERS:
            break
    return msgspec.structs.replace(source, rules="\n".join(rules) or "# no subscriptions")


PAGE = ConsolePage(
    "orders",
    "Orders",
    "Understand",
    "Covering orders side by side: posets and forests, forwards sets, merging",
    (post("/orders", orders),),
)
