"""Questions: lists in pages, rights, other brokers, and operations; nothing changes but by an operation."""

from __future__ import annotations

from contextlib import suppress
from itertools import count, pairwise
from typing import Any

import msgspec
import pytest

from broker.harness import Broker
from broker.network import Network
from broker.test_history import published
from broker.test_links import subscribed
from weft.broker.effects import ConnectionId
from weft.broker.explain import HopAnswer
from weft.broker.identity import Identity
from weft.broker.limits import ClientLimits, RefusalError
from weft.broker.questions import asking
from weft.broker.questions.asking import RelayedAnswer
from weft.broker.questions.listings import Listings, ListProgress, ListStep, PageToken
from weft.broker.rules import Rights, Rules
from weft.log.base import Offset
from weft.protocol.explanation import BrokerHop
from weft.protocol.link_messages import LinkRelay, RelayKind
from weft.protocol.messages import (
    Accepted,
    Answer,
    Bye,
    Complete,
    Deliver,
    Failed,
    Hello,
    Publish,
    Question,
    Revoked,
    SubNumber,
    Subscribe,
)
from weft.protocol.questions import (
    AnyQuestion,
    AskItems,
    AskMatches,
    AskOrder,
    AskOverlay,
    AskRelated,
    AskSessions,
    AskSubscriptions,
    AskSummary,
    AskTrace,
    AskWhy,
    ChangeSubscription,
    DetachLink,
    Disconnect,
    ItemList,
    MoveSession,
    OperationDone,
    OverlayList,
    SearchEvents,
    SetBalance,
    SubscriptionList,
    encode_body,
    read_answer,
    read_question,
)
from weft.routing import MODELS

LATE = ClientLimits().explain


def ask(
    node: Broker,
    question: AnyQuestion,
    broker: str = "",
    page: bytes = b"",
    *,
    client: str = "q",
    credentials: bytes = b"",
) -> None:
    if ConnectionId(client) not in node.core._sessions.connections:
        node.hello(client, "", credentials=credentials)
    node.say(client, Question(7, encode_body(question), broker, page))


def replies(node: Broker, client: str = "q") -> list[Answer | Failed]:
    return [each for to, each in node.sent if to == client and isinstance(each, Answer | Failed)]


def reply(node: Broker, question: AnyQuestion, **options: Any) -> Answer | Failed:
    """The answer of a broker that needs no other for it."""
    ask(node, question, **options)
    return replies(node, options.get("client", "q"))[-1]


def answer(node: Broker, question: AnyQuestion, **options: Any) -> Any:
    found = reply(node, question, **options)
    assert isinstance(found, Answer), found
    return read_answer(found.body)


def pages(node: Broker, question: AnyQuestion, client: str = "q") -> list[Any]:
    found: list[Any] = []
    token = b""
    while True:
        (each,) = (reply(node, question, page=token, client=client),)
        assert isinstance(each, Answer), each
        found.append(read_answer(each.body))
        token = each.page
        if not token:
            return found


def asked(network: Network, at: str, question: AnyQuestion, broker: str = "") -> Answer | Failed:
    """The answer of a network."""
    ask(network[at], question, broker)
    network.settle()
    return replies(network[at])[-1]


def from_network(network: Network, at: str, question: AnyQuestion, broker: str = "") -> Any:
    found = asked(network, at, question, broker)
    assert isinstance(found, Answer), found
    return read_answer(found.body)


def named(credentials: bytes) -> Identity:
    return Identity(credentials.decode())


# -- lists ----------------------------------------------------------------------------------------------------


