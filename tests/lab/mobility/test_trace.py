"""Properties 5.1 and 5.2 on small traces, each violated once."""

from __future__ import annotations

from weftlab.mobility.trace import MobileEvent, MobilityTrace, Notified, PubId, judge

ONE, TWO = PubId("p", 1), PubId("p", 2)


def trace(*notified: Notified) -> MobilityTrace:
    published = [MobileEvent(10, ONE, 5, 1), MobileEvent(20, TWO, 50, 2)]
    return MobilityTrace({"all": "x >= 0", "low": "x < 10"}, published, list(notified))


def test_everybody_is_notified_once_and_in_order() -> None:
    judged = judge(trace(Notified(11, "all", ONE), Notified(12, "low", ONE), Notified(21, "all", TWO)))
    assert (judged.due, judged.lost, judged.disordered, judged.safe) == (3, [], 0, True)


def test_a_missing_notification_violates_liveness() -> None:
    judged = judge(trace(Notified(12, "low", ONE), Notified(21, "all", TWO)))
    assert [(client, event.event) for client, event in judged.lost] == [("all", ONE)]


def test_notified_twice_early_or_of_something_else_violates_safety() -> None:
    fine = [Notified(11, "all", ONE), Notified(12, "low", ONE), Notified(21, "all", TWO)]
    assert judge(trace(*fine, Notified(22, "all", TWO))).twice == 1
    assert judge(trace(Notified(9, "all", ONE), *fine[1:])).unpublished == 1
    assert judge(trace(*fine, Notified(23, "low", TWO))).unmatched == 1
    assert judge(trace(*fine, Notified(23, "all", PubId("q", 1)))).unpublished == 1


def test_order_is_that_of_a_publisher_or_of_one_of_its_types() -> None:
    turned = trace(Notified(21, "all", TWO), Notified(22, "all", ONE), Notified(12, "low", ONE))
    assert judge(turned).disordered == 1
    assert judge(turned, by_kind=True).disordered == 0
