"""Which of many pieces of text occur in a text: the automaton of Aho and Corasick, over bytes. Laws: each piece that
occurs is found, once; the work is linear in the text and in what is found, whatever the pieces are.

A walk along the pieces that end at one place stops at the first that was found before: then the rest was found too.

An `Automaton` is seven arrays. A state is a prefix of a piece, and 0 is the empty one.
- `first` (int32[256]): the state after each byte at the start, or 0.
- `keys` (int64) and `nexts` (int32): a hash table of the other steps; the key of a step is 256 * state + byte.
- `fails` (int32): the longest proper suffix of each state that is a state too.
- `ends` (int32): the longest suffix of each state that is a piece, the state itself included, as a state; or 0.
- `longer` (int32): the same for proper suffixes only.
- `pieces` (int32): the number of the piece that a state is; meaningless for other states.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call", no-check-untyped-defs

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.kernels.jit import inner, jit
from weft.kernels.leaves import grown

_LOW, _MIX = 0xFFFFFFFF, 0x21F0AAAD


class Automaton(NamedTuple):
    """The arrays."""

    first: NDArray[np.int32]
    keys: NDArray[np.int64]
    nexts: NDArray[np.int32]
    fails: NDArray[np.int32]
    ends: NDArray[np.int32]
    longer: NDArray[np.int32]
    pieces: NDArray[np.int32]


@inner
def _place(keys, key):
    """Where a step is in the table, or where it would be."""
    last = keys.size - 1
    at = (((key & _LOW) ^ (key >> 32)) * _MIX) >> 20 & last  # a product of 32 and 30 bits: it never overflows
    while keys[at] != key and keys[at] >= 0:
        at = (at + 1) & last
    return at


@jit
def build_automaton(data, offsets):
    """The automaton of the pieces data[offsets[p]:offsets[p + 1]] (uint8, int64), which differ and are not empty."""
    most = data.size + 1
    size = 16
    while size < 2 * most:
        size *= 2
    keys, nexts = np.full(size, -1, np.int64), np.zeros(size, np.int32)
    depths, parents = np.zeros(most, np.int32), np.zeros(most, np.int32)
    octets, pieces = np.zeros(most, np.uint8), np.full(most, -1, np.int32)
    states = 1
    for piece in range(offsets.size - 1):
        state = np.int64(0)
        for at in range(offsets[piece], offsets[piece + 1]):
            key = 256 * state + np.int64(data[at])
            place = _place(keys, key)
            if keys[place] < 0:
                keys[place], nexts[place] = key, states
                depths[states], parents[states], octets[states] = depths[state] + 1, state, data[at]
                states += 1
            state = np.int64(nexts[place])
        pieces[state] = piece
    fails, ends, longer = np.zeros(states, np.int32), np.zeros(states, np.int32), np.zeros(states, np.int32)
    deepest = 0
    for state in range(states):
        deepest = max(deepest, depths[state])
    begins = np.zeros(deepest + 2, np.int64)  # of each depth in `order`
    for state in range(states):
        begins[depths[state] + 1] += 1
    for depth in range(1, begins.size):
        begins[depth] += begins[depth - 1]
    order = np.empty(states, np.int64)
    for state in range(states):
        order[begins[depths[state]]] = state
        begins[depths[state]] += 1
    for at in range(1, states):
        state = order[at]
        if depths[state] > 1:
            back = np.int64(fails[parents[state]])
            while True:
                place = _place(keys, 256 * back + np.int64(octets[state]))
                if keys[place] >= 0:
                    fails[state] = nexts[place]
                    break
                if back == 0:
                    break
                back = np.int64(fails[back])
        longer[state] = ends[fails[state]]
        ends[state] = state if pieces[state] >= 0 else longer[state]
    first = np.zeros(256, np.int32)
    for octet in range(256):
        place = _place(keys, np.int64(octet))
        if keys[place] >= 0:
            first[octet] = nexts[place]
    return Automaton(first, keys, nexts, fails, ends, longer, pieces[:states].copy())


@jit
def find_pieces(automaton, data, begins, ends, met, stamp, found, offsets):
    """Find the pieces in each text data[begins[t]:ends[t]] (uint8). Fills `offsets` (int64, one more than texts);
    returns `found` (int32), possibly reallocated: the pieces of text t are found[offsets[t]:offsets[t + 1]].

    `met` (int64, one per piece) must hold nothing from `stamp` up to `stamp` and the number of texts.
    """
    first, keys, nexts, fails = automaton.first, automaton.keys, automaton.nexts, automaton.fails
    size = 0
    offsets[0] = 0
    for text in range(begins.size):
        state = np.int64(0)
        for at in range(begins[text], ends[text]):
            octet = np.int64(data[at])
            while state != 0:
                place = _place(keys, 256 * state + octet)
                if keys[place] >= 0:
                    break
                state = np.int64(fails[state])
            state = np.int64(first[octet]) if state == 0 else np.int64(nexts[place])
            end = np.int64(automaton.ends[state])
            while end != 0:
                piece = automaton.pieces[end]
                if met[piece] == stamp + text:
                    break
                met[piece] = stamp + text
                if size == found.size:
                    found = grown(found, size + 1)
                found[size] = piece
                size += 1
                end = np.int64(automaton.longer[end])
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