def test_sessions_and_subscriptions_are_listed_with_what_they_have() -> None:
    node = Broker()
    node.hello("a", "alerts")
    node.say("a", Subscribe(SubNumber(1), "x > 5"), Subscribe(SubNumber(2), "y = 1"))
    published(node, [{"x": 6}, {"x": 7}, {"x": 1}])
    (sessions,) = pages(node, AskSessions())
    rows = {row.name: row for row in sessions.rows}
    assert rows.keys() == {"alerts", "sensor", ""}
    assert (rows["alerts"].subscriptions, rows["alerts"].behind, rows["alerts"].connected) == (2, 2, True)
    assert rows["sensor"].published == 3
    node.cut("a")
    assert [row.name for row in answer(node, AskSessions(connected=False)).rows] == ["alerts"]
    assert answer(node, AskSessions("lert")).rows[0].connected is False
    subs = answer(node, AskSubscriptions("alerts")).rows
    assert [(row.number, row.filter, row.matched, row.connected) for row in subs] == [
        (1, "x > 5", 2, False),
        (2, "y = 1", 0, False),
    ]
    assert subs[0].matched_at == node.now.utc // 1_000_000
    subs = answer(node, AskSubscriptions("alerts", rated=True)).rows
    assert [row.rate for row in subs] == [pytest.approx(2), 0]
    assert [row.number for row in answer(node, AskSubscriptions(text="y")).rows] == [2]


def test_rates_are_moving_averages_of_subscriptions_of_the_root_set_and_of_the_broker() -> None:
    node = Broker()
    node.hello("a", "alerts")
    texts = ["x > 0", "x > 5", "x > 0", "y = 1"]
    node.say("a", *(Subscribe(SubNumber(number), text) for number, text in enumerate(texts, 1)))
    node.hello("p", "sensor")
    sequences = count(1)
    for second in range(200):
        events = [{"x": 3}] * 3 + [{"x": 9}] * (2 if second >= 100 else 1)
        node.say("p", *(Publish.of(next(sequences), event, b"") for event in events))
        node.wait(1_000_000)
    (roots,) = pages(node, AskOrder())
    assert {row.filter: (row.holders, row.size, round(row.rate, 1)) for row in roots.rows} == {
        "x > 0": (2, 2, 4.8),
        "y = 1": (1, 1, 0.0),
    }, "two thirds of the weight are of the last minute"
    (subs,) = pages(node, AskSubscriptions("alerts", rated=True))
    assert [round(row.rate, 1) for row in subs.rows] == [4.8, 1.8, 4.8, 0.0]
    averages = node.core.averages
    assert averages == {"events": pytest.approx(4.8, abs=0.05), "matches": pytest.approx(11.4, abs=0.1)}
    node.wait(600_000_000)
    (later,) = pages(node, AskSubscriptions("alerts", rated=True))
    assert max(row.rate for row in later.rows) < 0.01
    assert node.core.averages["events"] < 0.01


def test_matches_are_counted_from_the_start_however_many_come_together() -> None:
    node = Broker(limits=ClientLimits(subscriptions=500))
    node.hello("a", "alerts")
    node.say("a", *(Subscribe(SubNumber(number), f"x >= {number}") for number in range(1, 101)))
    for _ in range(3):
        published(node, [{"x": 50}] * 5, run=5)  # 250 matches together
        published(node, [{"x": 2}])  # and two alone
    rows = [row for page in pages(node, AskSubscriptions("alerts")) for row in page.rows]
    assert [row.matched for row in rows] == [18] * 2 + [15] * 48 + [0] * 50
    node.say("a", Subscribe(SubNumber(200), "x > 0"))
    assert answer(node, AskSubscriptions("alerts", text="x > 0")).rows[0].matched == 0, "a slot is used again"


def test_a_long_list_comes_in_pages_that_may_be_asked_for_again() -> None:
    node = Broker(limits=ClientLimits(subscriptions=1_000))
    node.hello("a", "alerts")
    for first in range(0, 500, 100):
        node.say("a", *(Subscribe(SubNumber(number), f"x = {number}") for number in range(first, first + 100)))
    found = pages(node, AskSubscriptions())
    assert [len(page.rows) for page in found] == [200, 200, 100]
    assert [row.number for page in found for row in page.rows] == list(range(500))
    first = reply(node, AskSubscriptions())
    assert isinstance(first, Answer)
    second, again = (reply(node, AskSubscriptions(), page=first.page) for _ in range(2))
    assert second == again, "a client that has reconnected asks again"
    third = reply(node, AskSubscriptions(), page=second.page)  # type: ignore[union-attr]
    assert isinstance(third, Answer)
    assert third.page == b""
    late = reply(node, AskSubscriptions(), page=first.page)
    assert isinstance(late, Failed)
    assert late.code == "page"


