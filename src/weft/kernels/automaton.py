"""Which of many pieces of text occur in a text: the automaton of Aho and Corasick, over bytes. Laws: each piece that
occurs is found, once; the work is linear in the text and in what is found, whatever the pieces are.

A walk along the pieces that end at one place stops at the first that was found before: then the rest was found too.

An `Automaton` is five arrays. A state is a prefix of a piece, and 0 is the empty one.
- `first` (int32[256]): the state after each byte at the start, or 0.
- `steps` (int64): a hash table of the other steps, -1 where there is none. A step is its key, 256 * state + byte, and,
  in the lowest BITS, the state after it.
- `links` (int32, two per state): the longest proper suffix that is a state too; and the longest suffix that is a piece,
  the state itself included, as a state, or 0.
- `longer` (int32): the same as the second for proper suffixes only.
- `pieces` (int32): the number of the piece that a state is; meaningless for other states.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call", no-check-untyped-defs

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.kernels.jit import inner, jit
from weft.kernels.leaves import grown

BITS = 27  # of a state: pieces must have fewer bytes than 1 << BITS, all together
_STATE = (1 << BITS) - 1
_LOW, _MIX = 0xFFFFFFFF, 0x21F0AAAD


class Automaton(NamedTuple):
    """The arrays."""

    first: NDArray[np.int32]
    steps: NDArray[np.int64]
    links: NDArray[np.int32]
    longer: NDArray[np.int32]
    pieces: NDArray[np.int32]


@inner
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


@jit
def build_automaton(data, offsets):
    """The automaton of the pieces data[offsets[p]:offsets[p + 1]] (uint8, int64), which differ and are not empty."""
    most = data.size + 1
    large = _table(most)
    depths, parents = np.zeros(most, np.int32), np.zeros(most, np.int32)
    octets, pieces = np.zeros(most, np.int32), np.empty(most, np.int32)
    pieces[0], states = -1, np.int64(1)
    for piece in range(offsets.size - 1):
        state = np.int64(0)
        for at in range(offsets[piece], offsets[piece + 1]):
            key = 256 * state + np.int64(data[at])
            place = _place(large, key)
            if large[place] < 0:
                large[place] = key << BITS | states
                depths[states], parents[states], octets[states] = depths[state] + 1, state, data[at]
                pieces[states] = -1
                states += 1
            state = large[place] & _STATE
        pieces[state] = piece
    steps = _table(states)
    for at in range(large.size):
        if large[at] >= 0:
            steps[_place(steps, large[at] >> BITS)] = large[at]
    links, longer = np.zeros(2 * states, np.int32), np.zeros(states, np.int32)
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
            back = np.int64(links[2 * parents[state]])
            while True:
                step = steps[_place(steps, 256 * back + np.int64(octets[state]))]
                if step >= 0:
                    links[2 * state] = step & _STATE
                    break
                if back == 0:
                    break
                back = np.int64(links[2 * back])
        longer[state] = links[2 * links[2 * state] + 1]
        links[2 * state + 1] = state if pieces[state] >= 0 else longer[state]
    first = np.zeros(256, np.int32)
    for octet in range(256):
        step = steps[_place(steps, np.int64(octet))]
        if step >= 0:
            first[octet] = step & _STATE
    return Automaton(first, steps, links, longer, pieces[:states].copy())


@jit
def find_pieces(automaton, data, begins, ends, met, stamp, found, offsets):
    """Find the pieces in each text data[begins[t]:ends[t]] (uint8). Fills `offsets` (int64, one more than texts);
    returns `found` (int32), possibly reallocated: the pieces of text t are found[offsets[t]:offsets[t + 1]].

    `met` (int64, one per piece) must hold nothing from `stamp` up to `stamp` and the number of texts.
    """
    first, steps, links = automaton.first, automaton.steps, automaton.links
    size = 0
    offsets[0] = 0
    for text in range(begins.size):
        state = np.int64(0)
        for at in range(begins[text], ends[text]):
            octet = np.int64(data[at])
            step = np.int64(-1)
            while state != 0:
                step = steps[_place(steps, 256 * state + octet)]
                if step >= 0:
                    break
                state = np.int64(links[2 * state])
            state = np.int64(first[octet]) if state == 0 else step & _STATE
            end = np.int64(links[2 * state + 1])
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
