"""`weft serve` as a real process with TLS, tokens and access rules."""

from __future__ import annotations

from pathlib import Path
from time import time

import pytest

from server.broker_program import BrokerProgram
from server.test_security import Authority
from server.wire import Wire, connect, run
from weft.broker.sessions import REFUSED
from weft.errors import OptionError
from weft.protocol.codec import encode
from weft.protocol.messages import Accepted, Ack, Bye, Failed, Hello, Publish, Revoked, Subscribe, Welcome
from weft.server.config import load_config
from weft.server.security.tokens import add_public, new_key, sign, write_private
from weft.server.serve import check_files

ACCESS = """
[[rule]]
for = "ann"
subscribe = "x < 5"

[[rule]]
for = "feed"
publish = true
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    own = Authority(tmp_path, "own")
    private, public = new_key("EdDSA")
    write_private(tmp_path / "signing.jwk", private)
    add_public(tmp_path / "keys.json", public)
    (tmp_path / "access.toml").write_text(ACCESS)
    (tmp_path / "weft.toml").write_text(
        f'[tls]\ncertificate = "{own.server}"\n'
        '[auth]\nkeys = "keys.json"\naudience = "test"\nattempts = 100\n'
        '[access]\nrules = "access.toml"\n'
    )
    return tmp_path


def test_a_protected_broker_as_a_process(folder: Path) -> None:
    def hello(who: str, session: str = "", audience: str = "test") -> Hello:
        claims = {"sub": who, "aud": audience, "exp": int(time()) + 600}
        return Hello(session=session, credentials=sign(folder / "signing.jwk", claims).encode())

    tls = Authority.trusting(folder / "own" / "authority.pem")
    ann, feed, foreign = hello("ann", "ann"), hello("feed", "feed"), hello("ann", audience="elsewhere")

    async def first(broker: BrokerProgram) -> None:
        reader = await connect(broker.address, ann, tls)
        reader.send(Subscribe(1, "x < 9"))
        assert (await reader.get(Failed)).reason.endswith("the nearest rule is x < 5")
        reader.send(Subscribe(1, "x < 5"), Subscribe(2, "x < 2", queue=1))
        await reader.get(Accepted, 2)
        writer = await connect(broker.address, feed, tls)
        writer.send(*(Publish.of(n, {"x": n}) for n in range(1, 9)))
        await writer.published(8)
        assert sorted(event.offset for event in await reader.delivered(5)) == [1, 1, 2, 3, 4]
        reader.send(Ack(1, 2))
        for stranger in (Hello(), foreign, Hello(credentials=b"guess")):
            refused = await connect(broker.address, None, tls)
            refused.send(stranger)
            await refused.gone()
            assert refused.messages == [REFUSED]
        (folder / "new.toml").write_text(ACCESS.replace("x < 5", "x < 3"))
        (folder / "new.toml").replace(folder / "access.toml")  # at once: the other process never sees half of it
        assert (await reader.get(Revoked)).number == 1
        (folder / "access.toml").write_text("this is broken")

    async def second(broker: BrokerProgram) -> None:
        reader: Wire = await connect(broker.address, ann, tls)
        assert reader.all(Welcome)[0].subscriptions == (2,)
        writer = await connect(broker.address, Hello(session="feed2", credentials=feed.credentials), tls)
        writer.send(Publish.of(1, {"x": 1}))
        (event,) = await reader.delivered(1)
        assert event.numbers == [2]
        garbage = await connect(broker.address, None, tls)
        garbage.transport.write(encode([Hello(session="s" * 30_000)]))
        await garbage.gone()
        assert garbage.all(Bye) == [REFUSED]

    with BrokerProgram(
        folder / "data", "--config", str(folder / "weft.toml"), listen="weft+tls://127.0.0.1:0"
    ) as broker:
        run(first(broker))
        broker.kill()
        with pytest.raises(OptionError, match="not valid TOML"):
            check_files(load_config(folder / "weft.toml").config)
        (folder / "access.toml").write_text(ACCESS.replace("x < 5", "x < 3"))
        broker.start()
        run(second(broker))
        broker.stop()
    everything = "\n".join(broker.lines)
    assert "login refused" in everything
    for secret in (ann.credentials, foreign.credentials):
        assert secret.decode()[:40] not in everything
