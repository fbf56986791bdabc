"""What tests of the console share: tabs of a browser, and what a page asks, asked without one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx

from weft.broker.limits import ClientLimits
from weft.server.config import BrokerConfig, LinkConfig
from weft.testing import LocalBroker, broker

PATIENCE = 60_000  # milliseconds; a busy machine is slow


class ConsoleTab:
    """A tab of a browser with the console in it."""

    def __init__(self, context: Any, address: str) -> None:
        self.context, self.address = context, address
        self.messages: list[str] = []
        self.page = context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", lambda message: self.messages.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))

    def go(self, path: str) -> ConsoleTab:
        """Load a page below /ui, and wait until it is at rest."""
        self.page.goto(f"{self.address}/ui{path}")
        self.settled()
        return self

    def settled(self) -> None:
        """Wait until the page waits for nothing."""
        self.page.wait_for_selector("body[data-ready]")
        self.page.wait_for_selector("main h1")

    def text(self, where: str = "main") -> str:
        """What can be read."""
        return self.page.inner_text(where)

    def see(self, text: str, where: str = "main") -> None:
        """Wait until a text is to be read somewhere."""
        self.page.locator(where).get_by_text(text).first.wait_for()

    def shows(self, caption: str, column: int, cells: list[str]) -> None:
        """Wait until a column of a table has these cells."""
        for _ in range(PATIENCE // 50):
            if (found := [row[column] for row in self._cells(caption)]) == cells:
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"{caption} shows {found}, not {cells}")

    def table(self, caption: str) -> list[list[str]]:
        """The cells of a table, row by row, as soon as it has one."""
        self.page.locator(f'table:has(caption:text-is("{caption}")) tbody tr').first.wait_for()
        return self._cells(caption)

    def _cells(self, caption: str) -> list[list[str]]:
        rows = self.page.locator(f'table:has(caption:text-is("{caption}")) tbody tr')
        found: list[list[str]] = rows.evaluate_all(
            "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))"
        )
        return found

    def axe(self) -> list[str]:
        """What axe finds that is serious or critical. The tab needs bypass_csp."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [
            f"{each['id']}: {each['nodes'][0]['html']}" for each in found if each["impact"] in ("serious", "critical")
        ]


def opened(browser: Any, address: str, path: str = "/", *, width: int = 1280, height: int = 900, **options: Any):
    """A tab of its own context, at a page."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    found = ConsoleTab(context, address)
    if path:
        found.go(path)
    return found


def api(local: Any, **options: Any) -> httpx.Client:
    """What pages ask, as a client of its own."""
    return httpx.Client(base_url=f"{local.gateway}/api/v1", timeout=60, trust_env=False, **options)


# Texts that would be markup, formulas, other orders of writing, or paths, if anything took them for more than texts.
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    "\u202emoc.elpmaxe\u202c",
    "a/b?c#d%2e..",
    "zero\u200bwidth",
    "${alert(1)}",
]


@contextmanager
def network() -> Iterator[LocalBroker]:
    """Two brokers, north with a gateway and south, with sessions, subscriptions, events and dead letters."""
    south_config = BrokerConfig(name="south", links={"north": LinkConfig()})
    with broker(config=south_config) as south, ExitStack() as clients:
        links = {"south": LinkConfig(address=south.address)}
        north_config = BrokerConfig(name="north", links=links, limits=ClientLimits(failures=1))
        north = clients.enter_context(broker(config=north_config, gateway=True))
        alerts = clients.enter_context(north.connect_sync(name="alerts"))
        clients.enter_context(alerts.subscribe("magnitude >= 5"))
        clients.enter_context(alerts.subscribe("place LIKE 'Chi%' AND depth < 70"))
        other = clients.enter_context(south.connect_sync(name="distant"))
        clients.enter_context(other.subscribe("magnitude >= 6 AND depth < 100"))
        keeper = clients.enter_context(north.connect_sync())
        with keeper.subscribe("magnitude >= 7", name="keeper"):
            pass  # it stays, and falls behind
        with keeper.subscribe(f"place = '{HOSTILE[0]}'", name=HOSTILE[1]):
            pass
        with keeper.subscribe("type = 'x'", name=HOSTILE[3]):
            pass
        for _ in range(200):  # until the link is up and knows what it is to know
            if all(each.links and each.links[0].synced for each in keeper.overlay()) and len(keeper.overlay()) == 2:
                break
        places = ["Chile", "Chiba", "Peru", *HOSTILE]
        keeper.publish_many(
            {
                "magnitude": n / 10,
                "depth": 10 * (n % 15),
                "place": places[n % len(places)],
                "id": str(n),
                "source": "lab",
            }
            for n in range(90)
        )
        with keeper.subscribe("magnitude < 0.2", name="failing", since=0) as failing:
            for _ in range(2):
                next(failing).nack("no such place")
            while len(keeper.dead_letters.list("failing")) < 2:
                pass
        yield north
