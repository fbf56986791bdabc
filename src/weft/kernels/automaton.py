"""Which of many pieces of text occur in a text: the automaton of Aho and Corasick, over bytes. Laws: each piece that
occurs is found, once; the work is linear in the text and in what is found, whatever the pieces are.

A walk along the pieces that end at one place stops at the first that was found before: then the rest was found too.

An `Automaton` is six arrays. A state is a prefix of a piece; states are numbered by length, and 0 is the empty one.
- `classes` (int32[257]): a number for each byte that occurs in a piece, from 1 on; 0 for all others; then how many
  numbers there are.
- `dense` (int32, as many per state as there are classes): the state after each class, for as many of the first states
  as have a place in it. The other states are many, and most have one step.
- `nodes` (int32, four per state): the longest proper suffix that is a state too; the longest suffix that is a piece,
  the state itself included, as a state, or 0; and the only step: its byte, or NONE or SEVERAL, and the state after it.
- `steps` (int64): a hash table of the steps of states with SEVERAL that are not dense, -1 where there is none. A step
  is its key, 256 * state + byte, and, in the lowest BITS, the state after it.
- `longer` (int32): the longest proper suffix that is a piece, as a state, or 0.
- `pieces` (int32): the number of the piece that a state is; meaningless for other states.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call", no-check-untyped-defs

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.kernels.addresses import lent
from weft.kernels.jit import inlined, inner, jit
from weft.kernels.leaves import grown

BITS = 27  # of a state: pieces must have fewer bytes than 1 << BITS, all together
_STATE = (1 << BITS) - 1
_NONE, _SEVERAL = -1, -2
_DENSE = 4  # numbers in `dense` for each state, if it is full; and at least so many:
_LEAST = 1 << 14
_LOW, _MIX = 0xFFFFFFFF, 0x21F0AAAD


class Automaton(NamedTuple):
    """The arrays."""

    classes: NDArray[np.int32]
    dense: NDArray[np.int32]
    nodes: NDArray[np.int32]
    steps: NDArray[np.int64]
    longer: NDArray[np.int32]
    pieces: NDArray[np.int32]


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
    """An empty table for so many steps, half of it free or more than that."""
    size = np.int64(16)
    while 2 * size < 3 * room:
        size *= 2
    steps = np.empty(size, np.int64)
    for at in range(size):
        steps[at] = -1
    return steps


@inlined
def _after(classes, dense, nodes, steps, width, state, octet):
    """The state after a byte: the longest suffix of what was read that is a state."""
    while True:
        place = width * state + np.int64(classes[octet])
        if place < dense.size:
            return np.int64(dense[place])
        only = np.int64(nodes[4 * state + 2])
        if only == octet:
            return np.int64(nodes[4 * state + 3])
        if only == _SEVERAL:
            step = steps[_place(steps, 256 * state + octet)]
            if step >= 0:
                return step & _STATE
        state = np.int64(nodes[4 * state])


@inner
def _trie(data, offsets):
    """The states of the pieces, numbered by length: parent, last byte, and piece or -1 (int32) of each."""
    most = data.size + 1
    steps = _table(most)
    depths, parents = np.zeros(most, np.int32), np.zeros(most, np.int32)
    octets, pieces = np.zeros(most, np.int32), np.full(most, -1, np.int32)
    states, deepest = np.int64(1), np.int64(0)
    for piece in range(offsets.size - 1):
        state = np.int64(0)
        for at in range(offsets[piece], offsets[piece + 1]):
            key = 256 * state + np.int64(data[at])
            place = _place(steps, key)
            if steps[place] < 0:
                steps[place] = key << BITS | states
                depths[states], parents[states], octets[states] = depths[state] + 1, state, data[at]
                deepest = max(deepest, np.int64(depths[states]))
                states += 1
            state = steps[place] & _STATE
        pieces[state] = piece
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
def build_automaton(data, offsets):
    """The automaton of the pieces data[offsets[p]:offsets[p + 1]] (uint8, int64), which differ and are not empty."""
    parents, octets, pieces = _trie(data, offsets)
    states = np.int64(pieces.size)
    classes, width = np.zeros(257, np.int32), np.int64(1)
    for state in range(1, states):
        if classes[octets[state]] == 0:
            classes[octets[state]] = width
            width += 1
    classes[256] = width
    rows = min(states, max(np.int64(1), max(_DENSE * states, np.int64(_LEAST)) // width))
    dense, nodes, longer = (
        np.full(rows * width, -1, np.int32),
        np.zeros(4 * states, np.int32),
        np.zeros(states, np.int32),
    )
    for state in range(states):
        nodes[4 * state + 2] = _NONE
    several = np.int64(0)
    for state in range(1, states):
        up, octet = np.int64(parents[state]), np.int64(octets[state])
        if up < rows:
            dense[width * up + classes[octet]] = state
        elif nodes[4 * up + 2] == _NONE:
            nodes[4 * up + 2], nodes[4 * up + 3] = octet, state
        else:
            nodes[4 * up + 2] = _SEVERAL
            several += 1
    steps = _table(2 * several)
    for state in range(1, states):
        up, octet = np.int64(parents[state]), np.int64(octets[state])
        if nodes[4 * up + 2] == _SEVERAL:
            key = 256 * up + octet
            steps[_place(steps, key)] = key << BITS | state
    for state in range(states):
        up, octet, back = np.int64(parents[state]), np.int64(octets[state]), np.int64(0)
        if up != 0:
            back = _after(classes, dense, nodes, steps, width, np.int64(nodes[4 * up]), octet)
        nodes[4 * state] = back
        longer[state] = nodes[4 * back + 1]
        nodes[4 * state + 1] = state if pieces[state] >= 0 else longer[state]
        if state < rows:
            for place in range(width * state, width * state + width):
                if dense[place] < 0:
                    dense[place] = dense[place - width * (state - back)] if state > 0 else 0
    return Automaton(classes, dense, nodes, steps, longer, pieces)


@inlined
def _lent_automaton(automaton):
    """The automaton with arrays that are lent."""
    classes, dense, nodes = lent(automaton.classes), lent(automaton.dense), lent(automaton.nodes)
    return Automaton(classes, dense, nodes, lent(automaton.steps), lent(automaton.longer), lent(automaton.pieces))


@inlined
def _find_in(data, begin, end, automaton, met, stamp, found, size):
    """Append the pieces in data[begin:end] that do not have the stamp to `found`, which has room for all, and stamp
    them; returns the new size.
    """
    classes, dense, nodes, steps, longer, pieces = automaton
    width, state = np.int64(classes[256]), np.int64(0)
    for at in range(begin, end):
        state = _after(classes, dense, nodes, steps, width, state, np.int64(data[at]))
        last = np.int64(nodes[4 * state + 1])
        while last != 0:
            piece = pieces[last]
            if met[piece] == stamp:
                break
            met[piece] = stamp
            found[size] = piece
            size += 1
            last = np.int64(longer[last])
    return size


@jit
def find_pieces(automaton, data, begins, ends, met, stamp, found, offsets):
    """Find the pieces in each text data[begins[t]:ends[t]] (uint8). Fills `offsets` (int64, one more than texts);
    returns `found` (int32), possibly reallocated: the pieces of text t are found[offsets[t]:offsets[t + 1]].

    `met` (int64, one per piece) must hold nothing from `stamp` up to `stamp` and the number of texts.
    """
    automaton = _lent_automaton(automaton)
    size = np.int64(0)
    offsets[0] = 0
    for text in range(begins.size):
        if size + met.size > found.size:
            found = grown(found, size + met.size)
        size = _find_in(lent(data), begins[text], ends[text], automaton, lent(met), stamp + text, lent(found), size)
        offsets[text + 1] = size
    return found


@jit
def meet_needs(names, offsets, special, slots, need_starts, needs, piece_offsets, pieces, met, stamp, new_offsets):
    """Drop, in place, the found names of special rows whose needs an event does not meet; fills `new_offsets`.

    What is left becomes slots[~name] (int32), unless that is negative.

    The names of event e are names[offsets[e]:offsets[e + 1]], and its pieces those of `piece_offsets`. Row r needs
    needs[need_starts[r]:need_starts[r + 1]]: piece p must be there, and for ~p it must not. `met` and `stamp` are
    as for `find_pieces`. Returns how many names are left.
    """
    left = 0
    new_offsets[0] = 0
    for event in range(offsets.size - 1):
        for at in range(piece_offsets[event], piece_offsets[event + 1]):
            met[pieces[at]] = stamp + event
        for at in range(offsets[event], offsets[event + 1]):
            name = names[at]
            fine, slot = True, name
            if name < 0:
                row = special[~name]
                if slots[~name] >= 0:
                    slot = slots[~name]
                for place in range(need_starts[row], need_starts[row + 1]):
                    need = needs[place]
                    if need >= 0:
                        fine = met[need] == stamp + event
                    else:
                        fine = met[~need] != stamp + event
                    if not fine:
                        break
            if fine:
                names[left] = slot
                left += 1
        new_offsets[event + 1] = left
    return left


@jit
def spread_codes(codes, piece_offsets, pieces, is_anchor, dim, out, firsts):
    """Write each event's codes to `out` once with code 0 in a dimension, and once for each of its pieces that is an
    anchor, with the piece's number + 1. `firsts` (int64) says where those of each event begin.
    """
    to = 0
    for event in range(codes.shape[0]):
        firsts[event] = to
        for column in range(codes.shape[1]):
            out[to, column] = codes[event, column]
        out[to, dim] = 0
        to += 1
        for at in range(piece_offsets[event], piece_offsets[event + 1]):
            if is_anchor[pieces[at]]:
                for column in range(codes.shape[1]):
                    out[to, column] = codes[event, column]
                out[to, dim] = pieces[at] + 1
                to += 1
    firsts[codes.shape[0]] = to
