"""The pages of the group Understand in a browser: they show what the API says; keys, mouse, state in the address."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from console.console_lab import ConsoleTab, api
from server.test_ring import RingProgram
from weft.console.views.filter_steps import FilterSource, Generator, filter_steps
from weft.language.meaning import matches
from weft.recording import Recording, RunRecorder
from weft.server.config import BrokerConfig, GatewayConfig
from weft.testing import broker
from weftlab.faults.campaign import Setting
from weftlab.faults.recorded import record_faults
from weftlab.mobility.campaign import NetworkSettings, prepared
from weftlab.mobility.recorded import record_run
from weftlab.mobility.script import busy
from weftlab.ring.recorded import record_ring
from weftlab.ring.ring_comparison import RingOptions, designs
from weftlab.ring.ring_workload import RingWorkloadSettings, ring_workload

HOSTILE = "<img src=x onerror=alert(1)>\u202e${x}"
WANTED = ("magnitude >= 5", "magnitude >= 6 AND depth < 70", f"place = '{HOSTILE}'", "depth < 10")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    scene = prepared(NetworkSettings(areas=2, routers=4), busy(moves=4), 1)
    for protocol in ("acyclic", "weft"):
        record_run(protocol, *scene, path / f"{protocol}.weftrun")
    record_faults(Setting(steps=20, network=True, brokers=4, model="covering").plan(3), path / "faults.weftrun")
    workload = ring_workload(RingWorkloadSettings(nodes=20, ring=256, subscriptions=40, events=8), 1)
    design = designs(RingOptions(depth=3, rotation=9))["topic groups"]
    record_ring(workload, "topic groups", design, 1, path / "ring.weftrun")
    meta = {
        "kind": "faults",
        "protocol": HOSTILE,
        "topology": HOSTILE,
        "brokers": ["a", HOSTILE],
        "links": [["a", HOSTILE]],
    }
    with RunRecorder(path / "hostile.weftrun", meta) as recorder:
        recorder.step(1, "", {"messages": [["a", HOSTILE, HOSTILE, HOSTILE]]})
        recorder.step(2, "", {"assertions": {HOSTILE: False}, "note": HOSTILE})
        recorder.step(3, "end", {})
    return path


@pytest.fixture(scope="module")
def local(folder):
    config = BrokerConfig(gateway=GatewayConfig(runs=folder))
    with broker(gateway=True, config=config) as found, found.connect_sync(name=HOSTILE[:20]) as client:
        subscriptions = [client.subscribe(text) for text in WANTED]
        yield found
        del subscriptions


def settled(page: ConsoleTab, text: str) -> None:
    """Wait until a text is to be read, and the page is at rest."""
    page.see(text)
    page.settled()


def boxes(page: ConsoleTab, panel: str) -> list[str]:
    return [
        each.text_content() or "" for each in page.page.locator(f'section[aria-label="{panel}"] .node text.name').all()
    ]


# -- orders ----------------------------------------------------------------------------------------------------------


def test_orders_show_what_the_api_says_and_step_back_and_forth(local, tab):
    page = tab(local, "/orders?n=30&seed=4")
    settled(page, "step 30 of 30")
    request = {"source": {"generator": {"filters": 30, "seed": 4}}}
    with api(local) as web:
        answer = web.post("/orders", json={"request": request}).json()
    for panel in answer["panels"].values():
        assert sorted(boxes(page, panel["title"])) == sorted(node["short"] for node in panel["nodes"])
    assert page.page.locator(".badges li").count() == len(answer["checks"]) == 8
    assert page.page.locator(".badges .broken").count() == 0
    assert [row[0] for row in page.table("What each neighbour is told")] == ["I1", "I2", "I3"]
    page.page.get_by_role("button", name="Back").click()
    settled(page, "step 29 of 30")
    assert "step=29" in page.page.url
    page.page.reload()
    settled(page, "step 29 of 30")
    assert len(boxes(page, "Poset-derived forest")) == 29


def test_a_filter_is_chosen_by_keys_marked_everywhere_removed_and_added(local, tab):
    page = tab(local, "/orders?n=12")
    settled(page, "step 12 of 12")
    first = page.page.locator('section[aria-label="Filters poset"] .node').first
    first.focus()
    settled(page, "Remove #")
    assert page.page.locator(".node.chosen").count() == 4
    page.page.keyboard.press("ArrowDown")
    page.page.get_by_role("button", name="Remove #").click()
    settled(page, "step 13 of 13")
    assert "remove #" in page.text()
    box = page.page.get_by_label("Add a filter")
    box.fill("a => 5")
    page.see("unknown operator '=>'")
    box.fill("a >= 0")
    page.page.get_by_role("button", name="Add", exact=True).click()
    settled(page, "step 14 of 14")
    page.see("add #13 (I1): a >= 0")
    page.page.get_by_role("button", name="Undo").click()
    settled(page, "step 13 of 13")


def test_two_hundred_filters_can_be_read_in_a_quarter(local, tab):
    page = tab(local, "/orders?n=200", width=1440, height=1000)
    settled(page, "step 200 of 200")
    for name in ("Filters poset", "Poset-derived forest", "Balanced forest", "Non-redundant forest"):
        texts = page.page.locator(f'section[aria-label="{name}"] .node text.name')
        heights = [texts.nth(at).bounding_box()["height"] for at in (0, 20, 60)]
        assert min(heights) >= 8, (name, heights)
        assert page.page.locator(f'section[aria-label="{name}"]').bounding_box()["width"] < 720
    page.page.get_by_role("button", name="Enlarge Poset-derived forest").click()
    page.page.locator("section.large").wait_for()
    page.settled()
    assert "full=PF" in page.page.url
    assert page.page.locator("section.panel").count() == 1


def test_the_forest_of_the_broker_is_read_level_by_level(local, tab):
    page = tab(local, "/orders/live")
    settled(page, "magnitude >= 5")
    assert "magnitude >= 6" not in page.text()
    page.page.get_by_role("button", name="1 filter below magnitude >= 5").press("Enter")
    page.see("magnitude >= 6 AND depth < 70")
    page.see("U+202E")


def test_orders_of_live_subscriptions_and_of_rules(local, tab):
    page = tab(local, "/orders?from=live&as=table")
    settled(page, "step 4 of 4")
    assert {row[2] for row in page.table("Filters in each structure")} >= {"magnitude >= 5", "depth < 10"}
    page.go("/orders?from=rules&as=table")
    page.page.locator("textarea").first.fill("x < 10\nx < 5\nx >")
    page.page.keyboard.press("Tab")
    settled(page, "step 2 of 2")
    page.see("line 3 is left out")
    page.page.reload()
    settled(page, "step 2 of 2")


# -- space -----------------------------------------------------------------------------------------------------------


def test_a_click_on_the_plane_says_who_matches(local, tab):
    page = tab(local, "/space?n=9")
    settled(page, "step 9 of 9")
    page.page.locator("g.plane").click(position={"x": 220, "y": 210})
    settled(page, "An event at the point")
    x, y = (float(each) for each in page.page.url.split("point=")[1].split("&")[0].replace("%2C", ",").split(","))
    present = filter_steps(FilterSource(Generator(filters=9))).present()
    wanted = {str(number) for number, each in present.items() if matches(each.filter, {"a": x, "b": y})}
    rows = page.table("Who matches at the point")
    assert {row[0] for row in rows if row[2] == "yes"} == wanted
    page.page.get_by_label("Negative boxes").check()
    page.page.locator("rect.negative").first.wait_for(state="attached")
    page.page.get_by_label("Curve", exact=True).uncheck()
    page.page.locator(".hilbert").wait_for(state="detached")


# -- context -----------------------------------------------------------------------------------------------------------


def test_context_marks_what_meets_and_preloading_costs_nothing_later(local, tab):
    page = tab(local, "/context?preload=right")
    settled(page, "step 32 of 32")
    with api(local) as web:
        answer = web.post("/context", json={"preload": "right"}).json()
    rows = {row["name"]: row["matches"] for row in answer["by_query"]}
    assert [row[0] for row in page.table("Profiles of each query")] == list(rows)
    assert answer["cost"]["steps"] == 0
    facts = page.page.locator(".fact").all_inner_texts()
    assert facts[0].split("\n") == ["Comparisons of the last step", "0"]
    name = next(name for name, found in rows.items() if found)
    page.page.get_by_role("button", name=name, exact=True).first.click()
    settled(page, f"{name} ")
    assert page.page.locator(".node.lit").count() == len(rows[name])
    page.page.get_by_role("button", name=f"End {name}").click()
    settled(page, "step 33 of 33")


# -- runs ------------------------------------------------------------------------------------------------------------


def test_the_player_shows_the_state_of_the_recording(local, tab, folder):
    page = tab(local, "/runs")
    settled(page, "covering")
    assert {row[0] for row in page.table("Recorded runs")} == {"acyclic", "faults", "hostile", "ring", "weft"}
    page.page.get_by_role("link", name="faults").click()
    settled(page, "step 1 of")
    recording = Recording(folder / "faults.weftrun")
    page.go(f"/runs/faults?step={recording.size // 2}&asfaults=table&broker=b1")
    settled(page, f"step {recording.size // 2} of {recording.size}")
    state = recording.state(recording.size // 2)
    rows = {row[0]: row for row in page.table("Brokers of faults")}
    for name, row in rows.items():
        heard = [
            items
            for table, items in state.tables.items()
            if table.startswith(f"0/{name}/") and table.endswith("subscriptions")
        ]
        assert (row[1], row[4]) == (state.states[name], str(sum(map(len, heard))))
    page.page.get_by_role("button", name="Forward").click()
    settled(page, f"step {recording.size // 2 + 1} of {recording.size}")
    page.page.locator('input[type="range"]').fill("3")
    settled(page, f"step 3 of {recording.size}")


def test_two_runs_on_one_clock_and_a_client_followed(local, tab, folder):
    page = tab(local, "/runs/weft?step=60&other=acyclic")
    settled(page, "step 60 of")
    at = next(Recording(folder / "weft.weftrun").steps(59, 60)).at
    step = sum(each.at <= at for each in Recording(folder / "acyclic.weftrun").steps())
    assert f"step {step} of" in page.text('section[aria-label="acyclic"]')
    with api(local) as web:
        names = web.post("/runs/view", json={"one": {"name": "weft", "step": 60}}).json()["one"]["names"]
        asked = ((name, {"one": {"name": "weft", "step": 60, "follow": name}}) for name in names)
        found = ((name, web.post("/runs/view", json=body).json()["one"]["next"]) for name, body in asked)
        client, following = next((name, step) for name, step in found if step)
    page.page.get_by_label("Follow").select_option(client)
    page.page.get_by_role("button", name="Its next step").click()
    settled(page, f"Steps of {client}")
    settled(page, f"step {following} of")
    page.page.get_by_role("button", name="Play").click()
    page.page.get_by_role("button", name="Pause").click()


def test_a_broken_assertion_is_a_mark_that_jumps_there(local, tab):
    page = tab(local, "/runs/hostile?step=1")
    settled(page, "broken assertion")
    assert page.page.locator(".mark.failed").count() == 1
    page.page.get_by_role("button", name="Step 2").click()
    settled(page, "step 2 of 3")
    assert page.page.locator("main img").count() == 0
    page.see("U+202E")


def test_a_folder_without_recordings_says_what_to_do(tab, tmp_path: Path):
    with broker(gateway=True, config=BrokerConfig(gateway=GatewayConfig(runs=tmp_path))) as empty:
        page = tab(empty, "/runs")
        settled(page, "There are no recordings in")
        page.see("weft sim mobility")
        page.go("/ring")
        settled(page, "There is no ring")
        page.go("/orders/live")
        settled(page, "No client of this broker subscribes to anything")
        page.go("/orders?n=0")
        settled(page, "No filters yet")
        page.go("/space?n=0")
        settled(page, "step 0 of 0")


# -- ring ------------------------------------------------------------------------------------------------------------


def test_a_ring_shows_nodes_fingers_and_records(local, tab, folder):
    page = tab(local, "/ring?as=table")
    settled(page, "Gini coefficient")
    recording = Recording(folder / "ring.weftrun")
    state = recording.state(recording.size)
    rows = page.table("Nodes of the ring")
    loads = {name: len(state.tables.get(f"0/{name}/records/subscriptions", ())) for name in state.streams}
    assert {row[0]: int(row[4]) for row in rows} == loads
    name = max(loads, key=lambda each: loads[each])
    page.page.get_by_role("button", name=name, exact=True).click()
    settled(page, "answers for keys")
    assert len(page.table(f"Records of {name}")) == loads[name]


@pytest.mark.slow
def test_a_live_ring_is_shown_as_its_nodes_report_it(tab, tmp_path: Path):
    first = RingProgram(tmp_path / "a", "")
    second = RingProgram(tmp_path / "b", first.ring)
    try:
        config = BrokerConfig(gateway=GatewayConfig(runs=tmp_path, ring=first.ring))
        with broker(gateway=True, config=config) as local:
            page = tab(local, "/ring?as=table")
            settled(page, "Gini coefficient")
            page.page.locator('table:has(caption:text-is("Nodes of the ring")) tbody tr').nth(1).wait_for()
            rings = {first.ring.removeprefix("weft://"), second.ring.removeprefix("weft://")}
            assert {row[0] for row in page.table("Nodes of the ring")} == rings
            page.page.get_by_role("button", name=sorted(rings)[0], exact=True).click()
            settled(page, "answers for keys")
            page.see("Subscriptions of its clients")
    finally:
        first.end()
        second.end()


# -- all of them -----------------------------------------------------------------------------------------------------

PATHS = (
    "/orders?n=25",
    "/orders/live",
    "/space?n=8&point=30,40&show=boxes+curve+ranges+merged+labels+negative",
    "/context?mark=Q8",
    "/runs",
    "/runs/weft?step=40&broker=0&other=acyclic",
    "/ring",
)


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_axe_finds_nothing_serious(local, tab, path):
    page = tab(local, path, bypass_csp=True)
    page.page.wait_for_selector("main:not(.login) h1")
    page.settled()
    assert page.axe() == []


def test_nothing_is_wider_than_a_telephone(local, tab):
    page = tab(local, "/orders?n=25", width=390, height=844)
    for path in PATHS:
        page.go(path)
        page.page.wait_for_selector("main:not(.login) h1")
        page.settled()
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_a_request_that_makes_no_sense_is_a_problem_and_not_a_fault(local):
    with api(local) as web:
        for path, body in (
            ("/orders", {"request": {"source": {"generator": {"filters": 10**9}}}}),
            ("/orders", {"request": {"source": {"edits": ["+I1 x =>"]}}}),
            ("/space", {"request": {"source": {"rules": "name = 'x'"}}}),
            ("/context", {"edits": ["nonsense"]}),
            ("/runs/view", {"one": {"name": "../../etc/passwd"}}),
            ("/ring", {"run": "weft"}),
        ):
            answer = web.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
            assert 400 <= answer.status_code < 500, (path, answer.text)
            assert answer.json()["detail"]
