"""A link of a broker to something in its own process. Law: to the broker it is a connection like any other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from weft.broker.codec import client_messages


class BrokerPipe(asyncio.Transport):
    """The broker's end of its link to the bridge: a transport without a network."""

    def __init__(self, said: Callable[[Sequence[Any]], None], ended: Callable[[], None]) -> None:
        super().__init__()
        self._said, self._ended = said, ended
        self._reader = client_messages()
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """What the broker says."""
        if not self._closing:
            self._said(self._reader.feed(bytes(data)))

    def close(self) -> None:
        """The broker ends the link."""
        if not self._closing:
            self._closing = True
            self._ended()

    abort = close

    def is_closing(self) -> bool:
        """Whether it is over."""
        return self._closing

    def is_reading(self) -> bool:
        """What the bridge says is never held up."""
        return True

    def pause_reading(self) -> None:
        """The bridge says little that nobody waits for."""

    def resume_reading(self) -> None:
        """As above."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing waits to be written."""

    def get_write_buffer_size(self) -> int:
        """Nothing waits to be written."""
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ARG002
        """There is no peer."""
        return default
