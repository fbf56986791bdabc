"""Why a subscription gets nothing: each cause is planted among three brokers, and found alone; health yields none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from broker.network import Network
from broker.test_questions import LATE, ask, replies
from weft.broker.effects import ConnectionId
from weft.broker.limits import ClientLimits
from weft.broker.questions.why import HOUR
from weft.broker.rules import Rights, Rules
from weft.log.base import Offset
from weft.protocol.messages import (
    Ack,
    Advertise,
    Answer,
    Attempt,
    Hello,
    Nack,
    Publish,
    QueueNumber,
    SubNumber,
    Subscribe,
    Unsubscribe,
)
from weft.protocol.questions import AskWhy, WhyReport, read_answer

NAME, FILTER = "alerts", "x > 5"
QUEUE = QueueNumber(0)


@dataclass(frozen=True)
class Plan:
    """A fault that is planted, and how the brokers are set up."""

    cause: str
    plant: Callable[[World], None]
    options: dict[str, Any] = field(default_factory=dict)
    filter: str = FILTER
    subscribe: dict[str, Any] = field(default_factory=dict)
    begins: bool = True  # the subscription begins before the fault


class World:
    """Three brokers in a row: the subscriber is at a, the publisher at c."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.network = Network("a", "b", "c", **options).chain()
        self.here, self.there = self.network["a"], self.network["c"]
        self.sequence = 0
        self.there.hello("p", "sensor")

    def subscribe(self, text: str = FILTER, client: str = "s", session: str = NAME, **options: Any) -> None:
        if ConnectionId(client) not in self.here.core._sessions.connections:
            self.here.hello(client, session)
        self.here.say(client, Subscribe(SubNumber(1), text, QUEUE, **options))
        self.network.settle()

    def publish(self, *values: Any, name: str = "x") -> None:
        for value in values:
            self.sequence += 1
            self.there.say("p", Publish.of(self.sequence, {name: value}))
            self.network.settle()

    def ack(self, client: str = "s") -> None:
        self.here.say(client, Ack(QUEUE, Offset(self.here.core.end)))
        self.network.settle()

    def hour(self) -> None:
        self.network.wait((HOUR + 2) * 1_000_000)

    def why(self, session: str = NAME, at: str = "a", broker: str = "") -> WhyReport:
        ask(self.network[at], AskWhy(session), broker)
        self.network.wait(3 * LATE)
        last = replies(self.network[at])[-1]
        assert isinstance(last, Answer), last
        report = read_answer(last.body)
        assert isinstance(report, WhyReport)
        return report


# -- faults ---------------------------------------------------------------------------------------------------


def unsubscribes(world: World) -> None:
    world.here.say("s", Unsubscribe(SubNumber(1)))
    world.network.settle()


def goes_away(world: World) -> None:
    world.here.cut("s")


def never_matches(world: World) -> None:
    world.subscribe("x > 5 AND x < 3")


def misspells(world: World) -> None:
    world.publish(6.1, 5.2, name="magnitude")
    world.subscribe("magntiude > 5")
    world.publish(6.3, name="magnitude")


def compares_texts(world: World) -> None:
    world.publish("six", "seven")


def rules_change(world: World) -> None:
    world.here.call(world.here.core.set_rules, Rules({}, default=Rights(subscribe=("x > 9",))))
    world.network.settle()


def rules_change_while_away(world: World) -> None:
    world.here.cut("s")
    rules_change(world)
    world.here.hello("s", NAME)


def advertises_something_else(world: World) -> None:
    world.there.say("p", Advertise(1, "x < 3"))
    world.network.settle()


def link_is_down_before(world: World) -> None:
    world.network.cut("a", "b")
    world.subscribe()


def link_is_down_behind(world: World) -> None:
    world.hour()
    world.network.cut("b", "c")
    world.publish(7)


def publishes_too_early(world: World) -> None:
    world.publish(7, 8)
    world.subscribe()


def publishes_nothing_that_matches(world: World) -> None:
    world.hour()
    world.publish(3, 4)


def falls_far_behind(world: World) -> None:
    world.here.cut("s")
    world.publish(*range(6, 16))
    world.here.hello("s", NAME)
    world.network.settle()


def does_not_read(world: World) -> None:
    world.here.core.paused(ConnectionId("s"))
    world.publish(7, 8)


def does_not_acknowledge(world: World) -> None:
    world.publish(*range(6, 16))


def fails(world: World) -> None:
    world.publish(7, 8)
    offset = world.here.core.end - 2
    world.here.say("s", Nack(QUEUE, (Attempt((Offset(offset), 1)),), "cannot"))


def fails_too_often(world: World) -> None:
    world.publish(7)
    offset = world.here.core.end - 1
    world.here.say("s", Nack(QUEUE, (Attempt((Offset(offset), 1)),), "cannot read it"))
    world.network.settle()


PLANS = {
    "no subscription": Plan("no-subscription", unsubscribes),
    "away": Plan("away", goes_away),
    "never true": Plan("never-true", never_matches, begins=False),
    "misspelt": Plan("unknown-attribute", misspells, begins=False),
    "types": Plan("unlike-types", compares_texts, begins=True),
    "rules": Plan("rules", rules_change),
    "rules, away": Plan("rules", rules_change_while_away),
    "advertisements": Plan("no-advertiser", advertises_something_else, options={"advertised": True}),
    "incomplete": Plan("incomplete", link_is_down_before, begins=False),
    "unreachable": Plan("unreachable", link_is_down_behind),
    "too early": Plan("too-early", publishes_too_early, begins=False),
    "unmatched": Plan("unmatched", publishes_nothing_that_matches),
    "queue full": Plan("queue-full", falls_far_behind, subscribe={"lag": 4}),
    "not reading": Plan("not-reading", does_not_read),
    "not reading, transient": Plan("not-reading", does_not_read, subscribe={"durable": False}),
    "window": Plan("window-full", does_not_acknowledge, options={"limits": ClientLimits(window_events=3)}),
    "held": Plan("held", fails),
    "dead": Plan("dead-letters", fails_too_often, options={"limits": ClientLimits(failures=1)}),
}


