"""Access rules: what they allow, how they refuse, and what happens when they change while a broker runs."""

from __future__ import annotations

import pytest

from broker.harness import Broker, deliveries
from weft.broker import rules as rules_module
from weft.broker.effects import ConnectionId
from weft.broker.identity import Identity
from weft.broker.limits import ClientLimits
from weft.broker.rules import ALL_RIGHTS, NOTHING, Grant, Rights, Rules
from weft.broker.sessions import BUSY
from weft.errors import AccessError
from weft.language.text import parse
from weft.log.base import Offset, SeatId
from weft.model.limits import LIMITS
from weft.protocol.messages import (
    Accepted,
    Ack,
    Advertise,
    BrokerMessage,
    Bye,
    DeadLetters,
    Deliver,
    Failed,
    Hello,
    ListDead,
    Nack,
    NewEpoch,
    Ping,
    Publish,
    Published,
    QueueNumber,
    Refused,
    Replace,
    RetryDead,
    Revoked,
    SubNumber,
    Subscribe,
    Unsubscribe,
    Welcome,
)

SECOND = 1_000_000
ONE, TWO = SubNumber(1), SubNumber(2)
Q0, Q1 = QueueNumber(0), QueueNumber(1)


def named(credentials: bytes) -> Identity:
    return Identity(credentials.decode())


def may(**subscribe: str) -> Rules:
    """Everybody publishes; each principal subscribes to one filter, others to nothing."""
    rights = {name: Rights(subscribe=(text,)) for name, text in subscribe.items()}
    return Rules(rights, default=Rights(subscribe=()))


def broker(rules: Rules | None = None, **options: object) -> Broker:
    return Broker(authenticate=named, rules=rules or may(ann="x < 10", bob="x < 10"), **options)  # type: ignore[arg-type]


def set_rules(on: Broker, rules: Rules, to: str = "") -> list[BrokerMessage]:
    return on.do(on.core.set_rules(rules, on.now), to)


def joined(on: Broker, name: str = "ann", text: str = "x < 5", **options: object) -> None:
    """A client with a durable subscription."""
    on.hello(name, credentials=name.encode())
    answers = on.say(name, Subscribe(ONE, text, **options))  # type: ignore[arg-type]
    assert any(isinstance(each, Accepted) for each in answers), answers


def publish(on: Broker, *values: int) -> None:
    if "pub" not in on.core._sessions.connections:
        on.hello("pub", "", credentials=b"pub")
        on.sequence = 0  # type: ignore[attr-defined]
    for value in values:
        on.sequence += 1  # type: ignore[attr-defined]
        answers = on.say("pub", Publish.of(on.sequence, {"x": value}))  # type: ignore[attr-defined]
        assert any(isinstance(each, Published) for each in answers) or not on.at_once


def offsets(messages: list[BrokerMessage]) -> list[int]:
    return [each.offset for each in messages if isinstance(each, Deliver)]


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "nearest"),
    [
        ("type = 'quake' AND magnitude >= 2", "type = 'quake' AND magnitude >= 3"),
        ("type = 'flight'", "type = 'flight' AND carrier = 'LH'"),
        ("type = 'flight' AND carrier = 'AF'", "type = 'flight' AND carrier = 'LH'"),
    ],
)
def test_a_refusal_names_the_nearest_rule(wanted: str, nearest: str) -> None:
    grant = Grant(Rights(subscribe=("type = 'flight' AND carrier = 'LH'", "type = 'quake' AND magnitude >= 3")))
    with pytest.raises(AccessError, match="the nearest rule is") as refused:
        grant.check_subscribe(parse(wanted))
    assert str(refused.value).endswith(nearest)


def test_the_hint_of_a_refusal_takes_a_bounded_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []
    real = rules_module._missing
    monkeypatch.setattr(rules_module, "_missing", lambda *given: compared.append(given) or real(*given))
    many = [" OR ".join(f"(a{n} > {k} AND b = {n})" for n in range(100)) for k in range(20)]
    grant = Grant(Rights(subscribe=tuple(many)))
    with pytest.raises(AccessError, match="the nearest rule is"):
        grant.check_subscribe(parse(" OR ".join(f"(c{n} > 5 AND b < {n})" for n in range(100))))
    assert 0 < len(compared) <= LIMITS.steps // 10


