"""The shell of the console: files, policy, log-in, navigation, the live connection."""

from __future__ import annotations

import re
import tomllib
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

import weft.console
from console.console_lab import PATIENCE, api
from weft.console.app import POLICY
from weft.console.pages import PAGES
from weft.testing import broker

STATIC = Path(weft.console.__file__).parent / "static"
VENDOR = STATIC / "vendor"
MOST_SCRIPT = 150_000
OURS = [path for path in STATIC.rglob("*.js") if path.parent != VENDOR]
# what makes markup or programs of a text
DANGEROUS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setTimeout\(['\"]|srcdoc"
)


@pytest.fixture(scope="module")
def local():
    with broker(gateway=True) as found, found.connect_sync() as client:
        client.publish_many({"magnitude": n, "place": "Chile"} for n in range(20))
        yield found


def test_what_others_wrote_is_what_vendor_toml_says():
    listed = tomllib.loads((VENDOR / "vendor.toml").read_text())["file"]
    for each in listed:
        assert sha256((VENDOR / each["name"]).read_bytes()).hexdigest() == each["sha256"], each["name"]
        licence = (VENDOR / each["licence_file"]).read_text()
        assert {"MIT": "MIT License", "Apache-2.0": "Apache License"}[each["licence"]] in licence
    files = {path.name for path in VENDOR.iterdir()}
    assert files == {each["name"] for each in listed} | {each["licence_file"] for each in listed} | {"vendor.toml"}


def test_scripts_are_small_and_make_no_markup_of_texts():
    assert sum(path.stat().st_size for path in STATIC.rglob("*.js")) <= MOST_SCRIPT
    for path in OURS:
        assert not DANGEROUS.search(path.read_text()), path.name
        assert not re.search(r"https?://", path.read_text()), path.name


def test_every_page_has_a_script_and_every_script_a_page():
    assert {path.stem for path in (STATIC / "pages").iterdir()} == {page.name for page in PAGES}
    assert len({page.name for page in PAGES}) == len(PAGES)


def test_every_answer_has_the_policy_and_tags(local):
    with httpx.Client(base_url=local.gateway, trust_env=False) as web:
        for path in (
            "/ui",
            "/ui/sessions/x",
            "/ui/static/app.js",
            "/ui/static/nothing.js",
            "/api/v1/session",
            "/api/v1/no",
        ):
            answer = web.get(path)
            assert answer.headers["content-security-policy"] == POLICY
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
        assert "require-trusted-types-for 'script'" in POLICY
        script = web.get("/ui/static/app.js")
        assert web.get("/ui/static/app.js", headers={"if-none-match": script.headers["etag"]}).status_code == 304
        assert web.get("/").headers["location"] == "/ui"
        assert web.get("/ui/static/%2e%2e/app.py").status_code == 404
        assert web.post("/ui").status_code == 405
        assert web.get("/openapi.json").status_code == 200  # the gateway is still there


def test_pages_of_other_sites_cannot_ask(local):
    with api(local) as web:
        assert web.get("/session", headers={"origin": "https://evil.example"}).status_code == 403
        assert web.get("/session", headers={"sec-fetch-site": "cross-site"}).status_code == 403
        assert web.get("/session", headers={"host": "evil.example"}).status_code == 403
        assert web.post("/filters/check", content=b'{"filter": "x > 5"}').status_code == 415
        assert web.post("/filters/check", json={"filter": "x => 5"}).json()["column"] == 3
        inline = web.post("/filters/check", json={"filter": "x => 5"}, headers={"weft-problems": "inline"})
        assert (inline.status_code, inline.json()["problem"]["status"]) == (200, 400)


def test_the_address_leads_to_a_page_and_back(local, tab):
    page = tab(local, "/").page
    page.get_by_role("link", name="Workbench").click()
    page.get_by_role("heading", name="Workbench").wait_for()
    assert page.url == f"{local.gateway}/ui/filters"
    page.go_back()
    page.get_by_role("heading", name="Overview").wait_for()
    expect(page).to_have_title("Overview \N{EN DASH} Weft", timeout=PATIENCE)
    page.goto(f"{local.gateway}/ui/nowhere")
    page.get_by_text("There is no such page").wait_for()


def test_the_command_box_takes_a_filter_with_keys_only(local, tab):
    page = tab(local, "/").page
    page.keyboard.press("Control+k")
    page.locator("#command:focus").wait_for()
    page.keyboard.type("magnitude >= 5")
    page.get_by_role("option", name="Open in the workbench").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Workbench").wait_for()
    assert page.get_by_label("Filter", exact=True).input_value() == "magnitude >= 5"
    assert "magnitude" in page.url


def test_a_lost_connection_is_said_and_comes_back(browser):
    from console.console_lab import opened

    with broker(gateway=True) as local:
        found = opened(browser, local.gateway, "/")
        found.see("All brokers answer")
        local.stop()
        found.page.get_by_text("The connection to the gateway is lost").wait_for()
        local.start()
        found.page.locator(".banner:empty").wait_for(state="attached")
        found.context.close()
