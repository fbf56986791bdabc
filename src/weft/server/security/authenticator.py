"""Authentication of connections: by token, or without a token by client certificate.

Why a peer is refused is written to the operator's log and sent to nobody. An address that keeps failing waits twice as
long after each failure, up to a bound; while it waits, nothing that it sends is looked at. Memory is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from ipaddress import IPv6Address, IPv6Network, ip_address
from ssl import cert_time_to_seconds
from typing import TYPE_CHECKING, Any, Literal

from weft.broker.identity import Authenticate, Identity
from weft.errors import AccessError
from weft.log.base import NEVER
from weft.server.clock import clock
from weft.server.log_lines import LogLines
from weft.server.security.tokens import Tokens

if TYPE_CHECKING:
    from weft.server.connection import RemoteEnd

NameKind = Literal["cn", "dns", "uri", "email"]

_ALTERNATIVES = {"dns": "DNS", "uri": "URI", "email": "email"}
_LONGEST_NAME = 256  # characters of a principal


def principal_of(certificate: Mapping[str, Any] | None, kind: NameKind) -> str:
    """The principal of a verified certificate, as `ssl.SSLSocket.getpeercert` has it. Raises AccessError."""
    if not certificate:
        raise AccessError("the client has sent no certificate")
    if kind == "cn":
        parts = [pair for part in certificate.get("subject", ()) for pair in part]
        names = [value for key, value in parts if key == "commonName"]
    else:
        names = [value for key, value in certificate.get("subjectAltName", ()) if key == _ALTERNATIVES[kind]]
    if len(names) != 1:
        raise AccessError(f"the certificate has {len(names)} names of the kind {kind}; it must have one")
    (name,) = names
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable() or "*" in name:
        raise AccessError(f"the certificate's name is not one of up to {_LONGEST_NAME} printable characters without *")
    return str(name)


class LoginLimits:
    """Slows down addresses whose log-ins fail (see `network_of`). Times are monotonic microseconds."""

    def __init__(self, free: int = 5, first: int = 1_000_000, longest: int = 300_000_000, most: int = 10_000) -> None:
        self._free = free  # failures that cost nothing
        self._first = first
        self._longest = longest
        self._most = most
        self._failures: dict[str, tuple[int, int]] = {}  # how many, and until when it waits; the last to fail is last

    def __len__(self) -> int:
        return len(self._failures)

    def may_try(self, address: str, monotonic: int) -> bool:
        """Whether an address may try to log in now."""
        known = self._failures.get(network_of(address))
        return known is None or known[1] <= monotonic

    def failed(self, address: str, monotonic: int) -> None:
        """Count a failed log-in. Old failures are forgotten."""
        failures = self._failures
        place = network_of(address)
        number, until = failures.pop(place, (0, 0))
        if until + self._longest < monotonic:
            number = 0
        number += 1
        wait = min(self._first << min(number - self._free - 1, 32), self._longest) if number > self._free else 0
        failures[place] = number, monotonic + wait
        while len(failures) > self._most:
            del failures[next(iter(failures))]

    def succeeded(self, address: str) -> None:
        """Forget the failures of an address after a log-in."""
        self._failures.pop(network_of(address), None)


def network_of(address: str) -> str:
    """What counts as one address: one of IPv4, or a /64 network of IPv6, which is what one customer has. All Unix
    sockets count as one address.
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address or "local"
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(IPv6Network((parsed, 64), strict=False))
    return str(parsed)


class Authenticator:
    """Authenticates connections by token, then by certificate."""

    def __init__(
        self, tokens: Tokens | None, certificates: NameKind | None, limits: LoginLimits, lines: LogLines
    ) -> None:
        self.tokens = tokens
        self._certificates = certificates
        self._limits = limits
        self._lines = lines
        self.counts = Counter({"logins": 0, "logins refused": 0, "logins not tried": 0})

    def may_try(self, peer: RemoteEnd) -> bool:
        """Whether a connection is read at all; False while its address waits."""
        if self._limits.may_try(peer.host, clock().monotonic):
            return True
        self.counts["logins not tried"] += 1
        return False

    def authenticate(self, peer: RemoteEnd) -> Authenticate:
        """The function that identifies a connection by the credentials in its hello."""

        def check(credentials: bytes) -> Identity:
            if not self.may_try(peer):
                raise AccessError("the address has failed too often, and must wait")
            try:
                identity = self._identify(peer, credentials, clock().utc)
            except AccessError as error:
                self.failed(peer, str(error))
                raise
            except Exception as error:  # whatever a peer sends must neither be accepted nor end the broker
                self.failed(peer, f"unexpected: {type(error).__name__}")
                raise AccessError("the credentials cannot be read") from None
            self._limits.succeeded(peer.host)
            self.counts["logins"] += 1
            self._lines.debug("login", principal=identity.principal, host=peer.host)
            return identity

        return check

    def authenticate_answer(self, peer: RemoteEnd) -> Authenticate | None:
        """The function that identifies a neighbour that was dialled; None if TLS or the file system has verified it."""
        if peer.der is not None or not peer.host or self.tokens is None:
            return None
        return self.authenticate(peer)

    def failed(self, peer: RemoteEnd, reason: str) -> None:
        """Count a failure of an unauthenticated peer."""
        self._limits.failed(peer.host, clock().monotonic)
        self.counts["logins refused"] += 1
        self._lines.warning("login refused", host=peer.host, reason=reason)

    def _identify(self, peer: RemoteEnd, credentials: bytes, utc: int) -> Identity:
        if credentials:
            if self.tokens is None:
                raise AccessError("the client has sent a token, but auth.keys is not set")
            return self.tokens.verify(credentials, utc, peer.der)
        if self._certificates is None:
            raise AccessError("the client has sent no token")
        certificate = peer.certificate or {}
        until = int(cert_time_to_seconds(certificate["notAfter"])) * 1_000_000 if "notAfter" in certificate else NEVER
        return Identity(principal_of(certificate, self._certificates), until)
