"""How a broker is protected, as its settings say. Law: keys and access rules that change on disk hold within a second;
those that became unusable change nothing.
"""

from __future__ import annotations

import asyncio
from functools import partial

from weft.broker.rules import Rules
from weft.model.schema import Schema
from weft.net.access_file import read_access
from weft.net.clock import clock
from weft.net.config import AuthConfig, BrokerConfig
from weft.net.gate import Gate
from weft.net.log_lines import LogLines
from weft.net.login_limits import LoginLimits
from weft.net.node import BrokerNode
from weft.net.token_keys import TokenKeys, read_keys
from weft.net.tokens import TokenPolicy, Tokens
from weft.net.watched_file import WatchedFile

_EVERY = 0.5  # seconds between two looks at the files


class Security:
    """Keys, access rules and the gate of one broker. Raises OptionError for files that cannot be used."""

    def __init__(self, config: BrokerConfig, schema: Schema | None, lines: LogLines) -> None:
        auth = config.auth
        self._lines = lines
        self._links = config.links
        self._keys: WatchedFile[TokenKeys] | None = None
        self._access: WatchedFile[Rules] | None = None
        self.gate: Gate | None = None
        tokens = None
        if auth.keys is not None:
            self._keys = WatchedFile(auth.keys, read_keys, lines)
            tokens = Tokens(self._keys.value, _policy(auth), since=clock().utc)
        if config.access.rules is not None:
            self._access = WatchedFile(config.access.rules, partial(read_access, schema=schema), lines)
        if tokens is not None or auth.certificates != "off":
            limits = LoginLimits(auth.attempts, auth.first_wait, auth.longest_wait)
            kind = None if auth.certificates == "off" else auth.certificates
            self.gate = Gate(tokens, kind, limits, lines)

    @property
    def rules(self) -> Rules | None:
        """The access rules; None where there are none, and everything is allowed."""
        return None if self._access is None else self._access.value

    def link_credentials(self, peer: str) -> bytes:
        """What a neighbour is shown: the token in its file, which is read each time."""
        link = self._links.get(peer)
        if link is None or link.token is None:
            return b""
        try:
            return link.token.read_bytes().strip()
        except OSError as error:
            self._lines.error("no token for a link", peer=peer, file=link.token, reason=error.strerror)
            return b""

    def poll(self, node: BrokerNode) -> None:
        """Look at the files, and let what they say hold."""
        if self._keys is not None and self._keys.poll():
            assert self.gate is not None
            assert self.gate.tokens is not None
            before, self.gate.tokens.keys = self.gate.tokens.keys, self._keys.value
            node.distrust({name for name, key in before.items() if self._keys.value.get(name) != key})
        if self._access is not None and self._access.poll():
            node.set_rules(self._access.value)

    async def watch(self, node: BrokerNode) -> None:
        """Look at the files again and again."""
        while True:
            await asyncio.sleep(_EVERY)
            self.poll(node)


def _policy(auth: AuthConfig) -> TokenPolicy:
    return TokenPolicy(auth.audience, auth.issuer, auth.leeway, auth.longest, auth.single_use)
