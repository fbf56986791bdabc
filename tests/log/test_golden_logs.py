"""Logs of every format that was ever released are opened, upgraded, and hold what they held."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import asdict

from log.golden_log import BY_FORMAT, SCHEMA
from log.log_cases import plain
from weft.log.base import Offset, SeatId
from weft.log.memory import MemoryLog
from weft.log.opening import LogOptions, open_log
from weft.log.schema import DATABASE, FORMAT
from weft.log.tools import verify

GOLDEN = Path(__file__).parent.parent / "golden" / "log"


def test_there_is_a_golden_log_of_every_format():
    assert sorted(path.name for path in GOLDEN.iterdir()) == [f"v{number}" for number in range(1, FORMAT + 1)]


@pytest.mark.parametrize("version", range(1, FORMAT + 1))
def test_a_golden_log_is_opened(version, tmp_path):
    for path in (GOLDEN / f"v{version}").iterdir():
        shutil.copy(path, tmp_path)
    opened = open_log(tmp_path, LogOptions(schema=SCHEMA))
    log, twin = opened.log, MemoryLog()
    twin.commit(BY_FORMAT[version])
    assert opened.upgraded == FORMAT - version
    assert opened.copied, "a golden file is a copy"
    found, wanted = asdict(log.restore()), asdict(twin.restore())
    assert found.pop("incarnation") == 2
    for each in ("log_id", "incarnation"):
        found.pop(each, None), wanted.pop(each)
    assert found == wanted
    assert plain(list(log.read(Offset(1), 99))) == plain(list(twin.read(Offset(1), 99)))
    assert log.dead(SeatId(2), Offset(0), 9) == twin.dead(SeatId(2), Offset(0), 9)
    log.close()
    assert not verify(tmp_path).problems
    assert (tmp_path / DATABASE).exists()
