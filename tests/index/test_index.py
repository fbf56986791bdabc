"""`weft.Index`: what users take. It is compared with a dictionary of filters, each of which is evaluated."""

from __future__ import annotations

import copy
import json
import os
import pickle
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from strategies import thorough
from weft import F, Index, Schema, TreeIndex, from_json, matches, normalize, parse
from weft.errors import (
    DuplicateIdError,
    EventError,
    FilterError,
    FilterSyntaxError,
    FilterTypeError,
    InvalidIdError,
    SchemaError,
    SnapshotError,
    SubscriptionError,
    UnknownIdError,
    WeftError,
)
from weft.index import CountingIndex, ScanIndex
from weft.language.predicate import Predicates
from weft.language.taxonomy import IsA, Taxonomy

RULES = {"strong": "magnitude >= 5", "shallow": "depth < 70", 7: "place LIKE '%Alaska'"}
EVENTS = [{"magnitude": 6.1, "depth": 12.5}, {"depth": 300}, {"place": "Nome, Alaska"}, {}]


def by_kind(ids):
    return sorted(ids, key=lambda each: (str(type(each)), each))


def test_ids_are_strings_and_integers_in_any_mix():
    index = Index(RULES)
    assert [by_kind(index.match(event)) for event in EVENTS] == [["shallow", "strong"], [], [7], []]
    assert len(index) == 3
    assert list(index) == ["strong", "shallow", 7]
    assert "strong" in index
    assert np.int64(7) in index
    for absent in ("7", 7.0, True, None, "Strong", (), [], 2**70):
        assert absent not in index
    index.check()


