"""Sessions of links: restarts, cold links, resyncs, completion, overflow, corruption."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from broker.network import Network, Node
from broker.test_links import subscribed
from weft.broker.limits import ClientLimits
from weft.errors import LocalProtocolError
from weft.language.predicate import Predicates
from weft.language.taxonomy import IsA, Taxonomy
from weft.language.text import parse
from weft.log.base import Group
from weft.log.opening import open_log
from weft.protocol.link_messages import LinkUpdate
from weft.protocol.messages import Bye, Complete, Incomplete, Ping, Pong, Publish, SubNumber, Subscribe, Unsubscribe
from weft.routing.table import ItemId, Link, Role, Update


def sent_items(network: Network, name: str, since: int = 0) -> list[tuple[int, int, bool]]:
    """Added, dropped and resynced of the control frames that a broker has sent."""
    frames = [message for _, message in network[name].sent[since:] if isinstance(message, LinkUpdate)]
    return [(len(frame.ids), len(frame.drop), frame.resynced) for frame in frames]


def completes(node: Node, client: str) -> list[object]:
    return [m for to, m in node.sent if to == client and isinstance(m, Complete | Incomplete)]


def test_a_restarted_middle_broker_tells_nothing_new_and_routes_at_once() -> None:
    network = Network("a", "b", "c").chain()
    subscribed(network, "a", "s", "x > 5")
    network.crash("b")
    assert network["b"].heard("a") == ["x > 5"]
    network["c"].hello("p")
    network["c"].say("p", Publish.of(1, {"x": 7}, b"1"))
    network.dial("b", "c")
    network.settle()
    assert network["b"].core.end == 2, "b stores the event for a, which is not there"
    network.dial("b", "a")
    network.settle()
    assert network["a"].got("s") == [b"1"]
    assert sent_items(network, "b") == [(0, 0, False), (0, 0, True)] * 2, "both neighbours had everything"
    network.check()


def test_a_cold_link_keeps_events_until_the_neighbour_has_said_what_it_wants() -> None:
    network = Network("a", "b")
    network["a"].hello("s")
    network["a"].say("s", Subscribe(SubNumber(1), "x > 5"))
    network["b"].hello("p")
    network["b"].say("p", Publish.of(1, {"x": 6}, b"before"))
    network["a"].attach("b")
    network["b"].attach("a")
    network["b"].say("p", Publish.of(2, {"x": 7}, b"wanted"), Publish.of(3, {"x": 1}, b"unwanted"))
    assert not network["b"].link("a").warm
    network["b"].restart()
    assert not network["b"].link("a").warm, "a restart does not make it warm"
    network.dial("a", "b")
    network.settle()
    assert network["b"].link("a").warm
    assert network["a"].got("s") == [b"wanted"]
    assert network["a"].core.end == 2
    network["b"].restart()
    assert network["b"].link("a").warm


def test_a_cold_neighbours_own_events_do_not_return_to_it() -> None:
    network = Network("a", "b")
    network["a"].attach("b")
    network["b"].attach("a")
    for name in "ab":
        network[name].hello("s")
        network[name].say("s", Subscribe(SubNumber(1), "x > 0"))
        network[name].hello("p")
        network[name].say("p", Publish.of(1, {"x": 1}, name.encode()))
    network.dial("a", "b")
    network.settle()
    assert sorted(network["a"].got("s")) == sorted(network["b"].got("s")) == [b"a", b"b"]


def test_a_resync_sends_only_the_difference_and_drops_last() -> None:
    network = Network("a", "b", limits=ClientLimits(slice=2)).chain()
    network["a"].hello("s")
    for number in range(5):
        network["a"].say("s", Subscribe(SubNumber(number), f"x = {number}"))
    network.settle()
    network.cut("a", "b")
    network["a"].say("s", Unsubscribe(SubNumber(0)), Subscribe(SubNumber(7), "x = 7"))
    since = len(network["a"].sent)
    network.dial("b", "a")
    network.settle()
    assert sent_items(network, "a", since) == [(1, 0, False), (0, 1, False), (0, 0, False), (0, 0, True)]
    assert network["b"].heard("a") == [f"x = {number}" for number in (1, 2, 3, 4, 7)]
    network.crash("a")
    network.dial("b", "a")
    network.settle()
    assert sent_items(network, "a") == [(0, 0, False), (0, 0, True)], "ids begin anew, but hashes are the same"
    network.check()


def test_a_change_waits_for_a_link_that_is_cut_and_the_client_knows_which() -> None:
    network = Network("a", "b", "c").chain()
    network.cut("b", "c")
    network.settle()
    subscribed(network, "a", "s", "x > 5")
    assert completes(network["a"], "s") == [], "a waits for b, and b for c"
    network.cut("a", "b")
    assert completes(network["a"], "s") == [Incomplete(1, "subscribe", ("b",))]
    network.dial("a", "b")
    network.settle()
    assert completes(network["a"], "s")[1:] == [Incomplete(1, "subscribe", ())]
    network.dial("c", "b")
    network.settle()
    assert completes(network["a"], "s")[2:] == [Complete(SubNumber(1))]


def test_detach_ends_the_wait() -> None:
    network = Network("a", "b", "c").chain()
    network.cut("b", "c")
    subscribed(network, "a", "s", "x > 5")
    assert completes(network["a"], "s") == []
    network["b"].do(network["b"].core.detach("c", network["b"].now))
    network.settle()
    assert completes(network["a"], "s") == [Complete(SubNumber(1))]
    with pytest.raises(LocalProtocolError, match="no neighbour c"):
        network["b"].core.detach("c", network["b"].now)
    network.crash("b")
    assert [link.peer for link in network["b"].core.links()] == ["a"]


def test_a_client_that_comes_back_is_told_what_became_complete() -> None:
    network = Network("a", "b").chain()
    network.cut("a", "b")
    network["a"].hello("s1", "s")
    network["a"].say("s1", Subscribe(SubNumber(1), "x > 5"))
    network["a"].cut("s1")
    network.dial("a", "b")
    network.settle()
    answer = network["a"].hello("s2", "s")
    assert Complete(SubNumber(1)) in answer
    network.crash("a")
    assert network["a"].hello("s3", "s")[1:] == [Incomplete(1, "subscribe", ("b",))]
    network.dial("a", "b")
    network.settle()
    assert completes(network["a"], "s3")[1:] == [Incomplete(1, "subscribe", ()), Complete(SubNumber(1))]


def test_a_client_is_told_although_its_broker_restarted_without_the_neighbour_that_was_waited_for() -> None:
    network = Network("a", "b").chain()
    network.cut("a", "b")
    network["a"].hello("s")
    network["a"].say("s", Subscribe(SubNumber(1), "x > 5"))
    network["a"].do(network["a"].core.detach("b", network["a"].now))
    network.crash("a")
    assert network["a"].core.links() == []
    network["a"].hello("s2", "s")
    assert completes(network["a"], "s2") == [Complete(SubNumber(1))]


def test_a_full_control_queue_is_replaced_by_a_resync() -> None:
    limits = ClientLimits(link_control=3, link_frames=1, slice=2)
    network = Network("a", "b", model="simple", limits=limits).chain()
    network["a"].hello("s")
    for number in range(12):
        network["a"].say("s", Subscribe(SubNumber(number), f"x = {number}"))
    network["a"].say("s", *(Unsubscribe(SubNumber(number)) for number in range(6)))
    network.settle()
    assert network["a"].core.counts["control queues overflown"] > 0
    assert network["b"].heard("a") == sorted(f"x = {number}" for number in range(6, 12))
    assert len([m for m in completes(network["a"], "s") if isinstance(m, Complete)]) == 6, "those that remain"
    network.check()


def test_a_corrupted_item_is_found_and_mended() -> None:
    network = Network("a", "b").chain()
    subscribed(network, "a", "s", "x > 5")
    table = network["b"].core.table
    ledger = table.links[Link("a")].ledger  # type: ignore[attr-defined]
    ledger.heard[ItemId(next(iter(ledger.heard)))] = parse("x > 6")
    network.wait(10_000_000)
    assert network["b"].core.counts["items mended"] == 1
    network.dial("a", "b")
    network.settle()
    assert network["b"].heard("a") == ["x > 5"]


def test_digests_find_an_item_that_one_side_has_lost() -> None:
    network = Network("a", "b").chain()
    subscribed(network, "a", "s", "x > 5")
    receiver = network["b"].core._neighbours[Link("a")].receiver
    [wire] = receiver.hashes[0]
    receiver._digests[0].drop(wire, receiver.hashes[0].pop(wire))
    network["b"].core.table.learn(Link("a"), Update(drop=(ItemId(wire),)))
    network.wait(60_000_000)
    assert network["b"].core.counts["link sessions failed"] == 1
    network.dial("b", "a")
    network.settle()
    assert network["b"].heard("a") == ["x > 5"]


def test_a_silent_link_is_closed() -> None:
    network = Network("a", "b").chain()
    (wire,) = {end[1] for end in network.wires}
    network.wires.clear()  # half-open: neither side hears of it
    network.wait(60_000_000)
    assert network["a"].core.counts["closed as silent"] == 1
    assert not network["a"].link("b").connected
    assert wire not in network["a"].core._sessions.connections
    assert network["a"].link("b").reason


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"model": "simple"}, "model is"),
        ({"name": "z"}, "expects b here, but this broker is z"),
        ({"predicates": Predicates([IsA(Taxonomy({}))])}, "different predicates: only one of them has is_a"),
    ],
)
def test_brokers_that_do_not_agree_say_what_differs(options: dict[str, object], sentence: str) -> None:
    network = Network("a", "b")
    node = network["b"]
    node.options = {**node.options, **options}
    node.start()
    network["a"].attach("b")
    node.attach("a")
    network.dial("a", "b")
    network.settle()
    assert sentence in network["a"].link("b").reason
    assert any(isinstance(message, Bye) and sentence in message.reason for _, message in node.sent)


def test_roles_must_be_converse() -> None:
    network = Network("a", "b")
    network["a"].attach("b", Role.PARENT)
    network["b"].attach("a", Role.PARENT)
    network.dial("a", "b")
    network.settle()
    assert network["a"].link("b").reason == ("a is attached as parent here, and attaches b as parent; it must be child")


def test_a_parent_gets_every_event_and_tells_nothing() -> None:
    network = Network("m", "s")
    network.link("s", "m", Role.PARENT)
    network.settle()
    subscribed(network, "m", "c", "x > 5")
    assert network["s"].heard("m") == []
    network["s"].hello("p")
    network["s"].say("p", Publish.of(1, {"x": 7}, b"1"), Publish.of(2, {"x": 1}, b"2"))
    network.settle()
    assert network["m"].core.end == 3
    assert network["m"].got("c") == [b"1"]
    assert completes(network["m"], "c") == [Complete(SubNumber(1))]


def test_events_that_a_full_log_refuses_come_again() -> None:
    network = Network("a", "b").chain()
    subscribed(network, "a", "s", "x > 5")
    network["a"].at_once = False
    network["b"].hello("p")
    network["b"].say("p", Publish.of(1, {"x": 7}, b"1"))
    while not network["a"].persists:
        network.step()
    network.cut("a", "b")
    network.dial("a", "b")
    for _ in range(6):
        network.in_flight and network.step()
    network["a"].reject()
    assert not network["a"].link("b").connected, "the session was told that event 1 is here"
    network.dial("a", "b")
    network["b"].say("p", Publish.of(2, {"x": 8}, b"2"))
    network.settle()
    assert network["a"].got("s") == [b"1", b"2"]


def test_items_that_a_full_log_refuses_are_acknowledged_when_they_are_stored() -> None:
    network = Network("a", "b").chain()
    network["b"].at_once = False
    network["a"].hello("s")
    network["a"].say("s", Subscribe(SubNumber(1), "x > 5"))
    while not network["b"].persists:
        network.step()
    network["b"].reject()
    network["a"].say("s", Unsubscribe(SubNumber(1)), Subscribe(SubNumber(2), "x > 6"))
    network.settle()
    assert completes(network["a"], "s") == []
    network.wait(2_000_000)
    assert completes(network["a"], "s") == [Complete(SubNumber(2))]
    network.crash("b")
    assert network["b"].heard("a") == ["x > 6"]


def test_an_attachment_that_cannot_be_stored_is_undone() -> None:
    network = Network("a", "b")
    network["a"].at_once = False
    network["a"].attach("b")
    network["b"].attach("a")
    network.dial("a", "b")
    for _ in range(4):
        network.in_flight and network.step()
    network["a"].reject()
    assert network["a"].core.links() == []
    network["a"].attach("b")
    network.dial("a", "b")
    network.settle()
    assert network["a"].link("b").warm


def test_a_neighbour_with_a_restored_back_up_begins_anew() -> None:
    network = Network("a", "b").chain()
    subscribed(network, "a", "s", "x > 5")
    network["b"].hello("p")
    copy = network["b"].log.backup("another log")
    network["b"].say("p", Publish.of(1, {"x": 7}, b"1"))
    network.settle()
    network.cut("a", "b")
    node = network["b"]
    node.start(copy)
    network.dial("a", "b")
    node.hello("p")
    node.say("p", Publish.of(1, {"x": 8}, b"2"))
    network.settle()
    assert network["a"].got("s") == [b"1", b"2"], "offset 1 of the other log is another event"


def test_a_back_up_restored_under_its_old_id_is_refused() -> None:
    network = Network("a", "b").chain()
    subscribed(network, "a", "s", "x > 5")
    network["b"].hello("p")
    copy = network["b"].log.backup("log of b")
    network["b"].say("p", Publish.of(1, {"x": 7}, b"1"))
    network.settle()
    network.cut("a", "b")
    node = network["b"]
    node.start(copy)
    network.dial("a", "b")
    network.settle()
    assert "a backup was restored under its old id" in network["a"].link("b").reason


def test_a_table_that_tells_a_parent_everything_again_changes_nothing() -> None:
    network = Network("m", "s", table={"refresh": True})
    network.link("s", "m", Role.PARENT)
    network.settle()
    subscribed(network, "s", "c", "x > 5")
    for _ in range(3):
        node = network["s"]
        tells = node.table.step(8)
        assert [tell.update.fresh for tell in tells] == [True]
        node.core._links.tell(tells)
        node.core._links.tell(node.table.step(8))
    network.wait(1_000)
    network["s"].do(network["s"].core.tick(network["s"].now))
    network.settle()
    assert network["m"].heard("s") == ["x > 5"]
    network.check()


def test_the_log_is_kept_until_the_neighbour_has_stored_it() -> None:
    network = Network("a", "b").chain()
    subscribed(network, "a", "s", "x > 5")
    network.cut("a", "b")
    node = network["b"]
    node.hello("p")
    node.say("p", Publish.of(1, {"x": 1}), Publish.of(2, {"x": 7}, b"wanted"), Publish.of(3, {"x": 1}))
    node.do(node.core.store_floors(node.now))
    assert node.core.needed == 1, "all three came together"
    network.dial("a", "b")
    network.settle()
    node.do(node.core.store_floors(node.now))
    assert node.core.needed == node.core.end == 4
    network.cut("a", "b")
    node.say("p", Publish.of(4, {"x": 1}))
    node.do(node.core.store_floors(node.now))
    assert node.core.needed == 5, "nobody wants it"
    network.crash("b")
    assert network["b"].core.needed == 5


def test_a_neighbour_that_is_too_far_behind_is_detached() -> None:
    network = Network("a", "b", limits=ClientLimits(link_lag=3)).chain()
    subscribed(network, "a", "s", "x > 5")
    network.cut("a", "b")
    node = network["b"]
    node.hello("p")
    for sequence in range(1, 6):
        node.say("p", Publish.of(sequence, {"x": 7}))
    assert node.core.links() == []
    assert node.core.counts["links too far behind"] == 1


def test_a_late_hello_of_a_former_log_does_no_harm() -> None:
    network = Network("a", "b").chain()
    subscribed(network, "a", "s", "x > 5")
    node = network["b"]
    node.hello("p")
    node.say("p", Publish.of(1, {"x": 7}, b"1"))
    network.settle()
    node.do(node.core.store_floors(node.now))  # or the copy would send event 1 again
    network.cut("a", "b")
    former = node.log
    node.start(node.log.backup("another log"))
    network.dial("a", "b")
    node.hello("p")
    node.say("p", Publish.of(2, {"x": 8}, b"2"))
    network.settle()
    network.cut("a", "b")
    present = node.log
    node.start(former)
    network.dial("b", "a")
    network.settle()
    network.cut("a", "b")
    node.start(present.crash())
    network.dial("a", "b")
    network.settle()
    assert network["a"].link("b").connected
    assert network["a"].got("s") == [b"1", b"2"], "neither is stored twice"


def test_links_are_stored_on_disk_as_in_memory(tmp_path: Path) -> None:
    network = Network("a", "b")
    node = network["b"]
    with closing(open_log(tmp_path).log) as disk:
        commit = node.log.commit

        def twice(groups: Sequence[Group]) -> None:
            commit(groups)
            disk.commit(groups)

        node.log.commit = twice  # type: ignore[method-assign]
        network.link("a", "b")
        network.settle()
        subscribed(network, "a", "s", "x > 5")
        subscribed(network, "a", "s", "x < 1", 2)
        subscribed(network, "b", "s", "x > 7")
        network["a"].say("s", Unsubscribe(SubNumber(2)))
        for name in "ab":
            network[name].hello("p")
            network[name].say("p", Publish.of(1, {"x": 8}))
        network.settle()
        node.do(node.core.store_floors(node.now))
        kept, stored = node.log.restore(), disk.restore()
    assert stored.links == kept.links
    assert stored.heard == kept.heard
    assert [row.role for row in stored.links.values()] == ["peer"]
    assert [row.got for row in stored.links.values()] == [1]
    assert len(stored.heard) == 1


def test_a_neighbours_items_are_learnt_a_few_at_a_time_and_events_and_heartbeats_do_not_wait() -> None:
    network = Network("a", "b", limits=ClientLimits(slice=2)).chain()
    b = network["b"]
    b.hello("c")
    b.say("c", Subscribe(SubNumber(1), "x >= 0"))
    network.settle()
    network.cut("a", "b")
    network["a"].hello("s")
    for number in range(9):
        network["a"].say("s", Subscribe(SubNumber(number), f"y = {number}"))
    network.dial("b", "a")
    while not b.core.links()[0].heard:
        assert network.step()
    assert b.core.links()[0].heard == 2, "nine came in one frame"
    assert Pong(7) in b.say("c", Publish.of(1, {"x": 1}, b"now"), Ping(7))
    assert b.got("c") == [b"now"]
    assert b.core.links()[0].heard == 2, "what a client says comes first"
    b.do(b.core.tick(b.now))
    assert b.core.links()[0].heard == 4
    network.settle()
    assert b.core.links()[0].heard == 9
    network.check()


def test_a_frame_has_at_most_256_items() -> None:
    network = Network("a", "b", model="simple").chain()
    network.cut("a", "b")
    network["a"].hello("s")
    network["a"].say("s", *(Subscribe(SubNumber(number), f"x = {number}") for number in range(300)))
    network.settle()
    since = len(network["a"].sent)
    network.dial("b", "a")
    network.settle()
    added = [each for each, _, _ in sent_items(network, "a", since)]
    assert max(added) == 256
    assert sum(added) == 300
    assert network["b"].core.links()[0].heard == 300
