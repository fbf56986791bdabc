"""Networks of routers, and the trees of brokers on them: read from BRITE files, or generated.

A topology is a graph of routers with a delay for each link, in microseconds. Brokers route on a tree of it, which a
breadth-first search finds; messages beside the tree take the fastest way through the graph.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from weft.errors import WeftError
from weft.network.tables import BrokerId

LONGEST_DELAY = 25_700  # microseconds between the two routers farthest apart (thesis 5.8)
_EXACT = 300  # up to so many routers the largest delay is computed for all pairs
_CACHED = 256  # routers whose delays to all others are kept

RouterEdge = tuple[int, int, int]  # two routers and a delay
RouterPlace = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Topology:
    """A connected graph of routers. `places` are coordinates for drawings, if they are known."""

    name: str
    routers: int
    edges: tuple[RouterEdge, ...]
    places: tuple[RouterPlace, ...] = ()

    def __post_init__(self) -> None:
        if self.routers < 2:
            raise WeftError(f"{self.name} has {self.routers} nodes; a network needs at least 2")
        for one, other, delay in self.edges:
            if not (0 <= one < self.routers and 0 <= other < self.routers) or one == other or delay < 0:
                raise WeftError(f"{self.name} has an edge from node {one} to node {other}, which is not possible")
        reached, neighbours = {0}, self.neighbours()
        todo = [0]
        while todo:
            new = neighbours[todo.pop()].keys() - reached
            reached |= new
            todo += new
        if len(reached) < self.routers:
            raise WeftError(f"{self.name} is not connected: {self.routers - len(reached)} nodes have no way to node 0")

    def neighbours(self) -> list[dict[int, int]]:
        """Of each router: its neighbours, and the delay to each. Of parallel edges the fastest counts."""
        found: list[dict[int, int]] = [{} for _ in range(self.routers)]
        for one, other, delay in self.edges:
            found[one][other] = found[other][one] = min(delay, found[one].get(other, delay))
        return found


def broker(router: int) -> BrokerId:
    """The name of the broker at a router."""
    return BrokerId(f"r{router}")


# -- BRITE -------------------------------------------------------------------------------------------


BUNDLED = Path(__file__).parent / "topologies"  # small files of our own


def find_topology(name: str) -> Topology:
    """A topology by the path of its file, or by the name of one that comes with Weft: campus, regions."""
    path, own = Path(name), BUNDLED / f"{name}.brite"
    if not path.is_file() and own.is_file():
        path = own
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in BUNDLED.glob("*.brite")))
        raise WeftError(f"there is no topology {name}; name a BRITE file, or one of {known}")
    return read_brite(path)


def read_brite(path: Path) -> Topology:
    """Read a topology that the BRITE generator wrote: nodes `id x y ...`, edges `id from to length delay ...`.

    Delays are in milliseconds there. Raises WeftError with the line that is wrong.

    The format is described in the BRITE manual (Medina, Lakhina, Matta, Byers: BRITE, Boston University, 2001).
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise WeftError(f"{path} is not a BRITE file: it is not valid UTF-8") from None
    numbers: dict[int, int] = {}
    places: list[RouterPlace] = []
    edges: list[RouterEdge] = []
    section = ""
    for at, line in enumerate(map(str.strip, lines), 1):
        word = line.partition(":")[0].strip()
        if word in {"Nodes", "Edges"}:
            section = word
            continue
        if not line or not section:
            continue
        fields = line.split()
        try:
            if section == "Nodes":
                node, x, y = int(fields[0]), float(fields[1]), float(fields[2])
                if node in numbers:
                    raise WeftError(f"{path}, line {at}: duplicate node {node}")
                numbers[node] = len(places)
                places.append((x, y))
            else:
                one, other, delay = numbers[int(fields[1])], numbers[int(fields[2])], float(fields[4])
                edges.append((one, other, round(delay * 1000)))
        except KeyError as error:
            raise WeftError(f"{path}, line {at}: there is no node {error.args[0]}") from None
        except (ValueError, IndexError, OverflowError):
            raise WeftError(
                f"{path}, line {at}: expected the fields of a {section[:-1].lower()}, got {line!r}"
            ) from None
    if not places:
        raise WeftError(f"{path} is not a BRITE file: it has no section Nodes")
    return Topology(path.name, len(places), tuple(edges), tuple(places))


