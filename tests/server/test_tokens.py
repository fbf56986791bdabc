"""Tokens: what is forged, foreign, expired, cut off, used before or bound to others is refused, and says nothing."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from pathlib import Path
from time import time

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from server.jwk import SECRET, edwards, edwards_jwk, raw, rsa, rsa_jwk, secret_jwk, token, write_keys
from weft.errors import AccessError, OptionError
from weft.server.security.tokens import MOST_TOKEN, TokenKeys, TokenPolicy, Tokens, UsedTokens, read_keys

SECOND = 1_000_000


def now() -> int:
    """Tokens are judged by the clock, which goes on between the collection of a test and its run."""
    return int(time() * 1e6)


@pytest.fixture
def keys(tmp_path: Path) -> TokenKeys:
    return read_keys(write_keys(tmp_path / "keys", secret_jwk(kid="s"), rsa_jwk(kid="r"), edwards_jwk(kid="e")))


SIGNERS = [(SECRET, "HS256", "s"), (rsa(), "RS256", "r"), (edwards(), "EdDSA", "e")]


@pytest.mark.parametrize(("key", "algorithm", "kid"), SIGNERS, ids=["HS256", "RS256", "EdDSA"])
def test_a_token_says_who_and_until_when(keys: TokenKeys, key: object, algorithm: str, kid: str) -> None:
    exp = now() // SECOND + 100
    who = Tokens(keys).verify(token(key, algorithm, kid, exp=exp), now())
    assert who.principal == "ann"
    assert who.until == exp * SECOND + TokenPolicy().leeway


def refused(keys: TokenKeys, sent: bytes, policy: TokenPolicy | None = None, **more: object) -> str:
    with pytest.raises(AccessError) as error:
        Tokens(keys, policy).verify(sent, now(), **more)  # type: ignore[arg-type]
    said = str(error.value)
    assert sent.decode("latin1") not in said
    assert SECRET.decode() not in said
    return said


CLAIMS = {"sub": "ann", "exp": int(time()) + 3_600}


def _hmac_with_public_key() -> bytes:
    """HS256 under the text of the RSA key: what a library that trusts the token's algorithm accepts."""
    public = rsa().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    unsigned = raw({"alg": "HS256", "kid": "r"}, CLAIMS).rpartition(b".")[0]
    signature = hmac.new(public, unsigned, hashlib.sha256).digest()
    return unsigned + b"." + urlsafe_b64encode(signature).rstrip(b"=")


FORGED = {
    "no algorithm": raw({"alg": "none", "kid": "s"}, CLAIMS),
    "no algorithm, in capitals": raw({"alg": "NONE", "kid": "s"}, CLAIMS),
    "public key as a secret": _hmac_with_public_key(),
    "another's secret": token(b"another secret of thirty-two bytes", kid="s"),
    "another's RSA key": token(rsa(1), "RS256", "r"),
    "another's Ed25519 key": token(edwards(1), "EdDSA", "e"),
    "a key for another algorithm": token(SECRET, "HS512", "s"),
    "one of our keys under another's id": token(edwards(), "EdDSA", "s"),
    "an unknown key": token(SECRET, kid="x"),
    "no key named": token(SECRET),
    "a key id that is no text": raw({"alg": "HS256", "kid": 7}, CLAIMS, b"x"),
    "a key id with a path": token(SECRET, kid="../../dev/null"),
    "critical extensions": raw({"alg": "HS256", "kid": "s", "crit": ["b64"], "b64": False}, CLAIMS, b"x"),
    "an empty signature": raw({"alg": "HS256", "kid": "s"}, CLAIMS),
    "cut off": token(SECRET, kid="s")[:-7],
    "without a signature": token(SECRET, kid="s").rpartition(b".")[0],
    "other claims under a signature": b".".join(
        [
            token(SECRET, kid="s").split(b".")[0],
            token(SECRET, kid="s", sub="eve").split(b".")[1],
            token(SECRET, kid="s").split(b".")[2],
        ]
    ),
    "not a token": b"ann:secret",
    "bytes": bytes(range(256)),
    "dots": b"..",
    "deep": raw({"alg": "HS256", "kid": "s"}, b"[" * 3000 + b"]" * 3000),
    "too long": token(SECRET, kid="s", more="x" * MOST_TOKEN),
    "expired": token(SECRET, kid="s", exp=int(time()) - 60),
    "not yet valid": token(SECRET, kid="s", nbf=int(time()) + 86_400),
    "issued in the future": token(SECRET, kid="s", iat=int(time()) + 86_400),
    "without an end": token(SECRET, kid="s", exp=None),
    "an end that is text": token(SECRET, kid="s", exp="soon"),
    "without a name": token(SECRET, kid="s", sub=None),
    "an empty name": token(SECRET, kid="s", sub=""),
    "a name of two lines": token(SECRET, kid="s", sub="ann\nbob"),
    "a long name": token(SECRET, kid="s", sub="a" * 300),
    "for somebody else": token(SECRET, kid="s", aud="other"),
}


