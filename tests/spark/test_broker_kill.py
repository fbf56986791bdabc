"""Spark between two brokers that are killed: real processes, at random points, and every event arrives once."""

from __future__ import annotations

import random
import time
from contextlib import suppress

import pytest

from net.broker_program import BrokerProgram
from spark.test_broker_stream import FILTERS, expected, rows
from weft.errors import PipelineError
from weft.net.client_sync import connect_sync
from weft.spark import match_stream, register
from weft.spark.broker_sink import BrokerSink
from weft.spark.broker_target import BrokerTarget

KILLS = 6
ATTEMPTS = 10
COLUMNS = "n bigint, x bigint, s string"


def source(spark, left):
    reader = spark.readStream.format("weft").option("url", left.listen).option("rowsPerPartition", 150)
    return reader.option("maxRows", 400).schema(COLUMNS).load()


class Matching:
    """Events of one broker matched, and the matches published into the other."""

    columns = "n bigint, subscription bigint"

    def __init__(self, spark, left, right, state):
        self._wanted = spark.createDataFrame(list(FILTERS.items()), "id bigint, filter string")
        self._spark, self._left, self._state = spark, left, state
        self._sink = BrokerSink(BrokerTarget(right.listen, "matches"))

    def start(self, once=False):
        options = {"initial": self._wanted, "carry": ["n"], "once": once, "driver_rows": random.choice([0, 1000])}
        return match_stream(source(self._spark, self._left), None, self._state, self._sink, **options)

    def wait(self, running, seconds=None):
        return running.wait(seconds)

    def expected(self, events):
        return expected(events)


class Copying:
    """Events of one broker written into the other by format, by another number of tasks each time."""

    columns = "n bigint"

    def __init__(self, spark, left, right, state):
        self._spark, self._left, self._right, self._state = spark, left, right, state

    def start(self, once=False):
        frame = source(self._spark, self._left).repartition(random.randrange(1, 4))
        writer = frame.writeStream.format("weft").option("url", self._right.listen)
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
            job.wait(job.start(once=True))
        except PipelineError as error:
            if not left or "failed to connect back" not in str(error):
                raise
        else:
            return


@pytest.mark.slow
@pytest.mark.parametrize("way", [Matching, Copying])
def test_brokers_that_are_killed_lose_and_repeat_nothing(spark, tmp_path, way):
    register(spark)
    rng = random.Random(way.__name__)
    random.seed(way.__name__)
    sent = []
    with BrokerProgram(tmp_path / "left") as left, BrokerProgram(tmp_path / "right") as right:
        job, failures = way(spark, left, right, tmp_path / "state"), 0
        running = None
        with connect_sync(left.listen, name="publisher") as client:
            for turn in range(KILLS):
                events = [{"n": n, "x": (7 * n) % 10, "s": f"s{n % 3}"} for n in range(len(sent), len(sent) + 500)]
                client.publish_many(events)
                sent += events
                running = running or job.start()
                time.sleep(2 * rng.random())  # a random point
                victim = (left, right)[turn % 2]
                victim.kill()
                try:
                    job.wait(running, 3)
                except PipelineError:
                    running, failures = None, failures + 1
                victim.start()
            if running is not None:
                with suppress(PipelineError):
                    running.stop()
        drain(job)
        assert rows(right.listen, job.columns) == job.expected(sent)
    assert failures
