"""Who may use the gateway: tokens, origins, rules. What is refused is counted, and nothing is learnt from it."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from time import time

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.gateway_lab import CLOUD, PATIENCE, event, http, publish, stream
from server.jwk import SECRET, edwards, raw, secret_jwk, token, write_keys
from strategies import thorough
from weft.gateway.process import GatewayOptions, running_gateway
from weft.language.meaning import matches
from weft.language.text import parse
from weft.model.event import Event
from weft.server.config import AccessConfig, AuthConfig, BrokerConfig, GatewayConfig
from weft.server.log_lines import LogLines
from weft.testing import broker

RULES = """
[[rule]]
for = "ann"
subscribe = ["n < 100"]
publish = "n < 100"
rights = ["history"]

[[rule]]
for = "bob"
subscribe = "n >= 50"

[[rule]]
for = "root"
subscribe = true
publish = true
rights = ["status", "history", "dead-letters"]
"""


def settings(tmp_path, **auth):
    (tmp_path / "rules.toml").write_text(RULES)
    keys = write_keys(tmp_path / "keys.json", secret_jwk())
    given_ = {"keys": keys, "audience": "weft", "attempts": 1_000, **auth}
    return BrokerConfig(auth=AuthConfig(**given_), access=AccessConfig(tmp_path / "rules.toml"))


def bearer(name="ann", **claims):
    return {"authorization": f"Bearer {token(sub=name, aud='weft', **claims).decode()}"}


@asynccontextmanager
async def guarded_broker(tmp_path, *, verifies: bool = True, **auth):
    """A broker with rules, and a gateway that verifies tokens itself or passes them on unseen."""
    async with broker(config=settings(tmp_path, **auth), gateway=verifies) as local:
        if verifies:
            async with http(local) as web:
                yield local, web
            return
        options = GatewayOptions(GatewayConfig("127.0.0.1:0"), (local.address,))
        async with (
            running_gateway(options, LogLines(level="error")) as (host, port),
            httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=PATIENCE, trust_env=False) as web,
        ):
            yield local, web


def attacks():
    now = int(time())
    good = token(aud="weft")
    head, body, signature = good.split(b".")
    return {
        "nothing": b"",
        "garbage": b"x",
        "empty parts": b"..",
        "long": b"x" * 20_000,
        "expired": token(aud="weft", exp=now - 100),
        "not yet": token(aud="weft", nbf=now + 1_000),
        "for another": token(aud="other"),
        "for anybody": token(),
        "other secret": token(SECRET[::-1], aud="weft"),
        "no signature": b".".join((head, body, b"")),
        "changed": b".".join((head, body[:-2] + b"AA", signature)),
        "algorithm none": raw({"alg": "none"}, {"sub": "ann", "aud": "weft", "exp": now + 100}),
        "other algorithm": token(edwards(), "EdDSA", aud="weft"),
        "no subject": token(aud="weft", sub=None),
        "no end": token(aud="weft", exp=None),
        "critical": raw({"alg": "HS256", "crit": ["x"]}, {"sub": "ann"}, b"x"),
        "bound": token(aud="weft", cnf={"x5t#S256": "x"}),
    }


@pytest.mark.parametrize("verifies", [True, False])
def test_every_bad_token_gets_the_same_answer_and_nothing_else(tmp_path, verifies):
    async def main():
        async with guarded_broker(tmp_path, verifies=verifies) as (_local, web):
            answers = set()
            for number, (name, bad) in enumerate(attacks().items()):
                if number and not number % 4:  # an address that fails must wait, unless it succeeds in between
                    assert (await web.get("/subscriptions", headers=bearer())).status_code == 200
                headers = {"authorization": b"Bearer " + bad} if bad else {}
                for method, path in (
                    (("GET", "/subscriptions"),) if number else (("GET", "/events"), ("POST", "/events"))
                ):
                    answer = await web.request(method, path, headers=headers)
                    assert answer.status_code == 401, name
                    problem = answer.json()
                    del problem["instance"]
                    answers.add((json.dumps(problem), answer.headers["www-authenticate"]))
            assert len(answers) == 1
            for more in ({"authorization": "Basic YTpi"}, {"cookie": "weft=x"}, {"authorization": "Bearer"}):
                assert (await web.get("/subscriptions", headers=more)).status_code == 401
            assert (await web.get("/subscriptions", headers=bearer())).status_code == 200

    asyncio.run(main())


def test_an_address_that_keeps_failing_waits_and_does_not_lock_out_the_gateway(tmp_path):
    async def main():
        async with guarded_broker(tmp_path, attempts=3) as (local, web):
            for _ in range(20):
                assert (await web.get("/subscriptions", headers={"authorization": "Bearer x"})).status_code == 401
            # the address waits; the broker has heard of none of it
            assert local.call(lambda node: node.authenticator.counts["logins refused"]) == 0
            async with local.connect(token=token(aud="weft")):
                pass

    asyncio.run(main())


def test_a_body_is_not_read_before_the_token_is_accepted(tmp_path):
    async def main():
        async with guarded_broker(tmp_path) as (local, _web):
            reader, writer = await asyncio.open_connection(*local.gateway.removeprefix("http://").split(":"))
            head = "POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
            writer.write(f"{head}Expect: 100-continue\r\nAuthorization: Bearer x\r\n\r\n".encode())
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), PATIENCE)
            assert answer.startswith(b"HTTP/1.1 401")  # and no 100 Continue before it
            writer.close()

    asyncio.run(main())


def test_a_single_use_token_is_accepted_once(tmp_path):
    async def main():
        for verifies in (True, False):
            async with guarded_broker(tmp_path, verifies=verifies) as (_local, web):
                once = bearer(once=True, jti=f"one {verifies}", iat=int(time()) + 1)
                answers = [await web.post("/events", json=event(1), headers=CLOUD | once) for _ in range(3)]
                assert [each.status_code for each in answers] == [202, 401, 401]

    asyncio.run(main())


def test_a_new_key_is_accepted_when_its_file_has_changed(tmp_path):
    async def main():
        async with guarded_broker(tmp_path) as (_, web):
            other = SECRET[::-1]
            new = {"authorization": b"Bearer " + token(other, kid="new", aud="weft")}
            assert (await web.get("/subscriptions", headers=new)).status_code == 401
            write_keys(tmp_path / "keys.json", secret_jwk(other, kid="new"))
            async with asyncio.timeout(PATIENCE):
                while (await web.get("/subscriptions", headers=new)).status_code != 200:
                    await asyncio.sleep(1)  # an address that fails must wait
            async with asyncio.timeout(PATIENCE):  # the old key is distrusted
                while (await web.get("/subscriptions", headers=bearer())).status_code != 401:
                    await asyncio.sleep(0.1)

    asyncio.run(main())


def test_a_stream_ends_when_its_token_expires(tmp_path):
    async def main():
        async with guarded_broker(tmp_path, leeway=0) as (_local, web):
            short = bearer(exp=int(time()) + 3)
            async with stream(web, "/events?where=n<50", headers=short) as live:
                ended = await live.next()
                assert ended["event"] == "revoked"
            assert (await web.get("/subscriptions", headers=short)).status_code == 401

    asyncio.run(main())


def test_a_stream_ends_when_its_rule_is_taken_away(tmp_path):
    async def main():
        async with (
            guarded_broker(tmp_path) as (_, web),
            stream(web, "/events?where=n<50", headers=bearer()) as live,
        ):
            (tmp_path / "rules.toml").write_text(RULES.replace('subscribe = ["n < 100"]', ""))
            ended = await live.next()
            assert ended["event"] == "revoked"
            answer = await web.get("/events?where=n<50", headers=bearer())
            assert answer.status_code == 403

    asyncio.run(main())


def test_rules_hold_at_every_door(tmp_path):
    async def main():
        async with guarded_broker(tmp_path) as (_local, web):
            ann, bob = bearer("ann"), bearer("bob")
            answer = await web.get("/events?where=n<200", headers=ann)
            assert answer.status_code == 403
            assert answer.json()["nearest_rule"] == "n < 100"
            assert (await web.post("/events", json=event(1), headers=CLOUD | bob)).status_code == 403
            assert (await web.post("/events", json=event(500), headers=CLOUD | ann)).status_code == 403
            assert (await web.post("/explain", json={"event": event(1)}, headers=ann)).status_code == 403
            assert (await web.post("/search", json={"filter": "n < 200"}, headers=ann)).status_code == 403
            assert (await web.post("/search", json={"filter": "n >= 60"}, headers=bob)).status_code == 403
            assert (await web.get("/events?where=n>=60&since=0", headers=bob)).status_code == 403
            answer = await web.put("/subscriptions/mine", json={"filters": [{"sql": "n < 9"}]}, headers=ann)
            assert answer.status_code == 201
            for method, path in (
                ("GET", "/subscriptions/mine"),
                ("GET", "/subscriptions/mine/events"),
                ("GET", "/subscriptions/mine/why"),
                ("DELETE", "/subscriptions/mine"),
            ):
                assert (await web.request(method, path, headers=bob)).status_code == 404
            assert (await web.post("/subscriptions/mine/pull", json={}, headers=bob)).status_code == 404
            assert (await web.get("/subscriptions", headers=bob)).json() == {"subscriptions": []}
            answer = await web.patch("/subscriptions/mine", json={"filters": [{"sql": "n < 900"}]}, headers=ann)
            assert answer.status_code == 403
            answer = await web.put("/subscriptions/mine", json={"filters": [{"sql": "n > 60"}]}, headers=bob)
            assert answer.status_code == 201  # names of others are not taken
            assert (await web.get("/subscriptions/mine", headers=ann)).json()["filters"] == [{"sql": "n < 9"}]

    asyncio.run(main())


def test_a_reader_without_the_right_history_is_told_of_the_gap(tmp_path):
    async def main():
        async with guarded_broker(tmp_path) as (_local, web):
            headers = bearer("bob") | {"last-event-id": "00000000.1"}
            async with stream(web, "/events?where=n>=60", "", headers=headers) as live:
                found = await live.next()
                assert (found["event"], "no right to read history" in found["data"]["reason"]) == ("gap", True)
                await live.until("complete")
                await publish(web_as(web, "ann"), event(60))
                assert await live.numbers(1) == [60]

    asyncio.run(main())


def web_as(web, name):
    """The same client, as somebody."""

    class Named:
        async def post(self, path, **options):
            options["headers"] = {**options["headers"], **bearer(name)}
            return await web.post(path, **options)

    return Named()


comparisons = st.builds(
    "{} {} {}".format, st.sampled_from("nm"), st.sampled_from(["<", ">=", "=", "<>"]), st.integers(0, 7)
)
filters = st.recursive(
    comparisons | st.sampled_from(["n IS NULL", "m IS NOT NULL", "s LIKE 'a%'", "TRUE", "s = 'b'"]),
    lambda inner: (
        st.builds("({} AND {})".format, inner, inner)
        | st.builds("({} OR {})".format, inner, inner)
        | st.builds("NOT ({})".format, inner)
    ),
    max_leaves=4,
)
samples = st.lists(
    st.fixed_dictionaries({}, optional={"n": st.integers(0, 7), "m": st.integers(0, 7), "s": st.sampled_from("abc")}),
    min_size=1,
    max_size=12,
)


@thorough(25)
@given(rule=filters, wanted=filters, within=st.booleans(), events=samples)
def test_whatever_is_delivered_matches_a_rule_of_its_reader(tmp_path_factory, rule, wanted, within, events):
    """Through every door: streams of each kind, replays, searches, and pulls."""
    wanted = f"({rule}) AND ({wanted})" if within else wanted
    folder = tmp_path_factory.mktemp("rules")
    config = settings(folder)
    own = f'[[rule]]\nfor = "ann"\nsubscribe = {json.dumps(rule)}\nrights = ["history"]\n'
    (folder / "rules.toml").write_text(own + '[[rule]]\nfor = "root"\npublish = true\n')
    allowed, asked = parse(rule), parse(wanted)
    required = {"specversion": "1.0", "source": "/", "type": "t"}
    sent = [{**required, "id": str(n), **each} for n, each in enumerate(events)]
    known = {each["id"]: Event.of({k: v for k, v in each.items() if k != "specversion"}) for each in sent}
    right = [name for name, each in known.items() if matches(asked, each)]

    async def main():
        async with broker(config=config, gateway=True) as local, http(local) as web:
            ann = bearer("ann")
            await publish(web_as(web, "root"), *sent)
            found = []
            answer = await web.post("/search", json={"filter": wanted}, headers=ann)
            is_allowed = answer.status_code == 200
            if is_allowed:
                found.append([each["id"] for each in answer.json()["events"]])
                for kind in ("text/event-stream", "application/x-ndjson"):
                    params = {"where": wanted, "since": "0"}
                    async with web.stream("GET", "/events", params=params, headers={**ann, "accept": kind}) as live:
                        lines = live.aiter_lines()
                        got: list[str] = []
                        while len(got) < len(right):
                            line = (await asyncio.wait_for(anext(lines), PATIENCE)).removeprefix("data: ")
                            if line.startswith("{"):
                                got.append(json.loads(line)["id"])
                        found.append(got)
                body = {"filters": [{"sql": wanted}], "config": {"since": 0}}
                made = await web.put("/subscriptions/s", json=body, headers=ann)
                assert made.status_code == 201
                got = []
                while len(got) < len(right):
                    pulled = await web.post("/subscriptions/s/pull", json={"wait": 30}, headers=ann)
                    got += [each["id"] for each in pulled.json()]
                found.append(got)
            else:
                assert answer.status_code == 403
                answer = await web.get("/events", params={"where": wanted}, headers=ann)
                assert answer.status_code == 403
                answer = await web.put("/subscriptions/s", json={"filters": [{"sql": wanted}]}, headers=ann)
                assert answer.status_code == 403
            for got in found:
                assert got == right
                assert all(matches(allowed, known[name]) for name in got)

    asyncio.run(main())


# -- pages of other sites ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:1"}, 200),
        ({"host": "[::1]:9380"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example:9380"}, 403),
        ({"host": "localhost.evil.example"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"host": "localhost:7", "origin": "http://localhost:7"}, 200),
        ({"host": "localhost:7", "origin": "http://localhost:8"}, 403),
        ({"host": "localhost:7", "origin": "https://localhost:7"}, 403),
    ],
)
def test_pages_of_other_sites_are_refused(headers, status):
    async def main():
        async with broker(gateway=True) as local, http(local) as web:
            answer = await web.get("/subscriptions", headers=headers)
            assert answer.status_code == status
            assert not [name for name in answer.headers if name.startswith("access-control")]

    asyncio.run(main())


def test_a_listed_origin_may_use_it():
    config = BrokerConfig(gateway=GatewayConfig(origins=("https://app.example",)))

    async def main():
        async with broker(config=config, gateway=True) as local, http(local) as web:
            page = {"origin": "https://app.example"}
            asked = {"access-control-request-method": "POST", "access-control-request-headers": "content-type, ce-id"}
            answer = await web.options("/events", headers=page | asked)
            assert answer.status_code == 204
            assert answer.headers["access-control-allow-origin"] == "https://app.example"
            assert answer.headers["access-control-allow-headers"] == "content-type, ce-id"
            answer = await web.post("/events", json=event(1), headers=page | CLOUD)
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (202, page["origin"])
            assert "access-control-allow-credentials" not in answer.headers
            assert (await web.options("/events", headers={"origin": "https://other.example"})).status_code == 403

    asyncio.run(main())


def test_every_change_is_in_the_audit_log(tmp_path):
    written = []

    async def main():
        async with broker(config=settings(tmp_path)) as local:
            options = GatewayOptions(GatewayConfig("127.0.0.1:0"), (local.address,))
            lines = LogLines("json", "error", write=written.append)
            async with (
                running_gateway(options, lines) as (host, port),
                httpx.AsyncClient(base_url=f"http://{host}:{port}", headers=bearer(), trust_env=False) as web,
            ):
                for n in range(30):  # more than are written of other lines
                    await web.put("/subscriptions/s", json={"filters": [{"sql": f"n < {n}"}]})
                await web.patch("/subscriptions/s", json={"filters": []})
                await web.delete("/subscriptions/s")

    asyncio.run(main())
    rows = [json.loads(line) for line in written]
    assert {row["level"] for row in rows} == {"audit"}
    assert [row["event"] for row in rows] == [
        "subscription added",
        *["subscription changed"] * 29,
        "subscription removed",
    ]
    assert {(row["principal"], row["host"], row["id"]) for row in rows} == {("ann", "127.0.0.1", "s")}
    assert (rows[5]["before"], rows[5]["after"]) == ("n < 4", "n < 5")