@pytest.mark.parametrize(
    "token",
    [b"x", b"\xc1", b"\x93\x01\x01", b"\x93\x01\x63\x01", b"\x94\x01\x01\x01\x01", bytes(100), b"\x93\xc0\xc0\xc0"],
)
def test_a_page_token_of_ones_own_making_is_refused(token: bytes) -> None:
    node = Broker()
    ask(node, AskSessions())
    refused = reply(node, AskSessions(), page=token)
    assert isinstance(refused, Failed)
    assert (refused.about, refused.number, refused.code) == ("question", 7, "page")


def test_a_page_token_belongs_to_its_question_and_its_principal() -> None:
    rules = Rules({"ann": Rights(), "bob": Rights()})
    node = Broker(rules=rules, authenticate=named, limits=ClientLimits(subscriptions=1_000))
    node.hello("a", "alerts", credentials=b"ann")
    for first in range(0, 300, 100):
        node.say("a", *(Subscribe(SubNumber(number), f"x = {number}") for number in range(first, first + 100)))
    first = reply(node, AskSubscriptions(), client="ann", credentials=b"ann")
    assert isinstance(first, Answer)
    for question, who in ((AskSubscriptions("alerts"), "ann"), (AskSubscriptions(), "bob")):
        refused = reply(node, question, client=who, credentials=who.encode(), page=first.page)
        assert isinstance(refused, Failed)
        assert refused.code == "page"
    assert isinstance(reply(node, AskSubscriptions(), client="ann", page=first.page), Answer)


def test_few_lists_are_kept() -> None:
    listings = Listings(1, most_work=10)
    question = AskSessions()

    def begin() -> bytes:
        steps = (ListStep(5, number) for number in range(100))
        return listings.begin("", question, steps, ListProgress(), lambda rows, _: rows).token  # type: ignore[arg-type, return-value]

    tokens = [begin() for _ in range(100)]
    kept = 0
    for token in tokens:
        with suppress(RefusalError):
            assert len(listings.go_on("", question, token).answer) == 2  # type: ignore[arg-type]
            kept += 1
    assert kept == 64
    other = msgspec.msgpack.encode(PageToken(2, 100, 1))
    with pytest.raises(RefusalError, match="no longer kept"):
        listings.go_on("", question, other)


def test_a_turn_answers_one_question_and_none_that_nobody_reads() -> None:
    node = Broker()
    for name in "qr":
        node.hello(name, "")
    question = Question(1, encode_body(AskSummary()))
    core = node.core

    def answered(effects: Any) -> int:
        return sum(isinstance(each, Answer) for effect in effects for each in getattr(effect, "messages", ()))

    reads = [(ConnectionId(name), [question, question]) for name in "qr"]
    assert answered(core.receive_all(reads, node.now)) == 1
    assert [answered(core.tick(node.now)) for _ in range(4)] == [1, 1, 1, 0]
    core.paused(ConnectionId("q"))
    assert answered(core.receive(ConnectionId("q"), [question], node.now)) == 0
    assert answered(core.resumed(ConnectionId("q"), node.now)) == 1


# -- rights ---------------------------------------------------------------------------------------------------


def test_ones_own_things_are_seen_without_a_right_and_those_of_others_with_status() -> None:
    own = Rights(further=frozenset())
    rules = Rules({"ann": own, "bob": own, "op": Rights(further=frozenset({"status"}))})
    node = Broker(rules=rules, authenticate=named)
    for name in ("ann", "bob"):
        node.hello(f"{name} here", f"{name}-alerts", credentials=name.encode())
        node.say(f"{name} here", Subscribe(SubNumber(1), f"owner = '{name}'"))
    seen = {
        who: {row.filter for row in answer(node, AskSubscriptions(), client=who, credentials=who.encode()).rows}
        for who in ("ann", "bob", "op")
    }
    assert seen == {"ann": {"owner = 'ann'"}, "bob": {"owner = 'bob'"}, "op": {"owner = 'ann'", "owner = 'bob'"}}
    related = answer(node, AskRelated("TRUE"), client="ann").rows
    assert [row.subscription.owner for row in related] == ["ann"]
    event = msgspec.Raw(msgspec.msgpack.encode({"owner": "bob"}))
    assert isinstance(reply(node, AskTrace("ann-alerts", event), client="ann"), Answer)
    assert isinstance(reply(node, AskTrace("ann-alerts", event), client="op"), Answer)
    for question in (AskTrace("bob-alerts", event), AskTrace("nobody", event)):
        refused = reply(node, question, client="ann")
        assert isinstance(refused, Failed)
        assert refused.code == "unknown", "nothing is learnt of the sessions of others"
    hidden, missing = (answer(node, AskWhy(name), client="ann") for name in ("bob-alerts", "nobody"))
    assert [each.cause for each in hidden.findings] == [each.cause for each in missing.findings] == ["unknown-session"]


