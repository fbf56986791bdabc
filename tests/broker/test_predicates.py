"""Predicates that the process brings, in the filters of a broker: matched, told, stored and refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from broker.harness import Broker, deliveries
from broker.network import Network
from weft.broker.identity import Identity
from weft.broker.rules import Rights, Rules
from weft.errors import LogError
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.taxonomy import IsA, Taxonomy
from weft.log.base import Offset
from weft.protocol.fingerprint import fingerprint
from weft.protocol.messages import (
    Accepted,
    Advertise,
    Bye,
    Failed,
    Publish,
    QueueNumber,
    Refused,
    Replace,
    SubNumber,
    Subscribe,
)

KINDS = Predicates([IsA(Taxonomy({"car": ["vehicle"], "truck": ["vehicle"]}))])
ONE, TWO = SubNumber(1), SubNumber(2)


def with_kinds(model: str = "covering", **options: Any) -> Broker:
    return Broker(model=model, predicates=KINDS, table={"predicates": KINDS}, **options)


def event(sequence: int, kind: str) -> Publish:
    return Publish.of(sequence, {"kind": kind}, kind.encode())


@pytest.mark.parametrize("model", ["flooding", "simple", "identity", "covering", "merging", "negative"])
def test_a_filter_that_calls_a_predicate_matches_and_returns_after_a_restart(model: str) -> None:
    broker = with_kinds(model)
    broker.hello("s")
    broker.say("s", Subscribe(ONE, "is_a(kind, 'vehicle')"), Subscribe(TWO, "is_a(kind, 'car')"))
    broker.hello("p")
    broker.say("p", event(1, "car"), event(2, "truck"), event(3, "house"))
    assert deliveries([message for to, message in broker.sent if to == "s"]) == [(1, 1, [1, 2]), (2, 1, [1])]
    broker.restart()
    assert deliveries(broker.hello("t", "s")) == [(1, 2, [1, 2]), (2, 2, [1])]
    broker.hello("q", "p")
    broker.say("q", event(4, "truck"))
    assert deliveries([message for to, message in broker.sent if to == "t"])[-1] == (4, 1, [1])


def test_a_predicate_may_be_used_to_replace_a_filter_and_to_read_older_events() -> None:
    broker = with_kinds()
    broker.hello("p")
    broker.say("p", event(1, "car"), event(2, "house"))
    broker.hello("s")
    old = broker.say("s", Subscribe(ONE, "is_a(kind, 'vehicle')", QueueNumber(1), since=Offset(1)))
    assert deliveries(old) == [(1, 1, [1])]
    broker.say("s", Subscribe(TWO, "kind = 'house'"))
    assert Accepted("replace", TWO, Offset(3)) in broker.say("s", Replace(TWO, "is_a(kind, 'truck')"))
    broker.say("p", event(3, "truck"))
    assert (3, 1, [2]) in deliveries([message for to, message in broker.sent if to == "s"])


def test_an_unknown_predicate_is_refused_with_the_names_of_those_that_are_known() -> None:
    broker = with_kinds()
    broker.hello("s")
    (failed,) = broker.say("s", Subscribe(ONE, "near(kind, 3)"))
    assert isinstance(failed, Failed)
    assert failed.code == "filter"
    assert "unknown predicate 'near'" in failed.reason
    assert "is_a" in failed.reason


def test_a_log_whose_filters_call_a_predicate_needs_it() -> None:
    broker = with_kinds()
    broker.hello("s")
    broker.say("s", Subscribe(ONE, "is_a(kind, 'vehicle')"))
    with pytest.raises(LogError, match="unknown predicate 'is_a'"):
        Broker(broker.log.crash())


def test_a_log_whose_advertisements_call_a_predicate_needs_it() -> None:
    broker = with_kinds(advertised=True)
    broker.hello("p")
    broker.say("p", Advertise(1, "is_a(kind, 'vehicle')"))
    (refused,) = broker.say("p", event(1, "house"))
    assert isinstance(refused, Refused)
    assert refused.code == "advertisement"
    with pytest.raises(LogError, match="unknown predicate 'is_a'"):
        Broker(broker.log.crash(), advertised=True)


def test_access_rules_may_call_a_predicate() -> None:
    rules = Rules({"ann": Rights(("is_a(kind, 'vehicle')",), ("is_a(kind, 'car')",))}, predicates=KINDS)
    broker = with_kinds(rules=rules, authenticate=lambda _: Identity("ann"))
    broker.hello("s")
    answers = broker.say("s", Subscribe(ONE, "is_a(kind, 'car')"), Subscribe(TWO, "kind = 'house'"))
    assert Accepted("subscribe", ONE, Offset(1)) in answers
    assert [each.code for each in answers if isinstance(each, Failed)] == ["access"]
    (refused,) = [each for each in broker.say("s", event(1, "truck")) if isinstance(each, Refused)]
    assert refused.code == "access"


def test_the_names_of_predicates_are_part_of_the_fingerprint() -> None:
    assert fingerprint(None) == fingerprint(None, NO_PREDICATES) == ""
    assert fingerprint(None, KINDS) not in ("", fingerprint(None, ["near"]))
    broker = with_kinds()
    (refused,) = broker.hello("c", fingerprint=fingerprint(None, ["near"]))
    assert isinstance(refused, Bye)
    assert "other predicates" in refused.reason


def test_neighbours_with_the_same_predicates_route_by_them() -> None:
    network = Network("a", "b", predicates=KINDS, table={"predicates": KINDS}).chain()
    network["a"].hello("s")
    network["a"].say("s", Subscribe(ONE, "is_a(kind, 'vehicle')"), Subscribe(TWO, "is_a(kind, 'car')"))
    network.settle()
    assert network["b"].heard("a") == ["is_a(kind, 'vehicle')"], "what it covers is not told"
    network["b"].hello("p")
    network["b"].say("p", event(1, "car"), event(2, "house"), event(3, "truck"))
    network.settle()
    assert network["a"].got("s") == [b"car", b"truck"]
    network.check()
