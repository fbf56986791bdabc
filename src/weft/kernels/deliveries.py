"""The deliveries of a batch: who gets which event, and their frames as bytes. Each match is in one frame, and the
frames of a queue are in the order of the events. The bytes are those that the codec would write.

The matches of event e are slots[offsets[e] : offsets[e + 1]] (int64). Frame i is event events[i], with the numbers of
subscriptions packed[starts[i] : starts[i + 1]] in bytes (`starts` is int64).
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call", no-check-untyped-defs

from __future__ import annotations

import numpy as np

from weft.kernels.jit import inlined, jit

MOST_BEFORE = 39  # bytes of a delivery before its numbers: a length, an array of 8, a tag, three numbers, 1, a length
_PAYLOAD = 5  # bytes of the length of a payload, at most


@jit
def group_frames(offsets, slots, rows, place, room, drawn, numbers, seats, firsts, second, fading):
    """Group the matches of a batch by queue and event. Returns how many queues, frames and seats there are.

    rows[slot] (uint32) is the queue, the number and the seat of a subscription; seat 0 is none. Each match is counted
    in the next two places of the row, the lower half first. Behind that are the last `second` (uint32), the weight of
    all matches for a moving average (float32), and the first second; fading[n] (float32) is what n seconds leave of a
    weight, the last also what more leave. `place` (int64, by
    queue) is -1 everywhere, before and after. `room` (int64) has six rows that are longer than `slots`, `drawn`
    (uint32) two that are as long. Written to the rows of `room`: 0, the queues that were met; 1, where the frames of
    each end; 2 and 3, events and starts of the frames. `numbers` (uint32) are those of the frames; `seats` of event e
    (uint32) are from firsts[e] (uint32) on.

    Rows lie far apart in memory: they are read first, in one loop that waits for many of them at once. Matches of one
    queue often follow one another, and are counted and copied together.
    """
    queues, ends, events, starts, ids, last = room[0], room[1], room[2], room[3], room[4], room[5]
    whose, given = drawn[0], drawn[1]
    weights, longest = rows.view(np.float32), np.uint32(fading.size - 1)
    for match in range(slots.size):
        slot = np.uint64(slots[match])
        whose[match], given[match], seats[match] = rows[slot, 0], rows[slot, 1], rows[slot, 2]
        count = np.uint32(rows[slot, 3] + np.uint32(1))
        rows[slot, 3] = count
        rows[slot, 4] += count == 0
        last_time = rows[slot, 5]
        if last_time != second:
            if last_time == 0:
                rows[slot, 7] = second
            weights[slot, 6] *= fading[min(np.uint32(second - last_time), longest)]
            rows[slot, 5] = second
        weights[slot, 6] += np.float32(1)
    met = many = 0
    one = np.uint64(1)
    firsts[0] = 0
    for event in range(offsets.size - 1):
        at, end = np.uint64(offsets[event]), np.uint64(offsets[event + 1])
        while at < end:
            queue, begin = whose[at], at
            while at < end and whose[at] == queue:
                at += one
            mine = place[queue]
            if mine < 0:
                mine = place[queue] = met
                queues[met] = queue
                ends[met] = ids[met] = 0
                last[met] = -1
                met += 1
            ids[mine] += np.int64(at - begin)
            ends[mine] += last[mine] != event
            last[mine] = event
        for match in range(offsets[event], offsets[event + 1]):
            seat = seats[match]
            seats[many] = seat
            many += seat != 0
        firsts[event + 1] = many
    matches = frames = 0
    for mine in range(met):
        matches, ids[mine] = matches + ids[mine], matches
        frames, ends[mine] = frames + ends[mine], frames
        last[mine] = -1
    for event in range(offsets.size - 1):
        at, end = np.uint64(offsets[event]), np.uint64(offsets[event + 1])
        while at < end:
            queue = whose[at]
            mine = place[queue]
            to = np.uint64(ids[mine])
            if last[mine] != event:
                last[mine] = event
                events[ends[mine]] = event
                starts[ends[mine]] = 4 * ids[mine]
                ends[mine] += 1
            while at < end and whose[at] == queue:
                numbers[to] = given[at]
                at += one
                to += one
            ids[mine] = np.int64(to)
    starts[frames] = 4 * matches
    for mine in range(met):
        place[queues[mine]] = -1
    return met, frames, many


@inlined
def _put_wide(out, at, value, width):
    """A number in this many bytes, the highest first; returns where it ends."""
    for place in range(width):
        out[at + place] = (value >> (8 * (width - 1 - place))) & 0xFF
    return at + width


@inlined
def _put_number(out, at, value):
    """A number that is not negative, in as few bytes as possible; returns where it ends."""
    if value < 0x80:
        out[at] = value
        return at + 1
    if value <= 0xFF:
        out[at], width = 0xCC, 1
    elif value <= 0xFFFF:
        out[at], width = 0xCD, 2
    elif value <= 0xFFFFFFFF:
        out[at], width = 0xCE, 4
    else:
        out[at], width = 0xCF, 8
    return _put_wide(out, at + 1, value, width)


@inlined
def _put_length(out, at, size):
    """The length of bytes that follow; returns where it ends."""
    if size <= 0xFF:
        out[at], width = 0xC4, 1
    elif size <= 0xFFFF:
        out[at], width = 0xC5, 2
    else:
        out[at], width = 0xC6, 4
    return _put_wide(out, at + 1, size, width)


@inlined
def _copy(source, begin, end, out, at):
    """Copy bytes; returns where they end. Unsigned places never count from the end of an array, which makes the loop
    one that a processor does many bytes at a time.
    """
    first, to = np.uint64(begin), np.uint64(at)
    for place in range(np.uint64(end - begin)):
        out[to + place] = source[first + place]
    return at + end - begin


@jit
def measure_frames(runs, events, starts, heads, payloads, sizes):
    """Write to `sizes` (int64) how many bytes the frames of all runs take at most, and the longest of them.

    A run (a row of int64) has the first of its frames, the one after its last, and what `write_frames` asks for. The
    head of event e is from heads[e] to heads[e + 1] (int64), and its payload likewise.
    """
    total = longest = 0
    for run in range(len(runs)):
        for frame in range(runs[run, 0], runs[run, 1]):
            event = events[frame]
            body = heads[event + 1] - heads[event] + payloads[event + 1] - payloads[event]
            size = MOST_BEFORE + _PAYLOAD + starts[frame + 1] - starts[frame] + body
            total += size
            longest = max(longest, size)
    sizes[0], sizes[1] = total, longest


@jit
def write_frames(runs, events, starts, packed, heads, head_bytes, payloads, payload_bytes, fields, out, ends):
    """Write the frames of all runs to `out` (uint8), and to `ends` (int64) where those of each run end.

    A run has, besides its frames, the queue's number, and 1 if its events have offsets or 0 if they have none. `fields`
    (int64): the message's tag, the offset of event 0, and the time. The attempt is 1. Heads and payloads are as for
    `measure_frames`, with their bytes (uint8).
    """
    tag, first, time = fields[0], fields[1], fields[2]
    at = 0
    for run in range(len(runs)):
        queue, numbered = runs[run, 2], runs[run, 3]
        for frame in range(runs[run, 0], runs[run, 1]):
            event = events[frame]
            begin = at
            out[at + 4] = 0x98
            at = _put_number(out, at + 5, tag)
            at = _put_number(out, at, queue)
            at = _put_number(out, at, numbered * (first + event))
            out[at] = 1
            at = _put_number(out, at + 1, time)
            at = _put_length(out, at, starts[frame + 1] - starts[frame])
            at = _copy(packed, starts[frame], starts[frame + 1], out, at)
            at = _copy(head_bytes, heads[event], heads[event + 1], out, at)
            at = _put_length(out, at, payloads[event + 1] - payloads[event])
            at = _copy(payload_bytes, payloads[event], payloads[event + 1], out, at)
            _put_wide(out, begin, at - begin - 4, 4)
        ends[run] = at
