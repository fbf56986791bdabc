"""What a user types: `weft ring serve`, `weft pub` and `weft sub` with general topics, ranges and partial match."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import weft
from free_ports import free_ports
from server.test_ring import RingProgram
from weft.cli.app import app

WEFT = [sys.executable, "-m", "weft"]
GENERAL = ["--topic", "kind", "--general", "sport=tennis,chess"]
EVENTS = [
    {"kind": "tennis"},
    {"kind": "sport"},
    {"kind": "golf"},
    {"price": [30, 45]},
    {"price": [10, 20]},
    {"a": 10},
    {"a": 10, "b": 1},
]
SUBSCRIPTIONS: dict[tuple[str, ...], list[dict[str, Any]]] = {
    ("kind = 'sport'", *GENERAL): [{"kind": "tennis"}, {"kind": "sport"}],
    ("kind = 'chess'", *GENERAL): [{"kind": "sport"}],
    ("price > 40", "--ranges", "overlap"): [{"price.low": 30, "price.high": 45}],
    ("price < 25", "--ranges", "covering"): [{"price.low": 10, "price.high": 20}],
    ("a < 20 AND b > 5", "--partial"): [{"a": 10}],
}


@pytest.mark.parametrize("share", ["replication:2:1", pytest.param("partition:2:1", marks=pytest.mark.slow)])
def test_general_topics_ranges_and_partial_match_on_a_ring_that_shares_its_load(tmp_path: Path, share: str) -> None:
    options = [*GENERAL, "--share", share, "--intervals", "price=0:100:10"]
    first = RingProgram(tmp_path / "a", "", *options)
    nodes = [first]
    subscribers: list[subprocess.Popen[str]] = []
    try:
        nodes.append(RingProgram(tmp_path / "b", first.ring, *options))
        events = tmp_path / "events.jsonl"
        events.write_text("\n".join(map(json.dumps, EVENTS)))
        for arguments, expected in SUBSCRIPTIONS.items():
            count = str(3 * len(expected))
            command = [*WEFT, "sub", *arguments, "--broker", nodes[1].clients, "--json", "--count", count]
            subscribers.append(subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8"))
        for _ in range(100):  # until the last of them is complete, and has got three rounds
            if all(each.poll() is not None for each in subscribers):
                break
            publish = [*WEFT, "pub", str(events), "--range", "price", "--broker", first.clients]
            subprocess.run(publish, check=True, capture_output=True, timeout=120)
        for subscriber, expected in zip(subscribers, SUBSCRIPTIONS.values(), strict=True):
            lines = subscriber.communicate(timeout=120)[0].splitlines()
            got = [json.loads(line)["attributes"] for line in lines]
            assert {json.dumps(each) for each in got} == {json.dumps(each) for each in expected}
    finally:
        for subscriber in subscribers:
            subscriber.kill()
            subscriber.wait()
        for each in nodes:
            each.end()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sub", "kind = 'a'", "--general", "a=b"), "belong together"),
        (("sub", "x > 1", "--partial", "--ranges", "overlap"), "cannot be combined"),
        (("sub", "kind = 'a'", "--topic", "kind", "--general", "a=,"), "write NAME=TOPIC,TOPIC"),
        (("sub", "x > 1", "--ranges", "near"), "covering or overlap, not 'near'"),
        (("ring", "serve", "--new-ring", "--memory", "--general", "a=b"), "general topics need the attribute"),
        (("ring", "serve", "--new-ring", "--memory", "--topic", "k", "--general", "a=b", "--general", "b=a"), "cycle"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_what_to_do(arguments: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code != 0
    told = f"{done.stderr} {done.exception}"
    assert said in " ".join(told.replace("│", " ").split()), told


def test_what_status_counts_how_a_node_is_called_and_how_one_that_differs_ends() -> None:
    port = free_ports()
    serve = [*WEFT, "ring", "serve", "--memory", "--listen", "weft://127.0.0.1:0", "--intervals"]
    first = subprocess.Popen(
        [*serve, "x=0:1000:20", "--ring", f"127.0.0.1:{port}", "--new-ring"], stderr=subprocess.PIPE, encoding="utf-8"
    )
    try:
        assert first.stderr is not None
        clients = next(found[1] for line in first.stderr if (found := re.search(r" listening address=(\S+)", line)))
        ring = f"127.0.0.1:{port}"
        with weft.connect_sync(clients, timeout=60) as client, client.subscribe("x BETWEEN 100 AND 800") as wanted:
            wanted.complete(timeout=60)
            status = CliRunner().invoke(app, ["ring", "status", ring, "--json"])
            (node,) = json.loads(status.stdout)["nodes"]
            assert node["broker"] == f"127.0.0.1-{port}", "without --name it is called after its address"
            assert node["subscriptions"] == 1
            assert node["records"] > 10, "a subscription has a record under each of its keys"
            shown = CliRunner().invoke(app, ["ring", "status", ring], env={"COLUMNS": "200"}).stdout
            assert "subscriptions of its clients" in shown
            assert "records that it stores" in shown
        other = subprocess.run(
            [*serve, "x=0:1000:30", "--ring", "127.0.0.1:0", "--join", ring],
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        assert other.returncode != 0, "it does not try for ever"
        assert "the nodes differ: this ring has 2 replicas and intervals of x from 0 to 1000 in 20" in other.stderr
    finally:
        first.kill()
        first.communicate()
