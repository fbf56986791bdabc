"""A running broker as a table, and as a sink, without Spark: the same rows for the same offsets, each event once."""

from __future__ import annotations

import threading

import msgspec
import pyarrow as pa
import pytest

from server.jwk import secret_jwk, token, write_keys
from weft.broker import history
from weft.errors import AccessError, BrokerError, EventError, PipelineError
from weft.server.config import AccessConfig, AuthConfig, BrokerConfig
from weft.spark.broker_log import BrokerLog
from weft.spark.broker_target import BrokerTarget, events_of_rows, in_order
from weft.spark.log_columns import LogColumns
from weft.spark.log_source import LogFile, WeftSource
from weft.testing import broker

ROWS = pa.record_batch({"n": [1, 2, 3], "x": [1.5, None, 3.0], "_payload": [b"a", None, b"c"], "_offset": [7, 8, 9]})


def read(log, first, end):
    return [(event.offset, event.head, event.payload) for event in log.read_all(first, end)]


def test_a_live_log_has_the_rows_of_its_file(tmp_path):
    with broker(tmp_path / "data") as local:
        with local.connect_sync() as client:
            client.publish_many({"n": n, "s": f"s{n}"} for n in range(50))
        live, file = BrokerLog(BrokerTarget(local.address, "test")), LogFile(str(tmp_path / "data"))
        assert live.position() == file.position()
        _, first, end = live.position()
        assert end - first == 50
        assert read(live, first, end) == read(file, first, end)
        assert read(live, first + 10, first + 13) == read(file, first + 10, first + 13)
        assert read(live, end, end) == []
        assert WeftSource({"url": local.address}).schema().startswith("`n` bigint, `s` string, `_offset` bigint")
        assert live.position() == file.position()  # reading changes nothing


def test_reading_is_not_a_subscription(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "MOST_EVENTS", 100)
    with broker(tmp_path / "data") as local, local.connect_sync() as client:
        client.publish_many({"n": n} for n in range(1_000))
        log = BrokerLog(BrokerTarget(local.address, "test"))
        _, first, end = log.position()
        reading = log.read_all(first, end + 10)  # offsets that nobody has used are no reason to wait
        assert next(reading).offset == first
        status = client.status()
        assert (status.subscriptions, status.queues) == (0, 0)
        assert [event.offset for event in reading] == list(range(first + 1, end))
        assert [event.offset for event in log.read(end - 1, end)] == [end - 1]


def test_a_patient_reader_waits_for_a_broker_that_restarts(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "MOST_EVENTS", 10)
    with broker(tmp_path / "data") as local:
        with local.connect_sync() as client:
            client.publish_many({"n": n} for n in range(100))
        log = BrokerLog(BrokerTarget(local.address, "test", patience=120), patient=True)
        _, first, end = log.position()
        reading = log.read_all(first, end)
        offsets = [next(reading).offset for _ in range(10)]
        local.kill()
        starting = threading.Timer(1.0, local.start)  # while the reader tries to connect again
        starting.start()
        offsets += [event.offset for event in reading]
        starting.join()
        assert offsets == list(range(first, end))
        local.kill()
        starting = threading.Timer(1.0, local.start)
        starting.start()
        assert log.position()[1:] == (first, end)
        starting.join()


def test_a_patient_writer_waits_for_a_broker_that_restarts(tmp_path):
    numbers = list(range(200))
    with broker(tmp_path / "data") as local:
        target = BrokerTarget(local.address, "query", patience=120)
        starting = [threading.Timer(1.0, local.start) for _ in range(2)]  # while the writer tries to connect

        def rows():
            events = events_of_rows([pa.record_batch({"n": numbers})])
            for number, event in enumerate(events):
                if number == 100:
                    local.kill()
                    starting[1].start()
                yield event

        local.kill()
        starting[0].start()
        target.publish(0, 0, rows())
        for each in starting:
            each.join()
        assert target.publish(0, 0, events_of_rows([pa.record_batch({"n": numbers})])) == 0
        log = BrokerLog(target)
        _, first, end = log.position()
        columns = LogColumns.of([("n", "bigint")])
        found = [row["n"] for batch in columns.batches(log.read(first, end)) for row in batch.to_pylist()]
        assert found == numbers


