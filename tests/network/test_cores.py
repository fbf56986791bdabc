"""Brokers in memory: what arrives when, what is lost, and what can be watched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from weft.broker.delivery_run import encode_all
from weft.broker.effects import Outgoing, Relayed
from weft.broker.limits import ClientLimits
from weft.errors import ProtocolError
from weft.network.cores import BrokerNetwork, BrokerWork, LinkEnd, MemoryBroker, Transport, Travelling
from weft.protocol.codec import encode
from weft.protocol.messages import (
    Accepted,
    Ack,
    Bye,
    ClientMessage,
    Complete,
    Deliver,
    Hello,
    Ping,
    Pong,
    Publish,
    Published,
    SubNumber,
    Subscribe,
)
from weft.routing.table import Role

ONE = SubNumber(1)


def kinds(messages: list[Any]) -> list[type]:
    return [type(message) for message in messages]


# -- one broker ---------------------------------------------------------------------------------------


def test_groups_wait_until_they_are_committed() -> None:
    broker = MemoryBroker(at_once=False, checked=True)
    assert broker.hello("s") == []
    assert kinds([message for _, message in broker.commit()])[0].__name__ == "Welcome"
    assert broker.say("s", Subscribe(ONE, "x > 5")) == []
    assert len(broker.driver.waiting) == 1
    assert kinds([message for _, message in broker.commit()]) == [Accepted, Complete]
    assert broker.driver.waiting == []


def test_a_crash_loses_what_was_not_stored() -> None:
    broker = MemoryBroker(checked=True)
    broker.hello("p")
    broker.say("p", Publish.of(1, {"x": 1}))
    broker.at_once = False
    broker.say("p", Publish.of(2, {"x": 2}))
    broker.restart()
    assert broker.core.end == 2
    broker.at_once = True
    (welcome,) = broker.hello("p")
    assert welcome.pub_seq == 1  # type: ignore[union-attr]


def test_a_full_log_rejects_every_group_that_waits() -> None:
    broker = MemoryBroker(checked=True)
    broker.hello("p")
    broker.at_once = False
    broker.say("p", Publish.of(1, {"x": 1}))
    broker.say("p", Publish.of(2, {"x": 2}))
    ((to, refused),) = broker.reject()
    assert (to, refused.code) == ("p", "full")  # type: ignore[union-attr]
    assert broker.driver.waiting == []


def test_a_client_with_an_answer_speaks_by_itself() -> None:
    got: list[bytes] = []

    def acknowledge(messages: list[Outgoing]) -> list[ClientMessage]:
        found = [message for message in messages if isinstance(message, Deliver)]
        got.extend(each.payload for each in found)
        return [Ack(each.queue, each.offset + 1) for each in found]  # type: ignore[arg-type]

    broker = MemoryBroker(checked=True, recorded=False)
    broker.hello("s", answer=acknowledge)
    broker.say("s", Subscribe(ONE, "x > 5"))
    broker.hello("p")
    broker.say("p", *(Publish.of(n, {"x": n}, b"%d" % n) for n in range(1, 9)))
    assert got == [b"6", b"7", b"8"]
    assert broker.sent == []
    broker.cut("s")
    broker.recorded = True
    assert Deliver not in kinds(broker.hello("again", "s")), "everything was acknowledged"


def test_bytes_that_are_not_messages_end_their_connection() -> None:
    broker = MemoryBroker(checked=True)
    broker.hello("c")
    broker.read("c", encode([Ping(1), Ping(2)]))  # type: ignore[arg-type]
    assert broker.messages("c")[-2:] == [Pong(1), Pong(2)]
    broker.read("c", b"\x00\x00\x00\x01\xc1")  # type: ignore[arg-type]
    assert isinstance(broker.messages("c")[-1], Bye)
    assert broker.closed == ["c"]


def test_time_passes_with_the_timers_on_the_way() -> None:
    broker = MemoryBroker(checked=True, limits=ClientLimits(idle=1_000))
    broker.hello("c")
    broker.wait(900)
    assert broker.closed == []
    broker.wait(10_000)
    assert broker.closed == ["c"]
    assert broker.time.monotonic == 10_900


# -- links -------------------------------------------------------------------------------------------


def run(**options: Any) -> tuple[list[bytes], BrokerNetwork]:
    """Events from one end of a chain to the other."""
    network = BrokerNetwork("a", "b", "c", checked=True, **options).chain()
    network["a"].hello("s")
    network["a"].say("s", Subscribe(ONE, "x > 5"))
    network.settle()
    network["c"].hello("p")
    network["c"].say("p", *(Publish.of(n, {"x": n}, b"%d" % n) for n in range(1, 9)))
    network.settle()
    network.check()
    return network["a"].got("s"), network


def watched(patch: pytest.MonkeyPatch) -> list[Travelling]:
    """Whatever will arrive on links."""
    seen: list[Travelling] = []
    arrive = BrokerNetwork.arrive

    def watch(self: BrokerNetwork, end: LinkEnd, data: Travelling) -> None:
        seen.append(data)
        arrive(self, end, data)

    patch.setattr(BrokerNetwork, "arrive", watch)
    return seen


@pytest.mark.parametrize("transport", Transport)
def test_every_transport_delivers_the_same(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watched(monkeypatch)
    got, _ = run(transport=transport)
    assert got == [b"6", b"7", b"8"]
    assert {type(each) for each in seen} == {list if transport is Transport.MESSAGES else bytes}


def test_frames_travel_alone_and_writes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watched(monkeypatch)
    run(transport=Transport.FRAMES)
    frames = len(seen)
    run(transport=Transport.WRITES)
    assert frames > len(seen) - frames


def test_the_same_calls_give_the_same_run() -> None:
    one, other = run()[1], run()[1]
    assert all(one[name].sent == other[name].sent for name in one.brokers)


def test_groups_of_a_network_wait_for_their_commit() -> None:
    got, _ = run(at_once=False)
    assert got == [b"6", b"7", b"8"], "settle() stores them"
    network = run(at_once=False)[1]
    network["c"].say("p", Publish.of(9, {"x": 9}, b"9"))
    network.settle(but="c")
    assert network["c"].driver.waiting
    confirmed = kinds(network["c"].messages("p")).count(Published)
    network.commit("c")
    assert kinds(network["c"].messages("p")).count(Published) == confirmed + 1
    network.settle()
    assert network["a"].got("s")[-1] == b"9"


def test_a_cut_loses_what_is_in_flight_and_a_new_connection_sends_it_again() -> None:
    _, network = run()
    network["c"].say("p", Publish.of(9, {"x": 9}, b"9"))
    assert network.in_flight
    network.cut("c", "b")
    assert not network.in_flight
    network.settle()
    assert network["a"].got("s")[-1] == b"8"
    network.dial("b", "c")
    network.settle()
    assert network["a"].got("s")[-1] == b"9"


def test_a_broker_that_crashes_is_connected_again_and_loses_nothing() -> None:
    _, network = run()
    network.crash("b")
    assert not network["a"].link("b").connected
    network.dial("a", "b")
    network.dial("b", "c")
    network.settle()
    network["c"].say("p", Publish.of(9, {"x": 9}, b"9"))
    network.settle()
    assert network["a"].got("s") == [b"6", b"7", b"8", b"9"]


def test_what_a_broker_sent_arrives_before_the_end_of_its_connection() -> None:
    network = BrokerNetwork("a", "b", checked=True)
    network["a"].attach("b", Role.PEER)
    network["b"].attach("a", Role.PARENT)  # the roles do not agree
    network.dial("a", "b")
    network.settle()
    assert not network.wires
    assert "a is attached as parent here" in network["a"].link("b").reason, "the last words of b arrived"


def test_time_passes_at_all_brokers() -> None:
    _, network = run()
    network.wires.clear()  # nobody hears anything any more
    network.wait(60_000_000)
    assert {broker.time.monotonic for broker in network.brokers.values()} == {60_000_000}
    assert network["a"].core.counts["closed as silent"] == 1


def test_messages_between_drivers_are_kept() -> None:
    _, network = run()
    network["a"].call(network["a"].core.relay, "c", b"hello")
    network.settle()
    assert network["c"].relayed == [Relayed("a", b"hello")]


def test_all_work_of_brokers_is_run_by_a_function() -> None:
    done: Counter[tuple[str, BrokerWork]] = Counter()

    def counted(broker: str, work: BrokerWork, do: Callable[[], Any]) -> Any:
        done[broker, work] += 1
        return do()

    got, _ = run(run=counted)
    assert got == [b"6", b"7", b"8"]
    assert {broker for broker, _ in done} == {"a", "b", "c"}
    assert {work for _, work in done} == {*BrokerWork}
    assert "read" not in {work.value for _, work in _counted_works(Transport.MESSAGES)}


def _counted_works(transport: Transport) -> set[tuple[str, BrokerWork]]:
    done: set[tuple[str, BrokerWork]] = set()

    def counted(broker: str, work: BrokerWork, do: Callable[[], Any]) -> Any:
        done.add((broker, work))
        return do()

    run(run=counted, transport=transport)
    return done


def test_brokers_that_never_stop_are_stopped() -> None:
    network = BrokerNetwork("a", "b").chain()
    network.arrive = lambda end, data: network.in_flight.append((end, data))  # type: ignore[method-assign]
    network["a"].hello("s")
    network["a"].say("s", Subscribe(ONE, "x > 5"))
    with pytest.raises(ProtocolError, match="never stops"):
        network.settle(100)


def test_a_hello_is_said_with_its_fields() -> None:
    broker = MemoryBroker(checked=True)
    broker.connect("c", "d")
    assert Pong(3) in broker.say("c", Hello(session="c"), Ping(3))
    assert broker.say("d") == []


def test_what_is_sent_on_links_may_be_carried_by_somebody_else() -> None:
    carried: list[tuple[LinkEnd, list[Outgoing] | None]] = []
    network = BrokerNetwork("a", "b", carry=lambda end, messages: carried.append((end, messages)))
    network.link("a", "b")
    network["a"].hello("s")
    network["a"].say("s", Subscribe(ONE, "x > 5"))
    while carried or network.step():  # timers that are due
        assert not network.in_flight
        if carried:
            end, messages = carried.pop(0)
            network.arrive(end, None if messages is None else encode_all(messages))
    assert Complete(ONE) in network["a"].messages("s")
    network.check()
