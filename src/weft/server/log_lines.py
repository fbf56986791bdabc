"""The log lines of a broker for its operator.

A line is one line, whatever a client sent, and shows nothing secret. A flood of the same lines is counted, not written.
As text: `2026-11-16T13:45:00.123Z info listening address=weft://localhost:9338`. As JSON: one object per line, with the
same names.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Literal

Level = Literal["debug", "info", "warning", "error"]
_LEVELS: dict[str, int] = {"debug": 0, "info": 1, "warning": 2, "error": 3}
_PLAIN = re.compile(r"[!#-<>-~]+")  # printable ASCII without space, quote and equals sign
_LONG = 2_000  # characters of a value
_BURST, _PERIOD = 20, 10.0  # lines about the same event within so many seconds; the rest is counted


class LogLines:
    """Writes lines.

    >>> lines = LogLines(write=print, now=lambda: "2026-11-16T13:45:00.123Z")
    >>> lines.info("refused", client="eve\\nerror all is lost", attempt=3)
    2026-11-16T13:45:00.123Z info refused client="eve\\nerror all is lost" attempt=3
    """

    def __init__(
        self,
        style: Literal["text", "json"] = "text",
        level: Level = "info",
        write: Callable[[str], Any] | None = None,
        now: Callable[[], str] | None = None,
        **always: Any,
    ) -> None:
        self._always = always  # fields of every line
        self._json = style == "json"
        self._least = _LEVELS[level]
        self._write = write or _to_stderr
        self._now = now or _utc
        self._recent: dict[str, tuple[float, int]] = {}  # by event: since when, and how many

    def debug(self, event: str, **fields: Any) -> None:
        """Write a line that helps to find a fault."""
        self.line("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Write a line about normal operation."""
        self.line("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Write a line that an operator should read."""
        self.line("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Write a line about something that must be fixed."""
        self.line("error", event, fields)

    def audit(self, event: str, **fields: Any) -> None:
        """Write a line about a change that somebody made. None is left out, whatever the level and however many."""
        self._put("audit", event, fields)

    def line(self, level: Level, event: str, fields: dict[str, Any]) -> None:
        """Write a line, unless there were many about the same event just now."""
        if _LEVELS[level] < self._least:
            return
        since, number = self._recent.get(event, (0.0, 0))
        now = monotonic()
        if now - since > _PERIOD:
            if number > _BURST:
                self._put(level, "repeated", {"what": event, "times": number - _BURST})
            since, number = now, 0
        self._recent[event] = since, number + 1
        if number < _BURST:
            self._put(level, event, fields)

    def _put(self, level: str, event: str, fields: dict[str, Any]) -> None:
        fields = {**self._always, **fields}
        if self._json:
            row = {"at": self._now(), "level": level, "event": event, **{k: _cut(v) for k, v in fields.items()}}
            self._write(json.dumps(row, default=str))
        else:
            said = "".join(f" {name}={_shown(value)}" for name, value in fields.items())
            self._write(f"{self._now()} {level} {event}{said}")


def _cut(value: Any) -> Any:
    """A value that is not too long."""
    if isinstance(value, (int, float, bool)) or value is None:
        return value
    text = str(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def _shown(value: Any) -> str:
    """A value in one word, or in quotes with everything odd escaped."""
    text = str(_cut(value))
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _utc() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
