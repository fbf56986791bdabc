"""A process that appends to a log until it is killed, again and again.

For every line on standard input a child is forked that opens the log and commits groups; its pid, and after every
commit the next offset, go to standard output. Everything in the log follows from the offsets.
"""

from __future__ import annotations

import os
import sys

import numpy as np

from weft.log.base import Events, Group, MoveFloor, MovePublisher, Offset, Put, SeatId, SessionId, SessionRow, SubRow
from weft.log.opening import open_log

SEATS = 3


def event(offset: int) -> tuple[bytes, bytes, list[int]]:
    """The head, the payload and the seats that the event with this offset has."""
    payload = bytes([offset % 251]) * (offset * 37 % 1500)
    return f"head {offset}".encode(), payload, list(range(1, 1 + offset % (1 + SEATS)))


def events(first: int, number: int) -> Events:
    made = [event(offset) for offset in range(first, first + number)]
    return Events(
        Offset(first),
        np.array([(7, 1, offset) for offset in range(first, first + number)], np.int64),
        [head for head, _, _ in made],
        [payload for _, payload, _ in made],
        np.cumsum([0, *(len(seats) for _, _, seats in made)], dtype=np.uint32),
        np.array([seat for _, _, seats in made for seat in seats], np.uint32),
    )


def append(directory: str) -> None:
    log = open_log(directory).log
    state = log.restore()
    if state.next == 1:
        rows = [SubRow(SeatId(seat), SessionId(7), seat, "x > 5", b"", Offset(1), Offset(1)) for seat in (1, 2, 3)]
        log.commit([Group(1, changes=(Put(SessionRow(SessionId(7), "s", "", 1, 1, 0)), *map(Put, rows)))])
    after, step = int(log.restore().next), 0
    while True:
        groups = []
        for _ in range(1 + step % 3):
            number = 1 + (after * 7 + step) % 40
            seats = [MoveFloor(SeatId(seat), Offset(after + number)) for seat in range(1, 1 + SEATS)]
            moved = MovePublisher(SessionId(7), 1, after + number - 1)
            groups.append(Group(after + number, events(after, number), (*seats, moved)))
            after += number
        log.commit(groups)
        os.write(1, f"{after}\n".encode())
        if step % 5 == 4:
            log.trim(Offset(after - 2000), most=20)
        step += 1


def main() -> None:
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            try:
                append(sys.argv[1])
            finally:
                os._exit(1)
        os.write(1, f"pid {child}\n".encode())
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            raise RuntimeError("the appender failed")
        os.write(1, b"ended\n")


if __name__ == "__main__":
    main()
