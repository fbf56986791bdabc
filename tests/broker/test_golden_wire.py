"""Frames and logs that were recorded with an earlier release are read and written byte for byte."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from broker.golden_wire import opened, record
from broker.transcript import Broker, by_connection, comparable, decode, steps
from weft.log.base import Log
from weft.log.schema import DATABASE
from weft.protocol.codec import encode
from weft.protocol.link_messages import LinkAhead, LinkMessage
from weft.protocol.messages import BrokerMessage, ClientMessage

GOLDEN = Path(__file__).parent.parent / "golden"
FILES = sorted((GOLDEN / "wire").glob("*.txt"))
ON_DISK = ("linked-a", "restored-a")  # whose broker has the golden log, before and after a restart

REPLACED = 4  # the consumer id of a subscription whose filter is replaced

every_transcript = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def frames_of(path: Path) -> Iterator[tuple[str, bytes]]:
    for line in path.read_text().splitlines():
        if line.startswith(("in ", "and ", "out ")):
            kind, _, frame, *_ = line.split()
            yield kind, bytes.fromhex(frame)


def tag_of(message: Any) -> int:
    tag = message.__struct_config__.tag
    assert isinstance(tag, int)
    return tag


def plain(value: Any) -> Any:
    """A decoded value as MessagePack has it: structs and tuples are lists or maps, and nothing stays encoded."""
    if isinstance(value, msgspec.Raw):
        return msgspec.msgpack.decode(value)
    if isinstance(value, msgspec.Struct):
        config, fields = (
            value.__struct_config__,
            {name: plain(getattr(value, name)) for name in value.__struct_fields__},
        )
        if not config.array_like:
            return {config.tag_field: config.tag, **fields}
        return [*fields.values()] if config.tag is None else [config.tag, *fields.values()]
    if isinstance(value, tuple | list):
        return [*map(plain, value)]
    return value


def rows(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that a database holds, by table."""
    connection = sqlite3.connect(path)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name in names}
    connection.close()
    return found


def replay(path: Path, log: Log | None = None) -> int:
    """Do again what was recorded, and compare what is sent; the number of frames that were sent."""
    first, *others = steps(path.read_text().splitlines())
    broker = Broker(first.done[0].removeprefix("broker "), log)
    sent = 0
    for step in others:
        outcome = broker.perform(step.done)
        assert by_connection(outcome) == by_connection(step.outcome), step.done
        sent += sum(line.startswith("out ") for line in outcome)
    return sent


@every_transcript
def test_each_frame_has_the_message_that_it_had_and_the_message_has_the_same_frame(path: Path) -> None:
    found = [*frames_of(path)]
    assert found
    for kind, frame in found:
        message = decode(kind, frame)
        assert plain(message) == msgspec.msgpack.decode(frame[4:])
        assert encode([message]) == frame


@every_transcript
def test_a_broker_that_is_sent_the_same_frames_sends_the_same_frames(path: Path, tmp_path: Path) -> None:
    log = None
    if path.stem in ON_DISK:
        if path.stem == "restored-a":
            shutil.copy(GOLDEN / "broker_log" / DATABASE, tmp_path)
        log = opened(tmp_path)
    assert replay(path, log) == sum(kind == "out" for kind, _ in frames_of(path)) > 0
    if log is not None:
        log.close()
    if path.stem == "linked-a":
        found, golden = rows(tmp_path / DATABASE), rows(GOLDEN / "broker_log" / DATABASE)
        for each in (found, golden):  # a filter was replaced: the log now has since when it holds
            each["sub"] = [row[:5] if row[0] == REPLACED else row for row in each["sub"]]
        for added in ("move", "profile", "shown"):
            assert found.pop(added) == [], "which format 1 did not have"
        found["link"] = [(*row[:4], *row[-1:]) for row in found["link"]]  # without the lane
        found["heard"] = [(*row[:3], *row[4:]) for row in found["heard"]]  # without the table
        for each in (found, golden):  # the checksums of these cover more now
            each["link"], each["heard"] = ([row[:-1] for row in each[name]] for name in ("link", "heard"))
        assert found == golden, "the log is stored as it was"


def test_there_is_a_frame_of_every_type() -> None:
    found = {(kind == "out", tag_of(decode(kind, frame))) for path in FILES for kind, frame in frames_of(path)}
    incoming = {tag_of(each) for each in (*get_args(ClientMessage), *get_args(LinkMessage))}
    outgoing = {tag_of(each) for each in (*get_args(BrokerMessage), *get_args(LinkMessage))} - {tag_of(LinkAhead)}
    assert found == {(False, tag) for tag in incoming} | {(True, tag) for tag in outgoing}, (
        "a broker sends no LinkAhead"
    )


def test_the_golden_log_has_rows_of_every_kind() -> None:
    assert all(rows(GOLDEN / "broker_log" / DATABASE).values())


def test_the_scenarios_are_those_that_were_recorded(tmp_path: Path) -> None:
    record(tmp_path)
    recorded, before = (
        {path.name: [*map(comparable, path.read_text().splitlines())] for path in paths}
        for paths in ((tmp_path / "wire").iterdir(), FILES)
    )
    assert recorded == before
