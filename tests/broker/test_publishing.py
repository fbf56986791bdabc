"""What publishers are told, and when."""

from __future__ import annotations

import msgspec
import pytest

from broker.harness import UTC, Broker, deliveries
from weft.broker.admission import MAX_EVENT, read_head
from weft.broker.effects import Now, Persist
from weft.broker.limits import ClientLimits
from weft.broker.rules import Rights, Rules
from weft.client.publisher import Publisher, UnconfirmedEvent
from weft.model.schema import Schema
from weft.protocol.messages import (
    OFFSETS,
    Bye,
    Deliver,
    Hello,
    NewEpoch,
    Ping,
    Publish,
    Published,
    PublishedAt,
    Refused,
    SubNumber,
    Subscribe,
    Welcome,
)


def event(sequence: int, x: object = 1, **fields: object) -> Publish:
    return Publish.of(sequence, {"x": x}, **fields)  # type: ignore[arg-type]


def test_an_event_is_confirmed_when_it_is_stored_and_not_before() -> None:
    broker = Broker(at_once=False)
    broker.hello("p")
    broker.commit()
    assert broker.say("p", event(1), event(2)) == []
    assert broker.commit() == [("p", Published(1, 2))]


def test_a_publisher_of_this_version_learns_where_its_events_are() -> None:
    broker = Broker()
    for name in ("p", "q"):
        broker.hello(name, versions=(2, OFFSETS))
    assert broker.say("p", event(1), event(2)) == [PublishedAt(1, 2, {}, ((1, 1),))]
    assert broker.say("q", event(1)) == [PublishedAt(1, 1, {}, ((1, 3),))]
    assert broker.say("p", event(2), event(3)) == [PublishedAt(1, 3, {}, ((3, 4),))]
    assert broker.say("p", event(3)) == [Published(1, 3)], "what was stored before is confirmed without"
    reads = [("p", [event(4), event(5)]), ("q", [event(2)]), ("p", [event(6)])]
    broker.call(broker.core.receive_all, reads)
    found = dict(broker.sent[-2:])
    assert found == {"p": PublishedAt(1, 6, {}, ((4, 5), (6, 8))), "q": PublishedAt(1, 2, {}, ((2, 7),))}


def test_a_client_knows_the_offsets_of_runs_of_its_events() -> None:
    publisher = Publisher()
    publisher.welcomed(1, 0, kept=False)
    publisher.add([UnconfirmedEvent(msgspec.Raw(b"\x80")) for _ in range(5)])
    publisher.take()
    assert [each.offset for each in publisher.confirmed(PublishedAt(1, 4, {}, ((1, 7), (3, 20))))] == [7, 8, 20, 21]
    assert [each.offset for each in publisher.confirmed(Published(1, 5))] == [0]


def test_an_event_is_delivered_when_it_is_stored_and_not_before() -> None:
    broker = Broker(at_once=False)
    broker.hello("s")
    broker.say("s", Subscribe(SubNumber(1), "x = 1"))
    broker.commit(2)
    assert broker.say("s", event(1)) == []
    ((_, published), (_, delivered)) = broker.commit()
    assert isinstance(published, Published)
    assert isinstance(delivered, Deliver)


def test_an_event_that_nobody_wants_is_stored_all_the_same() -> None:
    broker = Broker()
    broker.hello("p")
    broker.say("p", event(1))
    (group,) = broker.log.read(1, 10)
    assert group.events.origins.tolist() == [[1001, 1, 1]]


def test_a_repeated_event_is_confirmed_and_not_stored_again() -> None:
    broker = Broker()
    broker.hello("p")
    broker.say("p", event(1), event(2))
    assert broker.say("p", event(1), event(2)) == [Published(1, 2)]
    assert broker.core.end == 3