def planted(plan: Plan) -> World:
    world = World(plan.options)
    starts_quiet = plan.cause in ("unlike-types", "no-advertiser")
    if plan.begins:
        world.subscribe(plan.filter, **plan.subscribe)
        if not starts_quiet:
            world.publish(6, 7)
            world.ack()
            assert len(world.here.got("s")) == 2
            assert world.why().findings == (), "everything is in order before"
    plan.plant(world)
    return world


@pytest.mark.parametrize("plan", PLANS.values(), ids=[*PLANS])
def test_a_cause_is_found_alone(plan: Plan) -> None:
    world = planted(plan)
    report = world.why()
    assert [(finding.cause, finding.session) for finding in report.findings] == [(plan.cause, NAME)]
    (finding,) = report.findings
    assert finding.fact
    assert finding.evidence
    assert finding.advice


@pytest.mark.parametrize("name", ["away", "never true", "too early", "window", "dead"])
def test_a_cause_is_found_from_another_broker(name: str) -> None:
    plan = PLANS[name]
    world = planted(plan)
    assert [finding.cause for finding in world.why(at="c", broker="a").findings] == [plan.cause]


def test_an_unknown_session_is_looked_for_at_the_other_brokers() -> None:
    world = World({})
    world.subscribe()
    (finding,) = world.why("nobody").findings
    assert (finding.cause, finding.evidence) == ("unknown-session", "nor at the 2 other brokers that answered")
    (finding,) = world.why(at="c").findings
    assert (finding.cause, finding.evidence, finding.advice) == (
        "unknown-session",
        "a has one",
        "ask that broker: --at a",
    )


def test_a_queue_that_is_being_delivered_is_said_to_be_behind() -> None:
    world = World({"limits": ClientLimits(turn=5)})
    world.subscribe()
    world.publish(6)
    world.ack()
    world.here.cut("s")
    world.publish(*range(7, 60))
    world.here.connect("s")
    core = world.here.core
    world.here.take(core.receive(ConnectionId("s"), [Hello(session=NAME)], world.here.now))
    for _ in range(20):
        world.here.commit()
        draft = core._questions._why.draft("", AskWhy(NAME), world.here.now)
        if [finding.cause for finding in draft.findings] == ["behind"]:
            break
        world.here.take(core.tick(world.here.now))
    else:
        pytest.fail("it was never behind while it was connected")
    world.network.settle()
    world.ack()
    assert world.why().findings == ()


def test_who_else_takes_the_events_of_a_shared_name_is_told() -> None:
    world = World({})
    world.subscribe(client="one", session="", share="work")
    world.publish(6)
    world.here.say("one", Ack(QUEUE, Offset(world.here.core.end)))
    assert world.why("work").findings == (), "one consumer gets every event"
    world.subscribe(client="two", session="second", share="work")
    (finding,) = world.why("work").findings
    assert (finding.cause, finding.session) == ("shared", "work")
    assert finding.evidence == "consumers: one without a name, second"


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    (finding,) = planted(PLANS["misspelt"]).why().findings
    assert "did you mean 'magnitude'?" in finding.evidence


def test_a_finding_names_the_link_that_is_missing() -> None:
    (finding,) = planted(PLANS["incomplete"]).why().findings
    assert finding.fact == "not every broker knows the subscription: it waits for b"
    assert finding.evidence.startswith("the link to b is down")
    (finding,) = planted(PLANS["unreachable"]).why().findings
    assert finding.evidence == "c did not answer within 2 s by way of a - b - c"


def healthy() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for model in ("covering", "simple", "merging"):
        yield {"model": model}, {}
    yield {"advertised": True}, {}
    yield {}, {"durable": False}
    yield {}, {"ordered": False, "lag": 100}
    yield {"rules": Rules({}, default=Rights(subscribe=("x > 0", "y = 1")))}, {}


@pytest.mark.parametrize(("options", "subscribe"), [*healthy()])
def test_a_healthy_subscription_yields_nothing(options: dict[str, Any], subscribe: dict[str, Any]) -> None:
    world = World(options)
    if options.get("advertised"):
        world.there.say("p", Advertise(1, "x > 0"))
        world.network.settle()
    world.subscribe(**subscribe)
    world.publish(3, 6, 7, 100)
    for at, broker in (("a", ""), ("c", "a")):  # before and after everything is acknowledged
        report = world.why(at=at, broker=broker)
        assert report.findings == ()
        assert report.is_healthy
        (facts,) = report.subscriptions
        assert (facts.session, facts.filter, facts.matched) == (NAME, FILTER, 3)
        world.ack()


def test_a_restart_does_not_make_a_subscription_ill() -> None:
    """The counters begin again, but the log has the events: an event that matches comes, and all is well."""
    world = World({})
    world.subscribe()
    world.publish(6, 7)
    world.ack()
    world.network.crash("a")
    world.network.dial("b", "a")
    world.network.settle()
    world.here.hello("s", NAME)
    world.network.settle()
    assert [finding.cause for finding in world.why().findings] == ["too-early"]
    world.publish(8)
    world.ack()
    assert world.why().findings == ()
