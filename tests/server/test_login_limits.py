"""Failed log-ins, certificates' names, and the first frame of a connection."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from weft.errors import AccessError, RemoteProtocolError
from weft.protocol.codec import encode
from weft.protocol.link_messages import LinkHello
from weft.protocol.messages import Hello, Ping, Publish, Subscribe
from weft.server.reads import MOST_HELLO, FirstFrame
from weft.server.security.authenticator import LoginLimits, principal_of

SECOND = 1_000_000


def test_each_failure_doubles_the_wait_up_to_a_bound() -> None:
    limits = LoginLimits(free=2, first=SECOND, longest=8 * SECOND)
    now, waits = 0, []
    for _ in range(8):
        limits.failed("10.0.0.1", now)
        begin = now
        while not limits.may_try("10.0.0.1", now):
            now += SECOND
        waits.append((now - begin) // SECOND)
    assert waits == [0, 0, 1, 2, 4, 8, 8, 8]


def test_a_success_and_a_long_silence_forgive() -> None:
    limits = LoginLimits(free=0, longest=10 * SECOND)
    for _ in range(9):
        limits.failed("10.0.0.1", 0)
    assert not limits.may_try("10.0.0.1", 9 * SECOND)
    limits.failed("10.0.0.1", 21 * SECOND)
    assert limits.may_try("10.0.0.1", 22 * SECOND)
    limits.failed("10.0.0.1", 22 * SECOND)
    limits.succeeded("10.0.0.1")
    assert limits.may_try("10.0.0.1", 22 * SECOND)
    assert len(limits) == 0


def test_nobody_else_waits() -> None:
    limits = LoginLimits(free=0)
    limits.failed("10.0.0.1", 0)
    limits.failed("2001:db8:0:1::5", 0)
    assert not limits.may_try("::ffff:10.0.0.1", 1)
    assert not limits.may_try("2001:db8:0:1::6", 1)
    assert limits.may_try("10.0.0.2", 1)
    assert limits.may_try("2001:db8:0:2::5", 1)
    assert limits.may_try("", 1)


def test_a_flood_from_everywhere_takes_bounded_memory() -> None:
    limits = LoginLimits(free=0, most=100)
    for n in range(10_000):
        limits.failed(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", n)
    assert len(limits) == 100


# -- certificates ---------------------------------------------------------------------------------

CERTIFICATE: dict[str, Any] = {
    "subject": ((("organizationName", "Weft"),), (("commonName", "ann"),)),
    "subjectAltName": (("DNS", "ann.example"), ("DNS", "bob.example"), ("email", "ann@example"), ("URI", "urn:*")),
}


def test_a_certificate_has_one_name() -> None:
    assert principal_of(CERTIFICATE, "cn") == "ann"
    assert principal_of(CERTIFICATE, "email") == "ann@example"
    for kind in ("dns", "uri"):  # two names, and one with a star
        with pytest.raises(AccessError):
            principal_of(CERTIFICATE, kind)  # type: ignore[arg-type]
    with pytest.raises(AccessError, match="no certificate"):
        principal_of(None, "cn")
    with pytest.raises(AccessError):
        principal_of({"subject": ((("commonName", "ann\nbob"),),)}, "cn")
    with pytest.raises(AccessError):
        principal_of({"subject": ((("commonName", "ann"), ("commonName", "bob")),)}, "cn")


# -- the first frame ------------------------------------------------------------------------------


@pytest.mark.parametrize("hello", [Hello(session="s", credentials=b"x" * 9_000), LinkHello(name="north")])
def test_a_hello_is_read_however_it_is_cut(hello: Hello | LinkHello) -> None:
    data = encode([hello, Ping(1)])
    first = FirstFrame(links=True)
    assert first.feed(data) == hello
    assert first.rest == encode([Ping(1)])
    cut = FirstFrame(links=True)
    found = [cut.feed(data[n : n + 1]) for n in range(len(encode([hello])))]
    assert found[-1] == hello
    assert not any(found[:-1])


@pytest.mark.parametrize(
    "data",
    [
        encode([Ping(1)]),
        encode([Subscribe(1, "x > 5")]),  # type: ignore[arg-type]
        encode([Publish.of(1, {"x": 1})]),
        encode([Hello(session="s" * MOST_HELLO)])[:8],
        struct.pack(">I", 1 << 31),
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 5) + b"\xdd\xff\xff\xff\xff",
        struct.pack(">I", 3_000) + b"\x91" * 3_000,
    ],
)
def test_anything_else_is_refused_and_its_length_too(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="begins with a hello"):
        FirstFrame().feed(data)


def test_only_a_broker_with_neighbours_reads_the_hello_of_a_broker() -> None:
    data = encode([LinkHello(name="north", settings="s" * 100_000)])
    found = FirstFrame(links=True).feed(data)
    assert isinstance(found, LinkHello)
    cut = FirstFrame(links=True)
    assert [cut.feed(data[n : n + 1]) for n in range(9)] == [None] * 9
    large, endless = encode([Hello(session="s" * 20_000)]), struct.pack(">I", 1 << 30) + b"\x9d\x40"
    for refused, links in ((data, False), (large, True), (endless, True), (encode([LinkHello()]), False)):
        with pytest.raises(RemoteProtocolError):
            FirstFrame(links=links).feed(refused)


def test_a_first_frame_is_never_collected_beyond_its_bound() -> None:
    first = FirstFrame(most=100)
    assert first.feed(struct.pack(">I", 100) + bytes(99)) is None
    with pytest.raises(RemoteProtocolError):
        FirstFrame(most=100).feed(struct.pack(">I", 101))
