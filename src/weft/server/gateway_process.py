"""The HTTP gateway beside a broker: a process of its own, started again whenever it ends, and stopped with the broker.

It is an ordinary client, over a Unix socket in a folder of its own; nothing of it is imported here.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from weft.protocol.addresses import Address
from weft.server.config import BrokerConfig
from weft.server.log_lines import LogLines
from weft.server.node import BrokerNode

_PROGRAM = "from weft.console.process import run_child; run_child()"
_AGAIN, _LONGEST = 0.5, 30.0  # seconds after which it is started again; twice as long after each failed start
_PATIENCE = 5.0  # seconds that it has to stop


@asynccontextmanager
async def watched_gateway(node: BrokerNode, config: BrokerConfig, lines: LogLines) -> AsyncIterator[None]:
    """Keep a gateway running until the block ends."""
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        address = await node.listen(Address("weft+unix", "", 0, f"{folder}/broker"))
        given = pickle.dumps((config, str(address)))
        keeping = asyncio.create_task(_keep(given, lines), name="weft-gateway")
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)


async def _keep(given: bytes, lines: LogLines) -> None:
    failures = 0
    while True:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _PROGRAM, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(given)  # and not closed: a gateway whose broker is gone ends
            ready = await process.stdout.readline() == b"ready\n"
            code = await process.wait()
        finally:
            await _stop(process)
        lines.error("gateway ended", code=code)
        failures = 0 if ready else failures + 1
        await asyncio.sleep(min(_AGAIN * 2**failures, _LONGEST))


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
