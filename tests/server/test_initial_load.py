"""Subscriptions that a broker begins with: as if their clients had subscribed, once, and checked as theirs are."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from server.wire import run
from weft.cli.app import app
from weft.errors import OptionError, TuningError
from weft.model.schema import Schema
from weft.routing.dls.space import LabelSpace
from weft.server.config import BrokerConfig
from weft.server.initial_load import FACTS, SUBSCRIPTIONS, InitialTable, check_rows, load, routing_table
from weft.server.log_lines import LogLines
from weft.server.serve import start
from weft.server.workers import home_of
from weft.space.content import ContentSpace
from weft.space.grid import Grid
from weft.testing import broker

SCHEMA = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 100]} for name in "xy"}})


def table(folder, rows, model="covering", parameters=None, **columns):
    """A folder as `weft aggregate` writes it, as far as a broker reads it."""
    place = folder / SUBSCRIPTIONS
    place.mkdir(parents=True)
    data = {"session": [name for name, _ in rows], "filter": [text for _, text in rows], **columns}
    pq.write_table(pa.table(data), place / "part-00000.parquet")
    (folder / FACTS).mkdir()
    facts = {"model": model, "parameters": parameters or {}}
    lines = [json.dumps({"name": name, "json": json.dumps(value)}) for name, value in facts.items()]
    (folder / FACTS / "part-00000.json").write_text("\n".join(lines) + "\n")
    return folder


def held(local, *sessions):
    return local.call(lambda node: {name: node.core.subscriptions(name) for name in sessions})


def test_what_was_loaded_is_delivered_to_the_client_that_subscribes_under_its_name(tmp_path):
    folder = table(tmp_path / "reduced", [("alarm", "x > 5"), ("low", "x < 2")])
    with broker(tmp_path / "data", config=BrokerConfig(load=folder)) as local:
        with local.connect_sync() as client:
            client.publish_many([{"x": 9}, {"x": 1}, {"x": 7}])  # before anybody else connects
        with local.connect_sync() as client:
            alarms = client.subscribe("x > 5", name="alarm")
            assert [next(alarms)["x"] for _ in range(2)] == [9, 7]
            assert next(client.subscribe("x < 2", name="low"))["x"] == 1
        local.call(lambda node: node.core.check())


def test_loading_again_changes_nothing_and_clients_have_the_last_word(tmp_path):
    folder = table(tmp_path / "reduced", [("a", "x > 1"), ("b", "x > 2"), ("c", "x > 3")])
    with broker(tmp_path / "data", config=BrokerConfig(load=folder)) as local:
        with local.connect_sync() as client:
            client.subscribe("x > 20", name="b").close()
            client.subscribe("x > 3", name="c").unsubscribe()
        left = held(local, "a", "b", "c")
        local.stop()
        local.start()
        assert held(local, "a", "b", "c") == left == {"a": {1: "x > 1"}, "b": {1: "x > 20"}, "c": {}}
    newer = table(tmp_path / "newer", [("a", "x > 100"), ("d", "x > 4")])
    with broker(tmp_path / "data", config=BrokerConfig(load=newer)) as local:
        assert held(local, "a", "b", "d") == {"a": {1: "x > 1"}, "b": {1: "x > 20"}, "d": {1: "x > 4"}}


def test_a_load_that_was_interrupted_is_completed(tmp_path):
    rows = [(f"s{n}", f"x > {n}") for n in range(1_200)]
    whole = InitialTable.open(table(tmp_path / "reduced", rows))
    half = table(tmp_path / "half", rows[:700])
    config = BrokerConfig(load=half)
    with broker(tmp_path / "data", config=config):
        pass  # the first rows are stored, and the digest of the whole is not
    with broker(tmp_path / "data", config=replace(config, load=whole.path)) as local:
        found = held(local, *(name for name, _ in rows))
        assert found == {name: {1: text} for name, text in rows}
        local.call(lambda node: node.core.check())


def test_rows_name_sessions_numbers_and_owners(tmp_path):
    rows = [("s", "x > 1"), ("s", "x > 2"), ("t", "x > 3")]
    folder = table(tmp_path / "reduced", rows, subscription=[7, 300, 1], owner=["alice", "alice", "bob"])
    with broker(tmp_path / "data", config=BrokerConfig(load=folder)) as local:
        assert held(local, "s", "t") == {"s": {7: "x > 1", 300: "x > 2"}, "t": {1: "x > 3"}}
        local.call(lambda node: node.core.check())
    named = InitialTable.open(table(tmp_path / "other", rows))
    with pytest.raises(OptionError, match="'s' has no owner, and clients of this broker have names: add a column"):
        check_rows(named, named=True)
    assert check_rows(InitialTable.open(folder), named=True) == 3


def test_a_filter_that_cannot_be_used_is_left_out_and_said(tmp_path):
    folder = table(tmp_path / "reduced", [("a", "x >"), ("b", "x > 2")])
    config = BrokerConfig(load=folder, memory=True, listen=("weft://127.0.0.1:0",))
    lines = []

    async def body():
        async with start(config, LogLines(write=lines.append, level="warning")) as node:
            return node.core.subscriptions("a"), node.core.subscriptions("b")

    assert run(body()) == ({}, {1: "x > 2"})
    assert any("subscriptions refused" in line and "count=1" in line for line in lines)
    with pytest.raises(OptionError, match=r"1 of 2 subscriptions cannot be loaded; the first is session 'a': expected"):
        check_rows(InitialTable.open(folder), named=False)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda place: None, "has no subscriptions: name a folder of"),
        (lambda place: place.write_text("id,filter\n"), "is not a parquet file"),
        (lambda place: pq.write_table(pa.table({"session": ["a"], "filters": ["x"]}), place), "did you mean 'filters'"),
        (lambda place: pq.write_table(pa.table({"filter": ["x > 1"]}), place), "has no column 'session', only filter"),
    ],
)
def test_what_is_not_a_table_is_refused(tmp_path, make, match):
    make(tmp_path / "given.parquet")
    with pytest.raises(OptionError, match=match):
        InitialTable.open(tmp_path / "given.parquet")


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"session": [None], "filter": ["x > 1"]}, "row 1 names no session"),
        ({"session": ["a"], "filter": [None]}, "row 1 has no filter"),
        ({"session": ["a"], "subscription": [-1], "filter": ["x > 1"]}, "must be a number below"),
        ({"session": ["a"], "subscription": ["one"], "filter": ["x > 1"]}, "must be a number below"),
    ],
)
def test_a_row_that_names_no_subscription_is_an_error(tmp_path, columns, match):
    place = tmp_path / "given.parquet"
    kinds = {"session": pa.string(), "filter": pa.string()}
    pq.write_table(pa.table({name: pa.array(values, kinds.get(name)) for name, values in columns.items()}), place)
    with pytest.raises(OptionError, match=match):
        list(InitialTable.open(place).rows())


def test_check_reads_the_table_and_says_what_is_wrong(tmp_path):
    good = table(tmp_path / "good", [("a", "x > 1")])
    bad = table(tmp_path / "bad", [("a", "x >")])
    shown = CliRunner().invoke(app, ["serve", "--load", str(good), "--check", "--json"])
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)["settings"]["load"] == str(good)
    assert CliRunner().invoke(app, ["serve", "--load", str(bad), "--check"]).exit_code == 1
    assert CliRunner().invoke(app, ["serve", "--load", str(tmp_path / "none"), "--check"]).exit_code == 1


def test_the_space_of_an_aggregation_is_that_of_the_table(tmp_path):
    mics, dls = ContentSpace(Grid.uniform(SCHEMA, 8)), LabelSpace.of(SCHEMA, 5)
    for model, space in (("mics", mics), ("dls", dls)):
        folder = table(tmp_path / model, [("a", "x > 1")], model, json.loads(space.to_json()))
        loaded = routing_table(BrokerConfig(model=model, load=folder), SCHEMA)
        plain = routing_table(BrokerConfig(model=model), SCHEMA)
        assert json.dumps(space.parameters, separators=(",", ":")) in loaded.fingerprint.replace(" ", "")
        assert loaded.fingerprint != plain.fingerprint
        other = routing_table(BrokerConfig(model="covering", load=folder), SCHEMA)
        assert other.fingerprint == routing_table(BrokerConfig(), SCHEMA).fingerprint


def test_a_tuning_that_does_not_fit_is_refused(tmp_path):
    file = tmp_path / "tuning.json"
    file.write_text("{}")
    with pytest.raises(TuningError, match="not a tuning file"):
        routing_table(BrokerConfig(tuning=file, model="mics"), SCHEMA)


def test_every_worker_loads_its_own_sessions(tmp_path):
    rows = [(f"s{n}", f"x > {n}") for n in range(60)]
    given = InitialTable.open(table(tmp_path / "reduced", rows))
    found = []
    for worker in range(3):
        with broker() as local:

            def at_home(node, worker=worker):
                def is_home(session):
                    return home_of(session, 3) == worker

                return load(node.core, node.log, given.rows(), given.digest(), is_home=is_home).added

            assert local.call(at_home) == sum(home_of(name, 3) == worker for name, _ in rows)
            found += [name for name, subs in held(local, *(name for name, _ in rows)).items() if subs]
    assert sorted(found) == sorted(name for name, _ in rows)
