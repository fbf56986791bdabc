"""Pairs of profiles and queries that match, by profile and by query (thesis 6.1: M_PQ and M_QP). Both directions agree.

Each side numbers its nodes by slots. `BitPairs` stores a bit for every two slots, in both directions: 25 MB for ten
thousand by ten thousand, regardless of the number of pairs. `TopPairs`, for covering, stores a pair in sets only if the
profile's parent is not paired with the same query, and derives the rest from the forest. It is small where taxonomies
are deep; random boxes make shallow ones, which save little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.errors import OptionError
from weft.order.node import Node

PairSlot = int
Flags = NDArray[np.bool_]  # by the slots of the other side
PROFILES, QUERIES = 0, 1


class PairSlots(Protocol):
    """The nodes of one side, by slot."""

    top: Node[Any]
    nodes: list[Node[Any] | None]
    slots: dict[Node[Any], PairSlot]


class ProfilePairs(Protocol):
    """The pairs between two sides."""

    def reserve(self, side: int, slots: int) -> None:
        """Make room for this many slots of a side."""

    def nothing(self, side: int) -> Flags:
        """The flags of a slot without pairs."""

    def matched(self, side: int, slot: PairSlot) -> Flags:
        """What a slot is paired with."""

    def shared(self, side: int, slots: Sequence[PairSlot]) -> Flags:
        """What all of the slots, at least one, are paired with."""

    def joined(self, side: int, slots: Sequence[PairSlot]) -> Flags:
        """What any of the slots, at least one, is paired with."""

    def put(self, side: int, slot: PairSlot, matched: Flags) -> None:
        """Set the pairs of a slot that has none yet."""

    def drop(self, side: int, slot: PairSlot) -> None:
        """Remove all pairs of a slot."""


class BitPairs:
    """A bit for every two slots, in both directions."""

    def __init__(self, room: int = 64) -> None:
        if room < 8 or room % 8:
            raise OptionError(f"room is {room}; give a positive multiple of 8")
        self._room = [room, room]
        self._bits = [np.zeros((room, room // 8), np.uint8) for _ in (PROFILES, QUERIES)]

    def reserve(self, side: int, slots: int) -> None:
        """Make room for this many slots of a side. Amortised cost: O(1) for each pair of slots."""
        while self._room[side] < slots:
            more = self._room[side]
            self._room[side] += more
            self._bits[side] = np.pad(self._bits[side], ((0, more), (0, 0)))
            self._bits[1 - side] = np.pad(self._bits[1 - side], ((0, 0), (0, more // 8)))

    def nothing(self, side: int) -> Flags:
        """The flags of a slot without pairs."""
        return np.zeros(self._room[1 - side], np.bool_)

    def matched(self, side: int, slot: PairSlot) -> Flags:
        """What a slot is paired with. Cost: O(other side / 8)."""
        return _flags(self._bits[side][slot])

    def shared(self, side: int, slots: Sequence[PairSlot]) -> Flags:
        """What all of the slots, at least one, are paired with."""
        return _flags(np.bitwise_and.reduce(self._bits[side][slots], axis=0))

    def joined(self, side: int, slots: Sequence[PairSlot]) -> Flags:
        """What any of the slots, at least one, is paired with."""
        return _flags(np.bitwise_or.reduce(self._bits[side][slots], axis=0))

    def put(self, side: int, slot: PairSlot, matched: Flags) -> None:
        """Set the pairs of a slot that has none yet. Cost: O(other side / 8 + pairs)."""
        self._bits[side][slot] = np.packbits(matched, bitorder="little")
        self._bits[1 - side][np.flatnonzero(matched), slot >> 3] |= np.uint8(1 << (slot & 7))

    def drop(self, side: int, slot: PairSlot) -> None:
        """Remove all pairs of a slot. Cost: as `put`."""
        others = np.flatnonzero(self.matched(side, slot))
        self._bits[1 - side][others, slot >> 3] &= np.uint8(~(1 << (slot & 7)) & 255)
        self._bits[side][slot] = 0


class TopPairs:
    """For every query, the topmost profiles that it covers; for every profile, the queries of which it is a topmost
    one.

    What is below a covered profile is covered, so the queries of a profile are its own and those of the profiles above
    it. A node that is not linked to the forest stores all of its queries itself.
    """

    def __init__(self, profiles: PairSlots, room: int = 64) -> None:
        self._profiles = profiles
        self._room = [room, room]
        self._pairs: tuple[dict[PairSlot, set[PairSlot]], dict[PairSlot, set[PairSlot]]] = ({}, {})

    def __len__(self) -> int:
        """The number of pairs stored."""
        return sum(map(len, self._pairs[QUERIES].values()))

    def reserve(self, side: int, slots: int) -> None:
        """Make room for this many slots of a side."""
        while self._room[side] < slots:
            self._room[side] *= 2

    def nothing(self, side: int) -> Flags:
        """The flags of a slot without pairs."""
        return np.zeros(self._room[1 - side], np.bool_)

    def matched(self, side: int, slot: PairSlot) -> Flags:
        """What a slot is paired with. Cost: O(answer + nodes above, or below)."""
        flags = self.nothing(side)
        if side == PROFILES:
            flags[list(self._queries(self._profiles.nodes[slot]))] = True
            return flags
        slots = self._profiles.slots
        for at in self._pairs[QUERIES].get(slot, ()):
            node = self._profiles.nodes[at]
            assert node is not None
            flags[at] = True
            flags[[slots[deeper] for deeper in node.below()]] = True
        return flags

    def shared(self, side: int, slots: Sequence[PairSlot]) -> Flags:
        """What all of the slots, at least one, are paired with."""
        flags: Flags = np.all([self.matched(side, slot) for slot in slots], axis=0)
        return flags

    def joined(self, side: int, slots: Sequence[PairSlot]) -> Flags:
        """What any of the slots, at least one, is paired with."""
        flags: Flags = np.any([self.matched(side, slot) for slot in slots], axis=0)
        return flags

    def put(self, side: int, slot: PairSlot, matched: Flags) -> None:
        """Set the pairs of a slot that has none yet."""
        others: list[PairSlot] = np.flatnonzero(matched).tolist()
        if side == QUERIES:
            for at in others:
                node = self._profiles.nodes[at]
                assert node is not None
                if node.parent is self._profiles.top or not matched[self._profiles.slots[node.parent]]:
                    self._keep(at, slot)
            return
        node = self._profiles.nodes[slot]
        assert node is not None
        known = self._queries(node)
        for query in others:
            if query not in known:
                self._keep(slot, query)
        for child in node.children:
            self._part(self._profiles.slots[child], known.union(others))

    def drop(self, side: int, slot: PairSlot) -> None:
        """Remove all pairs of a slot. A profile must be unlinked first and have nothing below it."""
        for other in self._pairs[side].pop(slot, ()):
            self._pairs[1 - side][other].discard(slot)

    def hung(self, parent: Node[Any], child: Node[Any]) -> None:
        """Called after a profile is linked below another."""
        self._part(self._profiles.slots[child], self._queries(parent))

    def unhanging(self, child: Node[Any]) -> None:
        """Called before a profile is unlinked."""
        slot = self._profiles.slots[child]
        for query in self._queries(child):
            self._keep(slot, query)

    def _queries(self, node: Node[Any] | None) -> set[PairSlot]:
        found: set[PairSlot] = set()
        while node is not None and node is not self._profiles.top:
            found |= self._pairs[PROFILES].get(self._profiles.slots[node], set())
            node = next(iter(node.parents), None)
        return found

    def _keep(self, profile: PairSlot, query: PairSlot) -> None:
        self._pairs[PROFILES].setdefault(profile, set()).add(query)
        self._pairs[QUERIES].setdefault(query, set()).add(profile)

    def _part(self, profile: PairSlot, queries: Iterable[PairSlot]) -> None:
        own = self._pairs[PROFILES].get(profile, set())
        for query in own.intersection(queries):
            own.discard(query)
            self._pairs[QUERIES][query].discard(profile)


def slots_of(flags: Flags) -> Iterator[PairSlot]:
    """The slots whose flag is set."""
    return iter(np.flatnonzero(flags).tolist())


def _flags(bits: NDArray[np.uint8]) -> Flags:
    return np.unpackbits(bits, bitorder="little").view(np.bool_)
