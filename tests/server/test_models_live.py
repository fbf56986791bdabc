"""Options of models in brokers that run: what a neighbour is sent, and what it costs."""

from __future__ import annotations

import json
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from typer.testing import CliRunner

from weft.cli.app import app
from weft.client.sync import SyncClient
from weft.errors import FilterError, OptionError, RequestError
from weft.model.schema import Schema
from weft.routing.dls.space import LabelSpace
from weft.routing.options import OPTIONS
from weft.server.config import LinkConfig, load_config
from weft.testing.local_broker import LocalBroker

PATIENCE = 60.0
SCHEMA = {"attributes": {name: {"type": "float", "bounds": [0, 100]} for name in ("x", "y")}}
NESTED = [f"x BETWEEN {n} AND {n + 20} AND y < {50 + n % 5}" for n in range(0, 60, 4)]
NESTED += ["x > 5 AND x < 90 AND y > 20", "x > 10 AND x < 80 AND y > 30"]
NESTED += [f"x BETWEEN {n + 2} AND {n + 22} AND y < 45" for n in range(0, 40, 8)]  # covered by two of them


class Pair:
    """Two linked brokers: subscriptions at one, events at the other."""

    def __init__(self, stack: ExitStack, folder: Path, settings: dict[str, Any]) -> None:
        schema = folder / "schema.json"
        schema.write_text(json.dumps(SCHEMA))
        flags = {"memory": True, "listen": "weft://127.0.0.1:0", "schema": str(schema), **settings}

        def broker(name: str, neighbour: str, address: str) -> LocalBroker:
            from dataclasses import replace

            config = load_config(flags={**flags, "name": name}).config
            return stack.enter_context(LocalBroker(replace(config, links={neighbour: LinkConfig(address=address)})))

        self.near = broker("near", "far", "")
        self.far = broker("far", "near", self.near.address)
        self.brokers = {"near": self.near, "far": self.far}
        self.subscriber: SyncClient = stack.enter_context(self.far.connect_sync(name="subscriber"))
        self.publisher: SyncClient = stack.enter_context(self.near.connect_sync(name="publisher"))

    def subscribe(self, texts: list[str]) -> list[Any]:
        made = [self.subscriber.subscribe(text, name=f"s{number}") for number, text in enumerate(texts)]
        for each in made:
            each.complete(PATIENCE)
        return made

    def sent(self) -> int:
        """Items that the publishers' broker has of its neighbour."""
        return sum(1 for _ in self.publisher.items("far", direction="received"))

    def check(self, subscriptions: list[Any]) -> None:
        """Publish an event that everybody wants, one that nobody wants, and look."""
        self.publisher.publish({"x": 99.5, "y": 99.0}, timeout=PATIENCE)
        self.publisher.publish({"x": 18.0, "y": 10.0}, timeout=PATIENCE)
        for each, text in zip(subscriptions, NESTED, strict=False):
            from weft import matches

            if matches(text, {"x": 18.0, "y": 10.0}):
                assert each.receive(PATIENCE)["x"] == 18.0


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:
        yield lambda **settings: Pair(stack, tmp_path, {name.replace("__", "."): v for name, v in settings.items()})


def items(pair: Any, **settings: Any) -> int:
    two = pair(**settings)
    two.check(two.subscribe(NESTED))
    return two.sent()


LIVE: list[tuple[str, dict[str, str], str]] = [
    ("simple", {"model.local": "forest"}, "fewer"),
    ("identity", {"model.local": "merged"}, "fewer"),
    ("covering", {"model.structure": "poset"}, "same"),
    ("covering", {"model.tests": "1"}, "same"),
    ("merging", {"model.added_volume": "0.9"}, "fewer"),
    ("merging", {"model.scope": "aggregate"}, "same"),
    ("merging", {"model.lazy": "true"}, "same"),
    ("negative", {"model.k": "1", "model.zeta": "true", "model.selection": "cost"}, "more"),
    ("negative", {"model.boxes": "4"}, "more"),
    ("negative", {"model.rebuild": "false"}, "same"),
    ("mics", {"model.gap": "1000000"}, "fewer"),
    ("mics", {"model.cells": "8"}, "fewer"),
    ("mics", {"model.dimensions": "1"}, "fewer"),
    ("mics", {"model.attributes": "x"}, "fewer"),
    ("mics", {"model.cuts": "x 20 40, y 50"}, "fewer"),
    ("mics", {"model.cap": "2"}, "fewer"),
    ("mics-exact", {"model.attributes": "x"}, "same"),
    ("dls", {"model.cells": "4"}, "fewer"),
    ("dls", {"model.bundle": "2"}, "more"),
    ("dls", {"model.counters": "256", "model.hashes": "2", "model.growth": "0.2"}, "same"),
]