@pytest.mark.parametrize(
    "given",
    [
        "x > 5 AND kind = 'a'",
        parse("x > 5 AND kind = 'a'"),
        (F.x > 5) & (F.kind == "a"),
        {"all": [{"sql": "x > 5"}, {"exact": {"kind": "a"}}]},
        [{"sql": "x > 5"}, {"exact": {"kind": "a"}}],
        '[{"sql": "x > 5"}, {"exact": {"kind": "a"}}]',
        normalize("x > 5 AND kind = 'a'"),
        from_json([{"sql": "x > 5"}, {"exact": {"kind": "a"}}]),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_filter_comes_in_any_form(given):
    for make in (lambda: Index({"one": given, "other": "x > 100"}), lambda: Index([("one", given)])):
        assert make().match({"x": 6, "kind": "a"}) == ["one"]
    index = Index()
    index.add("one", given)
    index.replace("two", given)
    assert sorted(index.match({"x": 6, "kind": "a"})) == ["one", "two"]
    assert str(index.filter("one")) == "x > 5 AND kind = 'a'"
    tree = TreeIndex()
    tree.add(1, given)
    assert tree.match({"x": 6, "kind": "a"}).tolist() == [1]


def test_a_bare_attribute_and_a_bool_are_filters():
    index = Index({"on": F.active, "all": True, "none": False})
    assert sorted(index.match({"active": True})) == ["all", "on"]


@pytest.mark.parametrize(
    "wrong", [None, 1.7, True, False, 2**70, -(2**63) - 1, b"a", ("a",), [], "\ud800", np.float64(1), 1j]
)
def test_an_id_is_checked_when_it_is_given(wrong):
    index = Index(RULES)
    for change in (
        lambda: index.add(wrong, "x > 5"),
        lambda: index.replace(wrong, "x > 5"),
        lambda: index.discard(wrong),
        lambda: index.filter(wrong),
        lambda: index.explain({}, wrong),
    ):
        with pytest.raises(InvalidIdError) as caught:
            change()
        assert caught.value.id is wrong
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, TypeError)
    with pytest.raises(InvalidIdError, match="position 1: ") as caught:
        index.update([("a", "x > 5"), (wrong, "x > 5")])
    assert caught.value.position == 1
    with pytest.raises(InvalidIdError, match="position 2: "):
        index.discard_many(["strong", "a", wrong])
    assert [by_kind(index.match(event)) for event in EVENTS] == [["shallow", "strong"], [], [7], []]
    index.check()


@pytest.mark.parametrize("make", [TreeIndex, CountingIndex, ScanIndex])
@pytest.mark.parametrize("wrong", ["rule-1", None, 1.7, True, 2**70, -(2**63) - 1, np.bool_(True), np.float64(3), [1]])
def test_a_subscription_is_checked_at_birth_in_every_index(make, wrong):
    index = make()
    index.add(np.int8(1), "x > 5")
    changes = (
        lambda: index.add(wrong, "x > 3"),
        lambda: index.replace(wrong, "x > 3"),
        lambda: index.discard(wrong),
        lambda: index.discard_many([1, wrong]),
        lambda: index.add_texts([2, wrong], ["x > 3", "x > 3"]),
        lambda: index.add_forms([2, wrong], [normalize("x > 3")] * 2),
        lambda: index.add_columns([2, wrong], {"x": (np.zeros(2), None)}),
    )
    for change in changes:
        with pytest.raises(InvalidIdError) as caught:
            change()
        assert caught.value.id is wrong
    assert [caught.value.position for change in changes[3:] if (caught := _caught(change))] == [1] * 4
    assert index.match({"x": 9}).tolist() == [1]
    assert wrong not in index
    index.check()


def _caught(change):
    with pytest.raises(WeftError) as caught:
        change()
    return caught


@pytest.mark.parametrize("make", [TreeIndex, CountingIndex, ScanIndex])
def test_bulk_calls_say_what_is_wrong_and_where(make):
    index = make()
    index.add_texts(np.array([5, 6], np.uint8), ["x > 5", "x > 6"])
    with pytest.raises(DuplicateIdError, match="subscription 5 already exists; use replace") as caught:
        index.add_texts([4, 5], ["x > 5", "x > 6"])
    assert isinstance(caught.value, KeyError)
    assert caught.value.id == 5
    with pytest.raises(DuplicateIdError, match="duplicate id 8 at position 2") as caught:
        index.add_texts([8, 9, 8], ["x > 5"] * 3)
    assert (caught.value.id, caught.value.position) == (8, 2)
    with pytest.raises(SubscriptionError, match="there are 1 ids for 2 filters"):
        index.add_texts([8], ["x > 5"] * 2)
    with pytest.raises(FilterSyntaxError, match=r"^filter 1: unknown operator '=>' at column 3") as caught:
        index.add_texts([8, 9], ["x > 5", "x => 5"])
    assert caught.value.position == 1
    with pytest.raises(FilterTypeError) as caught:
        index.add_texts([8, 9], ["x > 5", 7])
    assert caught.value.position == 1
    with pytest.raises(InvalidIdError):
        index.add_texts(np.array([1.5]), ["x > 5"])
    with pytest.raises(InvalidIdError):
        index.add_texts(np.array([2**63], np.uint64), ["x > 5"])
    with pytest.raises(InvalidIdError):
        index.add_texts(7, ["x > 5"])
    index.add_texts(pa.array([10]), ["x > 5"])
    assert sorted(index.match({"x": 9}).tolist()) == [5, 6, 10]


def test_errors_of_one_update_name_the_id_and_nothing_is_changed():
    index = Index(RULES)
    with pytest.raises(FilterSyntaxError, match=r"^filter 1 \(id 'b'\): unknown operator '=>'") as caught:
        index.update({"strong": "magnitude > 9", "b": "x => 5"})
    assert (caught.value.position, caught.value.id) == (1, "b")
    assert pickle.loads(pickle.dumps(caught.value)).id == "b"
    with pytest.raises(FilterTypeError, match=r"filter 1 \(id 'b'\): 5 is not a filter"):
        index.update({"a": "x > 5", "b": 5})
    with pytest.raises(DuplicateIdError, match="duplicate id 'a' at position 2") as caught:
        index.update([("a", "x > 5"), ("b", "x > 5"), ("a", "x > 6")])
    assert (caught.value.position, caught.value.id) == (2, "a")
    with pytest.raises(SubscriptionError, match=r"entry 1 must be a pair \(id, filter\), not 'xyz'"):
        index.update([("a", "x > 5"), "xyz"])
    with pytest.raises(SubscriptionError, match="a mapping, pairs, a table or a file, not 5"):
        index.update(5)
    with pytest.raises(SchemaError):
        index.add("c", normalize("x > 5", Schema.of(x="int")))
    assert [by_kind(index.match(event)) for event in EVENTS] == [["shallow", "strong"], [], [7], []]
    assert list(index) == list(RULES)
    index.check()


def test_update_adds_and_replaces_at_once():
    index = Index(RULES)
    index.update({"strong": "magnitude >= 9", "new": "depth > 100"})
    assert [by_kind(index.match(event)) for event in EVENTS] == [["shallow"], ["new"], [7], []]
    index.update({})
    assert len(index) == 4
    index.check()


def test_discarding_and_unknown_ids():
    index = Index(RULES)
    index.discard("strong")
    index.discard("strong")
    index.discard_many(["shallow", 7, "nobody"])
    assert (len(index), list(index), index.match(EVENTS[0])) == (0, [], [])
    for ask in (index.filter, lambda sub: index.explain({}, sub)):
        with pytest.raises(UnknownIdError, match="there is no filter with the id 'strong'") as caught:
            ask("strong")
        assert isinstance(caught.value, KeyError)
    index.add("strong", "x > 5")
    assert index.match({"x": 7}) == ["strong"]
    index.check()


# --- tables and files -------------------------------------------------------------------------------


def test_filters_come_from_tables():
    rows = {"id": ["strong", "shallow"], "filter": ["magnitude >= 5", "depth < 70"], "owner": ["a", "b"]}
    pl = pytest.importorskip("polars")
    for table in (
        pa.table(rows),
        pa.record_batch(rows),
        pd.DataFrame(rows),
        pl.DataFrame(rows),
        iter(pa.table(rows).to_pylist()),
    ):
        assert sorted(Index(table).match(EVENTS[0])) == ["shallow", "strong"]
    numbered = pd.DataFrame({"id": [3, 4], "filter": ["magnitude >= 5", "depth < 70"]})
    assert sorted(Index(numbered).match(EVENTS[0])) == [3, 4]
    with pytest.raises(SubscriptionError, match="the table must have one column 'filter': did you mean 'filters'"):
        Index(pa.table({"id": [1], "filters": ["x > 5"]}))
    with pytest.raises(SubscriptionError, match="row 1 has no 'filter'") as caught:
        Index(pa.table({"id": [1, 2], "filter": ["x > 5", None]}))
    assert (caught.value.position, caught.value.id) == (1, 2)


def test_filters_come_from_files(tmp_path):
    rows = [{"id": "a", "filter": "x > 5"}, {"id": "b", "filter": "s = 'it, is'"}]
    (tmp_path / "rules.csv").write_text("id,filter\na,x > 5\nb,\"s = 'it, is'\"\n")
    (tmp_path / "rules.jsonl").write_text("\n\n".join(map(json.dumps, rows)))
    (tmp_path / "list.json").write_text(json.dumps(rows))
    (tmp_path / "rules.json").write_text(json.dumps({"a": "x > 5", "b": {"exact": {"s": "it, is"}}}))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rules.parquet")
    for path in tmp_path.iterdir():
        assert sorted(Index(path).match({"x": 7, "s": "it, is"})) == ["a", "b"]
        assert sorted(Index(str(path))) == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "id,filters\n1,x\n", "must have one column 'filter': did you mean 'filters'"),
        ("a.csv", "id,filter\n,x > 5\n", "line 2 has no 'id'|''"),
        ("a.csv", "id,filter\na,x => 5\n", r"filter 0 \(id 'a'\): unknown operator"),
        ("a.csv", "id,filter\na,\n", r"filter 0 \(id 'a'\)"),
        ("a.jsonl", '{"id": 1, "filter": "x > 5"}\nno\n', "line 2 is not JSON"),
        ("a.jsonl", '{"id": 1}\n', "line 1 has no 'filter'"),
        ("a.jsonl", "7\n", "line 1 must be an object with 'id' and 'filter', not 7"),
        ("a.json", "7", "must have an object of filters by id, or a list of objects"),
        ("a.json", "{", "cannot be read"),
        ("a.json", '[{"id": 1.5, "filter": "x > 5"}]', "an id must be a string or an integer, not 1.5"),
        ("a.parquet", "no", "cannot be read"),
        ("a.txt", "", "is not a file of filters that can be read; use one of"),
        ("missing.csv", None, "cannot be read"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path, name, text, said):
    if text is not None:
        (tmp_path / name).write_text(text)
    index = Index(RULES)
    with pytest.raises((SubscriptionError, FilterError), match=said):
        index.update(tmp_path / name)
    assert list(index) == list(RULES)


