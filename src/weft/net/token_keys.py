"""Keys that verify tokens, from a file. Law: a key has one algorithm, which its type decides, never a token.

The file is a JWK set (RFC 7517), as identity providers publish it: `{"keys": [{"kid": ..., "kty": ..., ...}]}`. Three
kinds of keys are accepted: secrets of 32 bytes or more (`oct`, HS256), RSA keys of 2,048 bits or more (RS256), and
Ed25519 keys (`OKP`, EdDSA). Of a pair only the public half belongs into the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from weft.errors import OptionError

_ALGORITHMS = {"oct": "HS256", "RSA": "RS256", "OKP": "EdDSA"}
_SECRET = 32  # bytes
_RSA = 2_048  # bits
_MOST = 100  # keys in a file
_MISSING = "tokens need the extra `broker`: install weft[broker]"


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
    if not isinstance(listed, list) or not listed or len(listed) > _MOST:
        raise OptionError(f'{file} is not a JWK set; write {{"keys": [...]}} with 1 to {_MOST} keys')
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
    if kind == "oct" and len(key) < _SECRET:
        raise OptionError(f"{place} is too short; a secret has at least {_SECRET} random bytes")
    if kind == "RSA" and key.key_size < _RSA:
        raise OptionError(f"{place} is too short; an RSA key has at least {_RSA:,} bits")
    return TokenKey(name, algorithm, key)
