"""A place where connections are accepted. Law: a Unix socket that somebody listens on is never taken away."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from weft.errors import OptionError
from weft.net.addresses import Address

BACKLOG = 1_024  # connections that may wait to be accepted
HANDSHAKE = 10.0  # seconds that a TLS handshake may take


class Listener:
    """One open address."""

    def __init__(self, server: asyncio.Server, address: Address) -> None:
        self.address = address
        self._server = server
        self._stopped = False

    def stop(self) -> None:
        """Accept nothing more."""
        if self._stopped:
            return
        self._stopped = True
        loop = asyncio.get_running_loop()
        for sock in self._server.sockets:
            loop.remove_reader(sock.fileno())
        # asyncio drops, without closing it, a connection that was accepted in this turn if its server is closed already
        loop.call_soon(self._server.close)
        if self.address.unix:
            with suppress(OSError):
                os.unlink(self.address.path)

    async def close(self) -> None:
        """Accept nothing more; connections that were accepted stay."""
        self.stop()
        for _ in range(3):  # so that what was accepted in this turn is known
            await asyncio.sleep(0)


async def listen(
    accept: Callable[[], asyncio.Protocol], address: Address, tls: ssl.SSLContext | None = None, *, shared: bool = False
) -> Listener:
    """Accept connections at an address, which may be shared with other processes. Raises OptionError."""
    if address.tls and tls is None:
        raise OptionError(f"{address} needs a certificate and a key")
    loop = asyncio.get_running_loop()
    try:
        if address.unix:
            _clear(Path(address.path))
            server = await loop.create_unix_server(accept, address.path, backlog=BACKLOG)
            os.chmod(address.path, 0o600)
            return Listener(server, address)
        host = address.host
        if host == "localhost" and not address.port:
            host = "127.0.0.1"  # or two ports are taken, one for each version of IP
        secured, patience = (tls, HANDSHAKE) if address.tls else (None, None)
        server = await loop.create_server(
            accept,
            host,
            address.port,
            backlog=BACKLOG,
            ssl=secured,
            ssl_handshake_timeout=patience,
            reuse_port=True if shared else None,
        )
    except (OSError, UnicodeError) as error:
        raise OptionError(f"cannot listen at {address}: {getattr(error, 'strerror', None) or error}") from error
    return Listener(server, address.at(server.sockets[0].getsockname()[1]))


def _clear(path: Path) -> None:
    """Remove a socket that nobody listens on. Raises OptionError for anything else."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OptionError(f"{path} exists and is not a socket; choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()
            return
    raise OptionError(f"another process listens at {path}; stop it, or choose another path")