def test_a_repeated_event_is_not_confirmed_before_the_first_one_is_stored() -> None:
    broker = Broker(at_once=False)
    broker.hello("p")
    broker.commit()
    broker.say("p", event(1))
    assert broker.say("p", event(1)) == []
    assert [each for _, each in broker.commit()] == [Published(1, 1), Published(1, 1)]


def test_a_publisher_learns_after_a_reconnection_what_is_stored() -> None:
    broker = Broker()
    broker.hello("p1", "p")
    broker.say("p1", event(1), event(2))
    broker.cut("p1")
    (welcome,) = broker.hello("p2", "p")
    assert isinstance(welcome, Welcome)
    assert (welcome.pub_epoch, welcome.pub_seq, welcome.resumed) == (1, 2, True)
    assert broker.say("p2", event(2), event(3)) == [Published(1, 3)]


def test_duplicates_are_known_after_a_restart() -> None:
    broker = Broker()
    broker.hello("p")
    broker.say("p", event(1), event(2))
    broker.restart()
    broker.hello("p")
    assert broker.say("p", event(1), event(2), event(3)) == [Published(1, 3)]
    assert broker.core.end == 4


def test_an_event_that_does_not_follow_is_refused() -> None:
    broker = Broker()
    broker.hello("p")
    (refused,) = broker.say("p", event(2))
    assert refused == Refused(1, 2, "sequence", "event 1 is missing before event 2")


def test_a_refused_event_ends_the_epoch_and_nothing_behind_it_is_stored() -> None:
    broker = Broker()
    broker.hello("p")
    answers = broker.say("p", event(1), Publish.of(2, {"": 1}), event(3))
    assert [type(each) for each in answers] == [Refused, Published]
    assert answers[1] == Published(1, 1)
    assert broker.say("p", event(3)) == []
    assert broker.say("p", NewEpoch(2), event(1)) == [Published(2, 1)]
    assert broker.core.end == 3


def test_an_epoch_does_not_begin_while_events_of_the_last_one_are_on_their_way() -> None:
    broker = Broker(at_once=False)
    broker.hello("p")
    broker.commit()
    broker.say("p", event(1))
    (bye,) = broker.say("p", NewEpoch(2))
    assert isinstance(bye, Bye)
    assert bye.code == "protocol"


def test_an_older_epoch_is_refused() -> None:
    broker = Broker()
    broker.hello("p", pub_epoch=5)
    broker.say("p", event(1))
    broker.cut("p")
    (bye,) = broker.hello("q", "p", pub_epoch=4)
    assert isinstance(bye, Bye)
    assert broker.closed == ["q"]


def test_when_the_log_is_full_the_publisher_is_told_and_may_try_again() -> None:
    broker = Broker(at_once=False)
    broker.hello("p")
    broker.commit()
    broker.say("p", event(1))
    broker.commit()
    broker.say("p", event(2), event(3))
    broker.say("p", event(4))
    assert broker.reject() == [("p", Refused(1, 2, "full", "the log is full"))]
    broker.say("p", NewEpoch(2), event(1))
    assert broker.commit() == [("p", Published(2, 1))]
    assert broker.core.end == 3


def test_values_that_the_schema_refuses_are_absent_and_reported() -> None:
    broker = Broker(schema=Schema.of(x="int"))
    broker.hello("p")
    broker.say("p", Subscribe(SubNumber(1), "x IS NULL"))
    answers = broker.say("p", event(1, "five"), event(2, 5))
    assert answers[0] == Published(1, 2, {"x": 1})
    assert deliveries(answers) == [(1, 1, [1])]


def test_the_schema_is_part_of_the_hello() -> None:
    broker = Broker(schema=Schema.of(x="int"))
    (welcome,) = broker.hello("p")
    assert isinstance(welcome, Welcome)
    (bye,) = broker.hello("q", fingerprint="another")
    assert bye == Bye("refused", "the client expects a different schema, or other predicates, from this broker's")
    assert broker.closed == ["q"]
    (again,) = broker.hello("r", fingerprint=welcome.fingerprint)
    assert isinstance(again, Welcome)


