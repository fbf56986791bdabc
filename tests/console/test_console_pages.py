"""The pages of the console in a browser: what they show is what the broker answers, whatever the names are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from console.console_lab import HOSTILE, api, network
from weft.console.pages import PAGES

EVENT = {"magnitude": 7.5, "depth": 20, "place": "Chile"}
# an address of each page at which it shows most
ADDRESSES = {
    "overview": "/",
    "brokers": "/brokers/north",
    "sessions": f"/sessions/{quote(HOSTILE[1], safe='')}",
    "subscriptions": "/subscriptions",
    "filters": "/filters?" + urlencode({"where": f"place = '{HOSTILE[0]}'", "with": "magnitude >= 6"}),
    "events": "/events?" + urlencode({"where": "place LIKE '%'"}),
    "publish": "/publish?" + urlencode({"event": json.dumps(EVENT | {"place": HOSTILE[2]})}),
    "why": f"/why/{quote(HOSTILE[3], safe='')}",
    "dead": "/dead?session=failing",
    "rules": "/rules?" + urlencode({"principal": HOSTILE[0], "where": "magnitude > 3", "event": '{"a": 1}'}),
}
EVERY = [page.name for page in PAGES if page.name in ADDRESSES]  # of part 1; see test_console_understand.py


def shown(name: str) -> str:
    """A name as pages show it."""
    return re.sub("[\u202e\u202c\u200b]", lambda found: f"\u27e8U+{ord(found[0]):04X}\u27e9", name)


@pytest.fixture(scope="module")
def north():
    with network() as found:
        yield found


@pytest.mark.parametrize("name", EVERY)
def test_a_page_is_accessible_and_shows_hostile_texts_as_texts(north, tab, name):
    found = tab(north, ADDRESSES[name], bypass_csp=True)  # axe is a script of another place
    assert found.axe() == []
    assert found.page.locator("main img, main script").count() == 0
    assert "\u202e" not in found.text("body")
    assert "\u200b" not in found.text("body")


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_fits_a_telephone_in_both_schemes(north, tab, name, scheme):
    found = tab(north, ADDRESSES[name], width=390, height=844, color_scheme=scheme, bypass_csp=True)
    assert found.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert found.axe() == []


def test_the_overview_shows_what_the_brokers_say(north, tab):
    found = tab(north, "/?as=table")
    with api(north) as web:
        told = web.get("/overview").json()
    shown = found.table("Brokers")
    assert [row[0] for row in shown] == [each["name"] for each in told["brokers"]] == ["north", "south"]
    assert [row[2] for row in shown] == [str(each["subscriptions"]) for each in told["brokers"]]
    assert [row[3] for row in found.table("Links")] == ["\u25cf up", "\u25cf up"]
    behind = {row[0]: row[1] for row in found.table("Queues furthest behind")}
    assert behind["keeper"] == str(next(each["behind"] for each in told["queues"] if each["session"] == "keeper"))
    found.page.get_by_role("button", name="As picture").click()
    found.page.get_by_role("treeitem", name="north").focus()
    found.page.keyboard.press("ArrowRight")
    found.page.keyboard.press("Enter")  # the picture is walked and opened with keys
    found.page.get_by_role("heading", name="Broker south").wait_for()


def test_a_picture_is_zoomed_and_moved_with_keys(north, tab):
    page = tab(north, "/").page
    picture = page.locator(".paper")
    page.get_by_role("treeitem", name="north").wait_for()
    before = picture.locator("svg").get_attribute("viewBox")
    picture.focus()
    for key in ("-", "-", "-", "-", "ArrowLeft"):
        page.keyboard.press(key)
    page.get_by_role("button", name="Show all").get_by_text("51%").wait_for()  # 1.25 * 0.8 ** 4
    assert page.locator(".node text.more").count() == 0  # what would be unreadable is not drawn
    assert page.locator(".node text.name").count() == 2
    page.keyboard.press("0")
    page.locator(f'.paper svg[viewBox="{before}"]').wait_for()


def test_a_broker_shows_its_three_parts(north, tab):
    found = tab(north, "/brokers/north")
    with api(north) as web:
        sent = web.get("/brokers/items", params={"broker": "north", "link": "south"}).json()["rows"]
        received = web.get("/brokers/items", params={"link": "south", "direction": "received"}).json()["rows"]
        order = web.get("/brokers/order").json()["rows"]
    assert [row[:2] for row in found.table("Items sent to south")] == [[each["text"], each["reason"]] for each in sent]
    roots = found.page.locator("ul.tree > li > a").all_inner_texts()
    assert roots == [each["filter"] for each in order]
    assert "magnitude >= 7" not in roots  # magnitude >= 5 covers it
    found.page.get_by_role("button", name="1 filter below magnitude >= 5").click()
    found.see("magnitude >= 7", "ul.tree ul.tree")
    found.page.get_by_role("button", name="Received from south").click()
    found.shows("Items received from south", 0, [each["text"] for each in received])
    assert found.page.url.endswith("way=received")


def test_sessions_are_found_by_a_part_of_their_name(north, tab):
    found = tab(north, "/sessions")
    with api(north) as web:
        told = [each["name"] for each in web.get("/sessions").json()["rows"]]
    found.shows("Sessions", 0, [shown(name) or "no name" for name in told])
    found.page.get_by_label("Name contains").fill("alert")
    found.page.wait_for_url("**text=alert")
    found.shows("Sessions", 0, ["alerts", HOSTILE[1]])
    found.page.get_by_role("link", name="alerts", exact=True).click()
    found.page.get_by_role("heading", name="Session alerts").wait_for()
    found.shows("Subscriptions", 1, ["magnitude >= 5", "place LIKE 'Chi%' AND depth < 70"])


def test_an_operator_disconnects_a_session_and_ends_a_subscription(north, tab):
    with north.connect_sync(name="leaving") as client, client.subscribe("y > 5"):
        (facts,) = client.subscriptions("leaving")
        found = tab(north, "/sessions/leaving")
        found.page.get_by_role("button", name=f"End subscription {facts.number}").click()
        found.page.get_by_role("button", name="Yes").click()
        found.see("It subscribes to nothing")
        before = north.call(lambda node: node.counts["connections"])
        found.page.get_by_role("button", name="Disconnect").click()
        found.page.get_by_role("button", name="Yes").click()
        found.page.get_by_role("button", name="Disconnect").wait_for()
        while north.call(lambda node: node.counts["connections"]) == before:  # the client comes back by itself
            client.status()


def test_subscriptions_are_those_that_the_broker_lists(north, tab):
    found = tab(north, "/subscriptions?text=magnitude")
    with api(north) as web:
        told = web.get("/subscriptions", params={"text": "magnitude"}).json()["rows"]
    shown = found.table("Subscriptions")
    assert [row[2] for row in shown] == [each["filter"] for each in told]
    assert [row[3] for row in shown] == [str(each["matched"]) for each in told]
    with found.page.expect_download() as saved:
        found.page.get_by_role("button", name="CSV").click()
    assert "magnitude >= 5" in Path(saved.value.path()).read_text()


def test_the_workbench_points_at_an_error_while_one_types(north, tab):
    found = tab(north, "/filters")
    box = found.page.get_by_label("Filter", exact=True)
    height = found.page.locator(".filterbox").bounding_box()["height"]
    box.focus()
    found.page.keyboard.type("magnitude => 5")
    found.see("did you mean '>='?")
    assert found.page.locator(".says pre").inner_text() == "magnitude => 5\n          ^^"
    assert found.page.locator(".filterbox").bounding_box()["height"] == height  # nothing jumps
    box.fill("magnitude>=5   and NOT depth<10")
    found.see("magnitude >= 5 AND NOT depth < 10")


def test_the_workbench_shows_meaning_lint_matches_and_relations(north, tab):
    found = tab(north, "/filters?" + urlencode({"where": "magnitude >= 5 AND magntude < 9"}))
    found.see("did you mean 'magnitude'?")
    found.page.get_by_label("Filter", exact=True).fill("magnitude >= 5")
    found.see("40 events matched; 90 of 90 stored events of the last hour compared.")
    with api(north) as web:
        told = web.get("/filters/related", params={"filter": "magnitude >= 5"}).json()
    found.shows("Related subscriptions", 3, [each["subscription"]["filter"] for each in told["rows"]])
    (sent,) = told["sends"]
    assert found.table("What each neighbour would be sent") == [["south", "\u25cb nothing new", sent["reason"]]]
    assert "which covers it" in sent["reason"]


def test_covering_is_proven_or_disproved_by_an_event(north, tab):
    found = tab(north, "/filters?" + urlencode({"where": "x < 10", "with": "x < 20 AND place = 'Chile'"}))
    found.see("The first does not cover the second")
    example = found.page.locator(".columns .attributes").first.inner_text().split()
    assert example == ["x", "10", "place", "Chile"]
    found.page.get_by_label("Second filter").fill("x < 5")
    found.see("The first covers the second")
    found.see("x < 5 lies in x < 10")


def test_an_edit_shows_what_is_gained_and_lost_before_it_is_saved(north, tab):
    with north.connect_sync(name="edited") as client, client.subscribe("magnitude >= 8"):
        (facts,) = client.subscriptions("edited")
        where = {"where": "magnitude >= 8", "session": "edited", "number": facts.number}
        found = tab(north, "/filters?" + urlencode(where))
        found.see("Now: magnitude >= 8")
        found.page.get_by_label("Filter", exact=True).fill("magnitude BETWEEN 7 AND 8.5")
        found.see("10 events matched")  # 7.0 to 7.9
        found.see("4 events matched")  # 8.6 to 8.9
        found.page.get_by_role("button", name="Save").click()
        found.page.get_by_role("button", name="Yes").click()
        found.see("Saved. It holds from the next event on.")
        (facts,) = client.subscriptions("edited")
        assert facts.filter == "magnitude BETWEEN 7 AND 8.5"


def test_events_are_searched_then_followed_live(north, tab):
    found = tab(north, "/events?" + urlencode({"where": "magnitude >= 8.5"}))
    found.see("5 events found; 90 of 90 compared")
    found.shows("Stored events", 2, ["8.5", "8.6", "8.7", "8.8", "8.9"])
    found.see("0 events since you look")
    with north.connect_sync() as client:
        client.publish({"magnitude": 9.5, "place": HOSTILE[0]}, durable=False)
        client.publish({"magnitude": 3.5}, durable=False)
    found.see("1 event since you look")
    found.shows("Live events", 2, ["9.5"])
    found.shows("Live events", 3, [HOSTILE[0]])


def test_an_event_is_explained_traced_and_published(north, tab):
    found = tab(north, "/publish?" + urlencode({"event": json.dumps(EVENT)}))
    found.page.get_by_role("button", name="Explain").click()
    found.see("2 brokers, 4 subscriptions.")
    found.shows("Subscriptions that match", 1, ["alerts", "alerts", "keeper", "distant"])
    found.page.get_by_role("button", name="Which parts? of subscription 3 of alerts").click()
    found.see("depth is 20")
    found.page.get_by_label("Session").fill("failing")
    found.page.get_by_role("button", name="Trace").click()
    found.see("Its first subscription does not match.")
    found.page.get_by_label("durable").uncheck()
    found.page.get_by_role("button", name="Publish", exact=True).click()
    found.see("Published.")
    found.page.get_by_label("Event: a JSON object").fill("[1]")
    found.see("An event is a JSON object")
    assert found.page.get_by_role("button", name="Explain").is_disabled()


def test_why_says_what_the_broker_finds(north, tab):
    found = tab(north, "/why")
    found.page.get_by_label("Session, or name").fill("keeper")
    found.page.keyboard.press("Enter")
    found.page.locator(".findings li").first.wait_for()
    with api(north) as web:
        told = web.get("/why", params={"session": "keeper"}).json()["findings"]
    assert [row.split("\n")[0] for row in found.page.locator(".findings li").all_inner_texts()] == [
        f"{each['fact']} {each['cause']}" for each in told
    ]
    assert "away" in {each["cause"] for each in told}


def test_dead_letters_are_listed_and_dropped(north, tab):
    found = tab(north, "/dead")
    found.page.get_by_role("link", name="failing").click()
    found.see("no such place")
    found.shows("Dead letters", 3, ["no such place", "no such place"])
    found.page.get_by_label("Choose letter 1").check()
    found.page.get_by_role("button", name="Drop 1").click()
    found.page.get_by_role("button", name="Yes").click()
    found.see("1 of 1 dropped.")
    with north.connect_sync() as client:
        assert [letter.offset for letter in client.dead_letters.list("failing")] == [2]


def test_without_rules_everything_is_allowed(north, tab):
    found = tab(north, "/rules?" + urlencode({"where": "magnitude > 3", "event": '{"magnitude": 1}'}))
    found.see("Allowed: the rules cover it.")
    found.see("May be published.")
    assert found.page.get_by_text("anything").count() == 2


def test_an_event_is_shown_whole_with_its_payload_as_text(north, tab):
    with north.connect_sync() as client:
        client.publish({"marker": 1, "place": HOSTILE[4]}, payload=HOSTILE[1] + HOSTILE[3])
    found = tab(north, "/events?" + urlencode({"where": "marker = 1"}))
    found.page.get_by_role("button", name="show this event").click()
    assert found.page.locator("dialog pre").inner_text() == shown(HOSTILE[1] + HOSTILE[3])
    found.see(HOSTILE[4], "dialog")
    found.page.keyboard.press("Escape")
    found.page.locator("dialog").wait_for(state="detached")


def test_addresses_that_nobody_wrote_are_answered(north, tab):
    for path in ("/sessions/%E0%A4%A", "/why/%00", "/brokers/nobody", "/filters?where=%00", "/runs/..%2f..%2fetc"):
        found = tab(north, path)
        assert found.page.locator("main h1").count() == 1