# --- batches ----------------------------------------------------------------------------------------


def test_a_batch_says_the_same_in_every_form():
    index = Index({"high": "x > 5", "odd": "x IN (1, 3, 5, 7, 9)", "text": "s = 'a'"})
    events = [{"x": 7}, {"x": 4}, {"s": "a", "x": 1}, {"x": b"1"}, {}]
    found = index.match_batch(events)
    lists = [sorted(index.match(event)) if at != 3 else [] for at, event in enumerate(events)]
    assert [sorted(ids) for ids in found.lists()] == lists
    assert [sorted(ids) for ids in found] == lists
    assert [sorted(found[at]) for at in range(-5, 0)] == lists
    pairs = sorted((at, name) for at, ids in enumerate(lists) for name in ids)
    assert sorted(found.pairs()) == pairs
    assert found.counts().tolist() == [len(ids) for ids in lists]
    table = found.to_arrow()
    assert pa.types.is_dictionary(table.column("subscription").type)
    assert sorted(zip(*table.to_pydict().values(), strict=True)) == pairs
    assert sorted(found.to_pandas().itertuples(index=False, name=None)) == pairs
    assert sorted(found.to_polars().iter_rows()) == pairs
    assert len(found) == 5
    assert repr(found) == "<BatchMatches: 4 matches in 5 events, 1 not readable>"
    assert {at: error.attribute for at, error in found.errors.items()} == {3: "x"}
    with pytest.raises(IndexError, match="there are 5 events"):
        found[5]


