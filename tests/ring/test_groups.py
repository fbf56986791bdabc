"""Topic groups: placement, and views that replace each other while events and subscriptions are on their way."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from strategies import EXAMPLES
from weft.errors import RingError
from weft.index.scan import ScanIndex
from weft.ring.group_client import GroupClient
from weft.ring.group_member import GroupMember
from weft.ring.group_messages import (
    Accept,
    ClientEffect,
    Examine,
    Examined,
    FetchViews,
    Moved,
    SendTo,
    Stored,
    ToMember,
    ToRoot,
)
from weft.ring.group_placement import GroupView
from weft.ring.group_root import GroupRoot
from weft.ring.group_tree import GroupTree
from weft.ring.identifiers import IdSpace, Key, successor
from weft.ring.record_store import RecordStore
from weft.ring.rendezvous_messages import EventId, Publication, Record, RingSub

SPACE = IdSpace(16)


def test_the_view_places_keys_as_in_the_paper() -> None:
    tree = GroupTree(IdSpace(8), 0, 3)
    plain, remapped = GroupView(tree, (1, 2, 5, 6), remap=False), GroupView(tree, (6, 2, 5, 1))
    assert plain.registered(1, 4) == (1, 2)
    assert [plain.place(key).member for key in (3, 4)] == [1, 1]
    assert [remapped.place(key).member for key in (3, 4)] == [1, 2]
    assert remapped.place(4).servers == (4, 4, 4)
    assert len(remapped.registrations(5)) == 4


@pytest.mark.parametrize(("start", "rotation", "depth"), list(product((0, 5), (0, 1, 4), (0, 2, 4))))
def test_a_place_is_a_member_of_the_first_region_that_has_one(start: int, rotation: int, depth: int) -> None:
    tree = GroupTree(SPACE, start, depth, rotation)
    members = (1, 2, 9, 14)
    view = GroupView(tree, members)
    for key in range(16):
        for level in range(depth, -1, -1):
            server = tree.region_server(level, key)
            peers = [member for member in members if tree.region_server(level, member) == server]
            assert list(view.registered(level, server)) == peers
            if peers:
                moved = key if level == depth else tree.remap(level, key)
                assert view.place(key).member == successor(moved, peers)
                break


class World:
    """A root and members whose messages are delivered in random order."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        tree = GroupTree(SPACE, int(self.rng.integers(16)), int(self.rng.integers(5)), int(self.rng.integers(5)))
        self.root = GroupRoot(tree, 3)
        self.members = {3: self.member(3, self.root.view)}
        self.flying: list[tuple[Key | None, SendTo]] = []
        self.client = GroupClient()
        self.asked: list[Any] = []  # the client's messages, and answers to them
        self.stored: dict[RingSub, Record] = {}  # acknowledged
        self.wanted: dict[EventId, set[RingSub]] = {}  # by events that have not been examined yet
        self.number = 0

    def member(self, id: int, view: GroupView | None = None) -> GroupMember:
        return GroupMember(id, RecordStore(SPACE, ScanIndex), view)

    def send(self, sender: Key | None, messages: list[SendTo]) -> None:
        self.flying += [(sender, message) for message in messages]

    def deliver(self) -> None:
        if not self.flying:
            return
        sender, send = self.flying.pop(int(self.rng.integers(len(self.flying))))
        if send.to is None:
            assert isinstance(send.message, Moved)
            assert sender is not None
            self.send(None, self.root.moved(sender, send.message.version))
        else:
            member = self.members[send.to]
            self.send(send.to, member.receive(sender, send.message))

    def register(self, id: int) -> None:
        self.members.setdefault(id, self.member(id))
        self.send(None, self.root.register(id))

    def store(self) -> None:
        self.number += 1
        record = Record(Key(int(self.rng.integers(16))), RingSub("n", self.number), "t", "TRUE")
        self.client_does(self.client.store(record))

    def publish(self) -> None:
        self.number += 1
        key = Key(int(self.rng.integers(16)))
        event = Publication(EventId("p", self.number), "t", {})
        self.wanted[event.id] = {sub for sub, record in self.stored.items() if record.key == key}
        self.client_does(self.client.publish(key, event))

    def client_does(self, effects: list[ClientEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Stored):
                self.stored[effect.record.sub] = effect.record
            elif isinstance(effect, Examined):
                found = {record.sub for record in effect.records}
                assert self.wanted.pop(effect.event.id) <= found, (effect.key, self.root.views)
            else:
                self.asked.append(effect)

    def answer(self) -> None:
        """One of the client's messages arrives, or its answer."""
        if not self.asked:
            return
        effect = self.asked.pop(int(self.rng.integers(len(self.asked))))
        match effect:
            case ToRoot(FetchViews(token)):
                views = self.root.views
                self.asked.append(lambda: self.client.fetched(token, views))
            case ToMember(to, Accept(token, record, versions)):
                ok = self.members[to].accept(record, versions)
                self.asked.append(lambda: self.client.answered(token, ok))
            case ToMember(to, Examine(token, key, event, version)):
                found = self.members[to].examine(key, event, version)
                self.asked.append(lambda: self.client.answered(token, found))
            case _:
                self.client_does(effect())


@pytest.mark.parametrize("seed", range(40 * EXAMPLES))
def test_nothing_is_missed_while_members_rotation_and_depth_change(seed: int) -> None:
    world = World(seed)
    rng = world.rng
    for _ in range(500):
        choice = rng.integers(24)
        if choice == 0:
            world.register(int(rng.integers(16)))
        elif choice == 1 and len(world.root._members) > 1:
            world.send(None, world.root.deregister(int(rng.choice(sorted(world.root._members)))))
        elif choice == 2:
            world.send(None, world.root.rotate(int(rng.integers(5))))
        elif choice == 3:
            world.send(None, world.root.deepen(int(rng.integers(5))))
        elif choice in (4, 5):
            world.store()
        elif choice in (6, 7):
            world.publish()
        elif choice <= 16:
            world.answer()
        else:
            world.deliver()
    while world.flying or world.asked:
        world.deliver()
        world.answer()
    assert not world.wanted, "every event was examined"
    assert len(world.root.views) == 1
    view = world.root.view
    for record in world.stored.values():
        assert record in world.members[view.place(record.key).member].store
    for number, member in world.members.items():
        assert all(view.place(record.key).member == number for record in member.store), "the rest is dropped"


def test_groups_that_cannot_be_are_refused() -> None:
    root = GroupRoot(GroupTree(SPACE, 0, 2), 3)
    with pytest.raises(RingError, match="the last of its group"):
        root.deregister(3)
    with pytest.raises(RingError, match="not on the circle"):
        root.register(16)
    with pytest.raises(RingError, match="rotation distance"):
        root.rotate(9)
    with pytest.raises(RingError, match="at least one member"):
        GroupView(GroupTree(SPACE, 0, 2), ())


def test_a_dead_member_holds_up_nobody() -> None:
    root = GroupRoot(GroupTree(SPACE, 0, 2), 3)
    for send in root.register(7):
        root.moved(send.to, 2)
    assert root.view.members == (3, 7)
    root.rotate(2)
    root.moved(3, 3)
    root.failed(7)
    assert root.following is not None
    assert root.following.members == (3,)


def test_a_silent_member_is_dropped_and_a_refreshed_one_stays() -> None:
    root = GroupRoot(GroupTree(SPACE, 0, 2), 3, lease=100)
    for member in (7, 9):
        for send in root.register(member, now=0):
            assert send.to is not None
            root.moved(send.to, root.views[-1].version)
    while root.following is not None:
        for member in (3, 7, 9):
            root.moved(member, root.following.version if root.following else 0)
    root.register(3, now=90)
    root.register(7, now=90)
    assert root.tick(100) == []
    told = root.tick(120)
    assert root.views[-1].members == (3, 7)
    assert {send.to for send in told} == {3, 7, 9}
    root.tick(10_000)
    assert root._members in ({3}, {7}), "the last member stays"


def test_the_rotation_is_changed_now_and_then_for_an_even_spread() -> None:
    root = GroupRoot(GroupTree(SPACE, 0, 3), 1, period=50)
    for member in (2, 3, 11):
        root.register(member)
        while root.following is not None:
            for each in root.view.members:
                root.moved(each, root.following.version if root.following else 0)
    before = root.view.largest_share(range(16))
    assert root.tick(49) == []
    root.tick(50)
    assert root.following is not None
    assert root.following.largest_share(range(16)) < before
