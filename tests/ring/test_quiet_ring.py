"""A ring made at once is the ring that joining and stabilising leads to."""

from __future__ import annotations

import pytest

from ring.network import Network, check
from weft.errors import RingError
from weft.ring.chord import quiet_ring
from weft.ring.identifiers import IdSpace


@pytest.mark.parametrize("ids", [[7], [7, 1], [1, 9, 20, 33, 50, 51]])
def test_stabilising_a_quiet_ring_changes_nothing(ids: list[int]) -> None:
    network = Network(64, 4)
    made = quiet_ring(network.space, ids, 4)
    network.nodes = {node.me.address: node for node in made}
    before = [(node.predecessor, list(node.successors), list(node.fingers)) for node in made]
    network.settle(14)
    assert [(node.predecessor, node.successors, node.fingers) for node in made] == before
    for node in made:
        check(node)


def test_two_nodes_cannot_share_an_identifier() -> None:
    with pytest.raises(RingError, match="same identifier"):
        quiet_ring(IdSpace(8), [1, 1])
