"""The options of a node of a ring, from texts. Law: a wrong one is an error before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from weft.errors import OptionError, RingError
from weft.model.value import parse_timestamp
from weft.net.addresses import Address
from weft.net.ring_config import RingConfig
from weft.ring.intervals import Intervals
from weft.ring.topics import SuperTopics


def ring_config(  # noqa: PLR0913 - a node of a ring has its options
    listen: str,
    join: Sequence[str],
    intervals: Sequence[str],
    replicas: int,
    key: Path | None,
    *,
    topic: str = "",
    depth: int = 4,
    rotate: float | None = None,
    merge: str | None = None,
    keep: float = 3600.0,
) -> RingConfig:
    """The settings of a node of a ring, from texts. Raises OptionError and RingError."""
    return RingConfig(
        Address.parse(listen),
        tuple(join),
        tuple(map(_interval, intervals)),
        replicas,
        read_key(key),
        topic,
        depth,
        rotate,
        None if merge is None else _merging(merge),
        keep,
    )


def _merging(text: str) -> SuperTopics:
    equal, _, unequal = text.partition(":")
    if not (equal.isdecimal() and unequal.isdecimal()):
        raise OptionError(f"groups are merged by two numbers of members, EQUAL:UNEQUAL, not {text!r}")
    return SuperTopics(int(equal), int(unequal))


def _interval(text: str) -> Intervals:
    name, _, rest = text.rpartition("=")
    bounds, _, count = rest.rpartition(":")
    try:
        if ".." in bounds:
            first, last = (parse_timestamp(each) for each in bounds.split(".."))
            return Intervals(name, first, last, int(count), timestamps=True)
        low, high = map(float, bounds.split(":"))
        number = int(count)
    except ValueError as error:
        if isinstance(error, RingError):
            raise
        raise OptionError(
            f"{text!r} is not an interval; write NAME=LOW:HIGH:COUNT, such as price=0:1000:50, "
            "or for timestamps NAME=FIRST..LAST:COUNT, such as time=2026-01-01..2027-01-01:365"
        ) from None
    return Intervals(name, low, high, number)


def read_key(file: Path | None) -> bytes:
    """The key of a ring; empty without a file. Raises OptionError."""
    if file is None:
        return b""
    try:
        key = file.read_bytes().strip()
    except OSError as error:
        raise OptionError(f"{file} cannot be read: {error.strerror}") from error
    if len(key) < 16:
        raise OptionError(f"{file} has {len(key)} bytes; the key of a ring has 16 or more")
    return key