def test_who_may_read_nothing_is_told_whom_to_ask() -> None:
    with pytest.raises(AccessError, match="operator"):
        Grant(NOTHING).check_subscribe(parse("x > 5"))


def test_hundreds_of_rules_are_covered_together() -> None:
    rules = tuple(f"x >= {n} AND x < {n + 1}" for n in range(400))
    grant = Grant(Rights(subscribe=rules))
    grant.check_subscribe(parse("x >= 7 AND x < 9"))
    with pytest.raises(AccessError):
        grant.check_subscribe(parse("x >= 399 AND x < 401"))


def test_a_refused_subscription_leaves_nothing_behind() -> None:
    on = broker()
    on.hello("ann", credentials=b"ann")
    (failed,) = on.say("ann", Subscribe(ONE, "x < 11"))
    assert isinstance(failed, Failed)
    assert (failed.code, failed.reason) == ("access", "no rule allows all of x < 11; the nearest rule is x < 10")
    publish(on, 3)
    assert not on.log.restore().subs


@pytest.mark.parametrize(
    ("right", "message"),
    [
        ("dead-letters", ListDead(1, Q0)),
        ("dead-letters", RetryDead(1, Q0, (Offset(1),))),
        ("history", Subscribe(TWO, "x < 5", Q1, since=Offset(1))),
        ("history", Subscribe(TWO, "x < 5", Q1, since_time=1)),
    ],
)
def test_further_rights_are_granted_one_by_one(right: str, message: ListDead | RetryDead | Subscribe) -> None:
    on = broker(Rules({"ann": Rights(further=ALL_RIGHTS - {right})}))  # type: ignore[operator]
    joined(on)
    (failed,) = on.say("ann", message)
    assert isinstance(failed, Failed)
    assert failed.code == "access"
    assert repr(right) in failed.reason
    set_rules(on, Rules({"ann": NOTHING._replace(subscribe=None, further=frozenset({right}))}))  # type: ignore[arg-type]
    assert not any(isinstance(each, Failed) for each in on.say("ann", message))


def test_only_what_may_be_published_may_be_advertised() -> None:
    on = broker(Rules(default=Rights(publish=("x < 5",))), model="covering", advertised=True)
    on.hello("ann", credentials=b"ann")
    (failed,) = on.say("ann", Advertise(1, "x > 7"))
    reason = "no rule allows any event of x > 7; advertise what you may publish"
    assert failed == Failed("advertise", 1, "access", reason)
    assert isinstance(on.say("ann", Advertise(1, "x > 3"))[0], Accepted)


# -- rules change ---------------------------------------------------------------------------------


def test_a_subscription_that_is_no_longer_covered_ends_and_its_client_is_told() -> None:
    on = broker()
    joined(on, "ann", "x < 5")
    joined(on, "bob", "x < 3")
    (told,) = set_rules(on, may(ann="x < 4", bob="x < 4"), "ann")
    assert isinstance(told, Revoked)
    assert told.number == ONE
    assert told.reason == (
        "the access rules have changed, and the subscription has ended: no rule allows all of x < 5; "
        "the nearest rule is x < 4"
    )
    publish(on, 1)
    assert [to for to, each in on.sent if isinstance(each, Deliver)] == ["bob"]
    assert on.core.counts["revoked subscriptions"] == 1


def test_other_subscriptions_of_the_same_queue_go_on() -> None:
    on = broker()
    joined(on)
    on.say("ann", Subscribe(TWO, "x < 3"))
    assert [type(each) for each in set_rules(on, may(ann="x < 4"), "ann")] == [Revoked]
    publish(on, 1, 3)
    assert deliveries([each for to, each in on.sent if to == "ann"]) == [(1, 1, [2])]


def test_rules_that_allow_more_end_nothing() -> None:
    on = broker()
    joined(on)
    assert set_rules(on, may(ann="x < 20"), "ann") == []
    assert set_rules(on, Rules(), "ann") == []
    publish(on, 1)
    assert len(offsets([each for _, each in on.sent])) == 1


