"""The automaton of Aho and Corasick over bytes: which of many pieces of text occur in a text. Each piece that occurs is
found once. The work is linear in the text and in what is found, whatever the pieces are.

A walk along the pieces that end at one place stops at the first that was found before: then the rest was found too.

Of a long piece, only as many bytes are states as tell it from all others, and LEAST at least. Where these are found,
the rest of the piece is compared with the text. So a piece costs no more states if it is long, and pieces that share
their beginnings share these states.

An `Automaton` is eight arrays. A state is a prefix of a piece; states are numbered by length, and 0 is the empty one. A
state is read as its number, or as the complement of it if a piece ends there.
- `classes` (int32[257]): a number for each byte that occurs in a piece, from 1 on; 0 for all others; then how many
  numbers there are.
- `dense` (int32, as many per state as there are classes): the state after each class, read so, for as many of the first
  states as have a place in it; for all, unless they are many. The other states have one step, most of them.
- `nodes` (int32, three for each state that is not dense): the longest proper suffix that is a state too; and the only
  step: its byte, or NONE or SEVERAL, and the state after it.
- `steps` (int64): a hash table of the steps of states with SEVERAL that are not dense, -1 where there is none. A step
  is its key, 256 * state + byte, and, in the lowest BITS, the state after it.
- `endings` (int32, two per state): the number of the longest piece that ends there, or -1, and the state of the next
  shorter one, or 0.
- `cuts` (int32, two per state, or none if all pieces are states to their ends): of that piece, the number of its rest,
  or 0 if it has none; and the state of the next shorter piece with a rest, or 0.
- `rests` (int64, two per number, from 1 on): where the rest of a piece begins and ends in `data` (uint8).

Each step is a read that waits for the one before, often from far memory. So a few texts are walked in turns, and their
reads overlap; which pieces end at the states is read afterwards.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call", no-check-untyped-defs

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.kernels.addresses import lent
from weft.kernels.jit import inlined, inner, jit
from weft.kernels.leaves import grown

BITS = 27  # of a state
_STATE = (1 << BITS) - 1
LEAST = 32  # bytes of a piece that are states in any case
_NONE, _SEVERAL = -1, -2
DENSE = 1 << 21  # numbers in `dense`: where all states have a place in so many, no step needs more than one read
_PER_STATE = 4  # numbers in it for each state, where these are more
_LANES = 8  # texts that are walked in turns
_ROOM = 1 << 15  # bytes of texts that are walked before their pieces are read
_LOW, _MIX = 0xFFFFFFFF, 0x21F0AAAD


class Automaton(NamedTuple):
    """The arrays."""

    classes: NDArray[np.int32]
    dense: NDArray[np.int32]
    nodes: NDArray[np.int32]
    steps: NDArray[np.int64]
    endings: NDArray[np.int32]
    cuts: NDArray[np.int32]
    rests: NDArray[np.int64]
    data: NDArray[np.uint8]


@inlined
def _place(steps, key):
    """Where a step is in the table, or where it would be."""
    last = steps.size - 1
    at = (((key & _LOW) ^ (key >> 32)) * _MIX) >> 20 & last  # a product of 32 and 30 bits: it never overflows
    while steps[at] >= 0 and steps[at] >> BITS != key:
        at = (at + 1) & last
    return at


@inner
def _table(room):
    """An empty table for a number of steps, at least half of it free."""
    size = np.int64(16)
    while 2 * size < 3 * room:
        size *= 2
    steps = np.empty(size, np.int64)
    for at in range(size):
        steps[at] = -1
    return steps


@inlined
def _number(read):
    """The number of a state that was read."""
    return read ^ (read >> np.int64(63))


@inner
def _after_node(automaton, state, octet):
    """The state after a byte, as it is read: the longest suffix of what was read that is a state."""
    classes, dense, nodes, steps, endings = automaton[0], automaton[1], automaton[2], automaton[3], automaton[4]
    width = np.int64(classes[256])
    rows = dense.size // width
    while state >= rows:
        place = 3 * (state - rows)
        only = np.int64(nodes[place + 1])
        if only == octet:
            return np.int64(nodes[place + 2])
        if only == _SEVERAL:
            step = steps[_place(steps, 256 * state + octet)]
            if step >= 0:
                after = step & _STATE
                return ~after if endings[2 * after] >= 0 else after
        state = np.int64(nodes[place])
    return np.int64(dense[width * state + classes[octet]])


@inlined
def _after(automaton, width, state, octet):
    """The same, quicker for the first states."""
    place = np.uint64(width * state + np.int64(automaton.classes[np.uint64(octet)]))
    if place < np.uint64(automaton.dense.size):
        return np.int64(automaton.dense[place])
    return _after_node(automaton, state, octet)


@inner
def _steps_of(parents, octets, states, room):
    """The table of the steps to some states, with room for more."""
    steps = _table(room)
    for state in range(1, states):
        key = 256 * np.int64(parents[state]) + np.int64(octets[state])
        steps[_place(steps, key)] = key << BITS | state
    return steps


@inner
def _trie(data, offsets, least, rests):
    """The states of the pieces, numbered by length: parent, last byte, and piece or -1 (int32) of each. Fills `rests`
    (int64): where the bytes of each piece begin that are no states. Nothing is returned if there are too many states.
    """
    room = np.int64(2)
    for piece in range(offsets.size - 1):
        room += min(offsets[piece + 1] - offsets[piece], least + 1)
    steps = _table(room)
    depths, parents, octets = np.zeros(room, np.int32), np.zeros(room, np.int32), np.zeros(room, np.int32)
    pieces = np.full(room, np.int32(-1), np.int32)
    states, deepest = np.int64(1), np.int64(0)
    for piece in range(offsets.size - 1):
        state, at, end = np.int64(0), offsets[piece], offsets[piece + 1]
        while True:
            if states + 2 > room:
                room = 2 * room
                depths, parents, octets = grown(depths, room), grown(parents, room), grown(octets, room)
                pieces, steps = grown(pieces, room), _steps_of(parents, octets, states, room)
            if states + 2 > _STATE:
                return np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int32)
            held = np.int64(pieces[state])
            if held >= 0 and rests[held] < offsets[held + 1]:  # one that ends here for now: it goes a byte further
                key = 256 * state + np.int64(data[rests[held]])
                steps[_place(steps, key)] = key << BITS | states
                depths[states], parents[states], octets[states] = depths[state] + 1, state, data[rests[held]]
                pieces[state], pieces[states] = -1, held
                deepest = max(deepest, np.int64(depths[states]))
                rests[held] += 1
                states += 1
            if at == end:
                pieces[state], rests[piece] = piece, end
                break
            key = 256 * state + np.int64(data[at])
            place = _place(steps, key)
            if steps[place] < 0:
                steps[place] = key << BITS | states
                depths[states], parents[states], octets[states] = depths[state] + 1, state, data[at]
                pieces[states] = -1
                deepest = max(deepest, np.int64(depths[states]))
                states += 1
                if depths[state] + 1 >= least:
                    pieces[states - 1], rests[piece] = piece, at + 1
                    break
            state = steps[place] & _STATE
            at += 1
    begins = np.zeros(deepest + 2, np.int64)  # of each length
    for state in range(states):
        begins[depths[state] + 1] += 1
    for depth in range(1, begins.size):
        begins[depth] += begins[depth - 1]
    number = np.empty(states, np.int32)
    for state in range(states):
        number[state] = begins[depths[state]]
        begins[depths[state]] += 1
    new_parents, new_octets, new_pieces = (
        np.zeros(states, np.int32),
        np.zeros(states, np.int32),
        np.empty(states, np.int32),
    )
    for state in range(states):
        new = number[state]
        new_parents[new], new_octets[new], new_pieces[new] = number[parents[state]], octets[state], pieces[state]
    return new_parents, new_octets, new_pieces


@jit
def build_automaton(data, offsets, dense_size, least):
    """The automaton of the pieces data[offsets[p]:offsets[p + 1]] (uint8, int64), which differ and are not empty; one
    without states if they would be too many.

    Its dense states have at most `dense_size` numbers, or a few for each state. Of a piece, `least` bytes are states,
    if it has so many. Unless for a test, these are DENSE and LEAST.
    """
    rests = np.zeros(offsets.size, np.int64)
    parents, octets, pieces = _trie(data, offsets, least, rests)
    states = np.int64(pieces.size)
    classes, width = np.zeros(257, np.int32), np.int64(1)
    for state in range(1, states):
        if classes[octets[state]] == 0:
            classes[octets[state]] = width
            width += 1
    classes[256] = width
    rows = min(states, max(np.int64(1), max(_PER_STATE * states, np.int64(dense_size)) // width))
    dense, nodes = np.full(rows * width, np.int32(-1), np.int32), np.zeros(3 * (states - rows), np.int32)
    for node in range(states - rows):
        nodes[3 * node + 1] = _NONE
    several = np.int64(0)
    for state in range(1, states):
        up, octet = np.int64(parents[state]), np.int64(octets[state])
        node = 3 * (up - rows)
        if up < rows:
            dense[width * up + classes[octet]] = state
        elif nodes[node + 1] == _NONE:
            nodes[node + 1], nodes[node + 2] = octet, state
        else:
            nodes[node + 1] = _SEVERAL
            several += 1
    steps = _table(2 * several)
    for state in range(1, states):
        up, octet = np.int64(parents[state]), np.int64(octets[state])
        if up >= rows and nodes[3 * (up - rows) + 1] == _SEVERAL:
            key = 256 * up + octet
            steps[_place(steps, key)] = key << BITS | state
    cut = np.int64(0)
    for piece in range(offsets.size - 1):
        cut += rests[piece] < offsets[piece + 1]
    cuts, begins = np.zeros(2 * states if cut else 0, np.int32), np.zeros(2 * offsets.size if cut else 0, np.int64)
    for piece in range(offsets.size - 1 if cut else 0):
        begins[2 * piece + 2], begins[2 * piece + 3] = rests[piece], offsets[piece + 1]
    kept = np.empty(data.size if cut else 0, np.uint8)
    for at in range(kept.size):
        kept[at] = data[at]
    made = Automaton(classes, dense, nodes, steps, np.zeros(2 * states, np.int32), cuts, begins, kept)
    _fill_in(made, parents, octets, pieces, rows)
    return made


@inner
def _fill_in(automaton, parents, octets, pieces, rows):
    """Fill in suffixes, endings and the steps of dense states that lead to shorter ones; then mark the states that
    steps lead to where a piece ends. Shorter states come first, and are complete before longer ones need them.
    """
    classes, dense, nodes, endings = automaton.classes, automaton.dense, automaton.nodes, automaton.endings
    cuts, rests = automaton.cuts, automaton.rests
    width, states = np.int64(classes[256]), np.int64(pieces.size)
    backs = np.zeros(states, np.int32)
    for state in range(states):
        up, octet, back = np.int64(parents[state]), np.int64(octets[state]), np.int64(0)
        if up != 0:
            back = _number(_after(automaton, width, np.int64(backs[up]), octet))
        backs[state] = back
        endings[2 * state], endings[2 * state + 1] = pieces[state], np.int32(0)
        if pieces[state] < 0 and state > 0:
            endings[2 * state], endings[2 * state + 1] = endings[2 * back], endings[2 * back + 1]
            if cuts.size:
                cuts[2 * state], cuts[2 * state + 1] = cuts[2 * back], cuts[2 * back + 1]
        elif endings[2 * back] >= 0:
            endings[2 * state + 1] = back
        if cuts.size and pieces[state] >= 0:
            number = np.int64(pieces[state]) + 1
            cuts[2 * state] = number if rests[2 * number] < rests[2 * number + 1] else 0
            cuts[2 * state + 1] = back if cuts[2 * back] > 0 else cuts[2 * back + 1]
        if state >= rows:
            nodes[3 * (state - rows)] = back
            continue
        for place in range(width * state, width * state + width):
            if dense[place] < 0:
                dense[place] = dense[place - width * (state - back)] if state > 0 else 0
    for place in range(dense.size):
        if endings[2 * dense[place]] >= 0:
            dense[place] = ~dense[place]
    for node in range(states - rows):
        if nodes[3 * node + 1] >= 0 and endings[2 * nodes[3 * node + 2]] >= 0:
            nodes[3 * node + 2] = ~nodes[3 * node + 2]


@inlined
def _walk(automaton, data, begin, end, state, states, to):
    """Read data[begin:end] from a state on, and write the state after each byte, as it is read, to `states` from `to`
    on; returns the last one's number.
    """
    width = np.int64(automaton.classes[256])
    for at in range(begin, end):
        read = _after(automaton, width, state, np.int64(data[at]))
        states[to + at - begin] = read
        state = _number(read)
    return state


@inlined
def _walk_many(automaton, data, begins, ends, first, last, states, lanes):
    """Walk along the texts from `first` to `last`, a few in turns, and write their states one text after the other.

    `lanes` (int64, as many as four times _LANES) are the texts that are being read: place, place in `states`, state and
    bytes left of each.
    """
    width, free = np.int64(automaton.classes[256]), np.int64(0)
    for lane in range(_LANES):
        lanes[4 * lane + 3] = 0
    while True:
        turns = np.int64(_ROOM)
        for lane in range(0, 4 * _LANES, 4):
            while lanes[lane + 3] == 0 and first < last:
                size = ends[first] - begins[first]
                lanes[lane], lanes[lane + 1], lanes[lane + 2], lanes[lane + 3] = begins[first], free, 0, size
                free += size
                first += 1
            turns = min(turns, lanes[lane + 3])
        if turns == 0:
            break
        for turn in range(turns):
            for lane in range(0, 4 * _LANES, 4):
                octet = np.int64(data[np.uint64(lanes[lane] + turn)])
                read = _after(automaton, width, lanes[lane + 2], octet)
                states[np.uint64(lanes[lane + 1] + turn)] = read
                lanes[lane + 2] = _number(read)
        for lane in range(0, 4 * _LANES, 4):
            lanes[lane] += turns
            lanes[lane + 1] += turns
            lanes[lane + 3] -= turns
    for lane in range(0, 4 * _LANES, 4):
        begin, to, state, left = lanes[lane], lanes[lane + 1], lanes[lane + 2], lanes[lane + 3]
        _walk(automaton, data, begin, begin + left, state, states, to)


@inlined
def _collect(endings, states, begin, end, marks, found, size):
    """Append the pieces that end at states[begin:end] and have no mark to `found`, which has room for all and one more,
    and mark them; returns the new size. `states` is written to.
    """
    last = np.uint64(begin)  # unsigned places need no test whether they count from the end
    for at in range(np.uint64(begin), np.uint64(end)):  # first those where a piece ends: to decide for each is slower
        read = states[at]
        states[last] = read
        last += np.uint64(read < 0)
    for at in range(np.uint64(begin), last):
        state = np.uint64(~states[at])
        while state != 0:
            piece = endings[np.uint64(2) * state]
            new = np.uint64(marks[np.uint64(piece)] == 0)
            marks[np.uint64(piece)] = 1
            found[np.uint64(size)] = piece
            size += np.int64(new)
            state = new * np.uint64(endings[np.uint64(2) * state + np.uint64(1)])
    return size


@inlined
def _agrees(rest, begin, end, data, at):
    """Whether the text from `at` on begins with rest[begin:end]."""
    while begin < end and rest[np.uint64(begin)] == data[np.uint64(at)]:
        begin += 1
        at += 1
    return begin == end


@inlined
def _collect_cut(automaton, states, begin, end, data, at, last, marks, found, size):
    """The same where pieces are cut: data[at] leads to states[begin], and the text ends before data[last]."""
    endings, cuts, rests = automaton.endings, automaton.cuts, automaton.rests
    for place in range(begin, end):
        at += 1
        read = np.int64(states[np.uint64(place)])
        state = np.uint64(~read if read < 0 else 0)
        while state != 0:
            piece, here = endings[np.uint64(2) * state], np.uint64(2) * np.uint64(cuts[np.uint64(2) * state])
            new = marks[np.uint64(piece)] == 0
            if here != 0 and new:
                first, after = rests[here], rests[here + np.uint64(1)]
                new = after - first <= last - at and _agrees(automaton.data, first, after, data, at)
            if new:
                marks[np.uint64(piece)] = 1
                found[np.uint64(size)] = piece
                size += 1
            if new or here != 0:
                state = np.uint64(endings[np.uint64(2) * state + np.uint64(1)])
            else:  # all that have no rest were found together with this one
                state = np.uint64(cuts[np.uint64(2) * state + np.uint64(1)])
    return size


@inlined
def lent_automaton(automaton):
    """The automaton with arrays that are lent."""
    first = lent(automaton.classes), lent(automaton.dense), lent(automaton.nodes), lent(automaton.steps)
    return Automaton(*first, lent(automaton.endings), lent(automaton.cuts), lent(automaton.rests), lent(automaton.data))


@inlined
def find_in_one(automaton, data, begin, end, marks, found, size, room):
    """Append the pieces in data[begin:end] that have no mark to `found`, which has room for all and one more, and mark
    them; returns the new size. Writes to `room` (int32).
    """
    state, step = np.int64(0), np.int64(room.size)
    for at in range(begin, end, step):
        last = min(at + step, end)
        state = _walk(automaton, data, at, last, state, room, np.int64(0))
        if automaton.cuts.size:
            size = _collect_cut(automaton, room, np.int64(0), last - at, data, at, end, marks, found, size)
        else:
            size = _collect(automaton.endings, room, np.int64(0), last - at, marks, found, size)
    return size


@jit
def find_pieces(automaton, data, begins, ends, marks, found, offsets):
    """Find the pieces in each text data[begins[t]:ends[t]] (uint8). Fills `offsets` (int64, one more than texts);
    returns `found` (int32), possibly reallocated: the pieces of text t are found[offsets[t]:offsets[t + 1]].

    `marks` (uint8, at least one per piece) is zero, before and afterwards.
    """
    kept = automaton
    automaton = lent_automaton(kept)
    room, lanes = np.empty(_ROOM, np.int32), np.empty(4 * _LANES, np.int64)
    data, marks = lent(data), lent(marks)
    size, first, texts = np.int64(0), np.int64(0), np.int64(begins.size)
    offsets[0] = 0
    while first < texts:
        last, to = first, np.int64(0)
        while last < texts and to + ends[last] - begins[last] <= _ROOM:
            to += ends[last] - begins[last]
            last += 1
        _walk_many(automaton, data, begins, ends, first, last, lent(room), lent(lanes))
        to = np.int64(0)
        for text in range(first, max(last, first + 1)):
            if size + marks.size >= found.size:
                found = grown(found, size + marks.size + 1)
            if last == first:  # one that is too long for the room: part by part
                size = find_in_one(automaton, data, begins[text], ends[text], marks, lent(found), size, lent(room))
            else:
                begin, to = to, to + ends[text] - begins[text]
                if automaton.cuts.size:
                    at = begins[text]
                    size = _collect_cut(
                        automaton, lent(room), begin, to, data, at, ends[text], marks, lent(found), size
                    )
                else:
                    size = _collect(automaton.endings, lent(room), begin, to, marks, lent(found), size)
            for at in range(offsets[text], size):
                marks[np.uint64(found[at])] = 0
            offsets[text + 1] = size
        first = max(last, first + 1)
    return found