def test_ids_of_one_type_are_a_column_and_mixed_ones_are_not():
    rows = pa.table({"x": [6, 1]})
    numbers = Index({5: "x > 5", 2**62: "x > 0"}).match_batch(rows)
    assert sorted(numbers.to_arrow().column("subscription").to_pylist()) == [5, 2**62, 2**62]
    mixed = Index({5: "x > 5", "5": "x > 5"})
    found = mixed.match_batch(rows)
    with pytest.raises(SubscriptionError, match="Arrow has no column for strings mixed with integers"):
        found.to_arrow()
    assert {(at, type(name)) for at, name in found.pairs()} == {(0, int), (0, str)}
    assert set(found.to_pandas()["subscription"]) == {5, "5"}
    mixed.discard(5)
    assert mixed.match_batch(rows).to_arrow().column("subscription").to_pylist() == ["5"]
    assert found.counts().tolist() == [2, 0]
    assert Index().match_batch(rows).to_arrow().num_rows == 0
    assert Index({"a": "x > 5"}).match_batch(rows.slice(0, 0)).lists() == []


def test_a_column_of_ids_has_each_id_once_whatever_was_removed_before():
    index = Index({"a": "x > 0", "b": "x > 1", 7: "x > 2"})
    index.discard(7)
    index.update({"a": "x > 5", "c": "x > 6"})
    for many in (1, 40):
        found = index.match_batch(pa.table({"x": [9, 2] * many}))
        words = found.ids.dictionary.to_pylist()
        assert sorted(words) == ["a", "b", "c"]
        assert set(found.to_pandas()["subscription"].cat.categories) == {"a", "b", "c"}
        assert sorted(found.to_polars()["subscription"].to_list()) == sorted(["a", "b", "b", "c"] * many)
    assert Index({"a": "x > 0", "b": "x < 0"}).match_batch([{"x": 5}]).ids.to_pylist() == ["a"]