def test_events_that_wait_are_withheld_at_once_too() -> None:
    on = broker(limits=ClientLimits(window_events=1))
    joined(on)
    publish(on, 1, 4, 2)
    on.say("ann", Replace(ONE, "x < 3"))  # event 4 still waits, by the old filter
    set_rules(on, may(ann="x < 3"))
    assert offsets(on.say("ann", Ack(Q0, Offset(2)))) == [3]
    assert on.core.counts["withheld by rules"] == 1
    assert on.core.counts.get("revoked subscriptions", 0) == 0


def test_an_event_that_failed_does_not_return_when_it_is_forbidden() -> None:
    on = broker(limits=ClientLimits(backoff=10))
    joined(on)
    publish(on, 4)
    on.say("ann", Replace(ONE, "x < 3"), Nack(Q0, ((Offset(1), 1),)))
    set_rules(on, may(ann="x < 3"))
    before = len(on.sent)
    on.wait(SECOND)
    assert offsets([each for _, each in on.sent[before:]]) == []


def test_what_a_slow_connection_waits_for_is_withheld() -> None:
    on = broker()
    on.hello("ann", credentials=b"ann")
    on.say("ann", Subscribe(ONE, "x < 5", durable=False), Subscribe(TWO, "x < 3", durable=False))
    on.core.paused(ConnectionId("ann"))
    publish(on, 1, 4)
    set_rules(on, may(ann="x < 3"))
    released = on.do(on.core.resumed(ConnectionId("ann"), on.now), "ann")
    assert deliveries(released) == [(1, 1, [2])]


def test_what_waits_by_an_older_filter_is_withheld_too() -> None:
    on = broker()
    on.hello("ann", credentials=b"ann")
    on.say("ann", Subscribe(ONE, "x < 5", durable=False))
    publish(on)
    on.core.paused(ConnectionId("ann"))
    publish(on, 1, 4)
    on.at_once = False
    publish(on, 2, 4)
    on.say("ann", Replace(ONE, "x < 3"))
    on.do(on.core.set_rules(may(ann="x < 3"), on.now))
    on.at_once = True
    on.do([])
    released = on.do(on.core.resumed(ConnectionId("ann"), on.now), "ann")
    assert offsets(released) == [1, 3]
    assert on.core.counts["withheld by rules"] == 2


def test_events_on_their_way_into_the_log_are_withheld() -> None:
    on = broker()
    joined(on)
    on.hello("bob", credentials=b"bob")
    on.say("bob", Subscribe(ONE, "x < 5", durable=False))
    publish(on)
    on.at_once = False
    publish(on, 4)
    on.do(on.core.set_rules(may(ann="x < 3", bob="x < 3"), on.now))
    on.at_once = True
    on.do([])
    assert offsets([each for _, each in on.sent]) == []


def test_a_client_that_was_away_is_told_when_it_returns() -> None:
    on = broker()
    joined(on)
    on.cut("ann")
    publish(on, 1, 2)
    set_rules(on, may(ann="x < 3"))
    publish(on, 1)
    on.connect("again")
    welcome, told = on.say("again", Hello(session="ann", credentials=b"ann"))
    assert isinstance(welcome, Welcome)
    assert (welcome.resumed, welcome.subscriptions) == (True, ())
    assert isinstance(told, Revoked)
    assert not on.log.restore().subs


def test_rules_that_changed_during_a_restart_hold() -> None:
    on = broker()
    joined(on)
    joined(on, "bob", "x < 2")
    on.cut("ann")
    on.cut("bob")
    publish(on, 1)
    on.options["rules"] = may(ann="x < 3", bob="x < 3")
    on.restart()
    on.connect("again")
    answers = on.say("again", Hello(session="ann", credentials=b"ann"))
    assert offsets([each for to, each in on.sent if to == "again"]) == []
    assert [type(each) for each in answers] == [Welcome, Revoked]
    assert {row.filter for row in on.log.restore().subs.values()} == {"", "x < 2"}
    on.connect("bob2")
    assert offsets(on.say("bob2", Hello(session="bob", credentials=b"bob"))) == [1]


def test_a_shared_queue_ends_for_all_its_consumers() -> None:
    on = broker()
    for name in ("c1", "c2"):
        on.hello(name, credentials=b"ann")
        on.say(name, Subscribe(ONE, "x < 5", share="work"))
    publish(on, 1)
    set_rules(on, may(ann="x < 3"))
    assert sorted(to for to, each in on.sent if isinstance(each, Revoked)) == ["c1", "c2"]
    assert not on.log.restore().subs
    (failed,) = on.say("c1", Subscribe(ONE, "x < 5", share="work"))
    assert isinstance(failed, Failed)
    assert isinstance(on.say("c1", Subscribe(ONE, "x < 2", share="work"))[0], Accepted)


