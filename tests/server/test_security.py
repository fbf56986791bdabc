"""A broker on real sockets among strangers: they are refused, counted, and learn nothing."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from server.jwk import SECRET, edwards, edwards_jwk, secret_jwk, token, write_keys
from server.test_hostile_peers import GARBAGE
from server.wire import Wire, connect, run
from weft.broker.sessions import BUSY, REFUSED
from weft.protocol.codec import encode
from weft.protocol.messages import (
    Accepted,
    Bye,
    Deliver,
    Failed,
    Hello,
    Ping,
    Pong,
    Publish,
    Refused,
    Revoked,
    Subscribe,
    Welcome,
)
from weft.server import log_lines
from weft.server.config import AccessConfig, AuthConfig, BrokerConfig, TlsConfig
from weft.server.log_lines import LogLines
from weft.server.node import BrokerNode
from weft.server.reads import MOST_HELLO
from weft.server.serve import start

ACCESS = """
[[rule]]
for = "ann"
subscribe = "x < 5"
publish = true

[[rule]]
for = "bob"
publish = "x > 5"
"""


@asynccontextmanager
async def a_broker(folder: Path, lines: list[str] | None = None, **settings: Any) -> AsyncIterator[BrokerNode]:
    """A broker that accepts tokens, with the rules above."""
    auth = {"keys": write_keys(folder / "keys.json", secret_jwk()), **settings.pop("auth", {})}
    access = folder / "access.toml"
    access.write_text(ACCESS)
    config = BrokerConfig(
        memory=True,
        listen=settings.pop("listen", ("weft://127.0.0.1:0",)),
        auth=AuthConfig(**{"attempts": 1_000, **auth}),
        access=AccessConfig(access),
        **settings,
    )
    said = [] if lines is None else lines
    async with start(config, LogLines(level="debug", write=said.append)) as node:
        yield node


def hello(who: str = "ann", **fields: Any) -> Hello:
    return Hello(credentials=token(sub=who), **fields)


async def last_words(node: BrokerNode, data: bytes) -> list[object]:
    """What a stranger is told who sends these bytes, until it is closed."""
    wire = await connect(node.addresses[0], None)
    wire.transport.write(data)
    await wire.gone()
    return list(wire.messages)


def test_a_token_opens_the_door_and_the_rules_hold_behind_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with a_broker(tmp_path) as node:
            ann, bob = await connect(node.addresses[0], hello()), await connect(node.addresses[0], hello("bob"))
            ann.send(Subscribe(1, "x < 7"))
            failed = await ann.get(Failed)
            assert failed.reason == "no rule allows all of x < 7; the nearest rule is x < 5"
            ann.send(Subscribe(1, "x < 4"), Publish.of(1, {"x": 1}))
            await ann.delivered(1)
            bob.send(Publish.of(1, {"x": 1}))
            assert (await bob.get(Refused)).code == "access"

    run(body())


STRANGERS = {
    "nothing known": encode([Hello()]),
    "a token of another's": encode([Hello(credentials=token(edwards(), "EdDSA"))]),
    "an expired token": encode([Hello(credentials=token(exp=1))]),
    "a session that exists": encode([Hello(session="taken", credentials=b"x.y.z")]),
    "a session that does not": encode([Hello(session="free", credentials=b"x.y.z")]),
    "another version": encode([Hello(versions=(9, 9))]),
    "another schema": encode([Hello(fingerprint="abc")]),
    "a signed token that no parser expects": encode([Hello(credentials=token(jti="\ud800", once=True, iat=1 << 40))]),
    "another one": encode([Hello(credentials=token(cnf={"x5t#S256": "\ud800"}))]),
    "a subscription": encode([Subscribe(1, "x > 5")]),  # type: ignore[arg-type]
    "a question": encode([Ping(1)]),
    "more behind a bad hello": encode([Hello(), Subscribe(1, "x > 5"), Ping(1)]),  # type: ignore[arg-type]
    "an oversized frame": struct.pack(">I", MOST_HELLO + 1) + bytes(100),
    **{f"garbage {n}": data for n, data in enumerate(GARBAGE) if len(data) > 4 or data == b"\0\0\0\0"},
}


def test_every_stranger_gets_the_same_words(tmp_path: Path) -> None:
    async def body() -> None:
        lines: list[str] = []
        async with a_broker(tmp_path, lines) as node:
            await connect(node.addresses[0], hello(session="taken"))
            for name, data in STRANGERS.items():
                assert await last_words(node, data) == [REFUSED], name
            authenticator = node.authenticator
            assert authenticator is not None
            assert authenticator.counts["logins refused"] >= len(STRANGERS) - 2
            assert authenticator.counts["logins"] == 1
        assert any("login refused" in line for line in lines)
        everything = "\n".join(lines)
        assert SECRET.decode() not in everything
        assert "x.y.z" not in everything
        assert token().split(b".")[0].decode() not in everything

    run(body())


def test_what_follows_a_hello_is_read_only_when_it_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        async with a_broker(tmp_path) as node:
            wire = await connect(node.addresses[0], None)
            wire.send(hello(), Ping(7))  # in one read
            await wire.get(Welcome)
            await wire.get(Pong)
            read: list[int] = []
            from weft.protocol.codec import MessageReader

            feed = MessageReader.feed
            monkeypatch.setattr(MessageReader, "feed", lambda self, data: (read.append(len(data)), feed(self, data))[1])
            stranger = await connect(node.addresses[0], None)
            stranger.transport.write(encode([Hello(), Ping(7)]))
            await stranger.gone()
            assert all(isinstance(each, Bye) for each in stranger.messages)
            assert len(read) == 1, "the stranger itself has read, and the broker has not"

    run(body())


def test_an_address_that_keeps_failing_is_not_listened_to(tmp_path: Path) -> None:
    async def body() -> None:
        async with a_broker(tmp_path, auth={"attempts": 3, "first_wait": 3_600_000_000, "max_wait": 1 << 50}) as node:
            inside = await connect(node.addresses[0], hello())
            for _ in range(4):
                assert await last_words(node, encode([Hello(credentials=b"guess")])) == [REFUSED]
            assert await last_words(node, encode([hello()])) == [BUSY], "also with the right token"
            authenticator = node.authenticator
            assert authenticator is not None
            assert authenticator.counts["logins not tried"] == 1
            inside.send(Ping(1))
            await inside.get(Pong)

    run(body())


def test_a_flood_of_logins_writes_few_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "monotonic", lambda: 100.0)  # all at once

    async def body() -> None:
        lines: list[str] = []
        async with a_broker(tmp_path, lines) as node:
            for _ in range(100):
                await last_words(node, encode([Hello(credentials=b"guess")]))
            authenticator = node.authenticator
            assert authenticator is not None
            assert authenticator.counts["logins refused"] == 100
        assert sum("login refused" in line for line in lines) <= 25

    run(body())


def test_names_cannot_write_lines_of_their_own(tmp_path: Path) -> None:
    async def body() -> None:
        lines: list[str] = []
        async with a_broker(tmp_path, lines) as node:
            name = "eve\n2026-11-16T00:00:00.000Z info login principal=admin \x1b[2J"
            await last_words(node, encode([Hello(credentials=token(sub=name))]))
            wire = await connect(node.addresses[0], hello(session=name))
            wire.send(Subscribe(1, "x = '\n\x1b[2J'"))
            await wire.get(Failed)
            wire.transport.write(b"\0\0\0\1\n")
            await wire.gone()
        assert lines
        assert all(line.isprintable() for line in lines)
        assert not any(line.startswith("2026-11-16T00:00:00.000Z") for line in lines)

    run(body())


def test_a_login_ends_with_its_token(tmp_path: Path) -> None:
    from time import time

    async def body() -> None:
        async with a_broker(tmp_path, auth={"leeway": 0}) as node:
            wire = await connect(node.addresses[0], Hello(credentials=token(exp=int(time()) + 2)))
            await wire.gone()
            assert [each.code for each in wire.all(Bye)] == ["expired"]

    run(body())


def test_keys_and_rules_that_change_hold_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with a_broker(tmp_path) as node:
            ann = await connect(node.addresses[0], hello(session="ann"))
            ann.send(Subscribe(1, "x < 5"))
            await ann.get(Accepted)
            (tmp_path / "access.toml").write_text(ACCESS.replace("x < 5", "x < 3"))
            told = await ann.get(Revoked)  # by the task that watches the files
            assert "the nearest rule is x < 3" in told.reason
            ann.send(Publish.of(1, {"x": 1}), Ping(1))
            await ann.get(Pong)
            assert not ann.all(Deliver)
            write_keys(tmp_path / "keys.json", edwards_jwk(kid="new"))
            assert node.authenticator is not None
            assert node.authenticator.tokens is not None
            await ann.gone()
            assert [each.code for each in ann.all(Bye)] == ["expired"]
            assert await last_words(node, encode([hello()])) == [REFUSED]
            await connect(node.addresses[0], Hello(credentials=token(edwards(), "EdDSA", "new")))

    run(body())


# -- certificates ---------------------------------------------------------------------------------


class Authority:
    """An authority with a broker's certificate, and clients' ones."""

    def __init__(self, folder: Path, name: str) -> None:
        self.authority = trustme.CA()
        self.folder = folder / name
        self.folder.mkdir()
        self.pem = self.folder / "authority.pem"
        self.authority.cert_pem.write_to_path(str(self.pem))
        self.server = self.folder / "server.pem"
        self.authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(
            str(self.server)
        )

    def tls(self, **more: Any) -> TlsConfig:
        return TlsConfig(self.server, None, self.pem, **more)

    @staticmethod
    def trusting(authority: Path) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(authority))

    def client(self, name: str | None, trusts: Authority | None = None) -> ssl.SSLContext:
        context = self.trusting((trusts or self).pem)
        if name is not None:
            self.authority.issue_cert(f"{name}@example.org", common_name=name).configure_cert(context)
        return context


TLS = {"listen": ("weft+tls://127.0.0.1:0",)}


def test_a_certificate_says_who_a_client_is(tmp_path: Path) -> None:
    async def body() -> None:
        own = Authority(tmp_path, "own")
        async with a_broker(tmp_path, **TLS, tls=own.tls(), auth={"keys": None, "certificates": "cn"}) as node:
            ann = await connect(node.addresses[0], Hello(), own.client("ann"))
            ann.send(Subscribe(1, "x < 5"))
            await ann.get(Accepted)
            eve = await connect(node.addresses[0], Hello(), own.client("eve"))
            eve.send(Subscribe(1, "x < 5"))
            await eve.get(Failed)

    run(body())


def test_a_foreign_certificate_or_none_is_refused_by_tls(tmp_path: Path) -> None:
    async def body() -> None:
        own, foreign = Authority(tmp_path, "own"), Authority(tmp_path, "foreign")
        async with a_broker(tmp_path, **TLS, tls=own.tls(), auth={"keys": None, "certificates": "cn"}) as node:
            for context in (foreign.client("ann", own), own.client(None)):
                assert await unwelcome(node, context)
            with pytest.raises(ssl.SSLError):
                await connect(node.addresses[0], None, foreign.client("ann"))  # the client refuses the broker
            plain = Wire
            _, wire = await asyncio.get_running_loop().create_connection(plain, "127.0.0.1", node.addresses[0].port)
            wire.transport.write(encode([Hello()]))
            await wire.gone()
            assert not wire.messages
            await connect(node.addresses[0], Hello(), own.client("ann"))

    run(body())


async def unwelcome(node: BrokerNode, context: ssl.SSLContext) -> bool:
    """Whether nothing but an end comes of a connection; in TLS 1.3 the client notices after its own handshake."""
    try:
        wire = await connect(node.addresses[0], None, context)
    except (ssl.SSLError, ConnectionError):
        return True
    wire.send(Hello())
    await wire.gone()
    return not wire.messages


def test_a_token_may_come_without_a_certificate_where_that_is_allowed(tmp_path: Path) -> None:
    async def body() -> None:
        own = Authority(tmp_path, "own")
        async with a_broker(tmp_path, **TLS, tls=own.tls(required=False), auth={"certificates": "cn"}) as node:
            await connect(node.addresses[0], hello(), own.client(None))
            await connect(node.addresses[0], Hello(), own.client("ann"))
            wire = await connect(node.addresses[0], None, own.client(None))
            wire.send(Hello())
            await wire.gone()
            assert wire.messages == [REFUSED]

    run(body())


def test_a_stolen_token_that_is_bound_to_a_certificate_is_worthless(tmp_path: Path) -> None:
    from base64 import urlsafe_b64encode
    from hashlib import sha256

    async def body() -> None:
        own = Authority(tmp_path, "own")
        leaf = own.authority.issue_cert("ann@example.org", common_name="ann")
        mine = ssl.create_default_context(cafile=str(own.pem))
        leaf.configure_cert(mine)
        der = ssl.PEM_cert_to_DER_cert(leaf.cert_chain_pems[0].bytes().decode())
        bound = token(cnf={"x5t#S256": urlsafe_b64encode(sha256(der).digest()).rstrip(b"=").decode()})
        async with a_broker(tmp_path, **TLS, tls=own.tls()) as node:
            await connect(node.addresses[0], Hello(credentials=bound), mine)
            thief = await connect(node.addresses[0], None, own.client("eve"))
            thief.send(Hello(credentials=bound))
            await thief.gone()
            assert thief.messages == [REFUSED]

    run(body())


# -- safe by default ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"listen": ("weft://0.0.0.0:1",)}, "plain text"),
        ({"listen": ("weft://0.0.0.0:1",), "plain_text": True}, "let everybody in"),
        ({"auth": AuthConfig(certificates="cn")}, "tls.authority"),
    ],
)
def test_a_broker_that_others_could_reach_unprotected_does_not_start(settings: dict[str, Any], said: str) -> None:
    from weft.errors import OptionError

    with pytest.raises(OptionError, match=said):
        BrokerConfig(**settings)


def test_whoever_wants_an_open_door_says_so() -> None:
    BrokerConfig(listen=("weft://0.0.0.0:1",), plain_text=True, auth=AuthConfig(anonymous=True))
    from weft.errors import OptionError

    with pytest.raises(OptionError, match="anonymous"):
        AuthConfig(keys=Path("keys"), anonymous=True)
    with pytest.raises(OptionError, match=r"auth\.keys"):
        AuthConfig(audience="north")