@pytest.mark.parametrize(
    ("question", "right"),
    [
        (AskItems("b"), "status"),
        (AskOrder(), "status"),
        (AskOverlay(), "status"),
        (AskSummary(), "status"),
        (SearchEvents("x > 5"), "history"),
        (Disconnect("s"), "operate"),
        (MoveSession("s", "b", "weft://b"), "operate"),
        (SetBalance(True), "operate"),
        (DetachLink("b"), "operate"),
        (ChangeSubscription("s", SubNumber(1), "x > 5"), "operate"),
    ],
)
def test_other_questions_need_a_right(question: AnyQuestion, right: str) -> None:
    every = Rights()
    less = Rights(further=every.further - {right})  # type: ignore[operator]
    node = Broker(rules=Rules({"less": less, "all": every}), authenticate=named)
    refused = reply(node, question, client="less", credentials=b"less")
    assert isinstance(refused, Failed)
    assert refused.code == "access"
    assert f"the right '{right}'" in refused.reason
    other = reply(node, question, client="all", credentials=b"all")
    assert isinstance(other, Answer) or other.code != "access"


def test_clients_cannot_ask_what_events_contain() -> None:
    network = Network("a", "b").chain()
    for broker in ("", "b"):
        refused = asked(network, "a", AskMatches(("x > 5",)), broker)
        assert isinstance(refused, Failed)
        assert refused.code == "question"


def test_a_search_shows_what_the_rules_cover() -> None:
    some = Rights(subscribe=("x > 5",))
    node = Broker(rules=Rules({"some": some, "sensor": Rights()}), authenticate=named)
    node.hello("p", "sensor", credentials=b"sensor")
    published(node, [{"x": x} for x in range(10)])
    refused = reply(node, SearchEvents("x > 4"), client="some", credentials=b"some")
    assert isinstance(refused, Failed)
    assert refused.code == "access"
    found = answer(node, SearchEvents("x > 7"), client="some")
    assert [event.offset for event in found.events] == [9, 10]


# -- searches -------------------------------------------------------------------------------------------------


def test_a_search_says_how_far_it_is_and_goes_on() -> None:
    node = Broker()
    for at in range(5):
        published(node, [{"x": at * 200 + x} for x in range(200)], run=200)
        node.wait(60_000_000)
    node.hello("q", "")
    found, first = [], 0
    seen = []
    while True:
        page = answer(node, SearchEvents("x >= 350 AND x < 650", Offset(first)))
        found += [event.offset for event in page.events]
        seen.append((page.first, page.next, page.end))
        first = page.next
        if page.is_done:
            break
    assert found == list(range(351, 651))
    assert all(one[1] == other[0] for one, other in pairwise(seen))
    assert len(seen) > 3
    start = node.now.utc - 5 * 60_000_000
    later = answer(node, SearchEvents("TRUE", since=start + 60_000_000, until=start + 120_000_000))
    assert [later.events[0].offset, later.end] == [201, 401]
    assert len(later.events) == 200
    assert later.is_done
    nothing = answer(node, SearchEvents("TRUE", Offset(5_000)))
    assert (nothing.events, nothing.is_done) == ((), True)


# -- links, order and relations -------------------------------------------------------------------------------


def test_items_of_a_link_say_why_they_were_sent_and_are_the_same_at_both_ends() -> None:
    network = Network("a", "b", "c").chain()
    subscribed(network, "a", "s1", "x > 5")
    subscribed(network, "a", "s2", "x > 5")
    subscribed(network, "c", "s3", "y = 1")
    sent = from_network(network, "b", AskItems("c"))
    received = from_network(network, "c", AskItems("b", "received"))
    assert isinstance(sent, ItemList)
    assert [(row.text, row.reason) for row in sent.rows] == [("x > 5", "wanted by 1 item of a")]
    assert [(row.text, row.hash) for row in received.rows] == [(row.text, row.hash) for row in sent.rows]
    (row,) = from_network(network, "a", AskItems("b")).rows
    assert row.reason == "wanted by 2 local subscriptions"
    refused = asked(network, "a", AskItems("z"))
    assert isinstance(refused, Failed)
    assert refused.reason == "there is no link to 'z' here; links: b"


