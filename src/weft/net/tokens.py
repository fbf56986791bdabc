"""Tokens say who a client is (JWT, RFC 7519). Laws: a token counts if one of our keys signed it, with the algorithm of
that key, for us, and its time has come and is not over; anything else is refused, whatever is wrong with it.

A token is a bearer's: who has it can use it until it expires. Three things narrow that. A token with the claim `once`
is accepted once. One with `cnf` is accepted only with the client certificate that it names (RFC 8705). One with `aud`
is accepted only where the broker's `audience` is listed.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import Any

from weft.broker.identity import Identity
from weft.errors import AccessError
from weft.log.base import NEVER
from weft.net.token_keys import TokenKey, TokenKeys
from weft.net.used_tokens import UsedTokens

MOST_TOKEN = 8 << 10  # bytes
_NAME = 256  # characters of a principal


@dataclass(frozen=True, slots=True)
class TokenPolicy:
    """What a token must be besides signed. Times are in microseconds."""

    audience: str = ""  # who we are; a token for others, or for anybody, is then refused
    issuer: str = ""  # who must have issued it
    leeway: int = 10_000_000  # by which clocks may differ
    longest: int = 0  # a token that is valid for longer from now on is refused; 0 is any time
    once: bool = False  # every token must be one that is accepted once


class Tokens:
    """Verifies tokens. `since` is when the broker started: it does not know which tokens were used before."""

    def __init__(self, keys: TokenKeys, policy: TokenPolicy | None = None, since: int = 0) -> None:
        self.keys = keys  # replaced when their file changes
        self._policy = policy or TokenPolicy()
        self._used = UsedTokens()
        self._since = since

    def verify(self, token: bytes, utc: int, certificate: bytes | None = None) -> Identity:
        """Who it is, and until when. Raises AccessError; its words are for the operator, and show nothing secret.

        `certificate` is the client's, in DER, if it has shown one.
        """
        if len(token) > MOST_TOKEN:
            raise AccessError(f"the token is longer than {MOST_TOKEN:,} bytes")
        key, claims = self._claims(token)
        policy = self._policy
        principal = claims.get("sub")
        if not isinstance(principal, str) or not 0 < len(principal) <= _NAME or not principal.isprintable():
            raise AccessError(f"the token's sub is not a name of up to {_NAME} printable characters")
        until = min(int(claims["exp"]) * 1_000_000 + policy.leeway, NEVER - 1)
        if policy.longest and until - policy.leeway > utc + policy.longest:
            raise AccessError("the token is valid for too long")
        if "cnf" in claims:
            _check_bound(claims["cnf"], certificate)
        if policy.once or claims.get("once") is True:
            self._use(key, claims, until, utc)
        return Identity(principal, until, key.id)

    def _claims(self, token: bytes) -> tuple[TokenKey, dict[str, Any]]:
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            key = self._key(header)
            needed = [
                "exp",
                "sub",
                *(["aud"] if self._policy.audience else []),
                *(["iss"] if self._policy.issuer else []),
            ]
            return key, jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm],
                audience=self._policy.audience or None,
                issuer=self._policy.issuer or None,
                leeway=self._policy.leeway / 1e6,
                options={"require": needed},
            )
        except AccessError:
            raise
        except jwt.ExpiredSignatureError:
            raise AccessError("the token has expired") from None
        except jwt.ImmatureSignatureError:
            raise AccessError("the token is not valid yet; compare the clocks") from None
        except (jwt.InvalidAudienceError, jwt.InvalidIssuerError):
            raise AccessError("the token is for another broker, or of another issuer") from None
        except jwt.MissingRequiredClaimError as error:
            raise AccessError(f"the token lacks the claim {error.claim}") from None
        except (jwt.InvalidAlgorithmError, jwt.InvalidSignatureError):
            raise AccessError("the token is not signed by the key that it names") from None
        except Exception as error:  # whatever a stranger's bytes do to a parser, they do not get in
            raise AccessError(f"the token is malformed ({type(error).__name__})") from None

    def _key(self, header: dict[str, Any]) -> TokenKey:
        if "crit" in header:
            raise AccessError("the token has critical extensions, which are not supported")
        name = header.get("kid")
        key = self.keys.get(name) if isinstance(name, str) else None
        if key is None and (name is None or "" in self.keys) and len(self.keys) == 1:
            (key,) = self.keys.values()
        if key is None:
            raise AccessError("the token names a key that this broker does not have")
        return key

    def _use(self, key: TokenKey, claims: dict[str, Any], until: int, utc: int) -> None:
        """A token that is accepted once is used now."""
        name, issued = claims.get("jti"), claims.get("iat")
        if not isinstance(name, str) or not name or not isinstance(issued, int | float):
            raise AccessError("a single-use token needs the claims jti and iat")
        if issued * 1_000_000 < self._since:
            raise AccessError("the token is single-use, and was issued before the broker started")
        refusal = self._used.use(f"{key.id}\0{name}".encode(), until, utc)
        if refusal:
            raise AccessError(refusal)


def _check_bound(confirmation: Any, certificate: bytes | None) -> None:
    """Raise AccessError unless a token is bound to this certificate."""
    wanted = confirmation.get("x5t#S256") if isinstance(confirmation, dict) else None
    if not isinstance(wanted, str):
        raise AccessError("the token is bound to something other than a certificate")
    if certificate is None:
        raise AccessError("the token is bound to a certificate, and the client has sent none")
    print_ = urlsafe_b64encode(sha256(certificate).digest()).rstrip(b"=")
    if not compare_digest(print_, wanted.encode()):
        raise AccessError("the token is bound to another certificate")