def test_attributes_reach_subscribers_as_the_publisher_wrote_them() -> None:
    broker = Broker()
    broker.hello("s")
    broker.say("s", Subscribe(SubNumber(1), "x = 1"))
    for sequence in (1, 2):
        *_, delivered = broker.say("s", event(sequence, payload=b"body", datacontenttype="text/plain"))
        assert isinstance(delivered, Deliver)
        head = read_head(bytes(delivered.head))
        assert (head.attributes, head.datacontenttype, delivered.payload) == ({"x": 1}, "text/plain", b"body")


@pytest.mark.parametrize("attributes", [{"x": {"y": 1}}, {"time": "2018-02-01"}, {"x": 2**40, "y": None, "z": True}])
def test_any_event_comes_in_as_the_library_reads_it(attributes: dict[str, object]) -> None:
    from weft.model.event import Event

    broker = Broker()
    broker.hello("p")
    for sequence in (1, 2):
        broker.say("p", Publish.of(sequence, attributes))
    for group in broker.log.read(1, 10):
        for head in group.events.heads:
            assert Event.of(read_head(head).attributes) == Event.of(attributes)


def test_an_event_larger_than_a_frame_is_refused() -> None:
    broker = Broker()
    broker.hello("p")
    (refused,) = broker.say("p", event(1, payload=b"x" * MAX_EVENT))
    assert isinstance(refused, Refused)
    assert refused.code == "event"


def test_an_event_that_expired_is_not_delivered() -> None:
    broker = Broker()
    broker.hello("s")
    broker.say("s", Subscribe(SubNumber(1), "x = 1"))
    broker.cut("s")
    broker.hello("p")
    broker.say("p", event(1, ttl=1_000), event(2))
    broker.wait(5_000)
    assert deliveries(broker.hello("t", "s")) == [(2, 1, [1])]
    assert broker.core.counts["expired"] == 1


def test_its_twin_an_event_that_has_not_expired_is_delivered() -> None:
    broker = Broker()
    broker.hello("s")
    broker.say("s", Subscribe(SubNumber(1), "x = 1"))
    broker.cut("s")
    broker.hello("p")
    broker.say("p", event(1, ttl=10_000))
    broker.wait(5_000)
    assert deliveries(broker.hello("t", "s")) == [(1, 1, [1])]


def test_what_has_expired_stays_expired_when_the_clock_goes_back() -> None:
    broker = Broker()
    broker.hello("s")
    broker.say("s", Subscribe(SubNumber(1), "x = 1"))
    broker.cut("s")
    broker.hello("p")
    broker.say("p", event(1, ttl=1_000), event(2))
    broker.wait(5_000)
    broker.say("p", event(3))
    broker.now = Now(broker.now.monotonic, broker.now.utc - 3_600_000_000)
    assert deliveries(broker.hello("t", "s")) == [(2, 1, [1]), (3, 1, [1])]


def test_what_has_expired_stays_expired_when_the_broker_restarts_and_the_clock_goes_back() -> None:
    broker = Broker(limits=ClientLimits(ack_delay=1_000_000))
    broker.hello("s")
    broker.say("s", Subscribe(SubNumber(1), "x = 1"))
    broker.cut("s")
    broker.hello("p")
    broker.say("p", event(1, ttl=1_000), event(2))
    broker.wait(5_000)
    broker.say("p", event(3))  # with a later time, which the log has
    broker.hello("t", "s")  # skips the first event; where the queue is, is not stored yet
    broker.now = Now(broker.now.monotonic, broker.now.utc - 3_600_000_000)
    broker.restart()
    assert deliveries(broker.hello("t", "s")) == [(2, 2, [1]), (3, 2, [1])]


