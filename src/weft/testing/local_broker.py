"""A real broker in a thread of the same process. Law: it is what `weft serve` runs, on a free port of this machine;
when the block ends, nothing of it is left.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from weft.broker.limits import ClientLimits
from weft.errors import BrokerError
from weft.net.addresses import Address
from weft.net.client import Client, connect
from weft.net.client_sync import SyncClient, connect_sync
from weft.net.config import BrokerConfig
from weft.net.node import BrokerNode
from weft.serve import start


def broker(
    data: str | Path | None = None,
    *,
    schema: str | Path | None = None,
    limits: ClientLimits | None = None,
    config: BrokerConfig | None = None,
) -> LocalBroker:
    """A broker in this process, to be used in `with` or `async with`.

    It keeps everything in memory, or in the directory `data`, where a later broker can continue with it. `schema` is a
    file with the schema of events. `config` has any other setting; its addresses are not used.

    >>> with broker() as local, local.connect_sync() as client:
    ...     alerts = client.subscribe("magnitude >= 5")
    ...     client.publish({"magnitude": 6.1, "place": "Chile"})
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
    )
    return LocalBroker(chosen)


class LocalBroker:
    """A broker in this process; see `broker`."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._address: Address | None = None
        self._running: _Running | None = None

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
            self._running = _Running(config)
            self._address = self._running.address

    def stop(self) -> None:
        """Stop it: everything that has arrived is stored and confirmed, and clients are told."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    def kill(self) -> None:
        """End it at once, as if the process were killed: nobody is told, and nothing more is stored."""
        running, self._running = self._running, None
        if running is not None:
            running.kill()

    def call(self, what: Callable[[BrokerNode], Any]) -> Any:
        """Call something with the running node, in its thread."""
        if self._running is None:
            raise BrokerError("the broker is not running; use it in a with block")
        return self._running.call(what)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)


class _Running:
    """One run: a thread with a loop and a node in it."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._ready = threading.Event()
        self._asked: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._node: BrokerNode | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="weft-broker", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        assert self._node is not None
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
        async with start(self._config) as node:
            self._node = node
            self._ready.set()
            await self._asked.wait()

    def call(self, what: Callable[[BrokerNode], Any]) -> Any:
        async def body() -> Any:
            assert self._node is not None
            return what(self._node)

        return self._do(body())

    def _do(self, body: Coroutine[Any, Any, Any]) -> Any:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(body, self._loop).result()

    def stop(self) -> None:
        assert self._loop is not None
        assert self._asked is not None
        self._loop.call_soon_threadsafe(self._asked.set)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def kill(self) -> None:
        self.call(partial(BrokerNode.failed, error=BrokerError("the broker was killed")))
        self.stop()