@pytest.mark.parametrize("model", MODELS)
def test_items_are_listed_whatever_the_model(model: str) -> None:
    from broker.test_links_random import SCHEMA

    network = Network("a", "b", model=model, schema=SCHEMA).chain()
    subscribed(network, "a", "s", "x BETWEEN 2 AND 5")
    sent, received = from_network(network, "a", AskItems("b")), from_network(network, "b", AskItems("a", "received"))
    assert sorted(row.hash for row in sent.rows) == sorted(row.hash for row in received.rows)
    assert all(row.reason for row in sent.rows)
    assert bool(sent.rows) == (model != "flooding")
    would = from_network(network, "a", AskRelated("x = 3")).sends
    assert [each.link for each in would] == ["b"]


def test_the_order_of_subscriptions_is_walked_level_by_level() -> None:
    node = Broker()
    node.hello("a", "alerts")
    texts = ["x > 0", "x > 5", "x > 9", "y = 1", "x > 0", "x > 1 AND x < 0"]
    node.say("a", *(Subscribe(SubNumber(number), text) for number, text in enumerate(texts)))
    roots = pages(node, AskOrder())[-1].rows
    assert {(row.filter, row.holders, row.children, row.size) for row in roots} == {
        ("x > 0", 2, 1, 3),
        ("y = 1", 1, 0, 1),
    }
    top = next(row for row in roots if row.children)
    (below,) = answer(node, AskOrder(top.node)).rows
    (last,) = answer(node, AskOrder(below.node)).rows
    assert (below.filter, last.filter, last.children) == ("x > 5", "x > 9", 0)
    for _ in range(3):  # others look at the order, too
        pages(node, AskOrder())
        assert answer(node, AskOrder(top.node)).rows == (below,)
    pages(node, AskOrder())
    gone = reply(node, AskOrder(top.node))
    assert isinstance(gone, Failed)
    assert gone.reason.endswith("begin with the roots")


def test_subscriptions_are_related_to_a_filter_and_neighbours_would_be_sent_what_is_new() -> None:
    network = Network("a", "b").chain()
    node = network["a"]
    node.hello("s", "alerts")
    texts = ["x > 5", "x > 0", "x > 9 AND y = 1", "x < 7", "x < 1", "z LIKE 'a%'", "x > 5 OR z = 1"]
    node.say("s", *(Subscribe(SubNumber(number), text) for number, text in enumerate(texts)))
    network.settle()
    found = from_network(network, "a", AskRelated("x > 5"))
    kinds = {row.subscription.filter: row.relationship for row in found.rows}
    assert kinds == {
        "x > 5": "equal",
        "x > 0": "covers",
        "x > 9 AND y = 1": "covered",
        "x < 7": "overlaps",
        "z LIKE 'a%'": "overlaps",
        "x > 5 OR z = 1": "covers",
    }
    assert (found.seen, found.total) == (7, 7)
    assert [(each.link, each.sent) for each in found.sends] == [("b", False)]
    assert "which covers it" in found.sends[0].reason
    assert [each.sent for each in from_network(network, "a", AskRelated("w = 1")).sends] == [True]
    assert [each.sent for each in from_network(network, "a", AskRelated("w = 1 AND w = 2")).sends] == [False]
    refused = asked(network, "a", AskRelated("x >"))
    assert isinstance(refused, Failed)
    assert refused.code == "filter"


