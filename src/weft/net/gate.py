"""Who comes in. Laws: a client is who its token says, or without a token who its certificate says, or nobody; why it is
nobody is written to the operator's log and told to no one else; an address that keeps failing is not listened to.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from weft.broker.identity import Authenticate, Identity
from weft.errors import AccessError
from weft.log.base import NEVER
from weft.net.certificates import NameKind, end_of, principal_of
from weft.net.clock import clock
from weft.net.log_lines import LogLines
from weft.net.login_limits import LoginLimits
from weft.net.tokens import Tokens

if TYPE_CHECKING:
    from weft.net.server_connection import RemoteEnd


class Gate:
    """Lets clients in, one connection at a time."""

    def __init__(
        self,
        tokens: Tokens | None,
        certificates: NameKind | None,
        limits: LoginLimits | None = None,
        lines: LogLines | None = None,
    ) -> None:
        self.tokens = tokens
        self._certificates = certificates
        self._limits = LoginLimits() if limits is None else limits
        self._lines = lines or LogLines(level="error")
        self.counts = Counter({"logins": 0, "logins refused": 0, "logins not tried": 0})

    def may_try(self, peer: RemoteEnd) -> bool:
        """Whether a connection is listened to at all."""
        if self._limits.may_try(peer.host, clock().monotonic):
            return True
        self.counts["logins not tried"] += 1
        return False

    def authenticate(self, peer: RemoteEnd) -> Authenticate:
        """What says who a connection is, given its credentials."""

        def check(credentials: bytes) -> Identity:
            now = clock()
            if not self._limits.may_try(peer.host, now.monotonic):
                self.counts["logins not tried"] += 1
                raise AccessError("the address has failed too often, and must wait")
            try:
                identity = self._identify(peer, credentials, now.utc)
            except AccessError as error:
                self.failed(peer, str(error))
                raise
            except Exception as error:  # whatever a stranger sends must neither get in nor end the broker
                self.failed(peer, f"unexpected: {type(error).__name__}")
                raise AccessError("the credentials cannot be read") from None
            self._limits.succeeded(peer.host)
            self.counts["logins"] += 1
            self._lines.debug("login", principal=identity.principal, host=peer.host)
            return identity

        return check

    def authenticate_answer(self, peer: RemoteEnd) -> Authenticate | None:
        """What says who has answered where we have dialled; None if TLS, or the file system, has seen to that."""
        if peer.der is not None or not peer.host or self.tokens is None:
            return None
        return self.authenticate(peer)

    def failed(self, peer: RemoteEnd, reason: str) -> None:
        """A peer that is not known did something wrong."""
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
        principal = principal_of(peer.certificate, self._certificates)
        return Identity(principal, NEVER if peer.certificate is None else end_of(peer.certificate))