def test_dead_letters_that_the_rules_no_longer_allow_are_not_shown() -> None:
    on = broker(limits=ClientLimits(failures=1))
    joined(on, text="x < 5")
    publish(on, 1, 4)
    on.say("ann", Nack(Q0, ((Offset(1), 1), (Offset(2), 1)), "no"))
    on.say("ann", Replace(ONE, "x < 3"))
    set_rules(on, may(ann="x < 3"))
    (letters,) = on.say("ann", ListDead(1, Q0))
    assert isinstance(letters, DeadLetters)
    assert [each.offset for each in letters.letters] == [1]
    assert offsets(on.say("ann", RetryDead(2, Q0, (Offset(1), Offset(2))))) == [1]
    (one_by_one,) = on.say("ann", ListDead(3, Q0, limit=1, after=Offset(1)))
    assert one_by_one == DeadLetters(3, (), False)


def test_a_queue_that_ends_takes_its_dead_letters_with_it() -> None:
    on = broker(limits=ClientLimits(failures=1), at_once=False)
    on.connect("ann")
    on.say("ann", Hello(session="ann", credentials=b"ann"), Subscribe(ONE, "x < 5"))
    on.commit()
    publish(on, 4)
    while on.persists:
        on.commit()
    on.say("ann", Nack(Q0, ((Offset(1), 1),), "no"))  # on its way into the log
    set_rules(on, may(ann="x < 3"))
    while on.persists:
        on.commit()
    assert not any(on.log.dead(SeatId(seat), Offset(0), 10) for seat in range(1, 20))
    assert not on.log.restore().subs


def test_publishers_are_checked_against_the_new_rules_from_the_next_event_on() -> None:
    on = broker()
    publish(on, 1)
    set_rules(on, Rules(default=Rights(publish=("x > 5",))))
    (refused,) = on.say("pub", Publish.of(2, {"x": 1}))
    assert isinstance(refused, Refused)
    assert refused.code == "access"
    assert isinstance(on.say("pub", NewEpoch(2), Publish.of(1, {"x": 6}))[0], Published)


def test_a_subscription_that_ended_stays_ended_when_the_log_is_full() -> None:
    on = broker()
    joined(on)
    on.at_once = False
    on.do(on.core.set_rules(may(ann="x < 3"), on.now))
    on.reject()
    assert not [each for _, each in on.sent if isinstance(each, Revoked)], "a crash could still bring it back"
    on.at_once = True
    publish(on, 1)
    assert offsets([each for _, each in on.sent]) == []
    assert len(on.log.restore().subs) == 2  # its rows are still there
    on.wait(2 * SECOND)
    assert not on.log.restore().subs
    assert [each for _, each in on.sent if isinstance(each, Revoked)]


def test_a_subscription_that_is_made_anew_is_not_called_ended() -> None:
    on = broker()
    joined(on)
    on.at_once = False
    on.do(on.core.set_rules(may(ann="x < 3"), on.now))
    on.reject()
    on.at_once = True
    on.say("ann", Subscribe(ONE, "x < 2"))
    on.wait(2 * SECOND)
    assert not [each for _, each in on.sent if isinstance(each, Revoked)]
    publish(on, 1)
    assert offsets([each for _, each in on.sent]) == [1]


def test_a_replacement_that_is_undone_is_checked_again() -> None:
    on = broker()
    joined(on)
    on.at_once = False
    on.say("ann", Replace(ONE, "x < 2"))
    on.do(on.core.set_rules(may(ann="x < 3"), on.now))
    on.reject()
    on.at_once = True
    on.do(on.core.tick(on.now))
    assert [each.number for _, each in on.sent if isinstance(each, Revoked)] == [ONE]
    publish(on, 1)
    assert offsets([each for _, each in on.sent]) == []


