"""Asking a broker how it is, over the ordinary protocol. Law: one question, one answer, in bounded time."""

from __future__ import annotations

import asyncio
import os
import ssl

import msgspec

from weft.broker.codec import broker_messages, encode
from weft.broker.messages import AskStatus, Bye, Failed, Hello, StatusReport, Welcome
from weft.broker.status import BrokerStatus
from weft.errors import AccessError, OptionError, RemoteProtocolError, WeftError
from weft.net.addresses import Address

_decode = msgspec.msgpack.Decoder(BrokerStatus).decode


class StatusClient(asyncio.Protocol):
    """One connection that asks, as often as it is told to."""

    def __init__(self) -> None:
        self._reader = broker_messages()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[BrokerStatus | None] = asyncio.get_running_loop().create_future()
        self._asked = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Some bytes."""
        try:
            for message in self._reader.feed(data):
                match message:
                    case Welcome():
                        self._done(None)
                    case StatusReport(_, body):
                        self._done(_decode(body))
                    case Failed(_, _, _, reason):
                        self._failed(AccessError(reason))
                    case Bye(code, reason):
                        self._failed(AccessError(f"the broker ends the connection ({code}): {reason}"))
                    case _:
                        pass
        except (RemoteProtocolError, msgspec.ValidationError) as error:
            self._failed(RemoteProtocolError(f"the server is not a Weft broker: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        said = "" if exc is None else f": {exc}"
        self._failed(RemoteProtocolError(f"the broker closed the connection without an answer{said}"))

    async def hello(self, credentials: bytes) -> None:
        """Begin."""
        await self._ask(encode([Hello(credentials=credentials)]))

    async def status(self, queues: int) -> BrokerStatus:
        """Ask."""
        self._asked += 1
        answer = await self._ask(encode([AskStatus(self._asked, queues)]))
        assert answer is not None
        return answer

    async def _ask(self, data: bytes) -> BrokerStatus | None:
        if not self._answer.done() or self._answer.exception() is None:
            self._answer = asyncio.get_running_loop().create_future()
        assert self._transport is not None
        self._transport.write(data)
        return await self._answer

    def _done(self, answer: BrokerStatus | None) -> None:
        if not self._answer.done():
            self._answer.set_result(answer)

    def _failed(self, error: WeftError) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)
            self._answer.exception()  # no complaint if nobody asks

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.close()


async def open_status(
    address: Address, credentials: bytes = b"", tls: ssl.SSLContext | None = None, patience: float = 10.0
) -> StatusClient:
    """A connection for questions. Raises OptionError if nobody listens, AccessError if it is not welcome."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(patience):
            if address.unix:
                _, client = await loop.create_unix_connection(StatusClient, address.path)
            else:
                secured = tls if address.tls else None
                _, client = await loop.create_connection(StatusClient, address.host, address.port, ssl=secured)
            await client.hello(credentials)
    except TimeoutError:
        raise OptionError(f"{address} does not answer; is a broker listening there?") from None
    except OSError as error:
        reason = os.strerror(error.errno) if isinstance(error.errno, int) and error.errno > 0 else error
        raise OptionError(f"no broker at {address}: {reason}; start one with `weft serve`") from error
    return client
