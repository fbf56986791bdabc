"""Versions of a stream's subscriptions, without Spark: every version that is kept has exactly its subscriptions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from strategies import EXAMPLES
from weft.errors import PipelineError
from weft.index.scan import ScanIndex
from weft.model.column import FREE
from weft.model.limits import LIMITS
from weft.pipeline.boxes import Reading
from weft.spark import version_matcher
from weft.spark.batch_folder import DRAFT, BatchFolders
from weft.spark.batch_matching import PartFile
from weft.spark.stream_commands import fold
from weft.spark.stream_journal import BatchMetrics, StreamJournal, read_metrics
from weft.spark.subscription_versions import SubscriptionVersions

EVENTS = pa.record_batch({"x": list(range(10)), "s": [f"s{n % 3}" for n in range(10)]}).replace_schema_metadata(FREE)
SMALL = {"most_versions": 4, "least_changes": 6}


def commands(*rows):
    """Rows of (action, id, filter) as the driver gathers them."""
    numbered = all(isinstance(key, int) for _, key, _ in rows if key is not None)
    action, ids, texts = zip(*rows, strict=True)
    return pa.record_batch(
        [
            pa.array(action, pa.string()),
            pa.array(ids, pa.int64() if numbered else pa.string()),
            pa.array(texts, pa.string()),
            pa.array([str(row) for row in rows]),
            pa.nulls(len(rows), pa.string()),
        ],
        names=["action", "id", "filter", "row", "reason"],
    )


def opened(folder, numbered=True):
    folder.mkdir(exist_ok=True)
    journal = StreamJournal(folder)
    return journal, SubscriptionVersions(folder / "versions", journal, numbered, **SMALL)


def found(files):
    """The ids of each event, by a worker that has read nothing before."""
    version_matcher._KEPT.clear()
    return matched(files.open())


def matched(matcher):
    matches = matcher.match(EVENTS)
    assert not matches.errors
    assert all((np.diff(numbers) > 0).all() for numbers in matches)
    return [matcher.ids(numbers).to_pylist() for numbers in matches]


def oracle(held):
    index = ScanIndex()
    ids = list(held)
    for number, key in enumerate(ids):
        index.add(number, held[key])
    return [sorted(ids[number] for number in numbers) for numbers in index.match_batch(EVENTS)]


def drawn(rng, numbered, held):
    """A few random commands, and what they leave; ids and filters from tiny domains."""
    rows, after = [], dict(held)
    for _ in range(int(rng.integers(1, 5))):
        key = int(rng.integers(8))
        key = key if numbered else f"sub-{key}"
        text = [f"x > {rng.integers(10)}", f"s = 's{rng.integers(4)}'", f"x IN (1, {rng.integers(9)}) OR s LIKE '%2'"][
            int(rng.integers(3))
        ]
        action = ["subscribe", "unsubscribe", "replace"][int(rng.integers(3))]
        rows.append((action, key, None if action == "unsubscribe" else text))
        if action == "unsubscribe":
            after.pop(key, None)
        elif action == "replace" or key not in after:
            after[key] = text
    return rows, after


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("seed", range(6 if EXAMPLES > 1 else 2))
def test_every_kept_version_has_its_subscriptions(tmp_path, numbered, seed):
    rng = np.random.default_rng(seed)
    journal, versions = opened(tmp_path / "cp", numbered)
    versions.begin(None)
    held, states, begun = {}, {0: {}}, 0
    version_matcher._KEPT.clear()
    for batch in range(40):
        rows, held = drawn(rng, numbered, held)
        result = fold(commands(*rows), versions)
        version = versions.newest + len(rows)
        versions.apply(version, batch, result.changes, result.dropped_ids, len(result.refused))
        states[version] = held
        assert versions.newest == version
        assert len(versions) == len(held)
        assert {key: versions.number_of(key) is not None for key in held} == dict.fromkeys(held, True)
        if rng.random() < 0.3:  # a micro-batch of events begins, and the ones before are done
            begun = journal.begin(batch, versions.newest, 0.0)
            versions.forget(begun)
            assert [sorted(ids) for ids in matched(versions.files(begun).open())] == oracle(states[begun])
        if rng.random() < 0.2:
            journal.close()
            journal, versions = opened(tmp_path / "cp", numbered)
        kept = begun if rng.random() < 0.5 else versions.newest
        assert [sorted(ids) for ids in found(versions.files(kept))] == oracle(states[kept])
        assert versions.size_of(kept) == len(states[kept])
    versions.forget(versions.newest)
    assert len(list((tmp_path / "cp" / "versions").iterdir())) == 1
    assert len(journal.versions()) <= SMALL["most_versions"] + 2
    journal.close()


def test_a_base_that_was_not_finished_is_removed(tmp_path):
    journal, versions = opened(tmp_path / "cp")
    versions.begin(None)
    journal.close()
    (tmp_path / "cp" / "versions" / ".7-draft").mkdir()
    (tmp_path / "cp" / "versions" / "7").mkdir()
    journal, versions = opened(tmp_path / "cp")
    assert [path.name for path in (tmp_path / "cp" / "versions").iterdir()] == ["0"]
    assert versions.newest == 0
    journal.close()


def test_a_stream_may_begin_with_subscriptions(tmp_path):
    journal, versions = opened(tmp_path / "cp", numbered=False)
    rows = pa.record_batch({"id": ["high", "low"], "filter": ["x > 7", "x < 1"]})
    versions.begin(Reading("id", "filter", numbered=False).read(rows)[0])
    assert found(versions.files(0)) == [["low"], *[[]] * 7, ["high"], ["high"]]
    assert versions.size_of(0) == 2
    journal.close()


def test_a_command_that_cannot_be_used_changes_nothing_and_is_set_aside(tmp_path, monkeypatch):
    monkeypatch.setattr(LIMITS, "filter_weight", 100)
    journal, versions = opened(tmp_path / "cp")
    versions.begin(None)
    rows = [
        ("subscribe", 1, "x > 5"),
        ("subscribe", 1, "x > 6"),
        ("replace", 1, "x >"),
        ("replace", 2, None),
        ("unsubscribe", 3, None),
        ("subscrib", 4, "x > 1"),
        (None, 4, "x > 1"),
        ("subscribe", None, "x > 1"),
        ("subscribe", 5, f"x IN ({', '.join(map(str, range(0, 600, 2)))})"),
        ("subscribe", 6, "x = 6"),
        ("unsubscribe", 6, None),
        ("subscribe", 6, "x = 7"),
    ]
    result = fold(commands(*rows), versions)
    reasons = {refused.row: refused.reason for refused in result.refused}
    assert [str(row) in reasons for row in rows] == [False, True, True, True, False, *[True] * 4, False, False, False]
    assert reasons[str(rows[1])] == "subscription 1 already exists; use replace"
    assert reasons[str(rows[5])] == "there is no action 'subscrib': did you mean 'subscribe'?"
    assert reasons[str(rows[6])] == "there is no action None: use subscribe, unsubscribe, replace"
    assert reasons[str(rows[7])] == "it has no id"
    assert "split the filter" in reasons[str(rows[8])]
    versions.apply(len(rows), 0, result.changes, result.dropped_ids, len(result.refused))
    assert found(versions.files(len(rows))) == [*[[]] * 6, [1], [1, 6], [1], [1]]
    journal.close()


def test_a_micro_batch_keeps_the_version_that_it_began_with(tmp_path):
    journal = StreamJournal(tmp_path)
    assert journal.begin(3, 10, 0.0) == 10
    journal.close()
    journal = StreamJournal(tmp_path)
    assert journal.begin(3, 12, 1.0) == 10
    assert journal.begin(4, 12, 1.0) == 12
    journal.finish(BatchMetrics(3, 10, 2.0, 5, 100, 7, 1, seconds=0.5))
    journal.measured(3, 2, 1, 0.75)
    assert read_metrics(journal.path) == [
        BatchMetrics(3, 10, 0.0, 5, 100, 7, 1, 2, 1, 0.5, 0.75),
        BatchMetrics(4, 12, 1.0),
    ]
    assert "100 events, 7 matches, version 10 (5 subscriptions), 500 ms, 200 events/s, 1 refused, 2 late" in (
        read_metrics(journal.path)[0].line()
    )
    with pytest.raises(PipelineError, match="Spark begins micro-batch 3, but 4 had begun before"):
        journal.begin(3, 12, 1.0)
    journal.close()


def test_a_checkpoint_of_another_stream_is_refused(tmp_path):
    journal = StreamJournal(tmp_path)
    journal.agree("ids", "integers", "ids that are")
    journal.agree("ids", "integers", "ids that are")
    with pytest.raises(PipelineError, match="a stream with ids that are integers, not strings: use another checkpoint"):
        journal.agree("ids", "strings", "ids that are")
    journal.close()


def test_readers_that_look_into_every_folder_see_no_drafts(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    folders = BatchFolders(tmp_path / "out")
    every = str(tmp_path / "out" / "**" / "*.parquet")
    for batch in (0, 1):
        draft = folders.draft(batch)
        files = [PartFile(draft / name) for name in ("a.parquet", "half.parquet")]
        for file in files:
            file.write(pa.record_batch({"n": [batch]}))
        name = files[0].close()
        assert [*draft.iterdir()], "the draft is on disk"
        if batch == 0:
            assert duckdb.sql(f"SELECT file FROM glob('{every}')").fetchall() == []
        else:
            assert duckdb.sql(f"SELECT n FROM read_parquet('{every}')").fetchall() == [(0,)]
        folders.commit(batch, draft, [name], {"batch": batch})
    assert sorted(duckdb.sql(f"SELECT n FROM read_parquet('{every}')").fetchall()) == [(0,), (1,)]


def test_a_folder_appears_whole_and_without_files_of_tasks_that_died(tmp_path):
    folders = BatchFolders(tmp_path / "out")
    draft = folders.draft(4)
    draft.mkdir()
    for name in ("a.parquet", "zombie.parquet"):
        (draft / (name + DRAFT)).write_text(name)
    assert folders.manifest(4) is None
    assert folders.committed() == []
    folders.commit(4, draft, ["a.parquet"], {"batch": 4})
    assert folders.manifest(4) == {"batch": 4}
    assert sorted(path.name for path in folders.path_of(4).iterdir()) == ["_manifest.json", "a.parquet"]
    assert not draft.exists()
    again = folders.draft(4)
    with pytest.raises(OSError, match="not empty"):  # what is committed is never written again
        folders.commit(4, again, [], {"batch": 4, "other": True})
    assert folders.manifest(4) == {"batch": 4}
    folders.remove(4)
    assert folders.committed() == []