def test_an_event_lives_its_whole_time_when_the_clock_goes_back() -> None:
    broker = Broker()
    broker.hello("s")
    broker.say("s", Subscribe(SubNumber(1), "x = 1"))
    broker.cut("s")
    broker.hello("p")
    broker.now = Now(broker.now.monotonic, broker.now.utc - 3_600_000_000)
    broker.say("p", event(1, ttl=1_000_000))
    broker.wait(5_000)
    assert deliveries(broker.hello("t", "s")) == [(1, 1, [1])]


def test_an_event_that_is_not_durable_is_delivered_at_once_and_never_stored() -> None:
    broker = Broker(at_once=False)
    broker.hello("s")
    broker.say("s", Subscribe(SubNumber(1), "x = 1"))
    broker.commit(2)
    assert deliveries(broker.say("s", event(0))) == [(0, 1, [1])]
    assert broker.persists == []


def test_time_never_goes_back_in_the_log() -> None:
    broker = Broker()
    broker.hello("p")
    broker.say("p", event(1))
    broker.now = Now(1, UTC - 1_000_000)
    broker.say("p", event(2))
    assert [group.at for group in broker.log.read(1, 10)] == [UTC, UTC]


def test_a_publisher_may_publish_only_what_a_rule_matches() -> None:
    broker = Broker(rules=Rules(default=Rights(publish=("x < 5",))))
    broker.hello("p")
    answers = broker.say("p", event(1, 4), event(2, 5))
    assert [type(each) for each in answers] == [Refused, Published]
    assert answers[1] == Published(1, 1)


def test_a_publisher_that_is_too_fast_is_refused_and_may_go_on_later() -> None:
    broker = Broker(limits=ClientLimits(rate=1.0, burst=2))
    broker.hello("p")
    answers = broker.say("p", event(1), event(2), event(3))
    assert isinstance(answers[0], Refused)
    assert (answers[0].sequence, answers[0].code) == (3, "rate")
    broker.wait(1_000_000)
    assert broker.say("p", NewEpoch(2), event(1)) == [Published(2, 1)]


def test_a_publisher_without_a_name_is_confirmed_too() -> None:
    broker = Broker()
    broker.connect("p")
    broker.say("p", Hello())
    assert broker.say("p", event(1)) == [Published(1, 1)]


def test_one_read_becomes_one_group() -> None:
    broker = Broker(at_once=False)
    broker.hello("p")
    broker.commit()
    effects = broker.core.receive("p", [event(1), event(2), event(3)], broker.now)  # type: ignore[arg-type]
    (persist,) = [each for each in effects if isinstance(each, Persist)]
    assert persist.group.events is not None
    assert (len(persist.group.events), persist.urgent) == (3, True)


def test_with_advertisements_only_what_is_advertised_may_be_published() -> None:
    from weft.protocol.messages import Accepted, Advertise, Complete, Unadvertise

    broker = Broker(advertised=True)
    broker.hello("p")
    assert broker.say("p", Advertise(7, "x < 5")) == [Accepted("advertise", 7, 1), Complete(7, "advertise")]
    answers = broker.say("p", event(1, 4), event(2, 5))
    assert [type(each) for each in answers] == [Refused, Published]
    broker.restart()
    broker.hello("p")
    assert broker.say("p", event(2, 3))[0] == Published(1, 2)
    assert broker.say("p", Unadvertise(7)) == [Accepted("unadvertise", 7, 3)]
    assert isinstance(broker.say("p", event(3, 3))[0], Refused)


