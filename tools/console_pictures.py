"""Takes the pictures of the console in docs/console, with a real network and a real browser: make console-pictures."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright

from weft.broker.limits import ClientLimits
from weft.server.config import BrokerConfig, LinkConfig
from weft.testing import broker
from weftlab.demo import earthquakes
from weftlab.demo.live import WATCHERS, replayed

FOLDER = Path(__file__).parent.parent / "docs" / "console"
EVENT = json.dumps({"magnitude": 6.4, "latitude": 54.2, "longitude": -161.1, "depth": 31, "tsunami": True})
PAGES = {
    "overview": "/",
    "brokers": "/brokers/north",
    "sessions": "/sessions",
    "subscriptions": "/subscriptions",
    "filters": "/filters?" + urlencode({"where": "magnitude >= 4.5", "with": "magnitude >= 6 OR tsunami"}),
    "events": "/events?" + urlencode({"where": "magnitude >= 5"}),
    "publish": "/publish?" + urlencode({"event": EVENT}),
    "why": "/why/alarm",
    "dead": "/dead?session=failing",
    "rules": "/rules?" + urlencode({"where": "magnitude > 3", "event": '{"magnitude": 6.1}'}),
}
HEIGHTS = {"overview": 960, "filters": 1500, "brokers": 800, "publish": 1000}


def take(page: Page, address: str, name: str) -> None:
    """Take the picture of a page."""
    page.goto(f"{address}/ui{PAGES[name]}")
    page.wait_for_selector("body[data-ready]")
    if name == "publish":
        page.get_by_role("button", name="Explain").click()
        page.get_by_role("heading", name="Subscriptions that match").wait_for()
    if name == "overview":
        page.wait_for_timeout(4_000)  # so that there are rates
    page.wait_for_selector("body[data-ready]")
    page.wait_for_timeout(500)
    page.set_viewport_size({"width": 1100, "height": HEIGHTS.get(name, 640)})
    page.screenshot(path=FOLDER / f"{name}.png")


def main() -> None:
    """Take all pictures, or those that are named."""
    FOLDER.mkdir(exist_ok=True)
    events = replayed(earthquakes.events())[:1_200]
    with ExitStack() as stack:
        south = stack.enter_context(broker(config=BrokerConfig(name="south", links={"north": LinkConfig()})))
        links = {"south": LinkConfig(address=south.address)}
        config = BrokerConfig(name="north", links=links, limits=ClientLimits(failures=1))
        north = stack.enter_context(broker(config=config, gateway=True))
        client = stack.enter_context(north.connect_sync(name="feed"))
        for number, (name, text) in enumerate(WATCHERS.items()):
            place = south if number == 2 else north
            reader = stack.enter_context(place.connect_sync())
            stack.enter_context(reader.subscribe(text, name=name))
        with client.subscribe("magnitude >= 5.5", name="failing") as failing:
            client.publish_many(events)
            for _ in range(3):
                next(failing).nack("the pager did not answer")
        play = stack.enter_context(sync_playwright())
        browser = play.chromium.launch(executable_path=shutil.which("chromium"))
        page = browser.new_page(viewport={"width": 1100, "height": 640})
        for name in sys.argv[1:] or PAGES:
            take(page, north.gateway, name)
            client.publish_many(events[:30])
        browser.close()


if __name__ == "__main__":
    main()