def test_rows_are_published_once(tmp_path):
    with broker(tmp_path / "data") as local:
        target = BrokerTarget(local.address, "query")
        assert target.publish(0, 0, events_of_rows([ROWS.slice(0, 2)])) == 2  # the task died after two rows
        assert target.publish(0, 0, events_of_rows([ROWS])) == 1
        assert target.publish(1, 0, events_of_rows([ROWS.slice(0, 1)])) == 1
        assert target.publish(0, 1, events_of_rows([ROWS.slice(2, 1)])) == 1
        assert target.publish(0, 0, events_of_rows([ROWS])) == 0
        log = BrokerLog(target)
        columns = LogColumns.of([("n", "bigint"), ("x", "double"), ("_payload", "binary")])
        _, first, end = log.position()
        rows = [row for batch in columns.batches(log.read(first, end)) for row in batch.to_pylist()]
        assert [(row["n"], row["x"], row["_payload"]) for row in rows] == [
            (1, 1.5, b"a"),
            (2, None, b""),
            (3, 3.0, b"c"),
            (1, 1.5, b"a"),
            (3, 3.0, b"c"),
        ]


ACCESS = """
[[rule]]
for = "ann"
subscribe = true
publish = true
rights = ["history"]

[[rule]]
for = "bob"
subscribe = "n > 5"
publish = "n > 5"
rights = ["status", "history"]
"""


def test_a_broker_that_asks_for_tokens_is_read_and_written_with_one(tmp_path):
    (tmp_path / "access.toml").write_text(ACCESS)
    auth = AuthConfig(keys=write_keys(tmp_path / "keys.json", secret_jwk()), attempts=1_000)
    config = BrokerConfig(auth=auth, access=AccessConfig(tmp_path / "access.toml"))
    (tmp_path / "token").write_bytes(token() + b"\n")
    with broker(tmp_path / "data", config=config) as local:
        ann = BrokerTarget(local.address, "query", token_file=str(tmp_path / "token"))
        assert ann.publish(0, 0, events_of_rows([ROWS])) == 3
        _, first, end = BrokerLog(ann).position()
        assert len(read(BrokerLog(ann), first, end)) == 3
        source = WeftSource({"url": local.address, "tokenFile": str(tmp_path / "token")})
        assert source.schema().startswith("`n` bigint, `x` double")
        for stranger in (BrokerTarget(local.address, "q"), BrokerTarget(local.address, "q", token="x.y.z")):
            with pytest.raises(AccessError):
                BrokerLog(stranger).position()
            with pytest.raises(AccessError):
                stranger.publish(0, 0, events_of_rows([ROWS]))
        bob = BrokerTarget(local.address, "other", token=token(sub="bob").decode())
        with pytest.raises(AccessError, match="no rule allows all of TRUE"):
            read(BrokerLog(bob), first, end)
        with pytest.raises(EventError, match="no rule allows this event"):
            bob.publish(0, 0, events_of_rows([ROWS]))
        assert BrokerLog(ann).position()[2] == end


def test_the_order_of_rows_does_not_depend_on_how_they_come():
    shuffled = [ROWS.slice(2, 1), ROWS.slice(0, 2)]
    assert in_order(shuffled) == in_order([ROWS])
    decode = msgspec.msgpack.decode
    assert [decode(event.attributes)["n"] for event in in_order(shuffled, "n")] == [1, 2, 3]
    assert [decode(event.attributes)["n"] for event in in_order(shuffled, "x")] == [2, 1, 3]  # NULLs are first


def test_a_broker_that_is_not_there_is_named():
    with pytest.raises(BrokerError, match="cannot be reached"):
        BrokerLog(BrokerTarget("weft://127.0.0.1:9", "test")).position()
    with pytest.raises(PipelineError, match="with the option 'path', or its address with 'url'"):
        WeftSource({"url": "weft://127.0.0.1:9", "path": "data"})
    with pytest.raises(EventError):
        list(events_of_rows([pa.record_batch({"x": pa.array([1 << 63], pa.uint64())})]))
