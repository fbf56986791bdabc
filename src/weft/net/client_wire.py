"""One connection of a client to a broker, from its opening to its loss. Law: whatever keeps it from opening is a
ConnectError that says what to do.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from weft.broker.codec import broker_messages, encode
from weft.broker.messages import ClientMessage
from weft.errors import ConnectError
from weft.net.addresses import Address

if TYPE_CHECKING:
    from weft.net.client_link import ClientLink

_HIGH = 1 << 20  # bytes that wait to be written above which nothing more is encoded


class Wire(asyncio.Protocol):
    """One connection to a broker."""

    def __init__(self, link: ClientLink) -> None:
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None
        self.is_full = False
        self.heard = 0.0
        self._link = link
        self._reader = broker_messages()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(_HIGH)

    def data_received(self, data: bytes) -> None:
        """Some bytes."""
        self._link.received(self, self._reader.feed, data)

    def eof_received(self) -> bool:
        """The broker sends nothing more."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """It is gone."""
        self.transport = None
        if not self.gone.done():
            self.gone.set_result(None)

    def pause_writing(self) -> None:
        """Much waits to be written."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Little waits to be written."""
        self.is_full = False
        self._link.flush()

    def write(self, messages: Sequence[ClientMessage]) -> None:
        """Send messages."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(encode(messages))

    def close(self, *, now: bool = False) -> None:
        """Close it when everything is written, or now."""
        if self.transport is not None:
            if now:
                self.transport.abort()
            else:
                self.transport.close()


async def open_wire(
    link: ClientLink, address: Address, tls: ssl.SSLContext | None, timeout: float
) -> Wire | ConnectError:
    """A connection to a broker, or why there is none."""
    try:
        async with asyncio.timeout(timeout):
            return await _open(link, address, tls)
    except TimeoutError:
        return ConnectError(f"{address} does not answer within {timeout:g} s")
    except ssl.SSLError as error:
        return ConnectError(f"{address} cannot be trusted: {error.reason or error}; pass tls= or ca=")
    except (OSError, UnicodeError) as error:
        known = isinstance(error, OSError) and isinstance(error.errno, int) and error.errno > 0
        reason = os.strerror(error.errno) if known else error  # type: ignore[union-attr, arg-type]
        return ConnectError(f"no broker at {address}: {reason}; start one with `weft serve`")


async def _open(link: ClientLink, address: Address, tls: ssl.SSLContext | None) -> Wire:
    loop = asyncio.get_running_loop()
    if address.unix:
        return (await loop.create_unix_connection(lambda: Wire(link), address.path))[1]
    if not address.tls:
        return (await loop.create_connection(lambda: Wire(link), address.host, address.port))[1]
    context = tls or ssl.create_default_context()
    return (
        await loop.create_connection(
            lambda: Wire(link), address.host, address.port, ssl=context, server_hostname=address.host
        )
    )[1]
