"""Lines for the operator: one line each, whatever is in them."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from weft.server import log_lines
from weft.server.log_lines import LogLines


def written(style="text", level="info"):
    lines = []
    return LogLines(style, level, write=lines.append, now=lambda: "T"), lines


@given(st.text())
def test_a_value_never_makes_a_second_line(value):
    for style in ("text", "json"):
        out, lines = written(style)
        out.info("refused", reason=value)
        assert len(lines) == 1
        assert lines[0].isascii()
        assert lines[0].isprintable()
        assert len(lines[0].splitlines()) == 1
    assert json.loads(lines[0])["reason"] == (value if len(value) <= 2_000 else f"{value[:2_000]}...")


def test_a_value_cannot_pretend_to_be_another_field():
    out, lines = written()
    out.info("refused", client="eve level=error event=stopped", attempt=1)
    assert lines == ['T info refused client="eve level=error event=stopped" attempt=1']


def test_lines_below_the_level_are_not_written():
    out, lines = written(level="warning")
    out.info("listening")
    out.debug("connected")
    out.error("failed")
    assert lines == ["T error failed"]


def test_a_flood_is_counted(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(log_lines, "monotonic", lambda: now[0])
    out, lines = written()
    for n in range(1_000):
        out.warning("garbled", n=n)
    assert len(lines) == 20
    now[0] += 11
    out.warning("garbled", n=1_000)
    assert lines[20:] == ["T warning repeated what=garbled times=980", "T warning garbled n=1000"]
