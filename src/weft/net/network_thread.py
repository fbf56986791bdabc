"""The thread in which the clients of a process talk to their brokers. Law: it runs while there is a client, no longer.

Heartbeats, acknowledgements and reconnections thus go on while the application computes or blocks, as long as it lets
other threads run.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any

_lock = threading.Lock()
_current: NetworkThread | None = None


class NetworkThread:
    """An event loop in a thread of its own, shared by all clients of the process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.users = 0
        self.pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="weft-network", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self._finish()
            self.loop.close()

    def _finish(self) -> None:
        """Cancel what still runs (a client that was cancelled while it closed), and answer what was asked last."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.run_until_complete(asyncio.sleep(0))

    def call(self, what: Callable[..., object], *args: Any) -> None:
        """Call something in the thread, soon."""
        self.loop.call_soon_threadsafe(what, *args)

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the thread."""
        asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def stop(self) -> None:
        """End the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


def acquire() -> NetworkThread:
    """The thread of this process; `release` must follow."""
    global _current  # noqa: PLW0603 - one for the process
    with _lock:
        if _current is None or _current.pid != os.getpid():  # a child of a fork has no threads
            _current = NetworkThread()
        _current.users += 1
        return _current


def release(network: NetworkThread) -> None:
    """A client is gone; the last one ends the thread."""
    global _current  # noqa: PLW0603
    with _lock:
        network.users -= 1
        if network.users or network.pid != os.getpid():
            return
        if _current is network:
            _current = None
    network.stop()
