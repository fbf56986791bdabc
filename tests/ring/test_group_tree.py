"""Region servers and remapping: the paper's worked example, and laws by enumeration."""

from __future__ import annotations

from itertools import product

import pytest

from weft.errors import RingError
from weft.ring.group_placement import GroupTree
from weft.ring.identifiers import IdSpace, successor

MEMBERS = [1, 2, 5, 6]  # of figure 2


def registered(tree: GroupTree, level: int, server: int) -> list[int]:
    return [peer for peer in MEMBERS if tree.region_server(level, peer) == server]


def stored(tree: GroupTree, key: int, *, remap: bool) -> int:
    """Where data(key) is, as the paper's SubscriptionStore says."""
    for level in range(tree.depth, -1, -1):
        peers = registered(tree, level, tree.region_server(level, key))
        if peers:
            if remap and level != tree.depth:
                key = tree.remap(level, key)
            return successor(key, peers)
    raise AssertionError("the root has all members")


def test_the_paper_stores_data_4_at_peer_1_and_remapped_at_peer_2() -> None:
    tree = GroupTree(IdSpace(8), start=0, depth=3)
    assert registered(tree, 1, tree.region_server(1, 4)) == [1, 2]
    assert (stored(tree, 3, remap=False), stored(tree, 4, remap=False)) == (1, 1)
    assert (stored(tree, 3, remap=True), stored(tree, 4, remap=True)) == (1, 2)


@pytest.mark.parametrize(("start", "rotation"), list(product((0, 3, 15), (0, 1, 4))))
def test_every_level_divides_the_circle_into_equal_regions(start: int, rotation: int) -> None:
    space = IdSpace(16)
    tree = GroupTree(space, start, 4, rotation)
    for level in range(5):
        servers = [tree.region_server(level, key) for key in range(16)]
        assert {servers.count(server) for server in servers} == {16 >> level}
        for key, server in enumerate(servers):
            assert tree.region_server(level, server) == server, "a region ends with its server"
            assert space.distance(key, server) < 16 >> level


@pytest.mark.parametrize(("start", "rotation"), list(product((0, 3, 15), (0, 1, 4))))
def test_remapping_moves_a_key_to_the_sibling_region_and_back(start: int, rotation: int) -> None:
    tree = GroupTree(IdSpace(16), start, 4, rotation)
    for level, key in product(range(4), range(16)):
        moved = tree.remap(level, key)
        assert tree.region_server(level + 1, moved) != tree.region_server(level + 1, key)
        assert tree.remap(level, moved) == key
        if not rotation:
            assert tree.region_server(level, moved) == tree.region_server(level, key)


@pytest.mark.parametrize(("depth", "rotation"), [(-1, 0), (4, 0), (2, -1), (2, 3)])
def test_a_tree_that_does_not_fit_the_ring_is_refused(depth: int, rotation: int) -> None:
    with pytest.raises(RingError):
        GroupTree(IdSpace(8), 0, depth, rotation)