def test_an_advertisement_that_is_made_again_is_answered_again() -> None:
    from weft.protocol.messages import Accepted, Advertise, Complete, Failed

    broker = Broker(advertised=True)
    for session in ("p", ""):
        broker.hello(f"c{session}", session)
        for _ in range(2):
            answers = broker.say(f"c{session}", Advertise(7, "x < 5"))
            assert answers == [Accepted("advertise", 7, 1), Complete(7, "advertise")]
        (failed,) = broker.say(f"c{session}", Advertise(7, "x < 6"))
        assert isinstance(failed, Failed)
        assert failed.code == "exists"
    assert len(broker.log.restore().adverts) == 1
    broker.at_once = False
    broker.say("cp", event(1, 4), Advertise(7, "x < 5"))
    assert [type(each) for _, each in broker.reject()] == [Refused]
    assert [type(each) for _, each in broker.commit()] == [Accepted, Complete]
    broker.at_once = True
    assert Published(2, 1) in broker.say("cp", NewEpoch(2), event(1, 4))  # what is stored stays


def test_repeated_events_are_confirmed_although_the_group_of_somebody_else_is_not_stored() -> None:
    broker = Broker(at_once=False)
    broker.hello("p")
    broker.hello("q")
    broker.commit(2)
    broker.say("p", event(1))
    broker.commit()
    broker.say("q", event(1))  # on its way
    assert broker.say("p", event(1)) == [Published(1, 1)]
    assert [to for to, _ in broker.reject()] == ["q"]


# -- a clock that jumps ------------------------------------------------------------------------------


SECOND, HOUR = 1_000_000, 3_600_000_000


def jump(broker: Broker, micros: int) -> None:
    broker.now = Now(broker.now.monotonic, broker.now.utc + micros)


def test_a_jump_that_is_corrected_soon_does_not_stop_the_time_of_the_log() -> None:
    broker = Broker()
    broker.hello("s")
    broker.say("s", Subscribe(SubNumber(1), "x = 1"))
    broker.cut("s")
    broker.hello("p")
    jump(broker, 24 * 365 * HOUR)
    broker.say("p", event(1, ttl=20 * SECOND), event(2))
    broker.wait(SECOND)
    broker.say("p", event(3))
    jump(broker, -24 * 365 * HOUR)
    broker.wait(SECOND)
    broker.say("p", event(4, ttl=20 * SECOND), event(5))
    assert broker.core.time - broker.now.utc < 120 * SECOND, "it has followed the jump for a second, and no further"
    broker.wait(45 * SECOND)
    assert deliveries(broker.hello("t", "s")) == [(2, 1, [1]), (3, 1, [1]), (5, 1, [1])], "what lives 20 s has expired"
    assert broker.core.counts["clock jumps"] == 2


def test_a_jump_that_stays_is_followed_a_minute_in_a_second() -> None:
    broker = Broker()
    broker.hello("p")
    before = broker.core.time
    jump(broker, HOUR)
    broker.say("p", event(1))
    assert broker.core.time == before
    for _ in range(70):
        broker.wait(SECOND)
        broker.say("p", Ping(1))
    assert broker.core.time == broker.now.utc


def test_after_a_long_idle_time_a_jump_is_not_followed_at_once() -> None:
    broker = Broker()
    broker.hello("p")
    jump(broker, 1_000 * HOUR)
    broker.wait(HOUR)
    broker.say("p", Ping(1))
    assert broker.core.time < broker.now.utc - 900 * HOUR


def test_a_broker_that_starts_follows_its_clock_at_once() -> None:
    broker = Broker()
    broker.hello("p")
    broker.say("p", event(1))
    jump(broker, 1_000 * HOUR)
    broker.restart()
    assert broker.core.time == broker.now.utc
    broker.hello("p")
    broker.say("p", event(2))
    jump(broker, -1_000 * HOUR)
    broker.restart()
    assert broker.core.counts["clock jumps"] == 1, "its log is ahead of its clock"


def test_a_session_that_is_left_during_a_jump_ends_in_time() -> None:
    broker = Broker()
    broker.hello("s", expires=3_600)
    jump(broker, 24 * HOUR)
    broker.cut("s")
    broker.wait(SECOND)
    jump(broker, -24 * HOUR)
    broker.wait(HOUR // 2)
    assert broker.core.session("s") is not None
    broker.wait(2 * HOUR)
    assert broker.core.session("s") is None