def test_what_a_batch_found_stays_when_the_index_changes():
    index = Index({f"rule-{n}": f"x > {n}" for n in range(5)})
    found = index.match_batch(pa.table({"x": [2.5]}))
    index.discard_many(list(index))
    index.update({f"other-{n}": f"x > {n}" for n in range(9000)})
    index.discard_many([f"other-{n}" for n in range(8990)])  # most of the numbers are gone
    assert (
        sorted(found.lists()[0])
        == sorted(found.to_arrow().column("subscription").to_pylist())
        == ["rule-0", "rule-1", "rule-2"]
    )
    assert sorted(index.match({"x": 8992.5})) == ["other-8990", "other-8991", "other-8992"]
    again = index.match_batch(pa.table({"x": [8990.5, 0, 8991.5]}))
    assert [sorted(ids) for ids in again.lists()] == [["other-8990"], [], ["other-8990", "other-8991"]]
    assert sorted(again.to_arrow().column("subscription").to_pylist()) == ["other-8990", "other-8990", "other-8991"]
    index.add("last", "x = 1")
    assert index.match({"x": 1}) == ["last"]
    index.check()


# --- the rest ---------------------------------------------------------------------------------------


def test_schema_and_predicates_are_those_of_the_tree():
    kinds = Predicates([IsA(Taxonomy({"car": ["vehicle"]}))])
    index = Index({"a": "is_a(kind, 'vehicle')"}, schema=Schema.of(x="int"), predicates=kinds)
    index.add("b", "x BETWEEN 0 AND 5 OR x BETWEEN 6 AND 10")
    assert sorted(index.match({"kind": "car", "x": 5.0})) == ["a", "b"]
    assert str(index.filter("b")) == "x >= 0 AND x < 11"
    assert index.match({"x": "5"}) == []
    assert index.schema == Schema.of(x="int")
    assert index.predicates is kinds


def test_stats_and_the_repr_speak_of_ids():
    index = Index({f"rule-{n}": f"x > {n}" for n in range(300)})
    assert repr(index) == "<weft.Index: 300 filters, 'rule-0', 'rule-1', 'rule-2', ...>"
    assert repr(Index(schema=Schema.of(x="int"))) == "<weft.Index: 0 filters, schema of 1>"
    assert index.stats().subscriptions == 300
    assert all(name in index for name, _ in index.stats().expensive)


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda index: pickle.loads(pickle.dumps(index))], ids=["copy", "deep", "pickle"]
)
def test_copies_go_their_own_way(again):
    index = Index(RULES)
    index.discard("shallow")
    other = again(index)
    index.add("only", "TRUE")
    other.replace("strong", "magnitude > 9")
    other.add("mine", "depth > 5")
    assert sorted(map(str, index)) == ["7", "only", "strong"]
    assert by_kind(other.match(EVENTS[0])) == ["mine"]
    assert by_kind(index.match(EVENTS[0])) == ["only", "strong"]
    index.check()
    other.check()


def test_an_index_is_saved_and_opened(tmp_path):
    index = Index(RULES, schema=Schema.of(magnitude="float"))
    index.discard("shallow")
    for _ in range(2):  # the second in place of the first
        index.save(tmp_path / "rules")
        index.add("late", "depth > 100")
        opened = Index.open(str(tmp_path / "rules"))
        assert "late" not in opened
        assert [by_kind(opened.match(event)) for event in EVENTS] == [["strong"], [], [7], []]
        opened.add("own", "TRUE")
        opened.check()
        index.discard("late")
    assert opened.schema == index.schema
    assert sorted(os.listdir(tmp_path)) == ["rules"]
    with pytest.raises(SnapshotError, match="is not a snapshot of an index, but of 'weft-ids'"):
        TreeIndex.open(tmp_path / "rules")
    (tmp_path / "file").write_text("")
    with pytest.raises(SnapshotError, match="exists and is not a snapshot"):
        index.save(tmp_path / "file")


