"""The keys and access rules of a broker, reloaded when their files change.

A change holds within a second. A file that became unusable changes nothing: what it last said holds, and the operator
is reported once. A file that is still being written is not read, because half of one might say less.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from weft.broker.rules import Rules
from weft.errors import WeftError
from weft.language.predicate_modules import filter_predicates
from weft.model.schema import Schema
from weft.server.clock import clock
from weft.server.config import BrokerConfig
from weft.server.log_lines import LogLines
from weft.server.node import BrokerNode
from weft.server.security.access_file import read_access
from weft.server.security.authenticator import Authenticator, LoginLimits
from weft.server.security.tokens import TokenKeys, TokenPolicy, Tokens, read_keys

V = TypeVar("V")


class WatchedFile(Generic[V]):
    """The value of a file. Raises what `read` raises when it is created, and never again."""

    def __init__(self, file: Path, read: Callable[[Path], V], lines: LogLines) -> None:
        self._file = file
        self._read = read
        self._lines = lines
        self._seen = self._found = _state(file)  # its state when it was read, and at the last poll
        self.value = read(file)

    def poll(self) -> bool:
        """Read the file if it has changed and is no longer being written. Returns whether there is a new value."""
        state = _state(self._file)
        before, self._found = self._found, state
        if state == self._seen or state != before:
            return False
        self._seen = state  # set before reading: the next poll sees a change during it
        try:
            self.value = self._read(self._file)
        except WeftError as error:
            self._lines.error("file not reloaded", file=self._file, reason=error)
            return False
        self._lines.info("file reloaded", file=self._file)
        return True


def _state(file: Path) -> tuple[int, ...]:
    """A value that differs when a file, or the target of a link, has changed."""
    try:
        found = os.stat(file)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev


_EVERY = 0.5  # seconds between two polls of the files


class Security:
    """The keys, access rules and authenticator of one broker. Raises OptionError for files that cannot be used."""

    def __init__(self, config: BrokerConfig, schema: Schema | None, lines: LogLines) -> None:
        auth = config.auth
        self._lines = lines
        self._links = config.links
        self._keys: WatchedFile[TokenKeys] | None = None
        self._access: WatchedFile[Rules] | None = None
        self.authenticator: Authenticator | None = None
        tokens = None
        if auth.keys is not None:
            self._keys = WatchedFile(auth.keys, read_keys, lines)
            policy = TokenPolicy(auth.audience, auth.issuer, auth.leeway, auth.max_lifetime, auth.single_use)
            tokens = Tokens(self._keys.value, policy, since=clock().utc)
        if config.access.rules is not None:
            known = filter_predicates(config.predicates, config.taxonomy)
            read = partial(read_access, schema=schema, predicates=known)
            self._access = WatchedFile(config.access.rules, read, lines)
        if tokens is not None or auth.certificates != "off":
            limits = LoginLimits(auth.attempts, auth.first_wait, auth.max_wait)
            kind = None if auth.certificates == "off" else auth.certificates
            self.authenticator = Authenticator(tokens, kind, limits, lines)

    @property
    def rules(self) -> Rules | None:
        """The access rules; None if everything is allowed."""
        return None if self._access is None else self._access.value

    def link_credentials(self, peer: str) -> bytes:
        """The token for a neighbour, from its file, which is read each time."""
        link = self._links.get(peer)
        if link is None or link.token is None:
            return b""
        try:
            return link.token.read_bytes().strip()
        except OSError as error:
            self._lines.error("no token for a link", peer=peer, file=link.token, reason=error.strerror)
            return b""

    def poll(self, node: BrokerNode) -> None:
        """Apply what has changed in the files."""
        if self._keys is not None and self._keys.poll():
            assert self.authenticator is not None
            assert self.authenticator.tokens is not None
            before, self.authenticator.tokens.keys = self.authenticator.tokens.keys, self._keys.value
            gone = {name for name, key in before.items() if self._keys.value.get(name) != key}
            node.driver.do(node.core.distrust, gone)
        if self._access is not None and self._access.poll():
            node.set_rules(self._access.value)

    async def watch(self, node: BrokerNode) -> None:
        """Poll the files until cancelled, if there are any."""
        while self._keys is not None or self._access is not None:
            await asyncio.sleep(_EVERY)
            self.poll(node)
