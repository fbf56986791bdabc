"""Keys and tokens for tests."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from functools import cache
from pathlib import Path
from time import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from jwt.algorithms import OKPAlgorithm, RSAAlgorithm

SECRET = b"a secret of sixty-four bytes, which is long enough for any HMAC here"


@cache
def rsa(number: int = 0, bits: int = 2048) -> RSAPrivateKey:
    return generate_private_key(65537, bits)


@cache
def edwards(number: int = 0) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def secret_jwk(secret: bytes = SECRET, **more: Any) -> dict[str, Any]:
    return {"kty": "oct", "k": urlsafe_b64encode(secret).rstrip(b"=").decode(), **more}


def rsa_jwk(key: RSAPrivateKey | None = None, **more: Any) -> dict[str, Any]:
    return {**RSAAlgorithm.to_jwk((key or rsa()).public_key(), as_dict=True), **more}


def edwards_jwk(key: Ed25519PrivateKey | None = None, **more: Any) -> dict[str, Any]:
    return {**OKPAlgorithm.to_jwk((key or edwards()).public_key(), as_dict=True), **more}


def write_keys(file: Path, *keys: dict[str, Any]) -> Path:
    file.write_text(json.dumps({"keys": keys}))
    return file


def token(key: Any = SECRET, algorithm: str = "HS256", kid: str | None = None, **claims: Any) -> bytes:
    """A token of ann, valid for an hour."""
    body = {"sub": "ann", "exp": int(time()) + 3_600, **claims}
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode({k: v for k, v in body.items() if v is not None}, key, algorithm, headers).encode()


def raw(header: dict[str, Any], claims: Any, signature: bytes = b"") -> bytes:
    """A token put together by hand."""
    parts = [
        json.dumps(header).encode(),
        claims if isinstance(claims, bytes) else json.dumps(claims).encode(),
        signature,
    ]
    return b".".join(urlsafe_b64encode(part).rstrip(b"=") for part in parts)
