"""Spark between two brokers that are killed: real processes, at random points, and every event arrives once."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from server.broker_program import BrokerProgram
from spark.test_broker_stream import FILTERS, expected, rows
from weft.client.sync import connect_sync
from weft.errors import PipelineError
from weft.spark import Watermark, match_stream, register
from weft.spark.broker_sink import BrokerSink
from weft.spark.broker_target import BrokerTarget
from weft.spark.stream import deduplicated

KILLS = 6
ATTEMPTS = 10
PATIENT, IMPATIENT = 300, 1  # seconds that a job waits for a broker
LATE = "failed to connect back"  # a worker of Spark, on a busy machine
COLUMNS = "n bigint, x bigint, s string, id string, t timestamp"
WATERMARK = Watermark("1 minute", time="t", identity=("id",))
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def source(spark, left, patience):
    reader = spark.readStream.format("weft").option("url", left.listen).option("rowsPerPartition", 150)
    return reader.option("maxRows", 400).option("patience", patience).schema(COLUMNS).load()


def made(first, count):
    """Events, with an identity and a time."""
    for n in range(first, first + count):
        yield {"n": n, "x": (7 * n) % 10, "s": f"s{n % 3}", "id": str(n), "t": BEGIN + timedelta(milliseconds=10 * n)}


class Matching:
    """Events of one broker matched, and the matches published into the other."""

    columns = "n bigint, subscription bigint"

    def __init__(self, spark, left, right, state, watermark):
        self._watermark = watermark
        self._wanted = spark.createDataFrame(list(FILTERS.items()), "id bigint, filter string")
        self._spark, self._left, self._right, self._state = spark, left, right, state

    def start(self, patience, once=False):
        options = {"initial": self._wanted, "carry": ["n"], "once": once, "driver_rows": random.choice([0, 1000])}
        options["watermark"] = self._watermark
        sink = BrokerSink(BrokerTarget(self._right.listen, "matches", patience=patience))
        return match_stream(source(self._spark, self._left, patience), None, self._state, sink, **options)

    def wait(self, running, seconds=None):
        return running.wait(seconds)

    def expected(self, events):
        return expected(events)


class Copying:
    """Events of one broker written into the other by format, by another number of tasks each time."""

    columns = "n bigint"

    def __init__(self, spark, left, right, state, watermark):
        self._spark, self._left, self._right, self._state = spark, left, right, state
        self._watermark = watermark

    def start(self, patience, once=False):
        events = deduplicated(source(self._spark, self._left, patience), self._watermark)
        writer = events.repartition(random.randrange(1, 4)).writeStream.format("weft").option("url", self._right.listen)
        writer = writer.option("patience", patience)
        writer = writer.option("checkpointLocation", str(self._state))
        return writer.trigger(**({"availableNow": True} if once else {"processingTime": "0 seconds"})).start()

    def wait(self, running, seconds=None):
        try:
            return running.awaitTermination(seconds) if seconds else running.awaitTermination()
        except Exception as error:
            raise PipelineError(str(error)) from None

    def expected(self, events):
        return sorted((event["n"],) for event in events)


def drain(job):
    """Read all that is there; a worker of Spark that starts too slowly on a busy machine is no failure of ours."""
    for left in reversed(range(ATTEMPTS)):
        try:
            job.wait(job.start(PATIENT, once=True))
        except PipelineError as error:
            if not left or LATE not in str(error):
                raise
        else:
            return


@pytest.mark.slow
@pytest.mark.parametrize("watermark", [None, WATERMARK], ids=["plain", "watermark"])
@pytest.mark.parametrize("way", [Matching, Copying])
def test_brokers_that_are_killed_lose_and_repeat_nothing(spark, tmp_path, way, watermark):
    register(spark)
    rng = random.Random(way.__name__)
    random.seed(way.__name__)
    sent = []
    with BrokerProgram(tmp_path / "left") as left, BrokerProgram(tmp_path / "right") as right:
        job = way(spark, left, right, tmp_path / "state", watermark)
        running, ends = None, []
        with connect_sync(left.listen, name="publisher") as client:
            for turn in range(KILLS):
                events = [*made(len(sent), 500)]
                client.publish_many(events)
                if watermark is not None:
                    client.publish_many(rng.sample([*sent, *events], 100))  # duplicates
                sent += events
                if running is None:
                    patience = IMPATIENT if turn < KILLS // 3 else PATIENT
                    running = job.start(patience)
                time.sleep(2 * rng.random())  # a random point
                victim = (left, right)[turn % 2]
                victim.kill()
                try:
                    job.wait(running, 3)
                except PipelineError as error:
                    running, ends = None, [*ends, (patience, str(error))]
                victim.start()
            if running is not None:
                with suppress(PipelineError):
                    running.stop()
        drain(job)
        assert rows(right.listen, job.columns) == job.expected(sent)
    assert all(patience == IMPATIENT or LATE in why for patience, why in ends), ends
