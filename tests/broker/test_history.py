"""History is read by offset: page by page, within rights and bounds, and nothing changes because of it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.harness import Broker
from broker.network import Network
from weft.broker import history
from weft.broker.effects import ConnectionId, Send
from weft.broker.rules import Rights, Rules
from weft.errors import LogError
from weft.log.base import Offset
from weft.protocol.messages import MAX_EVENT, Failed, Hello, History, Publish, ReadHistory, Welcome, read_head

READER = ConnectionId("r")


def published(node: Broker, events: list[dict[str, Any]], *, payload: bytes = b"", run: int = 1) -> None:
    """Publish events, so many in each group."""
    if "p" not in node.core._sessions.connections:
        node.hello("p", "sensor")
    done = node.core._sessions.by_name["sensor"].pub_received
    messages = [Publish.of(done + at, event, payload) for at, event in enumerate(events, 1)]
    for at in range(0, len(messages), run):
        node.say("p", *messages[at : at + run])


def pages(node: Broker, first: int, end: int, text: str = "TRUE") -> list[History]:
    found: list[History] = []
    while not found or first < min(end, found[-1].end):
        (page,) = node.say("r", ReadHistory(1, Offset(first), Offset(end), text))
        assert isinstance(page, History), page
        assert page.next > first or not page.events
        first = page.next
        found.append(page)
    return found


def offsets(found: list[History]) -> list[int]:
    return [event.offset for page in found for event in page.events]


@pytest.mark.parametrize("run", [1, 7, 40])
def test_the_events_between_two_offsets_are_read_in_order(run: int) -> None:
    node = Broker()
    published(node, [{"x": x} for x in range(40)], run=run)
    node.hello("r", "")
    for first, end in [(1, 41), (0, 1000), (7, 8), (13, 30), (41, 50), (60, 50)]:
        assert offsets(pages(node, first, end)) == list(range(max(first, 1), min(end, 41)))
    (page,) = pages(node, 5, 7)
    assert [read_head(event.head).attributes for event in page.events] == [{"x": 4}, {"x": 5}]
    assert (page.oldest, page.end, page.next, page.log_id) == (1, 41, 7, node.core.status().log_id)
    (none,) = pages(node, 0, 0)
    assert (none.events, none.oldest, none.end) == ((), 1, 41)


def test_an_answer_is_bounded_in_bytes_and_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_BYTES", 1000)
    monkeypatch.setattr(history, "MOST_EVENTS", 20)
    node = Broker()
    published(node, [{"x": x} for x in range(100)], run=30)
    published(node, [{"x": 0}], payload=bytes(MAX_EVENT - 100))  # larger than any answer, and yet it is read
    published(node, [{"x": x} for x in range(20)], payload=bytes(300), run=20)
    node.hello("r", "")
    found = pages(node, 1, 1000)
    assert offsets(found) == list(range(1, 122))
    assert max(len(page.events) for page in found) == 20
    sizes = [[len(event.head) + len(event.payload) for event in page.events] for page in found]
    assert all(len(page) == 1 or sum(page) <= 1000 for page in sizes)
    assert [len(page.events) for page in found[-7:]] == [3] * 6 + [2]


def test_the_broker_filters_and_looks_at_fewer_events_for_a_longer_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_TESTED", 20)
    node = Broker()
    published(node, [{"x": x % 10} for x in range(100)], run=30)
    node.hello("r", "")
    found = pages(node, 1, 101, "x = 3")
    assert offsets(found) == list(range(4, 101, 10))
    assert [page.next for page in found] == [21, 41, 61, 81, 101]
    long = " OR ".join(["x = 3"] * 40)
    assert offsets(pages(node, 1, 101, long)) == offsets(found)
    assert pages(node, 1, 101, long)[0].next == 1 + 20 * 50 // len(long)
    for wrong in ("x >", " OR ".join(["x = 3"] * 2_000)):
        (refused,) = node.say("r", ReadHistory(8, Offset(1), Offset(9), wrong))
        assert isinstance(refused, Failed)
        assert (refused.about, refused.number, refused.code) == ("history", 8, "filter")


def test_reading_changes_nothing_at_any_broker() -> None:
    network = Network("a", "b").chain()
    published(network["b"], [{"x": x} for x in range(20)], run=5)
    network.settle()
    network["b"].hello("r", "")
    assert offsets(pages(network["b"], 1, 21)) == list(range(1, 21))
    network.settle()
    assert network["a"].heard("b") == []
    published(network["a"], [{"x": x} for x in range(100)])
    network.settle()
    (page,) = pages(network["b"], 1, 1000)
    assert page.end == 21  # nothing that nobody wants here came over
    assert network["b"].core.status().subscriptions == 0


def test_history_is_a_right_within_that_of_subscribing() -> None:
    names = ["all", "some", "none"]
    rights = [Rights(), Rights(subscribe=("x > 5",)), Rights(further=frozenset({"status"}))]
    node = Broker(rules=Rules(dict(zip(names, rights, strict=True))), authenticate=_named)
    node.hello("p", "sensor", credentials=b"all")
    published(node, [{"x": x} for x in range(10)])
    for name, text, told in [
        ("all", "TRUE", None),
        ("some", "x > 7", None),
        ("some", "TRUE", "no rule allows all of TRUE"),
        ("none", "x > 7", "no rule allows you to read older events"),
    ]:
        node.hello(f"{name}{text}", "", credentials=name.encode())
        (answer,) = node.say(f"{name}{text}", ReadHistory(1, Offset(1), Offset(99), text))
        if told is None:
            assert isinstance(answer, History)
        else:
            assert isinstance(answer, Failed)
            assert answer.code == "access"
            assert answer.reason.startswith(told)


def _named(credentials: bytes) -> Any:
    from weft.broker.identity import Identity

    return Identity(credentials.decode())


def test_a_connection_gets_one_answer_in_a_turn_and_none_that_nobody_reads() -> None:
    node = Broker()
    published(node, [{"x": x} for x in range(10)])
    node.hello("r", "")
    requests = [ReadHistory(number, Offset(1), Offset(9)) for number in range(1, 6)]

    def answered(effects: Any) -> list[int]:
        sent = [message for effect in effects if isinstance(effect, Send) for message in effect.messages]
        return [message.request if isinstance(message, History) else -message.number for message in sent]

    core = node.core
    assert answered(core.receive(READER, requests[:3], node.now)) == [1]
    assert core.is_behind(READER)
    assert [answered(core.tick(node.now)) for _ in range(3)] == [[2], [3], []]
    core.paused(READER)
    assert answered(core.receive(READER, requests[:1], node.now)) == []
    assert answered(core.receive(READER, requests[1:2], node.now)) == [-2]  # refused: the first is not answered yet
    assert answered(core.resumed(READER, node.now)) == [1]
    assert answered(core.receive(READER, requests[:3], node.now)) == [1]
    assert answered(core.closed(READER, node.now)) == []  # nobody waits for the others


def test_events_that_were_removed_are_told_even_before_the_broker_knows() -> None:
    node = Broker()
    published(node, [{"x": x} for x in range(10)], run=2)
    node.hello("r", "")
    assert node.log.trim(Offset(5)) == 4  # the core has not been told yet
    (page,) = pages(node, 1, 11)
    assert (page.oldest, offsets([page])) == (5, list(range(5, 11)))
    (page,) = pages(node, 7, 11)
    assert (page.oldest, offsets([page])) == (1, [7, 8, 9, 10])


def test_a_damaged_group_is_refused_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Broker()
    published(node, [{"x": 1}])
    node.hello("r", "")

    def damaged(*_: object) -> Any:
        raise LogError("the group at offset 1 is damaged")

    with monkeypatch.context() as patch:
        patch.setattr(node.log, "read", damaged)
        (refused,) = node.say("r", ReadHistory(1, Offset(1)))
    assert isinstance(refused, Failed)
    assert (refused.code, refused.reason) == ("log", "the group at offset 1 is damaged")
    assert offsets(pages(node, 1, 9)) == [1]


def test_a_client_of_the_version_before_is_welcome() -> None:
    node = Broker()
    for versions, agreed in [((2, 2), 2), ((2, 3), 3), ((1, 9), 6), ((3, 3), 3), ((2, 4), 4)]:
        name = str(versions)
        node.connect(name)
        (welcome,) = node.say(name, Hello(versions=versions))
        assert isinstance(welcome, Welcome)
        assert welcome.version == agreed
