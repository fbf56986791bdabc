"""One connection to a broker whose calls block, for work that does one thing and ends. Laws: it never connects again by
itself; whatever ends it is raised.

`weft.connect_sync` is the client for everything else. This is for work that numbers its own events, as a task of Spark
does: what was sent before a connection broke is sent again by the next attempt, under the same numbers.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from weft.broker.codec import broker_messages, encode
from weft.broker.messages import BrokerMessage, Bye, ClientMessage, Hello, Welcome
from weft.errors import AccessError, BrokerError, RemoteProtocolError
from weft.net.addresses import Address

_READ = 1 << 18  # bytes at a time


class BlockingConnection:
    """A connection on which the broker has said welcome; to be used in `with`."""

    def __init__(
        self, address: str, hello: Hello, *, tls: ssl.SSLContext | None = None, patience: float = 30.0
    ) -> None:
        where = Address.parse(address)
        self._name = str(where)
        self._reader = broker_messages()
        self._patience = patience
        self._waiting: deque[BrokerMessage] = deque()
        try:
            self._socket = _connected(where, tls, patience)
        except OSError as error:
            raise BrokerError(f"{where} cannot be reached: {error.strerror or error}; is a broker running?") from error
        try:
            self.send([hello])
            welcome = self.receive()
            if not isinstance(welcome, Welcome):
                raise RemoteProtocolError(f"{where} does not answer as a Weft broker does; check the address")
        except BaseException:
            self._socket.close()
            raise
        self.welcome = welcome

    def send(self, messages: Iterable[ClientMessage]) -> None:
        """Send messages. Raises BrokerError."""
        try:
            self._socket.sendall(encode(messages))
        except OSError as error:
            raise self._lost(error) from error

    def receive(self, seconds: float | None = None) -> BrokerMessage:
        """The next message. Raises TimeoutError if none comes within so many seconds.

        Raises BrokerError if the connection ends, or if the broker is silent for too long and no time was given.
        """
        if not self._waiting:
            self._read(seconds)
        return self._waiting.popleft()

    def receive_first(self, *kinds: type[BrokerMessage]) -> BrokerMessage:
        """The next message of these kinds; others stay for `receive`, in their order."""
        seen = 0
        while True:
            while seen == len(self._waiting):
                self._read(None)
            if isinstance(self._waiting[seen], kinds):
                message = self._waiting[seen]
                del self._waiting[seen]
                return message
            seen += 1

    def _read(self, seconds: float | None) -> None:
        """Wait for messages; there may be none yet."""
        self._socket.settimeout(self._patience if seconds is None else seconds)
        try:
            while True:
                data = self._socket.recv(_READ)
                if not data:
                    raise BrokerError(f"{self._name} closed the connection; is it stopping?")
                found = self._reader.feed(data)
                for message in found:
                    if isinstance(message, Bye):
                        raise AccessError(f"{self._name} ends the connection ({message.code}): {message.reason}")
                self._waiting += found
                if found:
                    return
        except TimeoutError as error:
            if seconds is not None:
                raise
            raise BrokerError(f"{self._name} is silent; is it overloaded?") from error
        except OSError as error:
            raise self._lost(error) from error
        finally:
            self._socket.settimeout(self._patience)

    def close(self) -> None:
        """End the connection; the broker notices."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lost(self, error: OSError) -> BrokerError:
        return BrokerError(f"the connection to {self._name} is lost: {error.strerror or error}")


def _connected(where: Address, tls: ssl.SSLContext | None, patience: float) -> socket.socket:
    if where.unix:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(patience)
        made.connect(where.path)
        return made
    made = socket.create_connection((where.host, where.port), patience)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not where.tls:
        return made
    return (tls or ssl.create_default_context()).wrap_socket(made, server_hostname=where.host)
