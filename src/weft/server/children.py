"""The processes beside a broker: the HTTP gateway, and re-tuning by evidence.

A child gets its settings from standard input, which stays open as long as the broker lives. It reaches the broker over
a Unix socket in a folder that only this user can open.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from weft.protocol.addresses import Address
from weft.server.config import BrokerConfig
from weft.server.log_lines import LogLines
from weft.server.node import BrokerNode

# Programs rather than imports: these packages are above this one, and take memory that a broker does not need.
_GATEWAY = "from weft.console.process import run_child; run_child()"
_RETUNING = "from weft.models.retuning import run_child; run_child()"

_AGAIN, _LONGEST = 0.5, 30.0  # seconds after which a gateway is started again; twice as long after each failed start
_PATIENCE = 5.0  # seconds that a child has to stop
_TUNING = 600.0  # seconds that one re-tuning may take


@asynccontextmanager
async def gateway(node: BrokerNode, config: BrokerConfig, lines: LogLines) -> AsyncIterator[None]:
    """Keep an HTTP gateway running until the block ends."""
    async with _address(node, trusted=False) as address, _running(_keep_gateway(config, address, lines)):
        yield


@asynccontextmanager
async def retuning(node: BrokerNode, config: BrokerConfig, lines: LogLines) -> AsyncIterator[None]:
    """Re-tune the network by evidence every `retune_every` until the block ends, if this broker begins re-tunings."""
    async with _address(node, trusted=True) as address, _running(_retune(node, config, address, lines)):
        yield


async def _keep_gateway(config: BrokerConfig, address: str, lines: LogLines) -> None:
    failures = 0
    while True:
        async with _child(_GATEWAY, config, address) as process:
            assert process.stdout is not None
            ready = await process.stdout.readline() == b"ready\n"
            code = await process.wait()
        lines.error("gateway ended", code=code)
        failures = 0 if ready else failures + 1
        await asyncio.sleep(min(_AGAIN * 2**failures, _LONGEST))


async def _retune(node: BrokerNode, config: BrokerConfig, address: str, lines: LogLines) -> None:
    while True:
        await asyncio.sleep(config.retune_every / 1e6)
        if not node.core.begins_retunings:
            continue
        try:
            async with asyncio.timeout(_TUNING), _child(_RETUNING, config, address) as process:
                code = await process.wait()
        except TimeoutError:
            lines.warning("re-tuning stopped", reason=f"it took more than {_TUNING:g} seconds")
            continue
        if code:
            lines.warning("re-tuning ended", code=code)


@asynccontextmanager
async def _address(node: BrokerNode, *, trusted: bool) -> AsyncIterator[str]:
    """An address of the broker for its child alone; with `trusted`, the child may do everything."""
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        yield str(await node.listen(Address("weft+unix", "", 0, f"{folder}/broker"), trusted=trusted))


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work, name="weft-child")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def _child(program: str, config: BrokerConfig, address: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child that is stopped when the block ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    try:
        process.stdin.write(pickle.dumps((config, address)))  # and not closed: a child whose broker is gone ends
        yield process
    finally:
        await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_PATIENCE):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
