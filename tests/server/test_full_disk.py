"""A disk that is really full: a small file system of its own, in a mount namespace that ends with the test.

Publishers get errors, whoever reads goes on, nothing that was confirmed is lost, whether the broker goes on or is
killed, and events are taken again as soon as there is room.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from server.broker_program import BrokerProgram
from server.wire import Wire, connect, run
from weft.protocol.messages import (
    Accepted,
    Ack,
    Deliver,
    Failed,
    Hello,
    NewEpoch,
    Ping,
    Pong,
    Publish,
    Published,
    Refused,
    Subscribe,
    Welcome,
)

BALLAST = 3 << 20  # bytes
# the first is full before the log has moved anything from its WAL to its database; the second when it moves things
SIZES = 8 << 20, 22 << 20
_MOUNT = 'mount -t tmpfs -o size="$2" tmpfs "$1" && head -c "$3" /dev/zero > "$1/ballast" && echo ready && exec cat'


class SmallDisk:
    """A file system of a few megabytes, that only processes started with `inside` see."""

    def __init__(self, place: Path, size: int) -> None:
        self.place, self.size = place, size
        command = ["unshare", "-rm", "sh", "-c", _MOUNT, "sh", str(place), str(size), str(BALLAST)]
        self._keeper = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
        )
        assert self._keeper.stdout is not None
        self.works = self._keeper.stdout.readline() == "ready\n"

    @property
    def inside(self) -> list[str]:
        return ["nsenter", "-t", str(self._keeper.pid), "-U", "-m", "--preserve-credentials", "--"]

    def make_room(self) -> None:
        os.unlink(f"/proc/{self._keeper.pid}/root{self.place}/ballast")

    def close(self) -> str:
        """Unmount; what was said."""
        _, said = self._keeper.communicate()
        return said.strip()


@pytest.fixture(params=SIZES, ids=["8 MiB", "22 MiB"])
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        pytest.skip("a full disk needs unshare and nsenter (util-linux)")
    small = SmallDisk(tmp_path, request.param)
    if not small.works:
        pytest.skip(f"a full disk needs a mount namespace, which this machine refuses: {small.close()}")
    try:
        yield small
    finally:
        small.close()


class Publisher:
    """One event at a time, each with a value of its own; begins anew after a refusal."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.confirmed: list[int] = []
        self.value = self.sequence = 0
        self.epoch = wire.all(Welcome)[0].pub_epoch

    async def publish(self) -> bool:
        """Whether it was confirmed; otherwise the broker has said that its disk is full."""
        self.value += 1
        self.sequence += 1
        self.wire.messages.clear()
        self.wire.send(Publish.of(self.sequence, {"value": self.value}, os.urandom(20_000)))
        await self.wire.until(lambda: self.wire.all(Published) or self.wire.all(Refused))
        if self.wire.all(Published):
            self.confirmed.append(self.value)
            return True
        (refused,) = self.wire.all(Refused)
        assert refused.code == "full"
        assert "full" in refused.reason
        self.epoch, self.sequence = self.epoch + 1, 0
        self.wire.send(NewEpoch(self.epoch))
        return False


class Reader:
    """A durable subscription to everything; it acknowledges as it reads."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.values: list[int] = []

    @classmethod
    async def of(cls, broker: BrokerProgram) -> Reader:
        reader = cls(await connect(broker.address, Hello(session="reader")))
        reader.wire.send(Subscribe(1, "TRUE"))
        await reader.wire.until(lambda: reader.wire.all(Accepted) or reader.wire.all(Failed))  # it exists already
        return reader

    async def read(self, number: int) -> list[int]:
        """So many values in all."""
        wire = self.wire
        while len(self.values) < number:
            await wire.until(lambda: wire.all(Deliver))
            events = wire.all(Deliver)
            wire.messages = [each for each in wire.messages if not isinstance(each, Deliver)]
            self.values += [msgspec.msgpack.decode(event.head)[0]["value"] for event in events]
            wire.send(Ack(0, events[-1].offset + 1))
        return self.values


async def _fill(broker: BrokerProgram, disk: SmallDisk) -> Publisher:
    """Publish until the disk is full."""
    publisher = Publisher(await connect(broker.address, Hello(session="writer")))
    while await publisher.publish():
        assert len(publisher.confirmed) < disk.size // 20_000, "the disk is not small"
    assert len(publisher.confirmed) > 50
    return publisher


def test_a_full_disk_refuses_events_loses_nothing_and_is_used_again_when_there_is_room(disk: SmallDisk) -> None:
    async def body() -> None:
        with BrokerProgram(disk.place / "log", prefix=disk.inside) as broker:
            reader = await Reader.of(broker)
            publisher = await _fill(broker, disk)
            assert await reader.read(len(publisher.confirmed)) == publisher.confirmed
            for _ in range(3):
                assert not await publisher.publish()  # it stays full
            reader.wire.send(Ping(1))
            await reader.wire.get(Pong)
            disk.make_room()
            for _ in range(30):
                assert await publisher.publish()
            assert await reader.read(len(publisher.confirmed)) == publisher.confirmed
            assert broker.stop() == 0
        assert any(" log full " in line for line in broker.lines)

    run(body())


@pytest.mark.parametrize(
    ("disk", "number"),
    [
        (SIZES[0], signal.SIGKILL),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in ((SIZES[1], signal.SIGKILL), *((size, signal.SIGTERM) for size in SIZES))
        ),
    ],
    indirect=["disk"],
)
def test_a_broker_that_ends_on_a_full_disk_has_everything_that_was_confirmed(
    disk: SmallDisk, number: signal.Signals
) -> None:
    async def body() -> None:
        with BrokerProgram(disk.place / "log", prefix=disk.inside) as broker:
            await Reader.of(broker)
            publisher = await _fill(broker, disk)
            assert broker.kill(number) == (0 if number == signal.SIGTERM else -number)
            disk.make_room()
            broker.start()
            reader = await Reader.of(broker)
            assert await reader.read(len(publisher.confirmed)) == publisher.confirmed
            again = Publisher(await connect(broker.address, Hello(session="other")))
            again.value = publisher.value
            for _ in range(10):
                assert await again.publish()
            expected = publisher.confirmed + again.confirmed
            assert await reader.read(len(expected)) == expected

    run(body())