def write_brite(topology: Topology, path: Path) -> None:
    """Write a topology in the format of BRITE."""
    degree = [len(each) for each in topology.neighbours()]
    places = topology.places or tuple((0.0, 0.0) for _ in range(topology.routers))
    lines = [
        f"Topology: ( {topology.routers} Nodes, {len(topology.edges)} Edges )",
        f"Model (0 - {topology.name})",
        "",
        f"Nodes: ( {topology.routers} )",
        *(f"{at}\t{x:.2f}\t{y:.2f}\t{degree[at]}\t{degree[at]}\t-1\tRT_NODE" for at, (x, y) in enumerate(places)),
        "",
        f"Edges: ( {len(topology.edges)} )",
    ]
    for at, (one, other, delay) in enumerate(topology.edges):
        (x, y), (u, v) = places[one], places[other]
        length = ((x - u) ** 2 + (y - v) ** 2) ** 0.5
        lines.append(f"{at}\t{one}\t{other}\t{length:.2f}\t{delay / 1000:.3f}\t10.0\t-1\t-1\tE_RT\tU")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


# -- generated ---------------------------------------------------------------------------------------


def generated(areas: int, routers: int, rng: np.random.Generator) -> Topology:
    """So many autonomous areas with so many routers each. Delays grow with distance; the largest one between two
    routers is LONGEST_DELAY.

    A router joins its area with links to the two nearest of up to twelve earlier ones. Neighbouring areas have two
    links between them. Cost: O(n log n), and O(n^2 log n) up to 300 routers for the exact scale.
    """
    if areas < 1 or routers < 1 or areas * routers < 2:
        raise WeftError("a topology needs at least one area and two routers")
    side = int(np.ceil(np.sqrt(areas)))
    places: list[RouterPlace] = []
    pairs: set[tuple[int, int]] = set()
    for area in range(areas):
        corner = 1000.0 * (area % side), 1000.0 * (area // side)
        first = len(places)
        for _ in range(routers):
            here = len(places)
            x, y = (corner[axis] + float(rng.uniform(0, 900)) for axis in (0, 1))
            earlier = here - first
            some = range(first, here) if earlier <= 12 else (first + rng.choice(earlier, 12, replace=False)).tolist()
            near = sorted(some, key=lambda other: (_distance((x, y), places[other]), other))
            pairs |= {(other, here) for other in near[:2]}
            places.append((x, y))
    for area in range(areas):
        for other in (area + 1 if (area + 1) % side else areas, area + side):
            if other < areas:
                for _ in range(2):
                    one = area * routers + int(rng.integers(routers))
                    pairs.add((one, other * routers + int(rng.integers(routers))))
    ordered = sorted(pairs)
    raw = [max(1, round(1000 * _distance(places[one], places[other]))) for one, other in ordered]
    rough = Topology("generated", len(places), tuple((*pair, at) for pair, at in zip(ordered, raw, strict=True)), ())
    scale = LONGEST_DELAY / max(1, _largest_delay(rough))
    edges = tuple((one, other, max(1, int(delay * scale))) for one, other, delay in rough.edges)
    return Topology(f"{areas} areas of {routers} routers", len(places), edges, tuple(places))


def _distance(one: RouterPlace, other: RouterPlace) -> float:
    return float(((one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2) ** 0.5)


def _largest_delay(topology: Topology) -> int:
    """The largest delay between two routers; in large networks that of a double sweep, which is at most too small."""
    neighbours = topology.neighbours()
    if topology.routers <= _EXACT:
        return max(max(_delays_from(neighbours, each)) for each in range(topology.routers))
    found = _delays_from(neighbours, 0)
    return max(_delays_from(neighbours, found.index(max(found))))


def _delays_from(neighbours: Sequence[dict[int, int]], start: int) -> list[int]:
    """The delay of the fastest way from a router to every other. Cost: O(m log n)."""
    delays = [-1] * len(neighbours)
    heap = [(0, start)]
    while heap:
        delay, here = heapq.heappop(heap)
        if delays[here] >= 0:
            continue
        delays[here] = delay
        for other, more in neighbours[here].items():
            if delays[other] < 0:
                heapq.heappush(heap, (delay + more, other))
    return delays


# -- trees -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class BrokerTree:
    """A tree of a topology: breadth-first from a root, the neighbours of a router in the order of their numbers.

    >>> line = BrokerTree(Topology("line", 3, ((0, 1, 10), (1, 2, 5))), root=0)
    >>> line.path(2, 0), line.leaves, line.beside(2, 0)
    ([2, 1, 0], (2,), 15)
    """

    topology: Topology
    root: int = 0
    parent: list[int] = field(init=False)
    depth: list[int] = field(init=False)
    leaves: tuple[int, ...] = field(init=False)  # the edge brokers
    _neighbours: list[dict[int, int]] = field(init=False)
    _children: list[list[int]] = field(init=False)
    _known: OrderedDict[int, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        size = self.topology.routers
        if not 0 <= self.root < size:
            raise WeftError(f"there is no router {self.root}; the topology has {size}, from 0")
        self._neighbours = self.topology.neighbours()
        self.parent, self.depth = [-1] * size, [-1] * size
        self._children, self._known = [[] for _ in range(size)], OrderedDict()
        self.parent[self.root], self.depth[self.root] = self.root, 0
        todo = deque([self.root])
        while todo:
            here = todo.popleft()
            for other in sorted(self._neighbours[here]):
                if self.depth[other] < 0:
                    self.parent[other], self.depth[other] = here, self.depth[here] + 1
                    self._children[here].append(other)
                    todo.append(other)
        degrees = [len(each) + (at != self.root) for at, each in enumerate(self._children)]
        self.leaves = tuple(at for at, degree in enumerate(degrees) if degree == 1 and at != self.root)

    @property
    def size(self) -> int:
        """The number of brokers."""
        return self.topology.routers

    @property
    def inner(self) -> tuple[int, ...]:
        """The brokers that are not edge brokers."""
        edge = set(self.leaves)
        return tuple(at for at in range(self.size) if at not in edge)

    def links(self) -> Iterator[tuple[int, int]]:
        """Each link, the broker nearer to the root first, in the order of the search."""
        todo = deque([self.root])
        while todo:
            here = todo.popleft()
            for other in self._children[here]:
                yield here, other
                todo.append(other)

    def path(self, start: int, end: int) -> list[int]:
        """The brokers from one to another, both included. Cost: O(their distance)."""
        up, down = [start], [end]
        while up[-1] != down[-1]:
            if self.depth[up[-1]] >= self.depth[down[-1]]:
                up.append(self.parent[up[-1]])
            else:
                down.append(self.parent[down[-1]])
        return up + down[-2::-1]

    def next_hop(self, here: int, end: int) -> int:
        """The neighbour on the way to another broker. Cost: O(their distance)."""
        return self.path(here, end)[1]

    def link_delay(self, one: int, other: int) -> int:
        """The delay of a link, without the broker's own."""
        return self._neighbours[one][other]

    def beside(self, one: int, other: int) -> int:
        """The delay of a message that goes through the network and not along the tree."""
        if one not in self._known:
            if other in self._known:
                one, other = other, one
            else:
                self._known[one] = _delays_from(self._neighbours, one)
                if len(self._known) > _CACHED:
                    self._known.popitem(last=False)
        self._known.move_to_end(one)
        return self._known[one][other]

    def farthest(self, goal: int) -> int:
        """The largest number of links from any broker to this one."""
        depth = {goal: 0}
        todo = deque([goal])
        while todo:
            here = todo.popleft()
            for other in (*self._children[here], *([self.parent[here]] if here != self.root else [])):
                if other not in depth:
                    depth[other] = depth[here] + 1
                    todo.append(other)
        return max(depth.values())