@pytest.mark.parametrize(
    ("model", "settings", "effect"),
    LIVE,
    ids=lambda value: " ".join(map("=".join, value.items())) if isinstance(value, dict) else str(value),
)
def test_an_option_holds_in_running_brokers(tmp_path: Path, model: str, settings: dict[str, str], effect: str) -> None:
    counts = []
    for flags in ({}, settings):
        with ExitStack() as stack:
            two = Pair(stack, tmp_path, {"model": model, **flags})
            two.check(two.subscribe(NESTED))
            counts.append(two.sent())
            status = two.publisher.status()
            assert (status.model, {f"model.{name}" for name in status.options}) == (model, {*flags})
    before, after = counts
    assert {"fewer": after < before, "same": after == before, "more": after > before}[effect], counts


def test_saturation_lets_few_filters_stay_precise(pair: Any, tmp_path: Path) -> None:
    wide = {"model": "merging", "model__added_volume": "0.9"}
    assert items(pair, **wide) < items(pair, **wide, model__saturation="100")


def test_a_small_counting_filter_costs_unwanted_events(pair: Any) -> None:
    ends = []
    for settings in ({}, {"model__counters": "2", "model__hashes": "1", "model__growth": "1"}):
        two = pair(model="dls", model__cells="16", **settings)
        (wanted,) = two.subscribe(["x BETWEEN 30 AND 32 AND y < 90"])
        two.publisher.publish_many([{"x": float(n), "y": 5.0} for n in range(100)])
        two.publisher.publish({"x": 31.0, "y": 6.0}, timeout=PATIENCE)
        while wanted.receive(PATIENCE)["y"] != 6.0:
            pass
        ends.append(two.subscriber.status().end)
    assert ends[1] > 4 * ends[0], "of the events that arrive"


def test_every_option_is_tried_in_running_brokers() -> None:
    alone = {"saturation"}
    assert {name.removeprefix("model.") for _, settings, _ in LIVE for name in settings} | alone == {*OPTIONS}


def test_unwanted_events_of_a_bounded_search_are_counted(pair: Any) -> None:
    two = pair(model="covering", model__tests=1)
    (first, *_) = two.subscribe(["x < 1", "x BETWEEN 2 AND 3 AND y < 1", "x BETWEEN 4 AND 5 AND y < 1"])
    two.publisher.publish({"x": 50.0, "y": 50.0}, timeout=PATIENCE)
    assert two.publisher.status().counts["assumed"] == 1
    two.publisher.publish({"x": 0.5, "y": 50.0}, timeout=PATIENCE)
    assert first.receive(PATIENCE)["x"] == 0.5


def test_retune_changes_the_space_of_a_running_network_by_evidence(pair: Any, tmp_path: Path) -> None:
    two = pair(model="dls", model__cells=4)
    (wanted,) = two.subscribe(["x BETWEEN 30 AND 32 AND y < 90"])
    for n in range(100):
        two.publisher.publish({"x": float(n), "y": n % 7 * 10.0}, timeout=PATIENCE)
    before = two.publisher.label_space()

    def run(*arguments: str) -> dict[str, Any]:
        given = ["retune", "--schema", str(tmp_path / "schema.json"), "--broker", two.near.address, "--json"]
        result = CliRunner().invoke(app, [*given, *arguments])
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    assert run("--dry-run")["retuned"] is False
    assert two.publisher.label_space() == before
    found = run()
    assert found["retuned"]
    assert found["unwanted_then"] < found["unwanted"]
    two.publisher.publish({"x": 31.0, "y": 5.0}, timeout=PATIENCE)
    while wanted.receive(PATIENCE)["y"] != 5.0:
        pass
    assert run()["retuned"] is False, "it pays only once"