def test_a_snapshot_of_a_tree_is_an_index_of_its_numbers(tmp_path):
    tree = TreeIndex()
    tree.add_texts([-1, 5, 2**40], ["x > 5", "x > 6", "x > 7"])
    tree.snapshot(tmp_path / "tree")
    index = Index.open(tmp_path / "tree")
    assert sorted(index.match({"x": 6.5})) == [-1, 5]
    assert [sorted(ids) for ids in index.match_batch([{"x": 9}, {"x": 0}]).lists()] == [[-1, 5, 2**40], []]
    index.add("text", "x > 8")
    index.check()


def test_a_damaged_index_is_refused(tmp_path):
    path = tmp_path / "rules"
    Index(RULES).save(path)
    whole = (path / "index.json").read_text()
    for damage in (whole[:-5], whole.replace("strong", "string"), "{}", "7", ""):
        (path / "index.json").write_text(damage)
        with pytest.raises(SnapshotError):
            Index.open(path)
    from weft.index.snapshot_files import write_meta

    good = {"format": "weft-ids", "version": 1, "numbers": [0, 1, 2], "ids": ["a", "b", "c"]}
    for wrong in (
        {"ids": ["a", "a", "b"]},
        {"ids": ["a", "b", 1.5]},
        {"numbers": [0, 1, 3]},
        {"version": 2},
        {"ids": 5},
    ):
        write_meta(path, good | wrong)
        with pytest.raises(SnapshotError, match=str(path)):
            Index.open(path)
    write_meta(path, good)
    assert sorted(Index.open(path).match(EVENTS[0])) == ["a", "b"]
    with pytest.raises(SnapshotError):
        Index.open(tmp_path / "nothing")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_a_fork_may_change_its_index():
    index = Index(RULES)
    reader, writer = os.pipe()
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with index._tree.changing:
            entered.set()
            leave.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    entered.wait(10)
    child = os.fork()
    if not child:
        index.add("child", "TRUE")
        os.write(writer, json.dumps(sorted(map(str, index.match({})))).encode())
        os._exit(0)
    leave.set()
    holder.join()
    os.waitpid(child, 0)
    assert json.loads(os.read(reader, 1000)) == ["child"]
    assert index.match({}) == []


def test_matches_go_on_while_others_change():
    index = Index({f"stay-{n}": f"x >= {n}" for n in range(50)})
    done, wrong = threading.Event(), []

    def read():
        while not done.is_set():
            ids = [*index.match({"x": 49}), *index.match_batch([{"x": 49}])[0]]
            if sum(name.startswith("stay-") for name in ids) != 100 or not all(isinstance(name, str) for name in ids):
                wrong.append(ids)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(60):
        index.update({f"go-{turn}-{n}": "x > 5" for n in range(20)})
        index.replace(f"stay-{turn % 50}", f"x >= {turn % 50}")
        index.update({f"stay-{turn % 50}": f"x >= {turn % 50}"})
        index.discard_many([f"go-{turn}-{n}" for n in range(20)])
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong
    index.check()


# --- whatever is given, the index answers as before or as it should ---------------------------------

TEXTS = ("x > 1", "x < 3 OR y = 'a'", "y LIKE '%a'", "x IS NULL", "FALSE", "x BETWEEN 1 AND 2 AND y = 'b'")
good_ids = st.sampled_from(["a", "b", "c", "", "1", 0, 1, -5, 2**63 - 1, np.int64(1), np.str_("a")])
bad_ids = st.sampled_from([None, True, 1.5, 2**63, b"a", (1,), "\ud800", np.float32(1), object()])
any_ids = st.one_of(good_ids, good_ids, good_ids, bad_ids)
any_filters = st.one_of(
    st.sampled_from(TEXTS),
    st.sampled_from(TEXTS).map(parse),
    st.sampled_from(TEXTS).map(normalize),
    st.sampled_from(
        [
            {"exact": {"y": "a"}},
            F.x > 1,
            "x =>",
            "",
            5,
            None,
            {"exact": 5},
            b"x > 1",
            normalize("x>1", Schema.of(x="int")),
        ]
    ),
)
PROBES = [{}, {"x": 0}, {"x": 1.5, "y": "b"}, {"x": 2, "y": "aa"}, {"x": 5, "y": "a"}]
ODD_EVENTS = [{"x": [b"1"]}, {"time": 10}, 7, None, {"x": 2**70}, {1: 2}, {"": 1}, [{"x": 1}], {"x": {"a": object()}}]


