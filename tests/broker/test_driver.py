"""The rules of the driver, which hold wherever a core runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from weft.broker.broker import Core
from weft.broker.delivery_run import one_by_one
from weft.broker.driver import CommitOutcome, Driver, store
from weft.broker.effects import ConnectionId, Now, Persist, Relayed, Send, SetTimer, Ticket
from weft.broker.limits import ClientLimits
from weft.errors import LocalProtocolError, LogFullError
from weft.log.base import Group
from weft.log.memory import MemoryLog
from weft.protocol.messages import (
    Accepted,
    Bye,
    Deliver,
    Failed,
    Hello,
    Ping,
    Pong,
    Publish,
    Published,
    Refused,
    Subscribe,
)
from weft.routing import make_table

A, B = ConnectionId("a"), ConnectionId("b")


class Owner:
    """What a driver did, in order."""

    def __init__(self, quota: int | None = None, given: bool = True, **options: Any) -> None:
        self.log = MemoryLog("a1", quota)
        ids = iter(range(1, 1_000))
        self.core = Core(self.log, self.log.restore(), make_table("covering"), draw=lambda: next(ids), **options)
        self.now = Now(100, 1_700_000_000_000_000)
        self.done: list[Any] = []
        self.turns: list[list[str]] = []
        self.unsendable: set[ConnectionId] = set()
        more: dict[str, Any] = {
            "reading": lambda connection, on: self.done.append(("reading", connection, on)),
            "relayed": self.done.append,
            "unsendable": lambda connection, error: self.done.append(("unsendable", connection)),
        }
        self.driver = Driver(
            self.core,
            lambda: self.now,
            send=self.send,
            commit=lambda persist: self.done.append(("commit", persist.ticket)),
            timer=lambda at: self.done.append(("timer", at)),
            close=lambda connection: self.done.append(("close", connection)),
            turn=lambda reads: self.turns.append([connection for connection, _ in reads]),
            **(more if given else {}),
        )

    def send(self, connection: ConnectionId, messages: Any) -> None:
        every = [*one_by_one(messages)]
        if connection in self.unsendable and not isinstance(every[0], Bye):
            raise LocalProtocolError("too long")
        self.done += [(connection, message) for message in every]

    def hello(self, *connections: ConnectionId) -> Owner:
        for connection in connections:
            self.driver.connected(connection)
            self.driver.receive(connection, [Hello(session=connection)])
        self.driver.settle(self.log)
        self.done.clear()
        self.turns.clear()
        return self

    def say(self, connection: ConnectionId, *messages: Any) -> None:
        self.driver.receive(connection, messages)
        self.driver.settle(self.log)

    def sent(self, kind: type, connection: ConnectionId | None = None) -> list[Any]:
        return [each[1] for each in self.done if isinstance(each[1], kind) and connection in (None, each[0])]


def test_nothing_is_confirmed_or_delivered_before_it_is_stored() -> None:
    owner = Owner().hello(A)
    owner.say(A, Subscribe(1, "x > 0"))
    owner.driver.receive(A, [Publish.of(1, {"x": 1})])
    owner.driver.handle_ready()
    groups = owner.driver.begin_commit()
    assert [each.group.events is not None for each in groups] == [True]
    assert not owner.sent(Published)
    outcome = store(owner.log.commit, groups)
    assert not owner.sent(Deliver)
    owner.driver.end_commit(outcome)
    assert owner.sent(Published)
    assert owner.sent(Deliver)


def test_one_commit_runs_at_a_time() -> None:
    owner = Owner().hello(A)
    owner.driver.receive(A, [Publish.of(1, {"x": 1})])
    owner.driver.handle_ready()
    owner.driver.begin_commit()
    with pytest.raises(LocalProtocolError, match="a commit is running"):
        owner.driver.begin_commit()


def test_a_full_log_forgets_every_later_group() -> None:
    owner = Owner().hello(A, B)
    for sequence in (1, 2):
        owner.driver.receive(A, [Publish.of(sequence, {"x": 1})])
        owner.driver.handle_ready()
    groups = owner.driver.begin_commit()
    assert len(groups) == 2
    owner.driver.receive(B, [Publish.of(1, {"x": 1})])
    owner.driver.handle_ready()
    assert owner.driver.waiting
    owner.log.commit([groups[0].group])
    owner.driver.end_commit(CommitOutcome(groups, 1, "the disk is full"))
    assert [each.upto for each in owner.sent(Published)] == [1]
    assert {each.code for each in owner.sent(Refused)} == {"full"}
    assert len(owner.sent(Refused, A)) == len(owner.sent(Refused, B)) == 1
    assert all(each.group.events is None for each in owner.driver.waiting), "no event is stored behind the gap"
    owner.driver.settle(owner.log)
    assert owner.core.end == 2
    assert owner.driver.added == owner.driver.settled


class _Log(NamedTuple):
    """Stores so many groups."""

    room: int
    groups: list[Group]

    def commit(self, groups: list[Group]) -> None:
        if len(self.groups) + len(groups) > self.room:
            raise LogFullError("full")
        self.groups.extend(groups)


@pytest.mark.parametrize("room", range(5))
def test_the_first_groups_are_stored_as_far_as_they_fit(room: int) -> None:
    owner = Owner().hello(A)
    for sequence in (1, 2, 3):
        owner.driver.receive(A, [Publish.of(sequence, {"x": 1})])
        owner.driver.handle_ready()
    groups, log = owner.driver.begin_commit(), _Log(room, [])
    outcome = store(log.commit, groups)
    assert outcome.stored == len(log.groups) == min(3, room)
    assert bool(outcome.full) == (room < 3)
    assert log.groups == [each.group for each in groups[:room]]


def test_reads_without_requests_are_one_turn_and_every_other_read_is_one() -> None:
    owner = Owner().hello(A, B)
    event = Publish.of(0, {"x": 1})
    for connection, message in ((A, event), (B, event), (A, Ping(1)), (B, Ping(2)), (B, event), (A, event)):
        owner.driver.receive(connection, [message])
    assert owner.turns == []
    owner.driver.handle_ready()
    assert owner.turns == [["a", "b"], ["a"], ["b"], ["b", "a"]]


def test_what_is_held_waits_with_all_that_its_connection_sends_behind_it() -> None:
    owner = Owner().hello(A, B)
    assert owner.driver.receive(A, [Publish.of(0, {"x": 1})], hold=True)
    assert owner.driver.receive(A, [Ping(1)])
    assert not owner.driver.receive(B, [Ping(2)])
    owner.driver.handle_ready()
    assert owner.turns == [["b"]]
    owner.driver.handle_all()
    assert owner.turns == [["b"], ["a"], ["a"]]


def test_a_hello_is_handled_at_once_and_after_whatever_waits() -> None:
    owner = Owner().hello(A)
    owner.driver.receive(A, [Publish.of(0, {"x": 1})], hold=True)
    owner.driver.connected(B)
    owner.driver.receive(B, [Hello(session="a")])  # it takes the session over
    assert owner.turns == [["a"], ["b"]]
    assert ("close", A) in owner.done


def test_what_a_connection_sent_before_it_ended_counts() -> None:
    owner = Owner().hello(A, B)
    owner.say(B, Subscribe(1, "TRUE"))
    owner.driver.receive(A, [Publish.of(0, {"x": 1})], hold=True)
    owner.driver.lost(A)
    assert len(owner.sent(Deliver, B)) == 1
    owner.driver.receive(A, [Publish.of(0, {"x": 1})])
    owner.driver.handle_all()
    assert len(owner.sent(Deliver, B)) == 1, "nothing is received of a connection that is gone"


def test_a_connection_is_not_read_while_its_requests_wait() -> None:
    owner = Owner(limits=ClientLimits(changes=2)).hello(A)
    owner.driver.receive(A, [Subscribe(n, f"x = {n}") for n in range(5)])
    owner.driver.handle_ready()
    assert [each for each in owner.done if each[0] == "reading"] == [("reading", "a", False)]
    owner.driver.tick()
    assert A in owner.driver.behind
    owner.driver.tick()
    assert [each for each in owner.done if each[0] == "reading"] == [("reading", "a", False), ("reading", "a", True)]
    assert not owner.driver.behind
    owner.driver.settle(owner.log)
    assert [each.number for each in owner.sent(Accepted)] == [*range(5)]


def test_a_timer_that_is_due_stays_due_until_the_tick() -> None:
    owner = Owner()
    driver = owner.driver
    for at in (500, 500, 300, 400, 50, 60, 700):
        driver.carry_out([SetTimer(at)], owner.now)
    assert owner.done == [("timer", 500), ("timer", 300), ("timer", 400), ("timer", 50)]
    owner.done.clear()
    driver.tick()
    driver.carry_out([SetTimer(800)], owner.now)
    assert owner.done == [("timer", 800)]


def test_a_message_that_cannot_be_sent_ends_its_connection_after_all_other_effects() -> None:
    """The end of a connection has effects of its own, groups to store among them: these come behind."""
    owner = Owner().hello(A, B)
    owner.unsendable = {B}
    owner.driver.carry_out([Send(B, [Pong(1)]), Send(A, [Pong(2)]), Persist(Ticket(99), Group(at=1))], owner.now)
    assert owner.done[:3] == [("unsendable", B), (A, Pong(2)), ("commit", 99)]
    assert [each.code for each in owner.sent(Bye, B)] == ["internal"]
    assert ("close", B) in owner.done[3:]
    assert owner.driver.connections == {A}


def test_what_other_brokers_relay_is_never_lost_unseen() -> None:
    effect = Relayed("far", b"body")
    owner = Owner()
    owner.driver.carry_out([effect], owner.now)
    assert owner.done == [effect]
    silent = Owner(given=False)
    silent.driver.carry_out([effect], silent.now)
    assert silent.driver.relayed_unused == 1


def test_an_unknown_effect_is_an_error() -> None:
    owner = Owner()
    with pytest.raises(AssertionError):
        owner.driver.carry_out(["?"], owner.now)  # type: ignore[list-item]


def test_what_the_core_raises_goes_to_the_owner_who_wants_it_and_ends_the_driver() -> None:
    owner = Owner()
    with pytest.raises(LocalProtocolError):
        owner.driver.do(owner.core.detach, "nobody")
    owner.driver.connected(A)
    errors: list[Exception] = []
    driver = Driver(
        owner.core,
        lambda: owner.now,
        send=owner.send,
        commit=lambda _: None,
        timer=lambda _: None,
        close=lambda _: None,
        failed=errors.append,
    )
    driver.do(owner.core.detach, "nobody")
    assert [type(each) for each in errors] == [LocalProtocolError]
    driver.do(owner.core.detach, "nobody")
    assert len(errors) == 1


def test_settle_commits_and_ticks_until_nothing_is_due() -> None:
    owner = Owner(limits=ClientLimits(changes=2)).hello(A)
    owner.say(A, *[Subscribe(n, f"x = {n}") for n in range(5)], Publish.of(1, {"x": 3}))
    assert [each.number for each in owner.sent(Accepted)] == [*range(5)]
    assert len(owner.sent(Deliver)) == 1
    assert not owner.sent(Failed)
