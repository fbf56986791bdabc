"""One browser for the tests of a file: $WEFT_BROWSER, or a Chromium of the system."""

from __future__ import annotations

import os
import shutil

import pytest

from console.console_lab import ConsoleTab, opened

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")


def find_browser() -> str | None:
    """The browser to drive."""
    return os.environ.get("WEFT_BROWSER") or next((path for name in NAMES if (path := shutil.which(name))), None)


@pytest.fixture(scope="module")  # Playwright keeps an event loop in this thread, which others must not find
def browser():
    path = find_browser()
    if path is None:
        why = "there is no Chromium; install it (apt-get install chromium), or set WEFT_BROWSER to a browser"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        found = play.chromium.launch(executable_path=path)
        yield found
        found.close()


@pytest.fixture
def tab(browser):
    """Opens tabs: `tab(local, "/events", width=390)`. At the end no browser may have reported anything."""
    every: list[ConsoleTab] = []

    def open_tab(local, path="/", **options) -> ConsoleTab:
        found = opened(browser, local.gateway, path, **options)
        every.append(found)
        return found

    yield open_tab
    for each in every:
        each.context.close()
    assert [message for each in every for message in each.messages] == []