def test_the_truth_of_each_part_of_a_filter_is_traced() -> None:
    node = Broker()
    node.hello("a", "alerts")
    node.say("a", Subscribe(SubNumber(3), "x > 5 AND (y = 1 OR z IS NULL)"))
    found = answer(node, AskTrace("alerts", msgspec.Raw(msgspec.msgpack.encode({"x": 7, "y": 2, "z": 3}))))
    assert (found.number, found.matches) == (3, False)
    assert [(part.filter, part.truth) for part in found.trace.parts] == [("x > 5", True), ("y = 1 OR z IS NULL", False)]
    assert [part.values for part in found.trace.parts[1].parts] == [{"y": 2}, {"z": 3}]
    long = " OR ".join(f"x = {number}" for number in range(1_000))
    node.say("a", Subscribe(SubNumber(4), long))
    wide = answer(node, AskTrace("alerts", msgspec.Raw(msgspec.msgpack.encode({"x": 7})), SubNumber(4)))
    assert wide.matches
    assert len(wide.trace.parts) == 199
    for event, number, code in ((b"\xc1", 3, "event"), (msgspec.msgpack.encode({"x": 1}), 9, "unknown")):
        refused = reply(node, AskTrace("alerts", msgspec.Raw(event), SubNumber(number)))
        assert isinstance(refused, Failed)
        assert refused.code in (code, "question")


# -- other brokers --------------------------------------------------------------------------------------------


def test_any_broker_of_the_network_answers_and_pages_go_on_there() -> None:
    network = Network("a", "b", "c", limits=ClientLimits(subscriptions=1_000)).chain()
    node = network["c"]
    node.hello("s", "alerts")
    for first in range(0, 300, 100):
        node.say("s", *(Subscribe(SubNumber(number), f"x = {number}") for number in range(first, first + 100)))
        network.settle()
    found, token = [], b""
    while True:
        ask(network["a"], AskSubscriptions(), "c", token)
        network.settle()
        last = replies(network["a"])[-1]
        assert isinstance(last, Answer), last
        assert last.broker == "c"
        found += read_answer(last.body).rows
        token = last.page
        if not token:
            break
    assert [row.number for row in found] == list(range(300))
    search = from_network(network, "a", SearchEvents("TRUE"), "b")
    assert search.log_id == "log of b"
    refused = asked(network, "a", AskItems("z"), "c")
    assert isinstance(refused, Failed)
    assert (refused.code, refused.reason) == ("unknown", "there is no link to 'z' here; links: b")


def test_the_other_broker_applies_its_own_rules_too() -> None:
    network = Network("a", "b").chain()
    network["b"].call(network["b"].core.set_rules, Rules({}, default=Rights(further=frozenset({"link"}))))
    refused = asked(network, "a", AskSummary(), "b")
    assert isinstance(refused, Failed)
    assert refused.code == "access"
    assert isinstance(asked(network, "a", AskSummary()), Answer)


def test_a_broker_that_cannot_be_reached_or_does_not_answer_is_named() -> None:
    network = Network("a", "b", "c").chain()
    unknown = asked(network, "a", AskSummary(), "z")
    assert isinstance(unknown, Failed)
    assert unknown.reason == "z cannot be asked now: no route leads to it"
    network.cut("b", "c")
    ask(network["a"], AskSummary(), "c")
    network.settle()
    before = len(replies(network["a"]))
    network.wait(LATE)
    (silent,) = replies(network["a"])[before:]
    assert isinstance(silent, Failed)
    assert (silent.code, silent.reason) == ("unanswered", "c did not answer within 2 s by way of a - b - c")
    network.cut("a", "b")
    down = asked(network, "a", AskSummary(), "b")
    assert isinstance(down, Failed)
    assert down.reason == "b cannot be asked now: the link to b is down, or not ready yet"


def make_older(network: Network, name: str) -> None:
    """Let a broker be of the version before questions: it reads what `explain` relays, and drops anything else."""
    core = network[name].core
    core._dispatch._questions.receive = core._dispatch._explainer.receive  # type: ignore[method-assign]


@pytest.mark.parametrize("older", ["b", "c"])
def test_a_broker_of_an_older_version_is_told_apart_at_once(older: str) -> None:
    network = Network("a", "b", "c").chain()
    make_older(network, older)
    refused = asked(network, "a", AskSummary(), older)
    assert isinstance(refused, Failed)
    sentence = f"{older} runs an older version of Weft, which answers no questions; update it"
    assert (refused.code, refused.reason) == ("unanswered", sentence)
    assert network[older].core.counts["explanations not read"] == 1
    other = "c" if older == "b" else "b"
    assert isinstance(asked(network, "a", AskSummary(), other), Answer), "questions pass through it"
    rows = from_network(network, "a", AskOverlay()).rows
    assert {row.name: row.problem for row in rows} == {"a": "", other: "", older: sentence}
    network.check()


