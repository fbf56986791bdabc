"""Brokers that are linked say to each other who they are, and others cannot be one of them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from server.jwk import secret_jwk, token, write_keys
from server.test_security import Authority
from server.wire import connect, run, until
from weft.broker.sessions import REFUSED
from weft.protocol.codec import encode
from weft.protocol.link_messages import LinkHello
from weft.protocol.messages import Bye, Complete, Hello, Publish, Subscribe
from weft.server.config import AccessConfig, AuthConfig, BrokerConfig, LinkConfig
from weft.server.node import BrokerNode
from weft.server.serve import start

RULES = """
[[rule]]
for = ["north", "south"]
rights = ["link"]

[[rule]]
for = "ann"
subscribe = true
publish = true
"""


def config(folder: Path, name: str, links: dict[str, LinkConfig], **more: Any) -> BrokerConfig:
    access = folder / "access.toml"
    access.write_text(RULES)
    keys = write_keys(folder / "keys.json", secret_jwk())
    auth = AuthConfig(**{"keys": keys, "attempts": 1_000, "first_wait": 1_000, **more.pop("auth", {})})
    listen = more.pop("listen", ("weft://127.0.0.1:0",))
    return BrokerConfig(
        name=name, memory=True, listen=listen, links=links, auth=auth, access=AccessConfig(access), **more
    )


def token_file(folder: Path, name: str, **claims: Any) -> Path:
    file = folder / f"{name}.token"
    file.write_bytes(token(sub=name, **claims) + b"\n")
    return file


def linked(*nodes: BrokerNode) -> bool:
    return all(link.connected for node in nodes for link in node.core.links())


def test_two_brokers_show_each_other_their_tokens(tmp_path: Path) -> None:
    async def body() -> None:
        async with AsyncExitStack() as stack:
            south_links = {"north": LinkConfig(token=token_file(tmp_path, "south"))}
            south = await stack.enter_async_context(start(config(tmp_path, "south", south_links)))
            north_links = {"south": LinkConfig(str(south.addresses[0]), token=token_file(tmp_path, "north"))}
            north = await stack.enter_async_context(start(config(tmp_path, "north", north_links)))
            await until(lambda: linked(north, south))
            ann = Hello(session="ann", credentials=token())
            reader, writer = await connect(north.addresses[0], ann), await connect(south.addresses[0], ann)
            reader.send(Subscribe(1, "x > 5"))
            await reader.get(Complete)
            writer.send(Publish.of(1, {"x": 6}))
            await reader.delivered(1)
            (tmp_path / "access.toml").write_text(RULES.replace('"north", "south"', '"south"'))
            await until(lambda: not linked(south))
            writer.send(Publish.of(2, {"x": 7}))
            await writer.published(2)
            (tmp_path / "access.toml").write_text(RULES)
            await reader.delivered(2)  # nothing is lost when the link is allowed again

    run(body())


def test_a_broker_that_answers_without_a_token_is_not_trusted(tmp_path: Path) -> None:
    async def body() -> None:
        async with AsyncExitStack() as stack:
            south = await stack.enter_async_context(start(config(tmp_path, "south", {"north": LinkConfig()})))
            north_links = {"south": LinkConfig(str(south.addresses[0]), token=token_file(tmp_path, "north"))}
            north = await stack.enter_async_context(start(config(tmp_path, "north", north_links)))
            gate = north.authenticator
            assert gate is not None
            await until(lambda: gate.counts["logins refused"] > 0)
            assert not linked(north)

    run(body())


def test_nobody_links_under_another_name(tmp_path: Path) -> None:
    async def body() -> None:
        async with start(config(tmp_path, "south", {"north": LinkConfig()})) as south:
            reasons = {}
            for who in ("", "ann", "south", "north"):
                wire = await connect(south.addresses[0], None)
                credentials = token(sub=who) if who else b""
                wire.transport.write(encode([LinkHello(name="north", to="south", credentials=credentials)]))
                await wire.gone()
                (bye,) = wire.all(Bye)
                reasons[who] = bye
            assert reasons[""] == REFUSED
            assert "'link'" in reasons["ann"].reason, "ann has no right to link"
            assert reasons["south"].reason == "south cannot link as north"
            assert "cannot link" not in reasons["north"].reason, "north gets as far as its schema"
            assert south.core.links()[0].connected is False

    run(body())


def test_a_stranger_does_not_learn_who_the_neighbours_are(tmp_path: Path) -> None:
    async def body() -> None:
        async with start(config(tmp_path, "south", {"north": LinkConfig()})) as south:
            for hello in (
                LinkHello(name="north"),
                LinkHello(name="elsewhere"),
                LinkHello(name="north", versions=(9, 9)),
            ):
                wire = await connect(south.addresses[0], None)
                wire.transport.write(encode([hello]))
                await wire.gone()
                assert wire.messages == [REFUSED]
            assert south.core.links()[0].reason == ""

    run(body())


def test_brokers_are_linked_by_their_certificates(tmp_path: Path) -> None:
    async def body() -> None:
        async with AsyncExitStack() as stack:
            own = Authority(tmp_path, "own")
            more = {"listen": ("weft+tls://127.0.0.1:0",), "auth": {"keys": None, "certificates": "cn"}}
            for name in ("south", "north"):
                pem = own.folder / f"{name}.pem"
                leaf = own.authority.issue_cert("127.0.0.1", common_name=name)
                leaf.private_key_and_cert_chain_pem.write_to_path(str(pem))
            from weft.server.config import TlsConfig

            tls = {name: TlsConfig(own.folder / f"{name}.pem", None, own.pem) for name in ("south", "north")}
            south = await stack.enter_async_context(
                start(config(tmp_path, "south", {"north": LinkConfig()}, tls=tls["south"], **more))
            )
            links = {"south": LinkConfig(str(south.addresses[0]))}
            north = await stack.enter_async_context(start(config(tmp_path, "north", links, tls=tls["north"], **more)))
            await until(lambda: linked(north, south))

    run(body())
