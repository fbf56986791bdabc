"""A broker's status on a terminal, once or again and again. Law: rates lie between the last two answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from rich.console import Console
from rich.live import Live

from weft.net.addresses import Address
from weft.net.status_client import open_status
from weft.net.status_view import rates, view
from weft.net.tls import client_context


def watch_status(  # noqa: PLR0913 - what a command passes on
    address: str,
    *,
    credentials: bytes,
    files: tuple[Path | None, Path | None],
    queues: int,
    every: float | None,
    emit: Callable[[Any], None] | None,
    console: Console,
) -> None:
    """Show a broker's status, once or every so many seconds. Raises OptionError and AccessError."""

    async def watch() -> None:
        place = Address.parse(address)
        client = await open_status(place, credentials, client_context(*files) if place.tls else None)
        try:
            before = await client.status(queues)
            await asyncio.sleep(every or 0.5)
            after = await client.status(queues)
            if emit is not None:
                emit(to_builtins(after) | {"rates": rates(before, after)})
                return
            if every is None:
                console.print(view(after, rates(before, after)))
                return
            with Live(view(after, rates(before, after)), console=console, screen=console.is_terminal) as live:
                while True:
                    await asyncio.sleep(every)
                    before, after = after, await client.status(queues)
                    live.update(view(after, rates(before, after)))
        finally:
            client.close()

    asyncio.run(watch())
