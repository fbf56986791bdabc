"""From Spark into a broker: what `weft aggregate` and `weft tune` wrote is what a broker begins with."""

from __future__ import annotations

import numpy as np
import pytest

from spark.told_items import update
from weft.algebra.bulk import columns_of_texts
from weft.language.meaning import matches
from weft.language.text import parse
from weft.model.schema import Schema
from weft.routing.table import Link
from weft.server.config import BrokerConfig
from weft.server.initial_load import InitialTable, routing_table
from weft.spark.aggregate import aggregate
from weft.spark.aggregate_files import save, session_names
from weft.spark.subscriptions import subscriptions
from weft.spark.tune import Samples, tune
from weft.testing import broker
from weft.tuning.budget import CostBudget
from weft.workloads.corners import corner_events

SCHEMA = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 100]} for name in "xy"}})
MODELS = {"covering": "covering", "subsumption": "negative", "merging": "merging", "mics": "mics", "dls": "dls"}
NORTH, AWAY = Link("north"), Link("away")


def drawn(count):
    rng = np.random.default_rng(9)
    low, wide = rng.integers(0, 60, (count, 2)).tolist(), rng.integers(1, 30, (count, 2)).tolist()
    boxes = zip(low, wide, strict=True)
    return [f"x BETWEEN {a} AND {a + c} AND y BETWEEN {b} AND {b + d}" for (a, b), (c, d) in boxes]


TEXTS = drawn(60)
EVENTS = corner_events(columns_of_texts(TEXTS), 100, np.random.default_rng(3))


def point(event):
    return tuple(None if event.get(name) is None else float(event[name]) for name in "xy")


@pytest.fixture
def schema_file(tmp_path):
    place = tmp_path / "schema.json"
    SCHEMA.save(place)
    return place


def told(table):
    """A neighbour that a table has told everything."""
    neighbour = table()
    neighbour.attach(NORTH)
    return neighbour


def hear(neighbour, updates):
    for each in updates:
        neighbour.learn(NORTH, each)


def all_told(table):
    """Everything that a table tells a new neighbour."""
    tells = table.attach(AWAY)
    while table.pending:
        tells += table.step(100)
    return [tell.update for tell in tells if tell.link == AWAY]


@pytest.mark.parametrize(
    "model", ["covering", *(pytest.param(each, marks=pytest.mark.slow) for each in list(MODELS)[1:])]
)
def test_a_broker_begins_with_what_was_aggregated(spark, tmp_path, schema_file, model):
    rows = [(f"s-{n}", text) for n, text in enumerate(TEXTS)]
    found = aggregate(spark.createDataFrame([*rows, ("bad", "x >")], "id string, filter string"), model, schema=SCHEMA)
    save(found, str(tmp_path / "reduced"))
    config = BrokerConfig(model=MODELS[model], schema=schema_file, load=tmp_path / "reduced")
    with broker(tmp_path / "data", config=config) as local:
        texts = local.call(lambda node: {name: node.core.subscriptions(name) for name, _ in rows})
        assert texts == {name: {1: text} for name, text in rows}
        with local.connect_sync() as client:
            client.publish_many(EVENTS)
            name, text = rows[0]
            wanted = [event for event in EVENTS if matches(text, event)]
            got = client.subscribe(text, name=name)
            assert [dict(next(got).attributes) for _ in wanted] == wanted
        updates = local.call(lambda node: all_told(node.core.table))
    by_broker = told(lambda: routing_table(config, SCHEMA))
    hear(by_broker, updates)
    by_spark = told(lambda: routing_table(config, SCHEMA))
    hear(by_spark, [update(found, SCHEMA)])
    for event in EVENTS:
        wanted = any(matches(text, event) for text in TEXTS)
        routed = by_broker.route(event, None)
        assert routed == by_spark.route(event, None)
        assert not wanted or routed == {NORTH}


def test_a_table_may_name_sessions_and_numbers(spark, tmp_path):
    rows = [(1, "x > 1", "s", 7, "alice"), (2, "x > 2", "s", 8, "alice"), (3, "x > 3", None, None, None)]
    columns = "id bigint, filter string, session string, subscription int, owner string"
    given = subscriptions(spark.createDataFrame(rows, columns))
    save(aggregate(given.texts()), str(tmp_path / "reduced"), names=session_names(given))
    found = sorted(tuple(row) for row in InitialTable.open(tmp_path / "reduced").rows())
    assert found == [("3", 1, "", "x > 3"), ("s", 7, "alice", "x > 1"), ("s", 8, "alice", "x > 2")]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mics", "dls"])
def test_a_broker_takes_the_parameters_that_were_tuned(spark, tmp_path, schema_file, model):
    given = spark.createDataFrame(list(enumerate(TEXTS)), "id bigint, filter string")
    events = spark.createDataFrame([point(event) for event in EVENTS], "x double, y double")
    samples = Samples(seed=1)
    tuned = tune(given, events, CostBudget(memory=65_536), model=model, schema=SCHEMA, samples=samples)
    tuned.save(tmp_path / "tuning.json")
    config = BrokerConfig(model=model, schema=schema_file, tuning=tmp_path / "tuning.json")
    table = routing_table(config, SCHEMA)
    chosen = table.spaces if model == "mics" else (table.space,)
    assert tuple(chosen) == tuple(tuned.tuned.space.groups if model == "mics" else (tuned.tuned.space,))
    with broker(tmp_path / "data", config=config) as local, local.connect_sync() as client:
        got = client.subscribe(TEXTS[0])
        client.publish_many(EVENTS)
        wanted = [event for event in EVENTS if matches(parse(TEXTS[0]), event)]
        assert [dict(next(got).attributes) for _ in wanted] == wanted