@pytest.mark.parametrize("sent", FORGED.values(), ids=FORGED)
def test_a_token_that_is_wrong_is_refused(keys: TokenKeys, sent: bytes) -> None:
    refused(keys, sent)


def test_an_end_beyond_all_bounds_is_refused(keys: TokenKeys) -> None:
    unsigned = raw({"alg": "HS256", "kid": "s"}, b'{"sub": "ann", "exp": Infinity}').rpartition(b".")[0]
    signature = urlsafe_b64encode(hmac.new(SECRET, unsigned, hashlib.sha256).digest()).rstrip(b"=")
    refused(keys, unsigned + b"." + signature)


def test_audience_and_issuer_are_demanded(keys: TokenKeys) -> None:
    policy = TokenPolicy(audience="north", issuer="https://login")
    good = {"aud": ["north", "south"], "iss": "https://login"}
    assert Tokens(keys, policy).verify(token(kid="s", **good), now()).principal == "ann"
    for wrong in ({"aud": "south"}, {"aud": None}, {"iss": "https://evil"}, {"iss": None}):
        refused(keys, token(kid="s", **{**good, **wrong}), policy)


def test_clocks_may_differ_a_little(keys: TokenKeys) -> None:
    late = token(kid="s", exp=now() // SECOND - 5)
    assert Tokens(keys, TokenPolicy(leeway=20 * SECOND)).verify(late, now())
    refused(keys, late, TokenPolicy(leeway=0))


def test_a_token_must_not_be_valid_for_too_long(keys: TokenKeys) -> None:
    policy = TokenPolicy(longest=3_600 * SECOND)
    assert Tokens(keys, policy).verify(token(kid="s", exp=now() // SECOND + 3_000), now())
    assert refused(keys, token(kid="s", exp=now() // SECOND + 4_000), policy) == "the token is valid for too long"


def test_one_key_needs_no_name(tmp_path: Path) -> None:
    keys = read_keys(write_keys(tmp_path / "keys", secret_jwk()))
    assert Tokens(keys).verify(token(), now())
    assert Tokens(keys).verify(token(kid="whatever"), now())


# -- replays --------------------------------------------------------------------------------------


def once(**claims: object) -> bytes:
    return token(**{"kid": "s", "once": True, "jti": "1", "iat": now() // SECOND + 1, **claims})  # type: ignore[arg-type]


def test_a_token_that_is_accepted_once_is_refused_the_second_time(keys: TokenKeys) -> None:
    tokens = Tokens(keys, since=now())
    assert tokens.verify(once(), now())
    with pytest.raises(AccessError, match="used before"):
        tokens.verify(once(), now())
    with pytest.raises(AccessError, match="used before"):
        tokens.verify(once(sub="bob"), now())
    assert tokens.verify(once(jti="2"), now())


def test_such_a_token_was_issued_since_the_broker_started(keys: TokenKeys) -> None:
    tokens = Tokens(keys, since=now())
    with pytest.raises(AccessError, match="before the broker started"):
        tokens.verify(once(iat=now() // SECOND - 5), now())


@pytest.mark.parametrize("missing", ["jti", "iat"])
def test_such_a_token_has_an_id_and_a_time(keys: TokenKeys, missing: str) -> None:
    assert "jti and iat" in refused(keys, once(**{missing: None}))


def test_a_broker_may_accept_no_other_tokens(keys: TokenKeys) -> None:
    tokens = Tokens(keys, TokenPolicy(once=True))
    with pytest.raises(AccessError, match="jti"):
        tokens.verify(token(kid="s"), now())
    assert tokens.verify(once(once=None), now())
    with pytest.raises(AccessError, match="used before"):
        tokens.verify(once(once=None), now())


def test_used_tokens_take_bounded_memory_and_nothing_is_accepted_beyond() -> None:
    used = UsedTokens(most=3)
    assert [used.use(bytes([n]), until=10 + n, utc=0) for n in range(3)] == ["", "", ""]
    assert "no more can be accepted now" in used.use(b"x", until=99, utc=5)
    assert used.use(b"x", until=99, utc=11) == ""
    assert len(used) <= 3


def test_a_refused_token_is_not_used_up(keys: TokenKeys) -> None:
    tokens = Tokens(keys)
    with pytest.raises(AccessError):
        tokens.verify(once(cnf={"x5t#S256": "x"}), now())
    assert tokens.verify(once(), now())


def test_a_token_may_be_bound_to_a_certificate(keys: TokenKeys) -> None:
    bound = urlsafe_b64encode(hashlib.sha256(b"certificate").digest()).rstrip(b"=").decode()
    sent = token(kid="s", cnf={"x5t#S256": bound})
    assert Tokens(keys).verify(sent, now(), certificate=b"certificate")
    refused(keys, sent)
    refused(keys, sent, certificate=b"another")
    refused(keys, token(kid="s", cnf={"jkt": bound}), certificate=b"certificate")
    refused(keys, token(kid="s", cnf="x"), certificate=b"certificate")


# -- files of keys --------------------------------------------------------------------------------

BAD_KEYS = {
    "not JSON": "keys",
    "a list": "[]",
    "no keys": '{"keys": []}',
    "not an object": '{"keys": [7]}',
    "an unknown kind": '{"keys": [{"kty": "EC"}]}',
    "a short secret": json.dumps({"keys": [secret_jwk(b"short")]}),
    "a short RSA key": json.dumps({"keys": [rsa_jwk(rsa(2, 1024))]}),
    "another algorithm": json.dumps({"keys": [rsa_jwk(alg="RS512")]}),
    "a key for another use": json.dumps({"keys": [rsa_jwk(use="enc")]}),
    "a private key": json.dumps({"keys": [edwards_jwk(d="x")]}),
    "another curve": json.dumps({"keys": [edwards_jwk(crv="Ed448")]}),
    "a part missing": '{"keys": [{"kty": "RSA", "e": "AQAB"}]}',
    "a damaged part": '{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "!"}]}',
    "the same id twice": json.dumps({"keys": [secret_jwk(kid="a"), rsa_jwk(kid="a")]}),
    "an id missing": json.dumps({"keys": [secret_jwk(), rsa_jwk(kid="a")]}),
    "an id that is no text": json.dumps({"keys": [secret_jwk(kid=7)]}),
}


@pytest.mark.parametrize("text", BAD_KEYS.values(), ids=BAD_KEYS)
def test_a_file_of_keys_that_is_wrong_says_where_and_shows_nothing(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(text)
    with pytest.raises(OptionError) as error:
        read_keys(file)
    assert str(file) in str(error.value)
    assert urlsafe_b64encode(b"short").decode()[:6] not in str(error.value)


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot be read"):
        read_keys(tmp_path / "nothing")