def test_an_unsubscription_that_is_undone_is_checked_again() -> None:
    on = broker()
    joined(on)
    on.at_once = False
    on.say("ann", Unsubscribe(ONE))
    on.do(on.core.set_rules(may(ann="x < 3"), on.now))
    on.reject()
    on.at_once = True
    on.do(on.core.tick(on.now))
    assert [each.number for _, each in on.sent if isinstance(each, Revoked)] == [ONE]


def test_a_subscription_on_its_way_into_the_log_is_accepted_before_it_is_revoked() -> None:
    on = broker(at_once=False)
    on.connect("ann")
    on.say("ann", Hello(session="ann", credentials=b"ann"), Subscribe(ONE, "x < 5"))
    on.do(on.core.set_rules(may(ann="x < 3"), on.now))
    on.at_once = True
    on.do([])
    kinds = [type(each).__name__ for to, each in on.sent if to == "ann"]
    assert kinds == ["Welcome", "Accepted", "Revoked"]
    on.core.check()
    assert not on.log.restore().subs


def test_a_client_that_comes_back_is_welcome_before_it_learns_what_was_revoked() -> None:
    on = broker()
    joined(on)
    on.cut("ann")
    on.at_once = False
    on.do(on.core.set_rules(may(ann="x < 3"), on.now))
    on.hello("again", "ann", credentials=b"ann")
    on.at_once = True
    on.do([])
    assert [type(each).__name__ for each in on.messages("again")] == ["Welcome", "Revoked"]


def test_the_member_that_asked_for_older_events_may_leave_before_a_restart() -> None:
    on = broker()
    publish(on, 1, 2, 3)
    on.hello("ann", credentials=b"ann")
    on.say("ann", Subscribe(ONE, "x < 5", Q1, since=Offset(1)), Subscribe(TWO, "x < 3", Q1))
    on.say("ann", Unsubscribe(ONE))
    on.restart()
    on.hello("ann", credentials=b"ann")
    publish(on, 1)
    assert deliveries([each for to, each in on.sent if to == "ann"]) == [(4, 1, [2])]


def test_many_subscriptions_are_looked_at_a_few_at_a_time() -> None:
    on = broker()
    on.hello("ann", credentials=b"ann")
    on.say("ann", *(Subscribe(SubNumber(n), f"x < {n % 9}") for n in range(1, 351)))
    on.at_once = False
    on.do(on.core.set_rules(may(ann="x < 4"), on.now))
    assert on.core.counts["revoked subscriptions"] < 100
    publish(on, 6)  # allowed by the old rules alone
    on.at_once = True
    on.do([])
    on.wait(SECOND)
    assert on.core.counts["revoked subscriptions"] == sum(n % 9 > 4 for n in range(1, 351))
    assert offsets([each for _, each in on.sent]) == []
    publish(on, 3)
    (got,) = deliveries([each for to, each in on.sent if to == "ann"])
    assert len(got[2]) == sum(n % 9 == 4 for n in range(1, 351))


# -- who is welcome -------------------------------------------------------------------------------


def refusing(credentials: bytes) -> Identity:
    if credentials != b"ann":
        raise AccessError("the operator's own words")
    return Identity("ann")


def test_whatever_an_unknown_client_says_the_answer_is_the_same() -> None:
    on = Broker(authenticate=refusing, limits=ClientLimits(name=10))
    on.hello("ann", "taken", credentials=b"ann")
    said = [
        [Hello()],
        [Hello(session="taken")],
        [Hello(session="free", credentials=b"bob")],
        [Hello(versions=(7, 9))],
        [Hello(fingerprint="other")],
        [Hello(session="x" * 1000)],
        [Hello(session="taken", epoch=1)],
        [Ping(1)],
        [Subscribe(ONE, "x = ")],
        [Publish.of(1, {"x": 1})],
    ]
    answers = []
    for number, messages in enumerate(said):
        on.connect(f"c{number}")
        answers.append(on.say(f"c{number}", *messages))
    (bye,) = answers[0]
    assert isinstance(bye, Bye)
    assert "operator's own" not in bye.reason
    assert all(answer == [bye] for answer in answers)


def test_who_is_too_slow_may_try_again() -> None:
    on = Broker(authenticate=refusing)
    on.connect("silent")
    on.wait(20 * SECOND)
    assert on.sent[-1] == ("silent", BUSY)


