"""Keys and tokens for those who have no identity provider. Laws: a private key is written once, readable by its owner
alone; what a broker gets is the public half.

A private key is a file with one JWK, as RFC 7517 has it; for HS256 both sides have the same secret.
"""

from __future__ import annotations

import json
import os
import secrets
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any, Literal

from weft.errors import OptionError
from weft.net.token_keys import jwt_library

Algorithm = Literal["EdDSA", "RS256", "HS256"]

_RSA = 3_072  # bits of a new key
_SECRET = 64  # bytes of a new secret


def new_key(algorithm: Algorithm, name: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """A private JWK and its public half; the same for a secret. They get a random id unless they are named."""
    jwt_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
    from jwt.algorithms import OKPAlgorithm, RSAAlgorithm

    about = {"kid": name or secrets.token_hex(4), "use": "sig", "alg": algorithm}
    if algorithm == "HS256":
        secret = {"kty": "oct", "k": urlsafe_b64encode(secrets.token_bytes(_SECRET)).rstrip(b"=").decode(), **about}
        return secret, secret
    if algorithm == "RS256":
        pair = generate_private_key(65_537, _RSA)
        private, public = (RSAAlgorithm.to_jwk(key, as_dict=True) for key in (pair, pair.public_key()))
    else:
        own = Ed25519PrivateKey.generate()
        private, public = (OKPAlgorithm.to_jwk(key, as_dict=True) for key in (own, own.public_key()))
    return {**_without_operations(private), **about}, {**_without_operations(public), **about}


def write_private(file: Path, jwk: dict[str, Any]) -> None:
    """Write a private key where there is no file yet. Raises OptionError."""
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise OptionError(f"{file} exists; choose another name, or remove it if no broker trusts it any more") from None
    except OSError as error:
        raise OptionError(f"{file} cannot be written: {error.strerror}") from error
    with os.fdopen(handle, "w", encoding="utf-8") as opened:
        json.dump(jwk, opened)


def add_public(file: Path, jwk: dict[str, Any]) -> int:
    """Add a key to a JWK set, which is replaced as a whole; how many keys it has now. Raises OptionError."""
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


def _without_operations(jwk: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in jwk.items() if name != "key_ops"}
