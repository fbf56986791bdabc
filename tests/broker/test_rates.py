"""Rates of subscriptions: never more than the bucket allows, never fewer than it allows, and nothing without a rate."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.harness import Broker, deliveries
from broker.network import Network
from strategies import thorough
from weft.broker.effects import Now
from weft.errors import FilterError
from weft.model.rate import Rate, RateBucket, split_rate, with_rate
from weft.protocol.messages import Failed, Publish, Replace, SubNumber, Subscribe, Unsubscribe

SECOND = 1_000_000


class Oracle:
    """A bucket by its definition: in fractions of an event, one microsecond after the other would be the same."""

    def __init__(self, rate: Rate, at: int) -> None:
        self.rate, self.at, self.left = rate, at, rate.events * 1.0

    def take(self, at: int) -> bool:
        self.left = min(self.rate.events, self.left + (at - self.at) / 1e6 * self.rate.per_second)
        self.at = at
        if self.left < 1 - 1e-9:
            return False
        self.left -= 1
        return True


@given(
    st.integers(1, 4),
    st.sampled_from((0.25, 1.0, 2.0)),
    st.lists(st.integers(0, 8).map(lambda n: n * SECOND // 8), max_size=60),
)
def test_a_bucket_is_what_its_definition_says(events: int, period: float, pauses: list[int]) -> None:
    rate, at = Rate(events, period), 5 * SECOND
    bucket, oracle = RateBucket(rate, at), Oracle(rate, at)
    passed: list[int] = []
    for pause in pauses:
        at += pause
        let_through = bucket.take(at)
        assert let_through == oracle.take(at)
        passed += [at] * let_through
    assert bucket.suppressed == len(pauses) - len(passed)
    span = round(period * SECOND)
    for number, first in enumerate(passed):
        within = [each for each in passed[number:] if each - first < span]
        assert len(within) <= 2 * events, "in a period: what was left, and what came back"


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10/s", Rate(10)),
        ("100/min", Rate(100, 60)),
        ("1/30s", Rate(1, 30)),
        ("5/h", Rate(5, 3600)),
        ("7/d", Rate(7, 86400)),
    ],
)
def test_rates_are_written_as_they_are_read(text: str, rate: Rate) -> None:
    assert Rate.parse(text) == rate
    assert str(rate) == text
    assert split_rate(with_rate("x > 5 OR y = 's'", rate)) == ("x > 5 OR y = 's'", rate)


@pytest.mark.parametrize("text", ["", "10", "0/s", "ten/s", "10/year", "-1/s", "10/0s", "1e9/s"])
def test_what_is_not_a_rate_is_refused(text: str) -> None:
    with pytest.raises(FilterError):
        Rate.parse(text)


@pytest.mark.parametrize("text", ["x = 'AT MOST 5/s'", "x > 5", "attr = 'n/s'", "s", "d AND h", '"AT MOST 5/s"'])
def test_a_filter_without_a_rate_is_left_alone(text: str) -> None:
    assert split_rate(text) == (text, None)


# -- on one broker ------------------------------------------------------------------------------------


def at(broker: Broker, micros: int) -> None:
    broker.now = Now(broker.now.monotonic + micros, broker.now.utc + micros)


def got(broker: Broker, name: str) -> list[int]:
    return [offset for offset, _, _ in deliveries([message for to, message in broker.sent if to == name])]


filters = st.sampled_from(["x >= 0", "x > 2", "x > 5", "x > 2 AND x < 7", "x = 9"])
rates = st.sampled_from([None, Rate(1), Rate(2), Rate(3, 2.0), Rate(1, 0.25)])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 9), st.integers(0, 6)),
        st.tuples(st.just("replace"), st.integers(0, 3), rates),
    ),
    max_size=40,
)


@thorough(60, routine=25)
@given(st.lists(st.tuples(filters, rates, st.booleans()), min_size=1, max_size=4), steps)
def test_each_subscription_gets_what_its_own_bucket_allows(
    wanted: list[tuple[str, Rate | None, bool]], changes: list[Any]
) -> None:
    broker = Broker()
    broker.hello("p")
    buckets: list[RateBucket | None] = []
    expected: list[list[int]] = [[] for _ in wanted]
    texts = []
    for number, (text, rate, durable) in enumerate(wanted):
        broker.hello(f"s{number}", f"s{number}" if durable else "")
        broker.say(f"s{number}", Subscribe(SubNumber(1), with_rate(text, rate), durable=durable))
        buckets.append(None if rate is None else RateBucket(rate, broker.now.utc))
        texts.append(text)
    sequence, suppressed = 0, 0
    for step in changes:
        if step[0] == "replace":
            number = step[1] % len(wanted)
            rate = step[2]
            broker.say(f"s{number}", Replace(SubNumber(1), with_rate(texts[number], rate)))
            bucket = buckets[number]
            if rate is None or bucket is None:
                buckets[number] = None if rate is None else RateBucket(rate, broker.now.utc)
            else:
                bucket.change(rate, broker.now.utc)
            continue
        at(broker, step[2] * SECOND // 4)
        sequence += 1
        broker.say("p", Publish.of(sequence, {"x": step[1]}, b""))
        for number, text in enumerate(texts):
            if _matches(text, step[1]):
                bucket = buckets[number]
                if bucket is None or bucket.take(broker.now.utc):
                    expected[number].append(sequence)
                else:
                    suppressed += 1
    for number in range(len(wanted)):
        assert got(broker, f"s{number}") == expected[number]
    assert broker.core.status().counts.get("suppressed", 0) == suppressed


def _matches(text: str, x: int) -> bool:
    return bool(eval(text.replace("AND", "and").replace(" = ", " == "), {"x": x}))


def test_what_is_suppressed_is_not_queued_and_a_restart_gives_nothing_back() -> None:
    broker = Broker()
    broker.hello("s", "s")
    broker.say("s", Subscribe(SubNumber(1), "x >= 0 AT MOST 2/s"))
    broker.cut("s")
    broker.hello("p", "p")
    broker.say("p", *(Publish.of(n, {"x": n}, b"") for n in range(1, 6)))
    broker.restart()
    assert [offset for offset, _, _ in deliveries(broker.hello("t", "s"))] == [1, 2]
    broker.hello("q", "p")
    broker.say("q", Publish.of(6, {"x": 6}, b""))
    assert got(broker, "t") == [1, 2], "the bucket is empty after a restart"
    at(broker, SECOND)
    broker.say("q", *(Publish.of(n, {"x": n}, b"") for n in range(7, 12)))
    assert got(broker, "t") == [1, 2, 7, 8]


RESTARTS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 9), st.integers(0, 6)),
        st.tuples(st.just("replace"), st.integers(0, 3), rates),
        st.tuples(st.just("restart"), st.just(0), st.integers(0, 6)),
    ),
    max_size=30,
)


@thorough(60, routine=25)
@given(st.lists(st.tuples(filters, rates), min_size=1, max_size=4), RESTARTS)
def test_over_restarts_nobody_gets_more_than_the_rate_or_less_than_what_comes_back_of_it(
    wanted: list[tuple[str, Rate | None]], changes: list[Any]
) -> None:
    """Durable subscriptions whose clients never acknowledge: after a restart they get the same again, and no more."""
    broker, starts = Broker(), 0
    texts, now = [text for text, _ in wanted], [rate for _, rate in wanted]
    expected: list[list[int]] = [[] for _ in wanted]
    sequence = suppressed = 0

    def begin() -> list[RateBucket | None]:
        since = broker.core.time  # of the last stored change, after a restart
        broker.hello(f"p{starts}", "p")
        for number in range(len(wanted)):
            broker.hello(f"s{number} {starts}", f"s{number}")
        return [None if rate is None else RateBucket(rate, since, full=not starts) for rate in now]

    buckets = begin()
    for number, (text, rate) in enumerate(wanted):
        broker.say(f"s{number} 0", Subscribe(SubNumber(1), with_rate(text, rate)))
    for what, which, value in changes:
        if what == "replace":
            number = which % len(wanted)
            broker.say(f"s{number} {starts}", Replace(SubNumber(1), with_rate(texts[number], value)))
            bucket, now[number] = buckets[number], value
            if value is None or bucket is None:
                buckets[number] = None if value is None else RateBucket(value, broker.now.utc)
            else:
                bucket.change(value, broker.now.utc)
            continue
        at(broker, value * SECOND // 4)
        if what == "restart":
            broker.restart()
            starts, suppressed = starts + 1, 0
            buckets = begin()
            continue
        sequence += 1
        broker.say(f"p{starts}", Publish.of(sequence, {"x": which}, b""))
        for number, text in enumerate(texts):
            bucket = buckets[number]
            if _matches(text, which):
                if bucket is None or bucket.take(broker.now.utc):
                    expected[number].append(sequence)
                else:
                    suppressed += 1
    for number in range(len(wanted)):
        assert got(broker, f"s{number} {starts}") == expected[number], (wanted, changes)
    assert broker.core.status().counts.get("suppressed", 0) == suppressed


def test_a_rate_ends_with_its_subscription() -> None:
    broker = Broker()
    broker.hello("s")
    broker.say("s", Subscribe(SubNumber(1), "x >= 0 AT MOST 1/d"))
    broker.say("s", Unsubscribe(SubNumber(1)), Subscribe(SubNumber(2), "x >= 0"))
    broker.hello("p")
    broker.say("p", *(Publish.of(n, {"x": n}, b"") for n in range(1, 6)))
    assert got(broker, "s") == [1, 2, 3, 4, 5]


def test_a_shared_queue_has_one_rate() -> None:
    broker = Broker()
    for name in ("a", "b"):
        broker.hello(name, name)
    broker.say("a", Subscribe(SubNumber(1), "x >= 0 AT MOST 2/s", share="work"))
    answers = broker.say("b", Subscribe(SubNumber(1), "x >= 0 AT MOST 3/s", share="work"))
    assert any(isinstance(each, Failed) and "another filter" in each.reason for each in answers)


# -- over links ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["covering", "merging", "negative"])
@thorough(20, routine=6)
@given(wanted=st.lists(st.tuples(filters, rates), min_size=1, max_size=3), changes=steps)
def test_over_links_a_subscription_gets_what_it_would_get_from_one_broker(
    model: str, wanted: list[tuple[str, Rate | None]], changes: list[Any]
) -> None:
    """Filters that cover each other, with different rates: none takes anything from another."""
    network = Network("a", "b", "c", model=model).chain()
    network.settle()
    far, near = network["c"], network["a"]
    near.hello("p")
    buckets: list[RateBucket | None] = []
    expected: list[list[bytes]] = [[] for _ in wanted]
    texts = [text for text, _ in wanted]
    for number, (text, rate) in enumerate(wanted):
        far.hello(f"s{number}", f"s{number}")
        far.say(f"s{number}", Subscribe(SubNumber(1), with_rate(text, rate)))
        buckets.append(None if rate is None else RateBucket(rate, far.now.utc))
    network.settle()
    sequence = 0
    for step in changes:
        if step[0] == "replace":
            number, rate = step[1] % len(wanted), step[2]
            far.say(f"s{number}", Replace(SubNumber(1), with_rate(texts[number], rate)))
            network.settle()
            bucket = buckets[number]
            if rate is None or bucket is None:
                buckets[number] = None if rate is None else RateBucket(rate, far.now.utc)
            else:
                bucket.change(rate, far.now.utc)
            continue
        for name in "abc":
            at(network[name], step[2] * SECOND // 4)
        sequence += 1
        near.say("p", Publish.of(sequence, {"x": step[1]}, str(sequence).encode()))
        network.settle()
        for number, text in enumerate(texts):
            bucket = buckets[number]
            if _matches(text, step[1]) and (bucket is None or bucket.take(far.now.utc)):
                expected[number].append(str(sequence).encode())
    for number in range(len(wanted)):
        assert far.got(f"s{number}") == expected[number]


def test_a_wide_filter_that_is_exhausted_takes_nothing_from_a_narrow_one() -> None:
    """The thesis would lose these events (errata, thesis 9)."""
    network = Network("a", "b").chain()
    network.settle()
    network["b"].hello("wide", "wide")
    network["b"].hello("narrow", "narrow")
    network["b"].say("wide", Subscribe(SubNumber(1), "x > 0 AT MOST 20/s"))
    network["b"].say("narrow", Subscribe(SubNumber(1), "x > 100 AT MOST 10/s"))
    network.settle()
    network["a"].hello("p")
    events = [Publish.of(n, {"x": 1 if n <= 30 else 101}, str(n).encode()) for n in range(1, 36)]
    network["a"].say("p", *events)
    network.settle()
    assert len(network["b"].got("wide")) == 20
    assert network["b"].got("narrow") == [str(n).encode() for n in range(31, 36)]
