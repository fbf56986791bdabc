"""Lists of a broker in pages, as pages of the console ask for them."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.client.questions import rows_of
from weft.console.page import ConsoleCall
from weft.gateway.problems import REQUEST, ProblemError
from weft.protocol.questions import ListQuestion


async def listed(call: ConsoleCall, question: ListQuestion) -> dict[str, Any]:
    """One page of a list: its rows, how far the broker has looked, and the token of the next page.

    A page may have few rows or none although there are more: the broker works a few milliseconds for each. Short pages
    are put together here, so that one answer has as many rows as there are, within some round trips.
    """
    broker, token = call.query.get("broker", ""), page_token(call.query.get("page", ""))
    rows: list[Any] = []
    for _ in range(_ROUNDS):
        found = await call.client.client.ask(question, broker=broker, page=token)
        rows += rows_of(found.answer)
        token = found.page
        if not token or len(rows) >= _ENOUGH:
            break
    answer = found.answer
    return {
        "rows": msgspec.to_builtins(rows),
        "seen": getattr(answer, "seen", 0),
        "total": getattr(answer, "total", 0),
        "page": token.hex(),
        "broker": found.broker,
    }


_ROUNDS, _ENOUGH = 8, 100


def page_token(given: str) -> bytes:
    """The token of a page. Raises ProblemError."""
    try:
        return bytes.fromhex(given)
    except ValueError:
        raise ProblemError(REQUEST, "this is not the token of a page") from None


def number_of(given: str, what: str) -> int | None:
    """A number of the address; None if it is empty. Raises ProblemError."""
    if not given:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) < 19):
        raise ProblemError(REQUEST, f"{what} is a number, not {given[:60]!r}")
    return int(given)