def test_a_known_client_is_told_what_is_wrong() -> None:
    on = Broker(authenticate=refusing)
    (bye,) = on.hello("ann", credentials=b"ann", versions=(7, 9))
    assert isinstance(bye, Bye)
    assert "version" in bye.reason


def test_a_connection_has_its_own_way_to_say_who_it_is() -> None:
    on = Broker(authenticate=refusing, rules=may(cert="x < 5"))
    on.connect("c", authenticate=lambda credentials: Identity("cert"))
    on.say("c", Hello(session="c"))
    assert isinstance(on.say("c", Subscribe(ONE, "x < 4"))[0], Accepted)


def test_credentials_end() -> None:
    until = Broker().now.utc + 5 * SECOND
    on = Broker(authenticate=lambda credentials: Identity("ann", until))
    on.hello("ann")
    on.wait(4 * SECOND)
    assert on.closed == []
    on.wait(2 * SECOND)
    assert on.closed == ["ann"]
    bye = on.sent[-1][1]
    assert isinstance(bye, Bye)
    assert bye.code == "expired"


def test_a_key_that_is_no_longer_trusted_ends_what_came_in_by_it() -> None:
    on = Broker(authenticate=lambda credentials: Identity("ann", key=credentials.decode() or None))
    for name in ("old", "new", "certificate"):
        on.hello(name, credentials=b"" if name == "certificate" else name.encode())
    on.do(on.core.distrust({"old", ""}, on.now))
    assert on.closed == ["old"]
    bye = on.sent[-1][1]
    assert isinstance(bye, Bye)
    assert bye.code == "expired", "clients come back with new credentials"


def test_credentials_that_last_leave_nothing_of_a_connection_behind() -> None:
    until = Broker().now.utc + 3_600_000 * SECOND
    on = Broker(authenticate=lambda credentials: Identity("ann", until))
    on.hello("ann", "")
    on.wait(1_000 * SECOND)
    assert on.closed == []
    on.cut("ann")
    on.wait(1_000 * SECOND)
    assert on.core._timers.next() is None
    assert not on.core._timers._heap


def test_the_oldest_stranger_makes_room_for_a_new_one() -> None:
    on = Broker(authenticate=refusing, limits=ClientLimits(unauthenticated=3))
    on.hello("ann", credentials=b"ann")
    on.connect("a", "b", "c", "d", "e")
    assert on.closed == ["a", "b"]
    assert isinstance(on.say("e", Hello(credentials=b"ann"))[0], Welcome)


def test_a_broker_has_a_number_of_connections() -> None:
    on = Broker(limits=ClientLimits(all_connections=2))
    on.connect("a", "b", "c")
    assert on.closed == ["c"]
    on.cut("a")
    on.connect("d")
    assert on.closed == ["c"]


def test_a_client_that_returns_takes_its_own_place() -> None:
    on = Broker(limits=ClientLimits(connections=1))
    on.hello("a", "s")
    on.connect("b")
    assert isinstance(on.say("b", Hello(session="s"))[0], Welcome)


def test_a_principal_cannot_multiply_its_rate() -> None:
    on = Broker(authenticate=named, limits=ClientLimits(rate=1.0, burst=2))
    for name in ("a", "b"):
        on.hello(name, "", credentials=b"ann")
    on.hello("c", "", credentials=b"bob")
    assert isinstance(on.say("a", Publish.of(1, {}), Publish.of(2, {}))[0], Published)
    (refused,) = on.say("b", Publish.of(1, {}))
    assert isinstance(refused, Refused)
    assert refused.code == "rate"
    assert isinstance(on.say("c", Publish.of(1, {}))[0], Published)


def test_requests_have_a_rate() -> None:
    on = Broker(limits=ClientLimits(requests=1.0))
    on.hello("a")
    answers = on.say("a", *(Subscribe(SubNumber(n), "x > 5") for n in range(150)))
    refused = [each for each in answers if isinstance(each, Failed)]
    assert {each.code for each in refused} == {"rate"}
    assert len(refused) == 50
    on.wait(SECOND)
    assert isinstance(on.say("a", Unsubscribe(ONE))[0], Accepted)


def test_a_hello_does_not_print_its_credentials() -> None:
    assert "secret" not in repr(Hello(credentials=b"secret"))
    assert "secret" not in str([Hello(credentials=b"secret")])
