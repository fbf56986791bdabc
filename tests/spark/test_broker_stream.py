"""Spark between two brokers: events of one are matched, and the matches are events of the other, each once."""

from __future__ import annotations

import shutil
from contextlib import suppress

import pytest

from strategies import EXAMPLES
from weft import matches
from weft.broker.admission import read_head
from weft.errors import PipelineError
from weft.spark import match_stream, register
from weft.spark.broker_log import BrokerLog
from weft.spark.broker_sink import BrokerSink
from weft.spark.broker_target import BrokerTarget
from weft.spark.log_columns import LogColumns
from weft.spark.log_source import LogFile
from weft.testing import broker

FILTERS = {1: "x > 5", 2: "s = 's1'"}
EVENTS = [{"n": n, "x": (7 * n) % 10, "s": f"s{n % 3}"} for n in range(60)]


def rows(address, columns):
    log = BrokerLog(BrokerTarget(address, "test"))
    _, first, end = log.position()
    wanted = LogColumns.of([tuple(each.split()) for each in columns.split(", ")])
    return sorted(tuple(row.values()) for b in wanted.batches(log.read_all(first, end)) for row in b.to_pylist())


def expected(events):
    return sorted((event["n"], key) for event in events for key, text in FILTERS.items() if matches(text, event))


def test_events_of_a_broker_are_matched_and_published(spark, tmp_path):
    register(spark)
    wanted = spark.createDataFrame(list(FILTERS.items()), "id bigint, filter string")
    state = tmp_path / "the state, 100%"  # Spark names files as URLs
    with broker(tmp_path / "left") as left, broker(tmp_path / "right") as right:
        impatient, sink = (BrokerSink(BrokerTarget(right.address, "matches", patience=each)) for each in (1, 60))
        sent = 0
        for count, broken in ((30, "right"), (30, "left"))[:EXAMPLES]:  # both ways in long runs
            with left.connect_sync() as client:
                client.publish_many(EVENTS[sent : sent + count])
            sent += count
            source = spark.readStream.format("weft").option("url", left.address).option("rowsPerPartition", 15)
            source = source.schema("n bigint, x bigint, s string")
            options = {"initial": wanted, "carry": ["n"], "once": True}
            (left if broken == "left" else right).kill()
            with suppress(PipelineError):
                match_stream(source.option("patience", 1).load(), None, state, impatient, **options).wait()
            (left if broken == "left" else right).start()
            events = source.option("patience", 60).load()
            match_stream(events, None, state, sink, **options).wait()
            assert rows(right.address, "n bigint, subscription bigint") == expected(EVENTS[:sent])
        for name in ("0", "1", "2"):  # Spark forgets that it has finished
            (state / "events" / "commits" / name).unlink(missing_ok=True)
            (state / "events" / "commits" / f".{name}.crc").unlink(missing_ok=True)
        match_stream(events, None, state, sink, **options).wait()
        assert rows(right.address, "n bigint, subscription bigint") == expected(EVENTS[:sent])


@pytest.mark.slow
def test_frames_are_published_by_format(spark, tmp_path):
    register(spark)
    frame = spark.createDataFrame([(event["n"], event["s"]) for event in EVENTS], "n bigint, s string")
    with broker(tmp_path / "data") as local:
        frame.write.format("weft").option("url", local.address).mode("append").save()
        assert rows(local.address, "n bigint, s string") == sorted((event["n"], event["s"]) for event in EVENTS)
    (tmp_path / "in").mkdir()
    frame.write.json(str(tmp_path / "in" / "a.json"))
    stream = spark.readStream.schema("n bigint, s string").json(str(tmp_path / "in" / "a.json"))
    with broker(tmp_path / "other") as local:
        for parts in (2, 5, 1):
            shutil.rmtree(tmp_path / "state" / "commits", ignore_errors=True)  # the micro-batch runs again
            writer = (
                stream.repartition(parts).writeStream.format("weft").option("url", local.address).option("order", "n")
            )
            writer = writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True)
            writer.start().awaitTermination()
            assert rows(local.address, "n bigint") == [(event["n"],) for event in EVENTS]
    sessions = {}
    for event in LogFile(str(tmp_path / "other")).read(1, 1_000):
        sessions.setdefault(event.origin[0], []).append(read_head(event.head).attributes["n"])
    assert len(sessions) == 2
    assert all(numbers == sorted(numbers) for numbers in sessions.values())
    with pytest.raises(Exception, match="the column 'l' of type array<int> cannot be an attribute: drop it"):
        spark.sql("SELECT array(1) AS l").write.format("weft").option("url", "weft://x").mode("append").save()