def test_the_overlay_is_told_from_any_broker() -> None:
    network = Network("a", "b", "c", "d")
    for one, other in (("a", "b"), ("b", "c"), ("b", "d")):
        network.link(one, other)
    network.settle()
    subscribed(network, "d", "s", "x > 5")
    overlay = from_network(network, "c", AskOverlay())
    assert isinstance(overlay, OverlayList)
    assert [(row.name, row.before) for row in overlay.rows] == [("c", ""), ("b", "c"), ("a", "b"), ("d", "b")]
    assert {row.name: row.subscriptions for row in overlay.rows} == {"a": 0, "b": 0, "c": 0, "d": 1}
    links = {row.name: [link.peer for link in row.links] for row in overlay.rows}
    assert links == {"a": ["b"], "b": ["a", "c", "d"], "c": ["b"], "d": ["b"]}
    network.cut("b", "d")
    network.wait(2 * LATE)
    ask(network["c"], AskOverlay())
    network.wait(LATE)
    rows = {row.name: row for row in read_answer(replies(network["c"])[-1].body).rows}  # type: ignore[union-attr]
    assert rows["d"].problem == "d did not answer within 2 s by way of c - b - d"
    assert [link.connected for link in rows["b"].links] == [True, True, False]


def test_questions_of_brokers_are_answered_one_in_a_turn_and_nonsense_is_dropped() -> None:
    network = Network("a", "b").chain()
    node = network["a"]
    receive = node.core._dispatch._relay
    for body in (b"\x92\xa8question", b"\x93\xa6answer\x05\xc4\x01x", b"\x92\xa8question\xc0", b"\x92\xa6answer\x63"):
        for kind in (RelayKind.QUESTION, RelayKind.ANSWER):
            receive(LinkRelay("a", "b", body, kind=kind), node.now)
    assert node.core.counts["questions not read"] == 4
    late = msgspec.msgpack.encode(RelayedAnswer(99, b"\x80"))
    receive(LinkRelay("a", "b", late, kind=RelayKind.ANSWER), node.now)
    late_hop = msgspec.msgpack.encode(HopAnswer(-99, BrokerHop("b")))
    receive(LinkRelay("a", "b", late_hop, kind=RelayKind.ANSWER), node.now)
    for number in range(300):
        body = msgspec.msgpack.encode(asking.RelayedQuestion(number, "", bytes(encode_body(AskSummary()))))
        receive(LinkRelay("a", "b", body, kind=RelayKind.QUESTION), node.now)
    assert len(node.core._questions.waiting) == 256
    node.tick()
    assert len(node.core._questions.waiting) == 255
    network.settle()
    assert not node.core._questions.waiting


def test_questions_that_wait_for_others_are_bounded_and_forgotten_with_their_client() -> None:
    network = Network("a", "b").chain()
    node = network["a"]
    for _ in range(33):
        ask(node, AskSummary(), "b")
    assert [each.code for each in replies(node) if isinstance(each, Failed)] == ["busy"]
    node.cut("q")
    network.settle()
    assert not node.core._questions._open
    assert isinstance(asked(network, "a", AskSummary(), "b"), Answer)


# -- operations -----------------------------------------------------------------------------------------------


def test_an_operator_closes_a_connection_and_the_client_may_come_back() -> None:
    node = Broker()
    node.hello("a", "alerts")
    assert isinstance(answer(node, Disconnect("alerts", "maintenance")), OperationDone)
    assert [each for to, each in node.sent if to == "a" and isinstance(each, Bye)] == [
        Bye("operator", "an operator has closed the connection: maintenance")
    ]
    away = reply(node, Disconnect("alerts"))
    assert isinstance(away, Failed)
    assert away.code == "away"
    node.hello("a2", "alerts")
    unknown = reply(node, Disconnect("nobody"))
    assert isinstance(unknown, Failed)
    assert unknown.code == "unknown"


