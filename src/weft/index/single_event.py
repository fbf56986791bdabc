"""A single event, matched by one call of a kernel. It finds what a batch of one event finds.

Events come as mappings, and Python's part of a match costs more than the search: so values are written side by side,
and one kernel encodes the numbers, searches the tree and writes the subscriptions (see `kernels/single.py`). Where rows
need pieces of strings, the texts are copied to the room, and the kernel looks for these first. Special rows come back
by name, and are settled here. Segments with many axes are searched as batches of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from struct import Struct
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.index.axis import ANCHOR, Axis
from weft.index.base import Ids
from weft.index.dimension import ABSENT, CodeDimension
from weft.index.pieces import attribute_of, is_list_axis, list_text
from weft.index.segment import PartitionTree, Segment
from weft.kernels.automaton import Automaton
from weft.kernels.single import match_one, match_text, room_handle, text_handle, text_room_handle, view_handle
from weft.model.lists import AttributeValue

_MOST_AXES = 40
_EXACT = 2**53  # integers up to it are floats
_IDS = 4096  # that a room begins with
_MOST_IDS = 1 << 16  # that a room keeps memory for
_TEXT, _MOST_TEXT = 1024, 1 << 18  # bytes of texts that a room begins with, and that it keeps memory for
_STATES = 4096  # bytes of a text that are read before its pieces are
_INT64 = np.dtype(np.int64)

Taken = TypeVar("Taken", bound=Sized)


class IdMemory(NamedTuple):
    """An array of ids and its address, which takes long to ask for."""

    ids: Ids
    address: int

    @staticmethod
    def of(ids: Ids) -> IdMemory:
        """The memory of an array."""
        return IdMemory(ids, ids.ctypes.data)


Take = Callable[[IdMemory, int], Taken]  # makes a result of the first so many ids of memory that is used again


class SingleSearch(NamedTuple):
    """What a kernel needs to search a view for one event."""

    address: int  # of the handle
    plan: tuple[tuple[str, int, Axis, CodeDimension], ...]  # see `_plan`
    pack: Callable[..., None]
    handle: NDArray[np.int64]
    beside: TextSearch | None  # where there are pieces or special rows

    @staticmethod
    def of(segment: Segment, tree: PartitionTree, alive: NDArray[np.bool_], holes: bool) -> SingleSearch | None:
        """The search of a view; None if single events take the way of batches there. Cost: O(axes)."""
        rows = segment.rows
        if not rows.plan or len(rows.plan) > _MOST_AXES:
            return None
        nothing = np.zeros(0), np.zeros(0, np.uint8), np.zeros(1, np.int32)
        exact = [name is not None and not dimension.inexact for name, _, dimension in rows.plan]
        lines = [
            (dimension.numbers, dimension.sides, dimension.table) if plain else nothing
            for plain, (_, _, dimension) in zip(exact, rows.plan, strict=True)
        ]
        handle = view_handle((*tree, rows.subs, rows.firsts, alive), lines, segment.singles, holes)
        if handle is None:
            return None
        plan = _plan(segment, exact)
        pack = Struct(f"=q{len(plan)}d").pack_into
        beside = TextSearch(segment, alive, holes) if len(segment.special) or len(rows.pieces) else None
        return SingleSearch(handle.ctypes.data, plan, pack, handle, beside)


def _plan(segment: Segment, exact: list[bool]) -> tuple[tuple[str, int, Axis, CodeDimension], ...]:
    """For each axis: the attribute whose numbers the kernel encodes, or "", which no event has; its bit of the mask;
    and what gives codes.
    """
    return tuple(
        (name if name and plain else "", 1 << at, axis, dimension)
        for at, (plain, (name, axis, dimension)) in enumerate(zip(exact, segment.rows.plan, strict=True))
    )


class TextHandle(NamedTuple):
    """The handle of automata and needs, which lives as long as it is used."""

    address: int
    by_name: dict[str, list[tuple[int, bool]]]  # of each attribute: its automata, and whether they read foldings
    handle: NDArray[np.int64]
    automata: list[tuple[str, bool, Automaton]]
    lists: tuple[tuple[str, int], ...]  # attributes whose elements are pieces, and their automata

    def texts(self, event: Mapping[str, AttributeValue | None]) -> list[tuple[int, bytes]]:
        """The texts of an event, each with the number of the automaton that reads it."""
        by_name, found = self.by_name, []
        for attribute, number in self.lists:
            text = list_text(event.get(attribute))
            if text:
                found.append((number, text))
        for name in by_name if len(by_name) <= len(event) else event:
            value = event.get(name)
            if isinstance(value, str):
                for number, folded in by_name.get(name, ()):
                    spelled = value.casefold() if folded else value
                    found.append((number, spelled.encode("utf-8", "surrogatepass")))
        return found


class TextSearch:
    """What a kernel needs to search for pieces, and what settles special rows. The automata are built when an event is
    first searched for.
    """

    def __init__(self, segment: Segment, alive: NDArray[np.bool_], holes: bool) -> None:
        self._segment, self._alive, self._holes = segment, alive, holes
        self._handle: TextHandle | None = None
        self.pieces = len(segment.rows.pieces)

    def handle(self) -> TextHandle:
        """The handle. Two threads may make equal ones."""
        made = self._handle
        if made is None:
            segment = self._segment
            automata = segment.rows.pieces.automata()
            dim = segment.rows.axes.get(ANCHOR, 0)
            handle = text_handle([each for _, _, each in automata], dim, segment.anchors, *segment.needs)
            by_name: dict[str, list[tuple[int, bool]]] = {}
            lists: list[tuple[str, int]] = []
            for number, (name, folded, _) in enumerate(automata):
                if is_list_axis(name):
                    lists.append((attribute_of(name), number))
                else:
                    by_name.setdefault(name, []).append((number, folded))
            made = self._handle = TextHandle(handle.ctypes.data, by_name, handle, automata, tuple(lists))
        return made

    def settled(self, names: NDArray[np.int32], event: Mapping[str, AttributeValue | None]) -> Ids:
        """The living subscriptions of special rows, of which those with boxes to evaluate are evaluated."""
        segment, odd = self._segment, ~names
        rows, boxes = segment.rows, segment.rows.boxes
        found = segment.special[odd]
        asked, shared, slots = segment.kinds.asked[odd], segment.kinds.shared[odd], rows.slots[found]
        kept: list[int] = []
        seen: set[int] = set()
        for row, slot, is_asked, is_shared in zip(
            found.tolist(), slots.tolist(), asked.tolist(), shared.tolist(), strict=True
        ):
            if slot in seen or (is_asked and not boxes[row].box.admits(event)):
                continue
            if is_shared:
                seen.add(slot)
            kept.append(slot)
        if rows.alone:
            places = np.array(kept, np.int64)
        else:
            ends = zip(rows.firsts[kept].tolist(), rows.firsts[1:][kept].tolist(), strict=True)
            places = np.array([place for first, last in ends for place in range(first, last)], np.int64)
        return rows.subs[places[self._alive[places]] if self._holes else places]


class SearchRoom:
    """Memory that a match writes to. One match has it at a time."""

    def __init__(self) -> None:
        self._input = np.zeros(1 + _MOST_AXES)
        self.input = self._input.data  # quicker to write to
        self._codes, self._slots = np.zeros(_MOST_AXES, np.int32), np.empty(_IDS, np.int32)
        self._stacks = np.empty(64, np.int64), np.empty(64, np.int64)
        self.text: TextRoom | None = None
        self.make_room(_IDS)

    def make_room(self, size: int) -> None:
        """Make room for a number of ids."""
        self.found = IdMemory.of(np.empty(size, np.int64))
        self._handle = room_handle(self._arrays)
        self.address: int = self._handle.ctypes.data
        if self.text is not None:
            self.text.join(self._arrays)
        self._weigh()

    def _weigh(self) -> None:
        """Note whether the room is small enough to be used again: every match asks."""
        text = self.text is None or len(self.text.bytes) <= _MOST_TEXT
        self.is_small = text and len(self.found.ids) <= _MOST_IDS

    @property
    def _arrays(self) -> tuple[NDArray[Any], ...]:
        return (self._input, self._codes, self._slots, self.found.ids, *self._stacks)

    def text_room(self, size: int, texts: int, pieces: int) -> TextRoom:
        """Room for so many bytes of texts, and for pieces."""
        text = self.text
        if text is None or size > len(text.bytes) or 2 * texts >= len(text.parts) or pieces >= text.pieces:
            at_least = (_TEXT, 33, 1024) if text is None else (len(text.bytes), len(text.parts), text.pieces)
            sizes = (size + size // 4, 2 * texts + 1, 2 * pieces + 1)
            text = self.text = TextRoom(*map(max, at_least, sizes))
            text.join(self._arrays)
            self._weigh()
        return text


class TextRoom:
    """What a match writes to besides, where it looks for pieces or finds special rows."""

    def __init__(self, size: int, parts: int, pieces: int) -> None:
        self._text, self.pieces = np.empty(size, np.uint8), pieces
        self._parts = np.zeros(parts, np.int64)
        self.bytes, self.parts = self._text.data, self._parts.data  # quicker to write to
        self._marks, self._numbers = np.zeros(pieces, np.uint8), np.empty(pieces + 1, np.int32)
        self._states = np.empty(_STATES, np.int32)
        self.special = np.empty(_IDS, np.int32)

    def join(self, others: Sequence[NDArray[Any]]) -> None:
        """Belong to a room of these arrays."""
        self._others = others
        own = self._text, self._parts, self._marks, self._numbers, self._states, self.special
        self._handle = text_room_handle(others, own)
        self.address: int = self._handle.ctypes.data

    def make_room(self, size: int) -> None:
        """Make room for a number of special rows."""
        self.special = np.empty(size, np.int32)
        self.join(self._others)

    def write(self, texts: Sequence[tuple[int, bytes]]) -> None:
        """Write the texts, for which there is room."""
        parts, begin, at = self.parts, 0, 1
        parts[0] = len(texts)
        for number, text in texts:
            end = begin + len(text)
            self.bytes[begin:end] = text
            parts[at], parts[at + 1] = number, end
            begin, at = end, at + 2


class SingleEvents:
    """Matches single events for all threads: a match takes a room, or makes one, and puts it back."""

    def __init__(self) -> None:
        self._rooms: list[SearchRoom] = []  # adding to a list and taking from it are atomic

    def find(self, search: SingleSearch, event: Mapping[str, AttributeValue | None], take: Take[Taken]) -> Taken:
        """What `take` makes of the subscriptions of an event."""
        address, plan, pack, _, beside = search
        values: list[Any] = []
        mask, get = 0, event.get
        for name, bit, axis, dimension in plan:
            value = get(name)
            kind = type(value)
            if kind is float or (kind is int and -_EXACT <= value <= _EXACT):  # type: ignore[operator]
                values.append(value)
                continue
            if not name:
                values.append(axis.code(dimension, event))
            elif kind is list:
                values.append(ABSENT)
            else:
                values.append(dimension.texts.get(value) or dimension.code(value))  # type: ignore[arg-type]
            mask |= bit
        try:
            room = self._rooms.pop()
        except IndexError:
            room = SearchRoom()
        pack(room.input, 0, mask, *values)
        found: int
        if beside is not None:
            found = _found_beside(address, beside, room, event)
        else:
            found = match_one(address, room.address)
            if found < 0:
                room.make_room(~found)
                found = match_one(address, room.address)
        made = take(room.found, found)
        if room.is_small:
            self._rooms.append(room)
        return made


def _found_beside(
    address: int, beside: TextSearch, room: SearchRoom, event: Mapping[str, AttributeValue | None]
) -> int:
    """How many subscriptions are in the room's ids, where there are pieces or special rows."""
    handle = beside.handle()
    texts = handle.texts(event)
    text = room.text_room(sum([len(text) for _, text in texts]), len(texts), beside.pieces)
    while True:
        text.write(texts)
        found: int = match_text(address, handle.address, text.address)
        odd = text.parts[0]
        if odd > len(text.special):
            text.make_room(odd)
        elif found < 0:
            room.make_room(~found)
        else:
            break
    if odd:
        more = beside.settled(text.special[:odd], event)
        if found + len(more) > len(room.found.ids):
            before = room.found.ids[:found]
            room.make_room(found + len(more))
            room.found.ids[:found] = before
        room.found.ids[found : found + len(more)] = more
        found += len(more)
    return found


def copied(found: IdMemory, count: int) -> Ids:
    """The first ids, in an array of their own."""
    return found.ids[:count].copy() if count else np.empty(0, _INT64)
