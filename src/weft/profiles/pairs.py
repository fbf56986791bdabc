"""Pairs of profiles and queries that match, by profile and by query (thesis 6.1: M_PQ and M_QP). Both directions agree.

Each side numbers its nodes by slots. `SparsePairs` stores each pair in both directions. `TopPairs`, for covering, only
stores a pair if the profile's parent is not paired with the same query, and derives the rest from the forest. It is
small where taxonomies are deep; random boxes make shallow ones, which save little.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from weft.errors import OptionError
from weft.order.node import Node

PairSlot = int
_Partners: TypeAlias = "array[int] | set[PairSlot]"
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

    def partners(self, side: int, slot: PairSlot) -> list[PairSlot]:
        """The same as `matched`, as slots."""

    def put(self, side: int, slot: PairSlot, matched: Flags) -> None:
        """Set the pairs of a slot that has none yet."""

    def drop(self, side: int, slot: PairSlot) -> None:
        """Remove all pairs of a slot."""


class SparsePairs:
    """The pairs of each slot, in both directions: memory is O(slots that have pairs + pairs).

    Few pairs of a slot are an array, which takes a seventh of a set; `few` bounds what removing one of them costs.
    """

    def __init__(self, room: int = 64, few: int = 32) -> None:
        if room < 1:
            raise OptionError(f"room is {room}; give a positive number")
        self._room, self._few = [room, room], few
        self._pairs: tuple[dict[PairSlot, _Partners], dict[PairSlot, _Partners]] = ({}, {})

    def __len__(self) -> int:
        """The number of pairs."""
        return sum(map(len, self._pairs[QUERIES].values()))

    def reserve(self, side: int, slots: int) -> None:
        """Make room for this many slots of a side. Cost: O(1)."""
        while self._room[side] < slots:
            self._room[side] *= 2

    def nothing(self, side: int) -> Flags:
        """The flags of a slot without pairs."""
        return np.zeros(self._room[1 - side], np.bool_)

    def matched(self, side: int, slot: PairSlot) -> Flags:
        """What a slot is paired with. Cost: O(its pairs), and a byte for each slot of the other side."""
        flags = self.nothing(side)
        flags[self.partners(side, slot)] = True
        return flags

    def partners(self, side: int, slot: PairSlot) -> list[PairSlot]:
        """The same as slots. Cost: O(its pairs)."""
        return list(self._pairs[side].get(slot, ()))

    def shared(self, side: int, slots: Sequence[PairSlot]) -> Flags:
        """What all of the slots, at least one, are paired with."""
        flags, first = self.nothing(side), set(self.partners(side, slots[0]))
        flags[list(first.intersection(*(self.partners(side, slot) for slot in slots[1:])))] = True
        return flags

    def joined(self, side: int, slots: Sequence[PairSlot]) -> Flags:
        """What any of the slots, at least one, is paired with."""
        flags = self.nothing(side)
        for slot in slots:
            flags[self.partners(side, slot)] = True
        return flags

    def put(self, side: int, slot: PairSlot, matched: Flags) -> None:
        """Set the pairs of a slot that has none yet. Cost: O(pairs), and a byte for each slot of the other side."""
        others: list[PairSlot] = np.flatnonzero(matched).tolist()
        if others:
            self._pairs[side][slot] = array("I", others) if len(others) <= self._few else set(others)
            back = self._pairs[1 - side]
            for other in others:
                known = back.get(other)
                if known is None:
                    back[other] = array("I", (slot,))
                elif isinstance(known, set):
                    known.add(slot)
                elif len(known) < self._few:
                    known.append(slot)
                else:
                    back[other] = {*known, slot}

    def drop(self, side: int, slot: PairSlot) -> None:
        """Remove all pairs of a slot. Cost: O(pairs)."""
        for other in self._pairs[side].pop(slot, ()):
            left = self._pairs[1 - side][other]
            left.remove(slot)
            if not left:
                del self._pairs[1 - side][other]


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

    def partners(self, side: int, slot: PairSlot) -> list[PairSlot]:
        """The same as slots."""
        if side == PROFILES:
            return list(self._queries(self._profiles.nodes[slot]))
        found: list[PairSlot] = np.flatnonzero(self.matched(side, slot)).tolist()
        return found

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
