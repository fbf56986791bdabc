"""What the player and the page of rings show: the state of the recording, steps, marks, whom one follows, one clock."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from weft.console.views.ring import RingPageRequest, live_ring, ring_view
from weft.console.views.runs import RunRequest, compare_view, run_view, runs_list, streams_complete
from weft.errors import OptionError
from weft.recording import Recording, RunRecorder, RunState
from weft.server.ring_status import NodeReport
from weftlab.faults.campaign import Setting
from weftlab.faults.recorded import record_faults
from weftlab.mobility.campaign import NetworkSettings, prepared
from weftlab.mobility.recorded import record_run
from weftlab.mobility.script import busy
from weftlab.ring.recorded import record_ring
from weftlab.ring.ring_comparison import RingOptions, designs
from weftlab.ring.ring_workload import RingWorkloadSettings, ring_workload


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs")
    scene = prepared(NetworkSettings(areas=2, routers=4), busy(moves=4), 1)
    for protocol in ("acyclic", "weft"):
        record_run(protocol, *scene, path / f"{protocol}.weftrun")
    record_faults(Setting(steps=20, network=True, brokers=4, model="covering").plan(3), path / "faults.weftrun")
    workload = ring_workload(RingWorkloadSettings(nodes=20, ring=256, subscriptions=40, events=8), 1)
    record_ring(
        workload, "topic groups", designs(RingOptions(depth=3, rotation=9))["topic groups"], 1, path / "ring.weftrun"
    )
    (path / "broken.weftrun").write_text("not a recording at all, but long enough to be looked at " * 30)
    return path


def test_recordings_are_listed_and_what_is_none_is_named(folder: Path) -> None:
    rows = {row["name"]: row for row in runs_list(str(folder))["runs"]}
    assert sorted(rows) == ["acyclic", "broken", "faults", "ring", "weft"]
    assert "is not a recording" in rows["broken"]["problem"]
    assert (rows["faults"]["kind"], rows["faults"]["protocol"]) == ("faults", "covering")
    assert runs_list(str(folder / "none"))["runs"] == []


@pytest.mark.parametrize("name", ["acyclic", "weft", "faults"])
def test_the_picture_is_the_state_of_the_recording(folder: Path, name: str) -> None:
    recording = Recording(folder / f"{name}.weftrun")
    for step in range(0, recording.size + 1, 17):
        found = run_view(str(folder), RunRequest(name, step=step))
        state = recording.state(step)
        nodes = {node["name"]: node for node in found["picture"]["nodes"]}
        for kind, key in (("subscriptions", "subscriptions"), ("advertisements", "adverts")):
            wanted = dict.fromkeys(nodes, 0)
            for table, items in state.tables.items():
                if table.endswith(kind):
                    wanted[table.split("/")[1]] += len(items)
            assert {each: node[key] for each, node in nodes.items()} == wanted
        assert sum(node["clients"] for node in nodes.values()) == sum(at >= 0 for at in state.streams.values())
        for broker in list(nodes)[:3]:
            tables = run_view(str(folder), RunRequest(name, step=step, broker=broker))["tables"]
            mine = [items for table, items in state.tables.items() if table.split("/")[1] == broker]
            assert sorted(table["count"] for table in tables) == sorted(map(len, mine))


def test_one_follows_a_client(folder: Path) -> None:
    start = run_view(str(folder), RunRequest("weft", step=0))
    client = next(name for name in start["names"] if name.startswith("s"))
    seen, step = [], 0
    while (found := run_view(str(folder), RunRequest("weft", step=step, follow=client)))["next"] is not None:
        step = found["next"]
        seen.append(step)
        assert found["previous"] is None or found["previous"] < step
    assert seen == sorted(set(seen))
    assert [row["step"] for row in run_view(str(folder), RunRequest("weft", step=0, follow=client))["list"]] == seen[
        :30
    ]


def test_two_runs_are_at_the_same_time(folder: Path) -> None:
    recordings = {name: list(Recording(folder / f"{name}.weftrun").steps()) for name in ("acyclic", "weft")}
    for step in range(1, len(recordings["weft"]), 23):
        both = compare_view(str(folder), RunRequest("weft", step=step), "acyclic")
        at = recordings["weft"][step - 1].at
        assert both["one"]["at"] == at
        assert both["one"]["figures"]["brokers updated"] <= both["one"]["figures"]["updated at most"]
        assert both["other"]["step"] == sum(each.at <= at for each in recordings["acyclic"])


def test_failed_assertions_are_marks(tmp_path: Path) -> None:
    with RunRecorder(tmp_path / "x.weftrun", {"kind": "faults", "brokers": ["a"], "links": []}) as recorder:
        recorder.step(1, "", {"messages": [["a", "b", "hello", ""]]})
        recorder.step(2, "", {"assertions": {"nothing is lost": False, "order": True}})
        recorder.step(3, "end", {})
    found = run_view(str(tmp_path), RunRequest("x"))
    assert found["marks"] == [(2, "failed", "nothing is lost"), (3, "phase", "end")]
    assert found["failed"] == 1


def test_streams_are_subscriptions_that_meet_an_advertisement() -> None:
    tables = {
        "0/a/b/subscriptions": {1: "x > 5", 2: "y = 1", 3: "points 3 to 5 of curve 0"},
        "0/a/c/advertisements": {1: "x < 9 AND y = 2"},
        "0/b/a/subscriptions": {1: "x > 5"},
    }
    assert streams_complete(RunState(tables, {}, {})) == {"a": 1}


def test_a_name_that_leaves_the_folder_is_refused(folder: Path) -> None:
    for name in ("../weft", "none", "", "/etc/passwd"):
        with pytest.raises(OptionError, match="there is no recording"):
            run_view(str(folder), RunRequest(name))


def test_a_ring_is_its_recording(folder: Path) -> None:
    recording = Recording(folder / "ring.weftrun")
    for step in (1, 20, recording.size):
        found, state = ring_view(str(folder), RingPageRequest("ring", step=step)), recording.state(step)
        assert {node["name"]: node["id"] for node in found["nodes"]} == state.streams
        for node in found["nodes"]:
            assert node["load"] == len(state.tables.get(f"0/{node['name']}/records/subscriptions", ()))
            assert set(node["fingers"]) == set(state.tables[f"0/{node['name']}/fingers/ring"].values())
        assert sum(node["share"] for node in found["nodes"]) == pytest.approx(1)
    chosen = ring_view(str(folder), RingPageRequest("ring", node=found["nodes"][3]["name"]))["chosen"]
    assert len(chosen["records"]) == chosen["load"]
    assert found["topics"]
    with pytest.raises(OptionError, match="not the recording of a ring"):
        ring_view(str(folder), RingPageRequest("weft"))


def test_a_live_ring_is_what_its_nodes_report() -> None:
    quarter = 1 << 30
    counts = dict.fromkeys(
        ("records", "subscriptions", "published", "visited", "received", "waiting", "owed", "given_up", "lost"), 0
    )
    report = NodeReport(
        id=quarter, address="weft://h:1", broker="north", clients=[], joined=True, predecessor="",
        successors=["weft://h:2"], load=12, topics=["t"], unreachable={"h:3": "16:00"}, **counts,
    )  # fmt: skip
    other = msgspec.structs.replace(report, id=3 * quarter, address="weft://h:2", joined=False, load=4)
    found = live_ring([other, report], 4 * quarter, "h:2")
    assert [(node["name"], node["state"], node["share"]) for node in found["nodes"]] == [
        ("h:1", "serving", 0.5),
        ("h:2", "joining", 0.5),
    ]
    assert found["nodes"][0]["at"] == (940.0, 500.0), "a quarter of the circle"
    assert (found["largest"], found["topics"]) == (12, ["t"])
    assert found["chosen"]["facts"]["Broker"] == "north"
    assert "h:3 does not answer since 16:00" in found["title"]
