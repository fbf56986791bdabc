"""Micro-batches that are published again: other partitions, more or fewer of them, and still every row once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark.test_broker_stream import rows
from weft.errors import BrokerError, PipelineError
from weft.spark.broker_target import BrokerTarget
from weft.spark.broker_writer import BrokerStreamWriter, StagedRows, staging_folder
from weft.testing import broker

NUMBERS = list(range(100))


def batch(numbers):
    return pa.record_batch({"n": pa.array(numbers, pa.int64())})


def attempt(writer, number, parts):
    """What Spark does: tasks, one for each partition, then the commit on the driver."""
    done = [StagedRows("q", writer.stage(iter([batch(part)] if part else []))) for part in parts]
    writer.commit(done, number)


def split(numbers, parts):
    return [numbers[at::parts] for at in range(parts)]


@pytest.mark.parametrize("again", [1, 2, 3, 7])
def test_another_number_of_partitions_loses_and_repeats_nothing(tmp_path, again):
    with broker(tmp_path / "data") as local:
        writer = BrokerStreamWriter(BrokerTarget(local.address, "w", patience=5), str(tmp_path / "state"))
        attempt(writer, 0, split(NUMBERS[:40], 3))
        local.kill()
        with pytest.raises(BrokerError, match="is a broker running"):
            attempt(writer, 1, split(NUMBERS[40:], 3))  # committed, and not published
        local.start()
        attempt(writer, 1, split(NUMBERS[40:], again))
        attempt(writer, 1, split(list(reversed(NUMBERS[40:])), again))  # Spark has forgotten that it was done
        assert rows(local.address, "n bigint") == [(n,) for n in NUMBERS]
        attempt(writer, 2, split([1000], again))
        assert rows(local.address, "n bigint") == [(n,) for n in [*NUMBERS, 1000]]


def test_a_micro_batch_of_which_half_is_published_goes_on_from_there(tmp_path):
    with broker(tmp_path / "data") as local:
        target = BrokerTarget(local.address, "w", patience=5)
        writer = BrokerStreamWriter(target, str(tmp_path / "state"))
        first = split(NUMBERS, 2)
        done = [StagedRows("q", writer.stage(iter([batch(part)]))) for part in first]
        folders = writer._staged
        files = sorted(each.file for each in done)
        folders.commit(0, writer._draft(), files, {"batch": 0, "query": "q", "files": files})
        from weft.spark.broker_sink import publish_files

        publish_files(BrokerTarget(local.address, "w-q"), 0, [str(folders.path_of(0) / files[0])])  # and then a crash
        attempt(writer, 0, split(NUMBERS, 5))
        assert rows(local.address, "n bigint") == [(n,) for n in NUMBERS]


def test_rows_are_published_in_the_order_that_is_asked_for(tmp_path):
    with broker(tmp_path / "data") as local:
        writer = BrokerStreamWriter(BrokerTarget(local.address, "w"), str(tmp_path / "state"), "n")
        attempt(writer, 0, [[5, 3, 9, 1]])
        attempt(writer, 1, [])
        attempt(writer, 2, [[]])
        with local.connect_sync() as client:
            got = client.subscribe("TRUE", name="reader", since=1)
            assert [next(got)["n"] for _ in range(4)] == [1, 3, 5, 9]
        staged = [path.name for path in (tmp_path / "state" / "weft-staged").iterdir() if path.name != "_drafts"]
        assert staged == ["batch=2"]


@pytest.mark.parametrize("checkpoint", ["", "hdfs://host/state"])
def test_a_checkpoint_that_tasks_cannot_see_is_refused(checkpoint):
    with pytest.raises(PipelineError, match="with the option 'staging'"):
        staging_folder(checkpoint)
