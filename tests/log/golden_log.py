"""The log of the golden files, one directory for each format: tests/golden/log/v1 was written by format 1.

`python -m log.golden_log DIRECTORY` writes it in the present format. A golden file is never written again: whoever
changes the format adds a directory, and a step to `weft.log.schema.UPGRADES`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from log.log_cases import events
from weft.log.base import (
    AdvertRow,
    DeadRow,
    Group,
    HeardRow,
    LinkRow,
    MoveFloor,
    MoveGot,
    MovePublisher,
    MoveRow,
    Offset,
    ProfileRow,
    Put,
    SeatId,
    SessionId,
    SessionRow,
    SetMeta,
    ShownRow,
    SubRow,
)
from weft.log.opening import LogOptions, open_log
from weft.model.schema import Schema

SCHEMA = Schema.of(magnitude="float", place="string")
GROUPS = (
    Group(
        1000,
        None,
        (
            Put(SessionRow(SessionId(77), "ops", "alice", 3, 1, 0)),
            Put(SubRow(SeatId(1), SessionId(77), 1, "magnitude >= 5", b"\x01", Offset(1), Offset(1))),
            Put(SubRow(SeatId(2), SessionId(77), 2, "place = 'Chile'", b"", Offset(1), Offset(1), b"a", b"t")),
            Put(AdvertRow(1, SessionId(77), "magnitude > 0")),
            Put(LinkRow(SeatId(3), "north", "peer", "ab" * 16, 5, Offset(1))),
            Put(HeardRow(SeatId(3), 0, 9, b"item")),
            SetMeta("space", b"labels"),
        ),
    ),
    Group(2000, events(1, [1], [2, 3], [])),
    Group(2000, events(10, [1, 2, 3], payload=bytes(9000))),
    Group(
        3000,
        events(11, [3]),
        (
            MoveFloor(SeatId(1), Offset(10), b"above", b"attempts"),
            MoveGot(SeatId(3), 6),
            MovePublisher(SessionId(77), 1, 12),
            Put(DeadRow(SeatId(2), Offset(2), 5, "bad", 2500, b"body")),
        ),
    ),
)
MOVES = Group(4000, None, (Put(MoveRow(SessionId(77), 1, 4, "south", 9, 12, 0, b"body")),))
PROFILES = Group(
    5000,
    None,
    (
        Put(HeardRow(SeatId(3), 0, 9, b"profile", 1)),
        Put(ProfileRow(4, SessionId(77), "7", "magnitude > 6", 4500, 9000, 11, b"stay inside")),
        Put(ShownRow(SeatId(1), 99, "station", "8", 4600, 9100)),
    ),
)
FILTERS = Group(6000, None, (Put(ShownRow(SeatId(1), 98, "station", "9", 4700, 9200, 1 << 62)),))
BY_FORMAT = {  # what each golden log holds
    1: GROUPS,
    2: (*GROUPS, MOVES),
    3: (*GROUPS, MOVES, PROFILES),
    4: (*GROUPS, MOVES, PROFILES, FILTERS),
}


def write(directory: Path) -> None:
    log = open_log(directory, LogOptions(schema=SCHEMA, entropy=lambda size: b"\x07" * size)).log
    log.commit(GROUPS[:2])
    log.commit(GROUPS[2:])
    log.commit([MOVES])
    log.commit([PROFILES])
    log.commit([FILTERS])
    log.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
