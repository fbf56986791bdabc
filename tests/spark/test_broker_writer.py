"""Micro-batches that are published again: other partitions, more or fewer of them, and still every row once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

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


def attempt(writer, number, parts, query="q"):
    """What Spark does: tasks, one for each partition, then the commit on the driver."""
    done = [StagedRows(query, writer.stage(query, iter([batch(part)] if part else []))) for part in parts]
    writer.commit(done, number)


def split(numbers, parts):
    return [numbers[at::parts] for at in range(parts)]


@pytest.mark.parametrize("again", [1, 2, 3, 7])
def test_another_number_of_partitions_loses_and_repeats_nothing(tmp_path, again):
    with broker(tmp_path / "data") as local:
        writer, impatient = (
            BrokerStreamWriter(BrokerTarget(local.address, "w", patience=patience), str(tmp_path / "state"))
            for patience in (30, 0.1)
        )
        attempt(writer, 0, split(NUMBERS[:40], 3))
        local.kill()
        with pytest.raises(BrokerError, match="is a broker running"):
            attempt(impatient, 1, split(NUMBERS[40:], 3))  # committed, and not published
        local.start()
        attempt(writer, 1, split(NUMBERS[40:], again))
        attempt(writer, 1, split(list(reversed(NUMBERS[40:])), again))  # Spark has forgotten that it was done
        assert rows(local.address, "n bigint") == [(n,) for n in NUMBERS]
        attempt(writer, 2, split([1000], again))
        assert rows(local.address, "n bigint") == [(n,) for n in [*NUMBERS, 1000]]


def test_a_micro_batch_of_which_half_is_published_goes_on_from_there(tmp_path):
    with broker(tmp_path / "data") as local:
        target = BrokerTarget(local.address, "w")
        writer = BrokerStreamWriter(target, str(tmp_path / "state"))
        first = split(NUMBERS, 2)
        done = [StagedRows("q", writer.stage("q", iter([batch(part)]))) for part in first]
        folders = writer._staged
        files = sorted(each.file for each in done)
        folders.commit(0, writer._draft("q"), files, {"batch": 0, "query": "q", "files": files})
        from weft.spark.broker_sink import publish_files

        publish_files(BrokerTarget(local.address, "w-q"), 0, [str(folders.path_of(0) / files[0])])  # and then a crash
        attempt(writer, 0, split(NUMBERS, 5))
        assert rows(local.address, "n bigint") == [(n,) for n in NUMBERS]


def test_rows_are_published_in_the_order_that_is_asked_for(tmp_path):
    with broker(tmp_path / "data") as local:
        writer = BrokerStreamWriter(BrokerTarget(local.address, "w"), str(tmp_path / "state"), "n")
        attempt(writer, 0, [[5, 3, 9, 1]])
        attempt(writer, 1, [[]])
        attempt(writer, 2, [[8]])
        attempt(writer, 3, [])  # no tasks at all: nothing to stage
        with local.connect_sync() as client:
            got = client.subscribe("TRUE", name="reader", since=1)
            assert [next(got)["n"] for _ in range(5)] == [1, 3, 5, 9, 8]
        staged = [path.name for path in (tmp_path / "state" / "weft-staged").iterdir() if path.name[0] != "_"]
        assert staged == ["batch=2"]


def test_a_folder_that_stages_rows_of_another_query_is_refused(tmp_path):
    with broker(tmp_path / "data") as local:
        writer = BrokerStreamWriter(BrokerTarget(local.address, "w"), str(tmp_path / "staging"))
        for number in range(3):
            attempt(writer, number, split(NUMBERS[10 * number : 10 * number + 10], 2), "old")
        for number in (0, 2, 3):  # one that the other query has removed, one that it has, and one that it has not
            with pytest.raises(PipelineError, match=r"rows of another query \(old\): name another folder"):
                attempt(writer, number, split(NUMBERS[40:], 2), "new")
        attempt(writer, 3, split(NUMBERS[30:40], 2), "old")  # it lost nothing to the intruder
        assert rows(local.address, "n bigint") == [(n,) for n in NUMBERS[:40]]
        assert not [*(tmp_path / "staging").rglob("_drafts/*")]


def test_of_queries_that_begin_together_in_one_folder_all_but_one_are_refused(tmp_path):
    with broker(tmp_path / "data") as local:
        together = threading.Barrier(6)

        def begin(query):
            writer = BrokerStreamWriter(BrokerTarget(local.address, "w"), str(tmp_path / "staging"))
            looked = writer._manifests
            writer._manifests = lambda query: (looked(query), together.wait(60))[0]  # all find an empty folder
            attempt(writer, query, [[10 * query, 10 * query + 1]], f"q{query}")

        with ThreadPoolExecutor(6) as pool:
            ends = [each.exception() for each in [pool.submit(begin, query) for query in range(6)]]
        (first,) = (query for query, end in enumerate(ends) if end is None)
        assert rows(local.address, "n bigint") == [(10 * first,), (10 * first + 1,)]
        why = f"rows of another query (q{first}): name another folder"
        assert all(isinstance(end, PipelineError) and why in str(end) for end in ends if end is not None)


def test_a_micro_batch_without_tasks_keeps_no_other_query_from_its_rows(tmp_path):
    with broker(tmp_path / "data") as local:
        writer = BrokerStreamWriter(BrokerTarget(local.address, "w"), str(tmp_path / "staging"))
        writer._staged.commit(0, writer._draft(""), [], {"batch": 0, "query": "", "files": []})  # as before this test
        attempt(writer, 0, [NUMBERS])
        assert rows(local.address, "n bigint") == [(n,) for n in NUMBERS]


@pytest.mark.parametrize("checkpoint", ["", "hdfs://host/state"])
def test_a_checkpoint_that_tasks_cannot_see_is_refused(checkpoint):
    with pytest.raises(PipelineError, match="with the option 'staging'"):
        staging_folder(checkpoint)
