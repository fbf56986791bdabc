"""Tokens that authenticate clients (JWT, RFC 7519): the keys that verify them, their verification, and their signing.

A token is valid if one of the broker's keys signed it, with the algorithm of that key, for this broker, and its time
has come and is not over. A key has one algorithm, which its type decides, never a token.

Whoever has a token can use it until it expires. A token with the claim `once` is accepted once, one with `cnf` only
with the client certificate that it names (RFC 8705), one with `aud` only where the broker's `audience` is listed.

Keys are a JWK set (RFC 7517), as identity providers publish it; of a pair only the public half belongs into the file.
For those without an identity provider, `new_key` makes keys and `sign` signs tokens.
"""

from __future__ import annotations

import json
import os
import secrets
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from hashlib import blake2b, sha256
from heapq import heappop, heappush
from hmac import compare_digest
from pathlib import Path
from typing import Any, Literal, NamedTuple

from weft.broker.identity import Identity
from weft.errors import AccessError, OptionError
from weft.log.base import NEVER

_ALGORITHMS = {"oct": "HS256", "RSA": "RS256", "OKP": "EdDSA"}
_LEAST_SECRET, _NEW_SECRET = 32, 64  # bytes
_LEAST_RSA, _NEW_RSA = 2_048, 3_072  # bits
_MOST_KEYS = 100  # in a file
_MISSING = "tokens need the extra `broker`: install weft[broker]"
MOST_TOKEN = 8 << 10  # bytes
_NAME = 256  # characters of a principal

Algorithm = Literal["EdDSA", "RS256", "HS256"]

# -- keys ----------------------------------------------------------------------------------------------


class TokenKey(NamedTuple):
    """A key, and the one algorithm that it is for."""

    id: str
    algorithm: str
    key: Any


TokenKeys = dict[str, TokenKey]  # by id; "" if a file has one key without an id


def read_keys(file: Path) -> TokenKeys:
    """The keys of a file. Raises OptionError, without showing what is in it."""
    try:
        whole = json.loads(file.read_bytes())
    except OSError as error:
        raise OptionError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        raise OptionError(f"{file} is not JSON; write a JWK set: an object with a list of keys") from None
    listed = whole.get("keys") if isinstance(whole, dict) else None
    if not isinstance(listed, list) or not listed or len(listed) > _MOST_KEYS:
        raise OptionError(f'{file} is not a JWK set; write {{"keys": [...]}} with 1 to {_MOST_KEYS} keys')
    keys: TokenKeys = {}
    for number, each in enumerate(listed, 1):
        key = _read(each, f"{file}: key {number}")
        if key.id in keys:
            raise OptionError(f"{file}: key {number} has the same kid as another, or none; give each its own")
        keys[key.id] = key
    if "" in keys and len(keys) > 1:
        raise OptionError(f"{file}: a key has no kid; it is needed where there are several keys")
    return keys


def jwt_library() -> Any:
    """The module that reads and writes tokens. Raises OptionError without the extra `broker`."""
    try:
        import jwt
        from jwt.algorithms import has_crypto
    except ImportError:
        raise OptionError(_MISSING) from None
    if not has_crypto:
        raise OptionError(_MISSING)
    return jwt


