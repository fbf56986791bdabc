"""How many of its own events a durable queue is behind, its low watermark while nobody is there, and its lag."""

from __future__ import annotations

import pytest

from broker.harness import Broker, deliveries
from weft.broker.limits import ClientLimits
from weft.log.base import Offset, SubRow
from weft.protocol.messages import (
    Ack,
    Gap,
    Nack,
    Publish,
    QueueNumber,
    SubNumber,
    Subscribe,
    Unsubscribe,
)

ONE, TWO, Q = SubNumber(1), SubNumber(2), QueueNumber(0)
OTHERS = 30


class Feed(Broker):
    """A broker with a publisher of own events and others, one batch for each call."""

    sequence, ready = 0, False

    def publish(self, *xs: int) -> None:
        if not self.ready:
            self.ready = bool(self.hello("p"))
        numbered = enumerate(xs, self.sequence + 1)
        self.sequence += len(xs)
        self.say("p", *(Publish.of(sequence, {"x": x}) for sequence, x in numbered))

    def others(self, number: int = OTHERS) -> None:
        for _ in range(number // 10):
            self.publish(*[0] * 10)

    def start_again(self) -> None:
        self.restart()
        self.ready = False

    @property
    def behind(self) -> list[int]:
        return [each.behind for each in self.core.status().furthest]

    @property
    def needed(self) -> int:
        """What retention must keep once the low watermarks are stored."""
        self.call(self.core.store_floors)
        self.follow_up()
        return self.core.needed


def away(filter: str = "x = 1", feed: Feed | None = None, **options: object) -> Feed:
    """A durable subscription whose client has left."""
    feed = feed or Feed()
    feed.hello("s")
    feed.say("s", Subscribe(ONE, filter, **options))  # type: ignore[arg-type]
    feed.cut("s")
    return feed


def back(feed: Feed, name: str = "t") -> list[int]:
    return [offset for offset, _, _ in deliveries(feed.hello(name, "s"))]  # type: ignore[arg-type]


# -- the low watermark -------------------------------------------------------------------------------


def test_a_queue_that_gets_nothing_does_not_keep_the_log_while_nobody_is_there() -> None:
    feed = away()
    feed.others()
    assert feed.behind == [0]
    assert feed.needed == feed.core.end == OTHERS + 1
    assert [row.floor for row in feed.log.restore().subs.values() if isinstance(row, SubRow) and not row.filter] == [31]


def test_the_low_watermark_stops_at_the_first_event_of_its_own() -> None:
    feed = away()
    feed.others()
    feed.publish(0, 1, 0)
    feed.others()
    assert feed.behind == [1]
    assert feed.needed == OTHERS + 2
    assert back(feed) == [OTHERS + 2]


def test_it_moves_on_behind_what_was_acknowledged_before_the_client_left() -> None:
    feed = Feed()
    feed.hello("s", window_events=1)
    feed.say("s", Subscribe(ONE, "x = 1"))
    feed.publish(1, 0, 0, 1)
    feed.say("s", Ack(Q, Offset(2), ()))
    feed.others()
    assert feed.behind == [1]
    feed.say("s", Ack(Q, Offset(5), ()))
    feed.cut("s")
    feed.others()
    assert (feed.behind, feed.needed) == ([0], feed.core.end)


def test_it_moves_after_a_restart_too() -> None:
    feed = away()
    feed.others()
    feed.publish(0, 1)
    feed.others()
    feed.start_again()
    assert feed.behind == [1]
    assert feed.needed == OTHERS + 2
    feed.start_again()
    feed.publish(0, 1)
    assert feed.behind == [2]
    assert back(feed) == [OTHERS + 2, feed.core.end - 1]


def test_what_was_acknowledged_out_of_order_is_not_counted_after_a_restart() -> None:
    feed = Feed(limits=ClientLimits(ack_delay=0))
    feed.hello("s")
    feed.say("s", Subscribe(ONE, "x = 1", ordered=False))
    feed.publish(1, 1, 0, 1, 1)
    feed.say("s", Ack(Q, Offset(1), ((Offset(2), Offset(3)), (Offset(4), Offset(5)))))
    assert feed.behind == [2]
    feed.start_again()
    assert feed.behind == [2]
    assert back(feed) == [1, 5]


def test_older_events_that_do_not_match_are_passed_over_while_nobody_is_there() -> None:
    feed = Feed(limits=ClientLimits(turn=7))
    feed.others()
    feed.publish(1)
    feed.others()
    feed.ticking = False  # its client leaves before it has got anything
    away(feed=feed, since=Offset(1))
    feed.ticking = True
    assert feed.needed < OTHERS
    feed.tick()
    assert feed.needed == OTHERS + 1, "its first event is kept, and nothing before it"
    assert back(feed) == [OTHERS + 1]


def test_members_that_leave_take_their_events_with_them() -> None:
    feed = Feed()
    feed.hello("s", window_events=1)
    feed.say("s", Subscribe(ONE, "x = 1"), Subscribe(TWO, "x = 2"))
    feed.publish(1, 2, 2, 0, 1, 2)
    assert feed.behind == [5]
    feed.say("s", Unsubscribe(TWO))
    feed.cut("s")
    assert feed.needed == 1
    assert feed.behind == [2]
    assert back(feed) == [1, 5]


def test_a_long_log_is_counted_in_turns_while_events_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.broker.backlog._STEP", 4)
    feed = Feed(at_once=True)
    feed.hello("s")
    feed.say("s", Subscribe(ONE, "x = 1"))
    feed.hello("u")
    feed.say("u", Subscribe(ONE, "x = 2"))
    feed.cut("s")
    feed.cut("u")
    for _ in range(10):
        feed.publish(0, 1, 2)
    feed.ticking = False  # the counting is interrupted
    feed.start_again()
    feed.publish(1)
    feed.hello("t", "s", window_events=5)
    feed.tick()
    feed.publish(2, 1)
    feed.say("t", Ack(Q, Offset(6), ()))
    feed.ticking = True
    feed.tick()
    assert sorted(feed.behind) == [10, 11]
    assert feed.needed == 3


def test_what_expires_behind_a_full_window_is_counted_once() -> None:
    feed = away()
    feed.publish(1)
    feed.say("p", *(Publish.of(n, {"x": 1}, ttl=0 if n % 2 else 1_000) for n in range(2, 7)))
    feed.wait(5_000)
    feed.hello("t", "s", window_bytes=1)
    assert feed.behind == [6]
    for offset in (1, 3, 5):
        assert [each for each, _, _ in deliveries(feed.messages("t"))][-1] == offset  # type: ignore[arg-type]
        feed.say("t", Ack(Q, Offset(offset + 1), ()))
    assert feed.behind == [0]


# -- lag ---------------------------------------------------------------------------------------------


def gaps(messages: list[object]) -> list[Gap]:
    return [message for message in messages if isinstance(message, Gap)]


def test_lag_counts_the_events_of_the_subscription_and_no_others() -> None:
    feed = away(lag=5)
    feed.publish(1)
    feed.others()
    feed.publish(1)
    answers = feed.hello("t", "s")
    assert [offset for offset, _, _ in deliveries(answers)] == [1, OTHERS + 2]  # type: ignore[arg-type]
    assert gaps(answers) == []  # type: ignore[arg-type]


def test_so_it_does_while_an_event_is_in_hand() -> None:
    feed = Feed(limits=ClientLimits(window_events=1))
    feed.hello("s")
    feed.say("s", Subscribe(ONE, "x = 1", lag=5))
    feed.publish(1)
    feed.others()
    feed.publish(1)
    _ = feed.needed
    feed.say("s", Ack(Q, Offset(2), ()))
    assert [offset for offset, _, _ in deliveries(feed.messages("s"))] == [1, OTHERS + 2]  # type: ignore[arg-type]
    assert gaps(feed.messages("s")) == []  # type: ignore[arg-type]


def test_so_it_does_after_a_restart() -> None:
    feed = away(lag=5)
    feed.publish(1)
    feed.others()
    feed.start_again()
    feed.publish(1)
    assert back(feed) == [1, OTHERS + 2]


@pytest.mark.parametrize("own", [6, 9, 12, 30])
def test_exactly_the_oldest_beyond_the_lag_are_lost(own: int) -> None:
    feed = away(lag=5)
    for _ in range(own):
        feed.publish(0, 1, 0)
    answers = feed.hello("t", "s")
    kept = [3 * n - 1 for n in range(own - 4, own + 1)]
    assert [offset for offset, _, _ in deliveries(answers)] == kept  # type: ignore[arg-type]
    assert gaps(answers)[-1].end == kept[0]  # type: ignore[arg-type]


def test_a_queue_that_loses_events_does_not_keep_the_log() -> None:
    feed = away(lag=5)
    for _ in range(40):
        feed.publish(0, 1, 0)
    assert feed.behind[0] <= 10, "what is beyond its lag is given up in pieces while nobody is there"
    assert feed.needed >= feed.core.end - 3 * 10
    assert back(feed) == [3 * n - 1 for n in range(36, 41)]


def test_what_is_in_flight_counts_and_goes_first() -> None:
    feed = Feed(limits=ClientLimits(window_events=3))
    feed.hello("s")
    feed.say("s", Subscribe(ONE, "x = 1", lag=4, ordered=False))
    feed.publish(1, 1, 1, 0, 1)
    assert gaps(feed.messages("s")) == []  # type: ignore[arg-type]
    feed.say("s", Nack(Q, ((Offset(2), 1),), "no"))
    feed.publish(0, 0, 1)
    assert [(gap.first, gap.end) for gap in gaps(feed.messages("s"))] == [(1, 2)]  # type: ignore[arg-type]
    assert feed.behind == [4]


def test_a_shared_queue_counts_its_own_events_too() -> None:
    feed = Feed()
    feed.hello("s")
    feed.say("s", Subscribe(ONE, "x = 1", share="team", lag=3))
    feed.cut("s")
    feed.others()
    feed.publish(1, 0, 1)
    assert (feed.behind, feed.needed) == ([2], OTHERS + 1)
