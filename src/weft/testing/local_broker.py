"""A real broker in a thread of the same process: what `weft serve` runs, on a free port, until the block ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from weft.broker.limits import ClientLimits
from weft.client.client import Client, connect
from weft.client.sync import SyncClient, connect_sync
from weft.console.app import Console
from weft.errors import BrokerError
from weft.gateway.process import gateway_options, running_gateway
from weft.protocol.addresses import Address
from weft.server.config import BrokerConfig, GatewayConfig
from weft.server.log_lines import LogLines
from weft.server.node import BrokerNode
from weft.server.serve import start


def broker(
    data: str | Path | None = None,
    *,
    schema: str | Path | None = None,
    limits: ClientLimits | None = None,
    config: BrokerConfig | None = None,
    gateway: bool = False,
) -> LocalBroker:
    """A broker in this process, to be used in `with` or `async with`.

    It keeps everything in memory, or in the directory `data`, where a later broker can continue with it. `schema` is a
    file with the schema of events. `config` has any other setting; its addresses are not used. With `gateway`, the HTTP
    gateway runs in the same process, too.

    >>> with broker() as local, local.connect_sync() as client:
    ...     alerts = client.subscribe("magnitude >= 5")
    ...     _ = client.publish({"magnitude": 6.1, "place": "Chile"})
    ...     next(alerts)["place"]
    'Chile'
    """
    chosen = config or BrokerConfig()
    chosen = replace(
        chosen,
        memory=data is None,
        data=Path("weft-data") if data is None else Path(data),
        schema=chosen.schema if schema is None else Path(schema),
        limits=limits or chosen.limits,
        listen=(str(Address("weft", "127.0.0.1", 0)),),
        gateway=replace(chosen.gateway, listen="127.0.0.1:0" if gateway else ""),
    )
    return LocalBroker(chosen)


class LocalBroker:
    """A broker in this process; see `broker`."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._address: Address | None = None
        self._running: _Running | None = None
        self._gateway = ""

    def __repr__(self) -> str:
        return f"<weft.LocalBroker: {'not running' if self._running is None else f'listening at {self._address}'}>"

    @property
    def gateway(self) -> str:
        """The address of its HTTP gateway, such as http://127.0.0.1:54322."""
        if not self._gateway:
            raise BrokerError("there is no gateway; use broker(gateway=True) in a with block")
        return self._gateway

    @property
    def address(self) -> str:
        """Where it listens, such as weft://127.0.0.1:54321."""
        if self._address is None:
            raise BrokerError("the broker is not running; use it in a with block")
        return str(self._address)

    def connect(self, **options: Any) -> Client:
        """A client of it: `weft.connect` with these options."""
        return connect(self.address, **options)

    def connect_sync(self, **options: Any) -> SyncClient:
        """A client of it whose calls block: `weft.connect_sync` with these options."""
        return connect_sync(self.address, **options)

    # -- life ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it; again on the same port, if it ran before. A broker in memory has forgotten everything."""
        if self._running is None:
            config = self._config
            if self._address is not None:
                config = replace(config, listen=(str(self._address),))
            if self._gateway:
                config = replace(config, gateway=replace(config.gateway, listen=self._gateway.partition("//")[2]))
            self._running = _Running(config)
            self._address, self._gateway = self._running.address, self._running.gateway

    def stop(self) -> None:
        """Stop it: everything that has arrived is stored and confirmed, and clients get a `Bye`."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    def kill(self) -> None:
        """End it at once, as if the process were killed: clients get no `Bye`, and nothing more is stored."""
        if self._running is not None:
            self._running.call(partial(BrokerNode.failed, error=BrokerError("the broker was killed")))
            self.stop()

    def call(self, what: Callable[[BrokerNode], Any]) -> Any:
        """Call something with the running node, in its thread."""
        if self._running is None:
            raise BrokerError("the broker is not running; use it in a with block")
        return self._running.call(what)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.stop)


class _Running:
    """One run: a thread with a loop and a node in it."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._ready = threading.Event()
        self.gateway = ""
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="weft-broker", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        self.address: Address = self._node.addresses[0]

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._asked = asyncio.get_running_loop(), asyncio.Event()
        config, lines = self._config, LogLines(level="error", write=lambda _: None)
        async with start(replace(config, gateway=GatewayConfig())) as node, AsyncExitStack() as around:
            self._node: BrokerNode = node
            if config.gateway.listen:
                options = gateway_options(config, str(node.addresses[0]))
                host, port = await around.enter_async_context(running_gateway(options, lines, Console))
                self.gateway = f"http://{host}:{port}"
            self._ready.set()
            await self._asked.wait()

    def call(self, what: Callable[[BrokerNode], Any]) -> Any:
        async def body() -> Any:
            return what(self._node)

        return asyncio.run_coroutine_threadsafe(body(), self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._asked.set)
        self._thread.join()
        if self._error is not None:
            raise self._error