def _read(row: Any, place: str) -> TokenKey:
    jwt = jwt_library()
    if not isinstance(row, dict):
        raise OptionError(f"{place} is not a JSON object")
    kind, name = row.get("kty"), row.get("kid", "")
    algorithm = _ALGORITHMS.get(kind) if isinstance(kind, str) else None
    if algorithm is None or (kind == "OKP" and row.get("crv") != "Ed25519"):
        raise OptionError(f"{place} is of a kind that is not supported; use oct, RSA, or OKP with the curve Ed25519")
    if row.get("alg", algorithm) != algorithm:
        raise OptionError(f"{place} is for another algorithm; {kind} keys are used for {algorithm} only")
    if not isinstance(name, str):
        raise OptionError(f"{place}: its kid is not a string")
    if row.get("use", "sig") != "sig":
        raise OptionError(f"{place} is not for signatures")
    if kind != "oct" and "d" in row:
        raise OptionError(f"{place} is a private key; a broker only needs the public half: keep the other to yourself")
    try:
        key = jwt.PyJWK(row, algorithm=algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise OptionError(f"{place} is damaged, or lacks a part") from None
    if kind == "oct" and len(key) < _LEAST_SECRET:
        raise OptionError(f"{place} is too short; a secret has at least {_LEAST_SECRET} random bytes")
    if kind == "RSA" and key.key_size < _LEAST_RSA:
        raise OptionError(f"{place} is too short; an RSA key has at least {_LEAST_RSA:,} bits")
    return TokenKey(name, algorithm, key)


class UsedTokens:
    """The ids of single-use tokens, remembered until they expire. When memory is full, no further one is accepted."""

    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._ids: set[bytes] = set()
        self._ends: list[tuple[int, bytes]] = []  # heap

    def __len__(self) -> int:
        return len(self._ids)

    def use(self, id: bytes, until: int, utc: int) -> str:
        """Use a token. Returns why it is refused, or an empty text. Cost: O(log n)."""
        while self._ends and self._ends[0][0] <= utc:
            self._ids.discard(heappop(self._ends)[1])
        short = blake2b(id, digest_size=16).digest()
        if short in self._ids:
            return "the token was used before"
        if len(self._ids) >= self._most:
            return f"{self._most:,} single-use tokens are remembered; no more can be accepted now"
        self._ids.add(short)
        heappush(self._ends, (until, short))
        return ""


# -- verification --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TokenPolicy:
    """The conditions on a token besides its signature. Times are in microseconds."""

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
        """The identity that a token proves. Raises AccessError; its text is for the operator, and shows nothing secret.

        `certificate` is the client's in DER, if it has sent one.
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

        policy = self._policy
        try:
            header = jwt.get_unverified_header(token)
            key = self._key(header)
            bound = {"aud": policy.audience, "iss": policy.issuer}
            needed = ["exp", "sub", *(claim for claim, value in bound.items() if value)]
            return key, jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm],
                audience=policy.audience or None,
                issuer=policy.issuer or None,
                leeway=policy.leeway / 1e6,
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
        except Exception as error:  # whatever the bytes do to a parser, their sender is not let in
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
        """Mark a single-use token as used. Raises AccessError."""
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


# -- new keys and tokens -------------------------------------------------------------------------------


def new_key(algorithm: Algorithm, name: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """A private JWK and its public half, or a secret twice. Without a name they get a random id."""
    jwt_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
    from jwt.algorithms import OKPAlgorithm, RSAAlgorithm

    about = {"kid": name or secrets.token_hex(4), "use": "sig", "alg": algorithm}
    if algorithm == "HS256":
        secret = {"kty": "oct", "k": urlsafe_b64encode(secrets.token_bytes(_NEW_SECRET)).rstrip(b"=").decode(), **about}
        return secret, secret
    if algorithm == "RS256":
        pair = generate_private_key(65_537, _NEW_RSA)
        halves = [RSAAlgorithm.to_jwk(key, as_dict=True) for key in (pair, pair.public_key())]
    else:
        own = Ed25519PrivateKey.generate()
        halves = [OKPAlgorithm.to_jwk(key, as_dict=True) for key in (own, own.public_key())]
    private, public = ({name: half[name] for name in half if name != "key_ops"} | about for half in halves)
    return private, public


def write_private(file: Path, jwk: dict[str, Any]) -> None:
    """Write a private key to a new file. Raises OptionError if the file exists."""
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise OptionError(f"{file} exists; choose another name, or remove it if no broker trusts it any more") from None
    except OSError as error:
        raise OptionError(f"{file} cannot be written: {error.strerror}") from error
    with os.fdopen(handle, "w", encoding="utf-8") as opened:
        json.dump(jwk, opened)


def add_public(file: Path, jwk: dict[str, Any]) -> int:
    """Add a key to a JWK set by replacing the file. Returns the number of keys. Raises OptionError."""
    keys: list[Any] = []
    if file.exists():
        try:
            keys = json.loads(file.read_bytes())["keys"]
        except (OSError, ValueError, KeyError, TypeError):
            raise OptionError(f"{file} exists and is not a JWK set; choose another file") from None
    keys = [*keys, jwk]
    new = file.with_name(f"{file.name}.new")
    try:
        new.touch(0o600)
        new.write_text(json.dumps({"keys": keys}, indent=2) + "\n", encoding="utf-8")
        if file.exists():
            os.chmod(new, file.stat().st_mode & 0o777)
        os.replace(new, file)
    except OSError as error:
        raise OptionError(f"{file} cannot be written: {error.strerror}") from error
    return len(keys)


def sign(file: Path, claims: dict[str, Any]) -> str:
    """A token with these claims, signed by the private key in a file. Raises OptionError."""
    jwt = jwt_library()
    try:
        jwk = json.loads(file.read_bytes())
        key = jwt.PyJWK(jwk, algorithm=jwk["alg"])
        if jwk["kty"] != "oct" and "d" not in jwk:
            raise OptionError(f"{file} has the public half of a key, which cannot sign; name the private key")
        return str(jwt.encode(claims, key.key, jwk["alg"], {"kid": jwk["kid"]}))
    except OSError as error:
        raise OptionError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, jwt.PyJWTError):
        raise OptionError(f"{file} is not a private key that `weft token new` has made") from None