def test_an_operator_detaches_a_link_of_any_broker() -> None:
    network = Network("a", "b", "c").chain()
    done = from_network(network, "a", DetachLink("c"), "b")
    assert isinstance(done, OperationDone)
    assert [each.peer for each in network["b"].core.links()] == ["a"]
    assert isinstance(asked(network, "a", DetachLink("c"), "b"), Failed)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("there", [True, False])
def test_an_operator_changes_a_subscription_of_another_client(durable: bool, there: bool) -> None:
    if not durable and not there:
        return  # it is gone with its connection
    node = Broker()
    node.hello("a", "alerts")
    node.say("a", Subscribe(SubNumber(1), "x > 5", durable=durable))
    if not there:
        node.cut("a")
    before = len(node.messages("a"))
    assert isinstance(answer(node, ChangeSubscription("alerts", SubNumber(1), "x < 5")), OperationDone)
    assert not any(isinstance(each, Accepted) for each in node.messages("a")[before:]), "the client has not asked"
    assert node.core.subscriptions("alerts") == {1: "x < 5"}
    published(node, [{"x": 3}, {"x": 7}])
    if not there:
        node.hello("a2", "alerts")
    got = [each.offset for to, each in node.sent if to in ("a", "a2") and isinstance(each, Deliver)]
    assert got == [1]
    refused = reply(node, ChangeSubscription("alerts", SubNumber(1), "x <"))
    assert isinstance(refused, Failed)
    assert refused.code == "filter"
    assert isinstance(answer(node, ChangeSubscription("alerts", SubNumber(1))), OperationDone)
    assert node.core.subscriptions("alerts") == {}
    client = "a" if there else "a2"
    assert [each.reason for each in node.messages(client) if isinstance(each, Revoked)] == [
        "an operator has ended the subscription"
    ]


def test_an_operator_cannot_give_a_client_what_its_rules_forbid() -> None:
    rules = Rules({"ann": Rights(subscribe=("x > 5",)), "op": Rights()})
    node = Broker(rules=rules, authenticate=named)
    node.hello("a", "alerts", credentials=b"ann")
    node.say("a", Subscribe(SubNumber(1), "x > 7"))
    refused = reply(node, ChangeSubscription("alerts", SubNumber(1), "x > 3"), client="op", credentials=b"op")
    assert isinstance(refused, Failed)
    assert refused.code == "access"
    assert node.core.subscriptions("alerts") == {1: "x > 7"}


def test_an_operation_is_answered_when_it_is_stored_or_fails_with_the_log() -> None:
    node = Broker(at_once=False)
    node.connect("a")
    node.say("a", Hello(session="alerts"))
    node.commit()
    node.say("a", Subscribe(SubNumber(1), "x > 5"))
    node.commit()
    ask(node, ChangeSubscription("alerts", SubNumber(1), "x < 5"))
    assert replies(node) == []
    node.reject("the log is full")
    (failed,) = replies(node)
    assert isinstance(failed, Failed)
    assert (failed.code, failed.reason) == ("full", "the log is full")
    assert node.core.subscriptions("alerts") == {1: "x > 5"}
    ask(node, ChangeSubscription("alerts", SubNumber(1), "x < 5"))
    node.commit()
    assert isinstance(replies(node)[-1], Answer)
    assert not any(isinstance(each, Complete) and each.about == "subscribe" for each in node.messages("q"))


# -- what cannot be read --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"\xc0",
        b"\x80",
        b"\x81\xa3ask\xa4what",
        msgspec.msgpack.encode({"ask": "why"}),
        msgspec.msgpack.encode({"ask": "related", "filter": "x" * 70_000}),
        msgspec.msgpack.encode({"ask": "sessions", "text": "y" * 200_000}),
    ],
)
def test_what_is_not_a_question_is_refused(body: bytes) -> None:
    node = Broker()
    node.hello("q", "")
    (refused,) = node.say("q", Question(3, msgspec.Raw(body)))
    assert isinstance(refused, Failed)
    assert (refused.about, refused.number, refused.code) == ("question", 3, "question")


def test_a_newer_question_and_answer_may_have_more_fields() -> None:
    assert read_question(msgspec.msgpack.encode({"ask": "summary", "new": 1})) == AskSummary()
    more = msgspec.msgpack.encode({"answer": "subscriptions", "rows": [], "new": 1})
    assert read_answer(more) == SubscriptionList(())
