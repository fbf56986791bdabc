"""Log-in to the console: tokens in exchange for cookies, rights that the broker decides, and rules that pages show."""

from __future__ import annotations

from time import time

import httpx
import pytest
from websockets.sync.client import connect as open_socket

from console.console_lab import api
from gateway.test_gateway_security import settings
from server.jwk import token
from weft.console.launch import console_address
from weft.errors import BrokerError, OptionError
from weft.testing import broker


def bearer(name, **claims):
    return token(sub=name, aud="weft", **claims).decode()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    with broker(config=settings(tmp_path_factory.mktemp("rules"), attempts=100), gateway=True) as local:
        with local.connect_sync(token=bearer("root")) as client:
            client.publish_many({"n": n} for n in range(80))
        yield local


def test_a_token_is_exchanged_for_a_cookie_that_only_pages_understand(guarded):
    with api(guarded) as web:
        assert web.get("/session").status_code == 401
        assert web.post("/session", json={"token": "nonsense"}).status_code == 401
        assert web.post("/session", content=b'{"token": "x"}').status_code == 415
        answer = web.post("/session", json={"token": bearer("root")})
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
        assert "Secure" not in cookie  # this gateway has no certificate
        assert web.get("/session").json()["principal"] == "root"
        assert web.get("/overview").status_code == 200
        with httpx.Client(base_url=guarded.gateway, cookies=web.cookies, trust_env=False) as outside:
            assert outside.get("/subscriptions").status_code == 401  # cookies mean nothing to the gateway itself
        assert web.get("/session", headers={"origin": "https://evil.example"}).status_code == 403
        web.post("/session/end", json={})
        assert web.get("/session").status_code == 401
        web.cookies.set("weft", cookie.partition("=")[2].partition(";")[0])  # one that was kept is worth nothing
        assert web.get("/session").status_code == 401


def test_a_login_ends_with_its_token(guarded):
    with api(guarded) as web:
        web.post("/session", json={"token": bearer("root", exp=int(time()) + 3)})
        assert web.get("/session").json()["expires"] < time() + 4
        while web.get("/session").status_code == 200:
            pass
        assert web.get("/session").status_code == 401


def test_a_page_shows_what_the_rights_of_its_reader_allow(guarded):
    with api(guarded) as web:
        web.post("/session", json={"token": bearer("ann")})
        assert web.get("/overview").status_code == 403
        assert web.post("/sessions/disconnect", json={"session": "x"}).status_code == 403
        found = web.post("/events/search", json={"filter": "n BETWEEN 70 AND 90"}).json()
        assert [each["attributes"]["n"] for each in found["events"]] == [*range(70, 80)]
        assert web.post("/events/search", json={"filter": "n < 200"}).status_code == 403  # more than ann may read
        assert web.post("/rules", json={}).json()["subscribe"] == ["n < 100"]
        assert web.post("/rules", json={"principal": "bob"}).status_code == 403
        web.post("/session", json={"token": bearer("root")})
        found = web.post("/rules", json={"principal": "bob", "filter": "n >= 40", "event": {"n": 60}}).json()
        assert (found["subscribe"], found["publish"], found["nearest"]) == (["n >= 50"], [], "n >= 50")
        assert (found["read"], bool(found["publish_problem"])) == (True, True)
        assert found["principals"] == ["ann", "bob", "root"]


def test_a_browser_logs_in_with_a_code_once(guarded, tab):
    address = console_address(guarded.gateway, bearer("root"))
    assert address.startswith(f"{guarded.gateway}/ui#code=")
    found = tab(guarded, "")
    found.page.goto(address)
    found.see("All brokers answer")
    assert "code" not in found.page.url
    found.page.get_by_role("button", name="Log out").click()
    found.page.get_by_label("Token").wait_for()
    found.page.goto("about:blank")
    found.page.goto(address)  # the code is used up
    found.page.get_by_label("Token").fill("nonsense")
    found.page.keyboard.press("Enter")
    found.see("does not accept")
    found.page.get_by_label("Token").fill(bearer("ann"))
    found.page.keyboard.press("Enter")
    found.see("You may not see the whole broker")


def test_a_gateway_that_is_not_there_or_refuses_is_named():
    with pytest.raises(OptionError, match="not the address of a gateway"):
        console_address("localhost:9380")
    with pytest.raises(BrokerError, match="no gateway answers"):
        console_address("http://127.0.0.1:1")
    with broker(gateway=True) as local:
        assert console_address(local.gateway) == f"{local.gateway}/ui"


def test_a_wrong_token_is_refused_in_one_sentence(guarded):
    with pytest.raises(BrokerError, match="refused: the broker does not accept"):
        console_address(guarded.gateway, "nonsense")


def test_a_live_connection_ends_with_its_login(guarded):
    with api(guarded) as web:
        web.post("/session", json={"token": bearer("root")})
        headers = {"Cookie": f"weft={web.cookies['weft']}"}
        address = guarded.gateway.replace("http", "ws") + "/api/v1/live"
        with open_socket(address, origin=guarded.gateway, additional_headers=headers, proxy=None) as socket:
            socket.send('{"topics": ["overlay"]}')
            assert "brokers" in socket.recv(60)
            web.post("/session/end", json={})
            for _ in socket:  # until it is closed
                pass
