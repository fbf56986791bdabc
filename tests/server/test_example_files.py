"""The examples of running brokers are valid, and the overlay works."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from free_ports import free_ports
from server.wire import connect, run
from weft.protocol.addresses import Address
from weft.protocol.messages import Complete, Hello, Publish, Subscribe
from weft.server.config import load_config

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def test_the_settings_of_the_overlay_are_a_tree():
    configs = {path.stem: load_config(path).config for path in (EXAMPLES / "overlay").glob("*.toml")}
    assert {name: set(config.links) for name, config in configs.items()} == {
        "north": {"middle"},
        "middle": {"north", "south"},
        "south": {"middle"},
    }
    for name, config in configs.items():
        assert config.name == name
        for peer, link in config.links.items():
            assert not link.address or link.address == configs[peer].listen[0]


@pytest.mark.parametrize("file", ["weft.service", "Containerfile"])
def test_the_commands_of_the_examples_exist(file):
    from typer.main import get_command

    from weft.cli.app import app

    known = {name for option in get_command(app).commands["serve"].params for name in option.opts}
    text = (EXAMPLES / file).read_text(encoding="utf-8").replace('"', " ").replace(",", " ")
    lines = re.findall(r"/opt/weft/bin/weft +serve (.*)", text)
    assert lines
    for line in lines:
        assert {word for word in shlex.split(line.rstrip("] ")) if word.startswith("--")} <= known


@pytest.mark.slow
def test_three_brokers_start_with_one_script(tmp_path):
    first = free_ports(6)
    for path in (EXAMPLES / "overlay").iterdir():
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"\b70(0[123])\b", lambda found: str(first + int(found[1]) - 1), text)
        text = re.sub(r"\b71(0[123])\b", lambda found: str(first + int(found[1]) + 2), text)
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    environment = {**os.environ, "WEFT": f"{sys.executable} -m weft", "DATA": str(tmp_path / "data")}
    script = subprocess.Popen(
        ["/bin/sh", tmp_path / "run.sh"], env=environment, stderr=subprocess.PIPE, encoding="utf-8"
    )
    try:
        ready = 0
        while ready < 3:
            ready += " info ready " in script.stderr.readline()

        async def body():
            north, south = (Address("weft", "localhost", first + n) for n in (0, 2))
            reader = await connect(north, Hello(session="reader"))
            reader.send(Subscribe(1, "x > 5"))
            await reader.get(Complete)
            writer = await connect(south)
            writer.send(Publish.of(1, {"x": 6}))
            await reader.delivered(1)
            health = await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{first + 4}/health")
            with health:
                assert json.load(health) == {"ready": True, "stopping": False, "links": 2, "cold links": []}

        run(body())
        script.send_signal(signal.SIGTERM)
        assert script.stderr.read().count(" info stopped") == 3
    finally:
        script.terminate()
        script.wait()
        script.stderr.close()


def test_the_files_of_operation_name_metrics_and_settings_that_exist():
    from weft.server.metrics import metrics_of
    from weft.testing import broker

    folder = EXAMPLES / "operations"
    with broker() as local:
        found = local.call(lambda node: metrics_of(node.core.status(1)))
    known = {f"{each.name}_total" if each.type == "counter" else each.name for each in found} | {
        "weft_http_refused_total"
    }
    for path in (folder / "alerts.yaml", folder / "grafana" / "weft.json"):
        used = set(re.findall(r"\bweft_\w+", path.read_text(encoding="utf-8")))
        assert used
        assert used <= known, path
    labels = {each.name: {*each._labelnames, "instance"} for each in found}
    rules = yaml.safe_load((folder / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        for name in re.findall(r"\bweft_\w+", rule["expr"]):
            named = {
                *re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]),
                *re.findall(r"[{,](\w+)=", rule["expr"]),
            }
            assert named <= labels[name.removesuffix("_total")], rule["alert"]
    board = json.loads((folder / "grafana" / "weft.json").read_text(encoding="utf-8"))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    config = load_config(folder / "weft.toml").config
    assert config.gateway.listen == "0.0.0.0:9380"
    services = yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))["services"]
    for volume in (each for service in services.values() for each in service["volumes"]):
        mounted = volume.partition(":")[0]
        assert not mounted.startswith(".") or (folder / mounted).is_file(), mounted
    scraped = yaml.safe_load((folder / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"][0]
    assert scraped["static_configs"] == [{"targets": [f"weft:{config.http.rpartition(':')[2]}"]}]
    assert f'up{{job="{scraped["job_name"]}"}}' in [rule["expr"].partition(" ")[0] for rule in rules]


@pytest.mark.parametrize("path", [".github/**/*.yml", "examples/operations/**/*.yaml", "CITATION.cff"])
def test_files_in_yaml_can_be_read(path):
    found = list(EXAMPLES.parent.glob(path))
    assert found
    for each in found:
        assert yaml.safe_load(each.read_text(encoding="utf-8"))