class Poisoning(RuleBasedStateMachine):
    """Calls of all kinds, many of them wrong; a dictionary says what must be there."""

    def __init__(self) -> None:
        super().__init__()
        self.index = Index()
        self.index._tree = TreeIndex(tail=3, fan=2, large=20)
        self.known = {}

    def change(self, call, effect):
        try:
            call()
        except WeftError:
            return
        effect()

    def keep(self, name, given):
        self.known[str(name) if isinstance(name, str) else int(name)] = given

    @rule(name=any_ids, given=any_filters)
    def add(self, name, given):
        self.change(lambda: self.index.add(name, given), lambda: self.keep(name, given))

    @rule(name=any_ids, given=any_filters)
    def replace(self, name, given):
        self.change(lambda: self.index.replace(name, given), lambda: self.keep(name, given))

    @rule(name=any_ids)
    def discard(self, name):
        self.change(lambda: self.index.discard(name), lambda: self.known.pop(name, None))

    @rule(entries=st.lists(st.tuples(any_ids, any_filters), max_size=5))
    def update(self, entries):
        self.change(lambda: self.index.update(entries), lambda: [self.keep(*entry) for entry in entries])

    @rule(event=st.sampled_from(ODD_EVENTS))
    def ask(self, event):
        with pytest.raises(EventError):
            self.index.match(event)
        assert list(self.index.match_batch([event]).errors) == [0]

    @rule()
    def settle(self):
        self.index.settle()

    @invariant()
    def answers_as_it_should(self):
        wanted = [by_kind(name for name, given in self.known.items() if self.meant(given, event)) for event in PROBES]
        assert [by_kind(self.index.match(event)) for event in PROBES] == wanted
        assert [by_kind(ids) for ids in self.index.match_batch(PROBES)] == wanted
        assert len(self.index) == len(self.known)
        assert set(self.index) == set(self.known)
        self.index.check()

    @staticmethod
    def meant(given, event):
        return (
            event in given if not isinstance(given, str | dict) and hasattr(given, "boxes") else matches(given, event)
        )


Poisoning.TestCase.settings = thorough(15)
TestPoisoning = Poisoning.TestCase


@thorough(25)
@given(st.lists(st.tuples(any_ids, st.sampled_from([*TEXTS, "x =>", ""])), min_size=1, max_size=4))
def test_no_refused_call_poisons_a_tree(entries):
    subs, texts = zip(*entries, strict=True)
    calls = (
        lambda index: index.add(*entries[0]),
        lambda index: index.add_texts(subs, texts),
        lambda index: index.replace(*entries[-1]),
        lambda index: index.discard_many(subs),
    )
    for index in (TreeIndex(tail=2), ScanIndex(), CountingIndex()):
        index.add(100, "x > 1")
        before = [index.match(event).tolist() for event in PROBES]
        for call in calls:
            try:
                call(index)
            except WeftError:
                assert [index.match(event).tolist() for event in PROBES] == before
                assert [ids.tolist() for ids in index.match_batch(PROBES)] == before
            index.check()
            before = [index.match(event).tolist() for event in PROBES]


def test_lint_judges_every_filter_by_the_events_that_are_given() -> None:
    index = Index({"good": "x > 5", 7: "xx > 5", "twin": "NOT x <= 5"})
    said = "\n".join(index.lint([{"x": 3}]).lines())
    assert "no event has 'xx'; did you mean 'x'?" in said
    assert "7: xx > 5" in said
    assert "duplicate" in said
    assert not list(Index({"good": "x > 5"}).lint([{"x": 3}]).lines())
