"""The filters that each link is told by covering: a minimal cover of what all others want (thesis 3.2). For each link,
every filter that others want is told, or lies below one that is. What a link itself wants does not affect what it is
told.

For each link, the filters that others want form a forest: the roots are told, and every other filter is placed below
one that covers it, its *witness*. The forests of all links share their nodes, because most links see the same ones: a
set of links is a mask with one bit per link. An index contains the nodes that are told to any link; nothing else is
ever searched.

When a root is removed, the nodes below it find another witness or are told, piece by piece, and only then is the root
withdrawn. When a node is removed that is not a root, it stays as a *ghost* as long as several nodes are below it, so
that nothing else changes. There are always fewer ghosts than filters.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from itertools import count
from typing import Any

from weft.algebra.budget import Budget
from weft.model.limits import LIMITS
from weft.model.paged_dict import PagedDict
from weft.model.schema import Schema
from weft.model.split_dict import SplitDict
from weft.routing.covering.space import Extents
from weft.routing.covering.structure import CoverNode, FormPairs, LinkMask, RootIndex, hang, splice_out, tag_of, unhang
from weft.routing.interface import TableInterface
from weft.routing.jobs import Job
from weft.routing.routed_filter import AxisSpan, RoutedFilter

_LIGHT = 16  # pieces of work without a search that count as one
_MOST_COMPARED = 256  # filters that are not boxes, per search; any further ones are assumed not to cover
_SEARCHES = 5  # a search gets this fraction of the steps of an operation; an addition makes two


class LinkCovers:
    """The forests of all links. `tell` and `withdraw` are called for every node that becomes a root, or stops being
    one.

    With `every`, a node is placed below all roots that cover it, not only below the first that is found (a poset,
    thesis 4.2): when one of them is removed, the node still has a witness and is not searched for again.
    """

    def __init__(
        self,
        schema: Schema | None,
        tell: Callable[[TableInterface[Any, Any], CoverNode], None],
        withdraw: Callable[[TableInterface[Any, Any], CoverNode], None],
        every: bool = False,
    ) -> None:
        self._every = every
        self.extents = Extents(schema)
        self.nodes: PagedDict[int, CoverNode] = PagedDict()
        self._by_key: SplitDict[Hashable, CoverNode] = SplitDict()
        self._numbers = count()
        self._tell = tell
        self._withdraw = withdraw
        self._root_index = RootIndex(schema, self.extents)
        self._bits: dict[TableInterface[Any, Any], LinkMask] = {}
        self._links: dict[LinkMask, TableInterface[Any, Any]] = {}
        self._several: dict[LinkMask, tuple[TableInterface[Any, Any], ...]] = {}  # the links of masks, computed once
        self._all: LinkMask = 0  # the links that are told anything
        self._fading: LinkMask = 0  # bits of removed links, still on nodes

    @property
    def compared(self) -> int:
        """The total number of filter pairs compared."""
        return self._root_index.index.compared

    @property
    def pairs(self) -> FormPairs:
        """What was compared with the newest filter."""
        return self._root_index.pairs

    # -- changes ----------------------------------------------------------------------------------

    def node(self, routed: RoutedFilter) -> CoverNode:
        """The node of a filter, which may not have a holder yet."""
        node = self._by_key.get(routed.key)
        if node is None:
            node = self._by_key[routed.key] = CoverNode(next(self._numbers), routed)
            self.nodes[node.number] = node
            self.extents.retain(routed.spans)
        return node

    def find(self, routed: RoutedFilter) -> CoverNode | None:
        """The node of a filter, if there is one."""
        return self._by_key.get(routed.key)

    def witness(self, interface: TableInterface[Any, Any], routed: RoutedFilter) -> CoverNode | None:
        """A root of a link that surely covers a filter; None if none was found."""
        bit = self._bits.get(interface, 0)
        same = self._by_key.get(routed.key)
        if same is not None and same.told & ~same.leaving & bit:
            return same
        node = CoverNode(-1, routed)  # in no forest
        index, nodes, exact = self._root_index.index, self._root_index.nodes, node.form is None
        budget = Budget(LIMITS.steps // _SEARCHES)
        self.pairs.clear()
        rows = index.around_tagged(self._root_index.spans(node), exact, tag_of(bit)) if bit else []
        compared = 0
        for row in reversed(rows):
            witness = nodes[row]
            if not witness.told & ~witness.leaving & bit or not self._root_index.may_cover(witness, node):
                continue
            if exact and row not in index.hulls:
                return witness
            compared += 1
            if compared > _MOST_COMPARED:
                break
            if self._root_index.covers(witness, node, budget):
                return witness
        return None

    def add(self, source: TableInterface[Any, Any], node: CoverNode) -> Job:
        """Add a node for a source, or count it once more. It is told, or placed below another node, at once; the
        returned job collects the nodes that it covers. Cost: mainly that of a search for what covers it.
        """
        times = node.holders.get(source, 0)
        node.holders[source] = times + 1
        if not times:
            self.pairs.clear()
            wanted = self._wanted(node)
            if node.leaving & wanted:
                node.leaving &= ~wanted
                self._root_index.tag(node)
            return self._place(node, wanted & ~node.told & ~node.hung)
        return iter(())

    def discard(self, source: TableInterface[Any, Any], node: CoverNode) -> Job:
        """Remove a node of a source, or count it once less. The last holder removes it. Cost: O(nodes directly below)
        searches.
        """
        node.holders[source] -= 1
        if node.holders[source]:
            return
        del node.holders[source]
        if self._fading:
            self._forget(node, self._fading)
        lost = (node.told | node.hung) & ~self._wanted(node) & ~node.leaving
        rooted = lost & node.told
        self._unhang_childless(node, lost & ~rooted)
        if rooted & node.bearing:
            node.leaving |= rooted
            self._root_index.tag(node)
            yield from self._leave(node)
        else:
            self._unroot(node, rooted)
        self._clean(node)

    def _wanted(self, node: CoverNode) -> LinkMask:
        """The links that must know the node: all except its only holder, if it has a holder."""
        holders = node.holders
        if len(holders) == 1:
            (only,) = holders
            return self._all & ~self._bits.get(only, 0)
        return self._all if holders else 0

    # -- placing ----------------------------------------------------------------------------------

    def _place(self, node: CoverNode, mask: LinkMask) -> Job:
        """Place a node below witnesses, or tell it, for links where it has no place; the job does the rest."""
        if not mask:
            return iter(())
        exact = node.form is None
        spans = self._root_index.spans(node)
        left = self._hang_below_any(node, spans, exact, mask)
        if not left:
            return iter(())
        self._root(node, left, spans)
        return self._gather(node, spans, exact, left)

    def _hang_below_any(self, node: CoverNode, spans: Sequence[AxisSpan], exact: bool, mask: LinkMask) -> LinkMask:
        """Find witnesses; returns the links for which there is none."""
        index, nodes = self._root_index.index, self._root_index.nodes
        rows = (index.around(spans, exact) or []) if self._every else index.around_tagged(spans, exact, tag_of(mask))
        compared, budget, left = 0, Budget(LIMITS.steps // _SEARCHES), mask
        for row in reversed(rows):  # a row that certainly suffices comes last
            witness = nodes[row]
            some = witness.told & ~witness.leaving & mask
            if not some or witness is node or not self._root_index.may_cover(witness, node):
                continue
            if not (exact and row not in index.hulls):
                compared += 1
                if compared > _MOST_COMPARED or not self._root_index.covers(witness, node, budget):
                    continue
            hang(witness, node, some)
            left &= ~some
            if not self._every:
                mask = left
            if not mask:
                break
        return left

    def _gather(self, node: CoverNode, spans: Sequence[AxisSpan], exact: bool, mask: LinkMask) -> Job:
        """Place the roots that a new root covers below it. Until then, they are told as well."""
        index, nodes = self._root_index.index, self._root_index.nodes
        rows = index.within_tagged(spans, exact, tag_of(mask))
        sure = exact and not (index.full and not index.knows(axis for axis, *_ in spans))
        hulls = index.hulls
        found = [(nodes[row], sure and row not in hulls) for row in rows]
        compared, budget = 0, Budget(LIMITS.steps // _SEARCHES)
        for number, (root, proven) in enumerate(found, 1):
            if number % _LIGHT == 0:
                yield
            some = root.told & mask & node.told & ~node.leaving
            if not some or root is node or not self._root_index.may_cover(node, root):
                continue
            if not proven:
                compared += 1
                if compared > _MOST_COMPARED or not self._root_index.covers(node, root, budget):
                    continue
            self._unroot(root, some)
            if (self._wanted(root) | root.bearing) & some:
                hang(node, root, some)
            self._clean(root)

    # -- roots ------------------------------------------------------------------------------------

    def _root(self, node: CoverNode, mask: LinkMask, spans: Sequence[AxisSpan] | None = None) -> None:
        node.told |= mask
        self._root_index.tag(node, spans)
        for interface in self._interfaces(mask):
            self._tell(interface, node)

    def _unroot(self, node: CoverNode, mask: LinkMask) -> None:
        if not mask:
            return
        node.told &= ~mask
        node.leaving &= ~mask
        self._root_index.tag(node)
        for interface in self._interfaces(mask):
            self._withdraw(interface, node)

    def _interfaces(self, mask: LinkMask) -> tuple[TableInterface[Any, Any], ...]:
        """The links of a mask, of which there are few."""
        known = self._several.get(mask)
        if known is None:
            every = self._links.items()  # a removed link is told nothing
            known = self._several[mask] = tuple(interface for bit, interface in every if bit & mask)
        return known

    # -- edges ------------------------------------------------------------------------------------

    def _unhang_childless(self, node: CoverNode, mask: LinkMask) -> None:
        """Remove a node that is no longer wanted from its places, except where others are below it."""
        self._unhang(node, mask & ~node.bearing)

    def _unhang(self, node: CoverNode, mask: LinkMask) -> None:
        """Remove a node from its places. Each time a ghost above may be spliced out, which changes the other places."""
        while mask and (witness := next((each for each, some in node.above.items() if some & mask), None)) is not None:
            unhang(witness, node, node.above[witness] & mask)
            self._clean(witness)

    def _clean(self, node: CoverNode) -> None:
        """Remove a node without a holder and without nodes below; a ghost with a single node below it is
        spliced out.
        """
        while not node.holders and not node.told:
            below = node.below
            if below is not None and len(below) == 1:
                ((child, _),) = below.items()
                splice_out(node, child)
                below = node.below
            if below is not None:
                return
            above = list(node.above.items())
            for witness, mask in above:
                unhang(witness, node, mask)
            if self.nodes.pop(node.number, None) is not None:
                del self._by_key[node.key]
                self.extents.release(self._root_index.spans(node))
            for witness, _ in above[1:]:
                self._clean(witness)
            if not above:
                return
            node = above[0][0]

    # -- removing roots ---------------------------------------------------------------------------

    def _leave(self, node: CoverNode) -> Job:
        """Find other places for the nodes below an unwanted root, then withdraw it."""
        while children := [each for each, some in (node.below or {}).items() if some & node.leaving]:
            for child in children:
                mask = (node.below or {}).get(child, 0) & node.leaving
                wanted = mask & self._wanted(child)
                ghostly = mask & ~wanted & child.bearing
                if ghostly:
                    yield from self._raise_children(child, node, ghostly)  # the child itself is visited again
                elif mask:
                    unhang(node, child, mask)
                    gathering = self._place(child, wanted & ~child.hung & ~child.told)
                    self._clean(child)
                    yield from gathering
                    yield
        self._unroot(node, node.leaving)
        self._clean(node)

    def _raise_children(self, ghost: CoverNode, node: CoverNode, mask: LinkMask) -> Job:
        """Move the nodes below a ghost up one level."""
        for number, child in enumerate([*(ghost.below or ())]):
            some = (ghost.below or {}).get(child, 0) & mask
            if some and node.told & some == some:
                unhang(ghost, child, some)
                hang(node, child, some)
            if number % _LIGHT == 0:
                yield

    # -- links ------------------------------------------------------------------------------------

    def listen(self, interface: TableInterface[Any, Any]) -> Job:
        """Place every node for a new link. Cost: O(nodes), and a search each if there are fewer than two
        other links.
        """
        bit = next(1 << n for n in range(len(self._bits) + self._fading.bit_length() + 1) if not self._used >> n & 1)
        self._bits[interface], self._links[bit] = bit, interface
        self._several.clear()
        self._all |= bit
        for number, node in enumerate(self._in_turn()):
            if self._links.get(bit) is not interface:
                return
            searched = yield from self._place_alike(node, bit)
            if searched or number % _LIGHT == 0:
                yield

    def _in_turn(self) -> Iterator[CoverNode]:
        """All nodes, which may come and go meanwhile; new ones may be missing."""
        for page in self.nodes.pages():
            for number in page:
                node = self.nodes.get(number)
                if node is not None:
                    yield node

    @property
    def _used(self) -> LinkMask:
        return self._all | self._fading

    def _place_alike(self, node: CoverNode, bit: LinkMask) -> Generator[None, None, bool]:
        """Place a node for a new link as for other links; returns whether that needed a search."""
        chain, searched = [], False
        at: CoverNode | None = node
        while at is not None and self._wanted(at) & bit and not (at.told | at.hung) & bit:
            chain.append(at)
            at = next((each for each in at.above if self._wanted(each) & bit), None)
        while chain:
            at = chain.pop()
            witness = next((each for each in at.above if (each.told & ~each.leaving | each.hung) & bit), None)
            if witness is not None:
                hang(witness, at, bit)
            elif (at.told & ~at.leaving & self._all).bit_count() > 1:
                self._root(at, bit)  # only the same link could want what covers it, and there are two links
            else:
                gathering = self._place(at, bit)
                searched = True
                yield from gathering
        return searched

    def silence(self, interface: TableInterface[Any, Any]) -> Job:
        """Remove the bit of a removed link from all nodes, step by step."""
        bit = self._bits.pop(interface, 0)
        if not bit:
            return
        del self._links[bit]
        self._several.clear()
        self._all &= ~bit
        self._fading |= bit
        for number, node in enumerate(self._in_turn()):
            self._forget(node, bit)
            if number % _LIGHT == 0:
                yield
        self._fading &= ~bit

    def _forget(self, node: CoverNode, bit: LinkMask) -> None:
        """Remove the bits of removed links from a node."""
        for child, some in list((node.below or {}).items()):
            if some & bit:
                unhang(node, child, bit)
        self._unhang(node, bit)
        if node.told & bit:
            self._unroot(node, bit)
        self._clean(node)

    # -- checks -----------------------------------------------------------------------------------

    def roots(self, interface: TableInterface[Any, Any]) -> Iterator[CoverNode]:
        """Everything that a link is told."""
        bit = self._bits[interface]
        return (node for node in self.nodes.values() if node.told & bit)

    def check(self, settled: bool) -> None:
        """Raise AssertionError if an invariant is broken. Some hold only when everything is settled."""
        self._root_index.check()
        ghosts = 0
        assert len(self._by_key) == len(self.nodes)
        for number, node in self.nodes.items():
            assert number == node.number
            assert self._by_key[node.key] is node, "a node is found by its key"
            assert (node.row >= 0) == bool(node.told), "the index has what is told"
            assert not node.told & node.hung, "a root hangs nowhere"
            assert node.leaving & ~node.told == 0, "what leaves is told"
            for witness, some in node.above.items():
                assert witness.below is not None, "a witness knows what hangs below it"
                assert witness.below[node] == some, "and for which links"
                assert self._by_key[witness.key] is witness, "a witness is there"
                assert some & ~(witness.told | witness.hung) == 0, "a witness hangs somewhere itself, or is told"
            assert node.holders or node.told or len(node.below or ()) > 1 or not settled, "nobody needs it"
            ghosts += not node.holders
            if settled:
                assert not node.leaving
                assert self._wanted(node) & ~(node.told | node.hung) == 0, "what is wanted has a place"
                assert node.told & ~self._wanted(node) == 0, "what is told is wanted"
        assert ghosts <= len(self.nodes) - ghosts or not settled, "there are fewer ghosts than filters"
        for interface, bit in self._bits.items():
            for node in self.nodes.values():
                seen = set()
                at = node
                while at.hung & bit:
                    assert at not in seen, "nothing hangs below itself"
                    seen.add(at)
                    at = next(each for each, some in at.above.items() if some & bit)
                assert interface.link is not None
