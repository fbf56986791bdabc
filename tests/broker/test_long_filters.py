"""Filters that Weft writes longer than their user: clients, brokers, links and the log take them alike."""

from __future__ import annotations

import msgspec
import pytest

from broker.harness import Broker
from broker.network import Network
from weft import parse
from weft.algebra.normalize import normalize as real
from weft.errors import LogError
from weft.language.lexer import MAX_TEXT
from weft.model.limits import LIMITS
from weft.model.schema import Schema
from weft.protocol.messages import Accepted, Deliver, Failed, Publish, Refused, Subscribe

LONG = f"x IN ({','.join(['1e15'] * 13_000)}, 7)"  # less than 64 KiB, and written more than 64 KiB


def kinds(messages: list[object]) -> set[type]:
    return {type(message) for message in messages}


@pytest.mark.parametrize("written", [False, True])
def test_a_filter_written_longer_is_stored_and_found_again(written: bool) -> None:
    text = str(parse(LONG)) if written else LONG
    assert (len(text) > MAX_TEXT) is written
    broker = Broker()
    broker.hello("c", session="s")
    assert Accepted in kinds(broker.say("c", Subscribe(1, text, 1)))  # type: ignore[arg-type]
    broker.restart()
    broker.hello("c", session="s")
    assert Deliver in kinds(broker.say("c", Publish.of(1, {"x": 7})))


def test_a_broker_whose_limits_were_lowered_does_not_start_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    broker.hello("c", session="s")
    many = " OR ".join(f"x = {number}" for number in range(1_500))
    assert Accepted in kinds(broker.say("c", Subscribe(1, many, 1)))  # type: ignore[arg-type]
    with monkeypatch.context() as lower:
        lower.setattr(LIMITS, "tests", 100)
        with pytest.raises(LogError, match=r"more than 100 tests(.|\n)*the limits"):
            broker.restart()
    broker.restart()
    broker.hello("c", session="s")
    assert Deliver in kinds(broker.say("c", Publish.of(1, {"x": 7})))


def test_a_filter_written_longer_reaches_the_neighbours() -> None:
    network = Network("a", "b")
    network.link("a", "b")
    network.settle()
    network["a"].hello("c", session="s")
    network["a"].say("c", Subscribe(1, LONG, 1))  # type: ignore[arg-type]
    network.settle()
    table = network["b"].core.table
    assert [*table.heard("a").values()] == [parse(LONG)]


def test_a_lower_limit_of_an_operator_counts_what_is_sent() -> None:
    from weft.broker.limits import ClientLimits

    broker = Broker(limits=ClientLimits(filter=1_000))
    broker.hello("c", session="s")
    assert Failed in kinds(broker.say("c", Subscribe(1, LONG, 1)))  # type: ignore[arg-type]


def test_under_a_schema_a_filter_is_normalized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.algebra import relate
    from weft.broker.rules import Rights, Rules

    made = []
    monkeypatch.setattr(relate, "normalize", lambda *given: made.append(given) or real(*given))
    schema = Schema.of(x="int", s="string")
    rules = Rules(default=Rights(subscribe=("x > 0", "s = 'a'")), schema=schema)
    broker = Broker(schema=schema, rules=rules)
    broker.hello("c", session="s")
    made.clear()
    assert Accepted in kinds(broker.say("c", Subscribe(1, "x > 5 AND NOT (x > 9 OR s = 'b')", 1)))  # type: ignore[arg-type]
    assert len(made) == 1
    found = [broker.say("c", Publish.of(1 + n, event)) for n, event in enumerate(({"x": 6.0, "s": "a"}, {"x": 12}))]
    assert [Deliver in kinds(each) for each in found] == [True, False]


def test_an_event_of_too_many_attributes_is_not_decoded() -> None:
    many = {f"a{number}": number for number in range(LIMITS.attributes + 1)}
    for attributes in (msgspec.msgpack.encode(many), b"\xdf\x00\x01\x86\xa0" + b"\xc1" * 200_000):
        broker = Broker()
        broker.hello("c", session="s")
        (said,) = (e for e in broker.say("c", Publish(1, msgspec.Raw(attributes))) if isinstance(e, Refused))
        assert "at most 4,096 attributes" in str(said)
