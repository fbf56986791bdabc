"""The guard of every HTTP door: slow, huge, compressed and ambiguous requests are refused, counted, and end alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from weft.server.http import guarded, http_serving


async def echo(scope, receive, send):
    """Answers with the length of the body."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    body = f"{scope['path']} {size}".encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]}
    )
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def served(**limits):
    refused = Counter()
    async with http_serving(echo, "127.0.0.1", 0, refused, http=guarded(refused, **limits)) as place:
        yield place, refused


async def exchange(place, *parts: bytes, until_closed: bool = True) -> bytes:
    """What the server answers to these parts, until it closes the connection."""
    reader, writer = await asyncio.open_connection(*place)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        return await asyncio.wait_for(reader.read() if until_closed else reader.readuntil(b"0"), 60)
    except ConnectionError:
        return b""
    finally:
        writer.close()


HEAD = b"POST /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    ("request_", "body"),
    [
        (HEAD + b"Content-Length: 3\r\n\r\nabc", b"/x 3"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", b"/x 3"),
        (HEAD + b"\r\n", b"/x 0"),
        (b"GET /y HTTP/1.1\r\nHost: a\r\n\r\n" + HEAD + b"\r\n", b"/x 0"),
    ],
)
def test_an_ordinary_request_is_answered_whole_or_byte_by_byte(request_, body):
    async def main():
        async with served() as (place, refused):
            whole = await exchange(place, request_)
            assert whole.endswith(body)
            assert await exchange(place, *(request_[at : at + 1] for at in range(len(request_)))) == whole
            assert not refused

    asyncio.run(main())


AMBIGUOUS = [
    b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /secret HTTP/1.1\r\nHost: a\r\n\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    b"Content-Length: +3\r\n\r\nabc",
    b"Content-Length: 3, 3\r\n\r\nabc",
    b"Content-Length : 3\r\n\r\nabc",
    b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: identity\r\n\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    b"Host: b\r\n\r\n",
    b"X: a\r\n folded\r\nHost: b\r\n\r\n",
    b"X: a\nHost: b\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n3;x=\n\r\nabc\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    b"X: a\x00b\r\n\r\n",
]


@pytest.mark.parametrize("rest", AMBIGUOUS)
def test_a_request_that_two_servers_could_read_differently_is_refused(rest):
    async def main():
        async with served() as (place, refused):
            answer = await exchange(place, HEAD + rest)
            assert b"secret" not in answer
            assert answer.count(b"HTTP/1.1 ") == 1
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert refused.total() == 1

    asyncio.run(main())


def test_garbage_and_missing_hosts_are_refused():
    async def main():
        async with served(header_time=0.5) as (place, refused):
            for garbage in (
                b"\x16\x03\x01\x02\x00",
                b"GET / HTTP/1.1\r\n\r\n",
                b"GET /\r\n\r\n",
                b"PRI * HTTP/2.0\r\n\r\n",
            ):
                answer = await exchange(place, garbage)
                assert b" 200 " not in answer
            assert refused.total() == 4

    asyncio.run(main())


@pytest.mark.parametrize(
    "flood",
    [
        b"GET /" + b"a" * 40_000,
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40_000,
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 8_000,
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 33_000 + b"\r\n\r\n",
    ],
)
def test_headers_have_a_size(flood):
    async def main():
        async with served() as (place, refused):
            assert (await exchange(place, flood)).startswith(b"HTTP/1.1 431 ")
            assert refused == {"headers too large": 1}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("begun", "reason"),
    [
        (b"", "slow headers"),
        (b"GET / HTTP/1.1\r\nHo", "slow headers"),
        (HEAD + b"Content-Length: 3\r\n\r\na", "slow body"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\na", "slow body"),
        (b"GET /y HTTP/1.1\r\nHost: a\r\n\r\nGET", "slow headers"),
    ],
)
def test_a_request_that_does_not_end_is_refused(begun, reason):
    async def main():
        async with served(header_time=0.05, body_time=0.05) as (place, refused):
            await exchange(place, begun)
            assert refused == {reason: 1}

    asyncio.run(main())


def test_a_slow_request_does_not_end_those_of_others():
    async def main():
        async with served(header_time=0.05) as (place, refused):
            slow = asyncio.create_task(exchange(place, b"GET / HTT"))
            await exchange(place, HEAD + b"\r\n")
            await slow
            assert (await exchange(place, HEAD + b"\r\n")).endswith(b"/x 0")
            assert refused == {"slow headers": 1}

    asyncio.run(main())


def test_connections_have_a_number():
    async def main():
        async with served(connections=2) as (place, refused):
            held = [await asyncio.open_connection(*place) for _ in range(2)]
            for _, writer in held:  # both are there when they are answered
                writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            for reader, _ in held:
                await reader.readuntil(b"/ 0")
            assert (await exchange(place, b"")).startswith(b"HTTP/1.1 503 ")
            assert refused == {"too many connections": 1}
            for _, writer in held:
                writer.close()

    asyncio.run(main())