def test_a_network_is_retuned_again_and_again_by_one_of_its_brokers(pair: Any) -> None:
    two = pair(model="dls", model__cells=4, retune_every="1 s")
    (wanted,) = two.subscribe(["x BETWEEN 30 AND 32 AND y < 90"])
    before = two.publisher.label_space()
    for n in range(100):
        two.publisher.publish({"x": float(n), "y": n % 7 * 10.0}, timeout=PATIENCE)
    deadline = monotonic() + 3 * PATIENCE  # a process of its own tunes, with the lowest priority
    while two.publisher.label_space() == before:
        assert monotonic() < deadline
        sleep(0.05)
    two.publisher.publish({"x": 31.0, "y": 5.0}, timeout=PATIENCE)
    while wanted.receive(PATIENCE)["y"] != 5.0:
        pass
    began = {name: each.call(lambda node: node.core.begins_retunings) for name, each in two.brokers.items()}
    assert began == {"far": True, "near": False}


def test_a_re_tuning_ends_with_its_broker(tmp_path: Path) -> None:
    place = tmp_path / "broker"
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    config = load_config(flags={"model": "dls", "schema": str(tmp_path / "schema.json"), "retune_every": "1 h"}).config
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(place))
        silent.listen()
        program = [sys.executable, "-c", "from weft.models.retuning import run_child; run_child()"]
        with subprocess.Popen(program, stdin=subprocess.PIPE) as child:
            assert child.stdin is not None
            child.stdin.write(pickle.dumps((config, f"weft+unix://{place}")))
            child.stdin.flush()
            silent.accept()[0].close()
            assert child.poll() is None, "it tries to reach the broker"
            child.stdin.close()
            assert child.wait(PATIENCE) == 1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"model": "covering"}, "retune_every is for label sets: set model.name to dls, not covering"),
        ({"model": "dls"}, "retune_every needs a schema"),
        ({"model": "dls", "schema": "s.toml", "retune_every": "1 ms"}, "retune_every is too short"),
    ],
)
def test_re_tuning_needs_labels_a_schema_and_a_second(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        load_config(flags={"retune_every": "1 h", **settings})


def test_only_one_broker_begins_and_a_client_finds_it(pair: Any) -> None:
    two = pair(model="dls", model__cells=4)
    two.subscribe(["x < 50"])
    space = LabelSpace.of(Schema.from_dict(SCHEMA), 16).to_json()
    from weft.protocol.questions import Retune

    with pytest.raises(RequestError, match="far begins all re-tunings of this network") as error:
        two.publisher.ask(Retune(space))
    assert error.value.code == "leader"
    assert "new label space" in two.publisher.retune(space)


@pytest.mark.parametrize("model", ["mics", "dls"])
def test_a_client_maps_its_events(pair: Any, model: str, tmp_path: Path) -> None:
    """The option, and the command; a client that does not map them publishes beside."""
    two = pair(model=model)
    (wanted,) = two.subscribe(["x > 50"])
    with two.near.connect_sync(name="mapping", map_events=True) as client:
        deadline = monotonic() + PATIENCE
        while "places examined" not in two.publisher.status().counts:
            client.publish({"x": 10.0, "y": 5.0}, timeout=PATIENCE)
            assert monotonic() < deadline
        before = two.publisher.status().counts
        client.publish_many({"x": float(n), "y": 5.0} for n in range(100))
        two.publisher.publish({"x": 60.5, "y": 5.0}, timeout=PATIENCE)
        after = two.publisher.status().counts
    mapped, examined = (after[what] - before[what] for what in ("events mapped", "places examined"))
    assert mapped == examined + 1, "the broker maps what it examines, and the one event without a place"
    assert [wanted.receive(PATIENCE)["x"] for _ in range(50)] == [*map(float, range(51, 100)), 60.5]
    (tmp_path / "events.json").write_text('[{"x": 70, "y": 1}]')
    given = ["pub", str(tmp_path / "events.json"), "--map-events", "--broker", two.near.address]
    assert CliRunner().invoke(app, given).exit_code == 0
    assert wanted.receive(PATIENCE)["x"] == 70
    assert "wrong places" not in two.publisher.status().counts


def test_a_network_that_is_retuned_tells_its_clients(pair: Any) -> None:
    two = pair(model="dls", model__cells=4)
    (wanted,) = two.subscribe(["x > 50"])
    with two.near.connect_sync(name="mapping", map_events=True) as client:
        seen = 0
        for cells in (8, 16):
            two.publisher.retune(LabelSpace.of(Schema.from_dict(SCHEMA), cells).to_json())
            deadline = monotonic() + PATIENCE
            while two.publisher.status().counts.get("places examined", 0) == seen:  # the first in each space
                client.publish({"x": 51.0, "y": 5.0}, timeout=PATIENCE)
                wanted.receive(PATIENCE)
                assert monotonic() < deadline
            seen = two.publisher.status().counts["places examined"]
    assert "wrong places" not in two.publisher.status().counts


def test_a_model_without_labels_is_not_retuned(pair: Any) -> None:
    two = pair(model="covering")
    with pytest.raises(RequestError, match="there is nothing to re-tune"):
        two.publisher.label_space()


# -- predicates ---------------------------------------------------------------------------------------


def test_predicates_and_taxonomies_come_from_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_predicates.py").write_text(
        "from weft.model.value import Type\n"
        "class Even:\n"
        "    name, type = 'even', Type.INT\n"
        "    def check(self, arguments):\n"
        "        if arguments: raise ValueError('even takes an attribute only')\n"
        "    def matches(self, value, arguments): return value % 2 == 0\n"
        "    def covers(self, wide, narrow): return True\n"
        "    def overlaps(self, one, other): return True\n"
        "PREDICATES = [Even()]\n"
    )
    (tmp_path / "kinds.toml").write_text('car = ["vehicle"]\n')
    (tmp_path / "more.json").write_text('{"van": ["car"]}')
    monkeypatch.syspath_prepend(tmp_path)
    settings = tmp_path / "weft.toml"
    settings.write_text('predicates = ["acme_predicates"]\ntaxonomy = ["kinds.toml", "more.json"]\nmemory = true\n')
    config = load_config(settings, flags={"listen": "weft://127.0.0.1:0"}).config
    with LocalBroker(config) as local, local.connect_sync() as client:
        wanted = client.subscribe("even(n) AND is_a(kind, 'vehicle')")
        for n, kind in ((1, "van"), (2, "house"), (4, "van")):
            client.publish({"n": n, "kind": kind}, timeout=PATIENCE)
        assert wanted.receive(PATIENCE)["n"] == 4
        with pytest.raises(FilterError, match="unknown predicate 'odd'"):
            client.subscribe("odd(n)")


# -- rates --------------------------------------------------------------------------------------------


def test_a_rate_is_shown_changed_and_kept_through_a_restart(tmp_path: Path) -> None:
    from weft.testing import broker

    with broker(tmp_path / "data") as local, local.connect_sync() as client:
        wanted = client.subscribe("x >= 0", name="alerts", rate="2/d")
        for x in range(5):
            client.publish({"x": x}, timeout=PATIENCE)
        assert [wanted.receive(PATIENCE)["x"] for _ in range(2)] == [0, 1]
        assert client.status().counts["suppressed"] == 3
        client.change("alerts", 1, "x >= 1")
        assert [each.filter for each in client.subscriptions("alerts")] == ["x >= 1 AT MOST 2/d"]
    with broker(tmp_path / "data") as local, local.connect_sync() as client:
        assert [each.filter for each in client.subscriptions("alerts")] == ["x >= 1 AT MOST 2/d"]
        client.publish({"x": 7}, timeout=PATIENCE)
        assert client.status().counts["suppressed"] == 1, "nothing is left after a restart"
        again = client.subscribe("x >= 1", name="alerts")
        client.publish({"x": 8}, timeout=PATIENCE)
        while again.receive(PATIENCE)["x"] != 8:
            pass
