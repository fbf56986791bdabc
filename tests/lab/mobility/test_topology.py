"""Topologies: BRITE files are read and written, generated networks have the delays of the thesis, trees are trees."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from weft.errors import WeftError
from weftlab.mobility.topology import (
    LONGEST_DELAY,
    BrokerTree,
    Topology,
    find_topology,
    generated,
    read_brite,
    write_brite,
)

TWO = """Topology: ( 3 Nodes, 2 Edges )
Model (1 - RTWaxman):  3 1000 100 1  2  0.15 0.2 1 1 10.0 1024.0

Nodes: ( 3 )
7 561.00 742.00 1 1 -1 RT_NODE
8 100.00 742.00 2 2 -1 RT_NODE
9 0.00 0.00 1 1 -1 RT_NODE

Edges: ( 2 )
0 7 8 461.00 1.538 10.0 -1 -1 E_RT U
1 8 9 748.00 2.4951 10.0 -1 -1 E_RT U
"""


def test_a_brite_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "two.brite").write_text(TWO)
    topology = read_brite(tmp_path / "two.brite")
    assert topology.edges == ((0, 1, 1538), (1, 2, 2495))
    assert topology.places[0] == (561.0, 742.0)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("0 7 8", "0 7 5", "line 10: there is no node 5"),
        ("1.538", "fast", "line 10: expected the fields of a edge"),
        ("9 0.00 0.00 1 1 -1 RT_NODE", "8 0 0", "line 7: duplicate node 8"),
        ("1 8 9 748.00", "1 8 7 748.00", "not connected"),
        ("Nodes:", "Knots:", "there is no node 7"),
    ],
)
def test_a_wrong_brite_file_is_refused_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "wrong.brite"
    path.write_text(TWO.replace(old, new))
    with pytest.raises(WeftError, match=said):
        read_brite(path)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    made = generated(2, 9, np.random.default_rng(3))
    write_brite(made, tmp_path / "made.brite")
    read = read_brite(tmp_path / "made.brite")
    assert (read.routers, read.edges) == (made.routers, made.edges)


@pytest.mark.parametrize(("name", "routers"), [("campus", 16), ("regions", 40)])
def test_two_topologies_come_with_weft(name: str, routers: int) -> None:
    topology = find_topology(name)
    assert topology.routers == routers
    assert len(topology.edges) >= routers  # a graph with cycles


def test_an_unknown_topology_is_named_with_those_that_exist() -> None:
    with pytest.raises(WeftError, match="campus, regions"):
        find_topology("nowhere")


def test_a_generated_network_has_the_size_and_the_largest_delay_of_the_thesis() -> None:
    topology = generated(4, 25, np.random.default_rng(1))
    tree = BrokerTree(topology)
    assert topology.routers == 100
    largest = max(tree.beside(one, other) for one in range(100) for other in range(one))
    assert LONGEST_DELAY * 0.99 < largest <= LONGEST_DELAY


def test_a_tree_has_one_way_between_two_brokers_along_its_links() -> None:
    tree = BrokerTree(generated(3, 8, np.random.default_rng(5)), root=4)
    links = {frozenset(link) for link in tree.links()}
    assert len(links) == tree.size - 1
    for one, other in ((0, 23), (7, 16), (4, 4), (9, 2)):
        way = tree.path(one, other)
        assert (way[0], way[-1], len(set(way))) == (one, other, len(way))
        assert all(frozenset(pair) in links for pair in pairwise(way))
        assert tree.beside(one, other) <= sum(tree.link_delay(*pair) for pair in pairwise(way))
    assert tree.farthest(4) == max(tree.depth)
    assert set(tree.leaves) | set(tree.inner) == set(range(tree.size))


def test_a_network_in_two_pieces_is_refused() -> None:
    with pytest.raises(WeftError, match="not connected"):
        Topology("pieces", 4, ((0, 1, 5), (2, 3, 5)))
