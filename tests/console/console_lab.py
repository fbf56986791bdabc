"""What tests of the console share: tabs of a browser, and what a page asks, asked without one."""

from __future__ import annotations

from typing import Any

import httpx

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

    def table(self, caption: str) -> list[list[str]]:
        """The cells of a table, row by row."""
        rows = self.page.locator(f'table:has(caption:text-is("{caption}")) tbody tr')
        return [row.locator("td").all_inner_texts() for row in rows.all()]

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
