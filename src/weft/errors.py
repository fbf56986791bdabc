"""Every error Weft raises on purpose. Law: each says in one sentence what is wrong and what to do.

WeftError
├── FilterError               a filter that cannot be used
│   ├── FilterSyntaxError     text or JSON that is no filter: line, column, caret, hint
│   └── FilterTooComplexError a filter past a stated limit
├── SchemaError               a schema that is wrong, or lacks what an operation needs
├── EventError                an event, or a batch of them, that cannot be read
├── SnapshotError             a saved index that cannot be opened
├── RangeError                ranges that are no set of curve points, or that cannot be taken back
├── LabelError                labels, or filters of them, that do not fit together or cannot be taken back
├── TuningError               samples or a budget for which no choice of parameters can be made, or a file of none
├── RingError                 a ring, a node or a placement that is wrong, or a node that cannot join
├── LogError                  a log that cannot be opened, read or written
│   ├── LogFullError          the quota or the disk is full: nothing was stored, and the log can go on
│   └── LogFailedError        it is unknown what is stored: the process must end and recover
├── PipelineError             a pipeline that cannot run: no Java, columns missing, bad rows where none may be
└── ProtocolError             the rules between neighbours are broken
    ├── LocalProtocolError    by the caller on this side: nothing was changed, nothing was told
    └── RemoteProtocolError   by the neighbour: what it said is refused as a whole
"""

from __future__ import annotations

_WINDOW = 72


class WeftError(Exception):
    """The base of all errors of Weft."""


class FilterError(WeftError, ValueError):
    """A filter that cannot be used."""


class FilterSyntaxError(FilterError):
    """Text or JSON that is no filter; shows the place with a caret, and a hint where there is one."""

    def __init__(self, message: str, text: str = "", start: int = 0, end: int = 0, hint: str = "") -> None:
        start = max(0, min(start, len(text)))
        before = text.rfind("\n", 0, start) + 1
        self.message = message
        self.text = text
        self.start = start
        self.end = max(end, start + 1)
        self.line = text.count("\n", 0, start) + 1
        self.column = start - before + 1
        self.hint = hint
        super().__init__(message)

    def __reduce__(self) -> tuple[type, tuple[str, str, int, int, str]]:
        return type(self), (self.message, self.text, self.start, self.end, self.hint)

    def __str__(self) -> str:
        place = f"column {self.column}" if self.line == 1 else f"line {self.line}, column {self.column}"
        said = [f"{self.message} at {place}"]
        if self.text:
            said += _excerpt(self.text, self.start, self.end)
        if self.hint:
            said.append(self.hint)
        return "\n".join(said)


class FilterTooComplexError(FilterError):
    """A filter past a stated limit of size, depth or boxes."""


class SchemaError(WeftError, ValueError):
    """A schema that is wrong, or lacks what an operation needs (bounds for a volume, say)."""


class EventError(WeftError, ValueError):
    """An event, or a batch of events, that cannot be read."""


class SnapshotError(WeftError):
    """A saved index that cannot be opened: torn, of another program, or of a newer version."""


class RangeError(WeftError, ValueError):
    """Ranges that are no set of curve points, or that cannot be taken back."""


class LabelError(WeftError, ValueError):
    """Labels, or counting filters of labels, that do not fit together or cannot be taken back."""


class TuningError(WeftError, ValueError):
    """Samples or a budget for which no choice of parameters can be made, or a tuning file that is none."""


class PipelineError(WeftError):
    """A pipeline that cannot run: no Java, no Spark, columns missing, or bad rows where none may be."""


class RingError(WeftError, ValueError):
    """A ring, a node or a placement that is wrong, or a node that cannot join."""


class LogError(WeftError):
    """A log that cannot be opened, read or written."""


class LogFullError(LogError):
    """The quota or the disk is full. Nothing was stored, and the log can go on."""


class LogFailedError(LogError):
    """It is unknown what is stored. The process must end, and recover when it starts again."""


class ProtocolError(WeftError):
    """The rules between neighbours, or between a broker and its table, are broken."""


class LocalProtocolError(ProtocolError):
    """This side did what it must not: nothing was changed, nothing was told."""


class RemoteProtocolError(ProtocolError):
    """The neighbour said what it must not: its message is refused as a whole."""


def _excerpt(text: str, start: int, end: int) -> list[str]:
    """The line around `start`, cut to a readable width, and the carets under it."""
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", start)
    stop = len(text) if stop < 0 else stop
    left = max(begin, start - _WINDOW // 2)
    right = min(stop, left + _WINDOW)
    head = "…" if left > begin else ""
    tail = "…" if right < stop else ""
    line = text[left:right].rstrip("\r").replace("\t", " ")
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    carets = "^" * max(1, min(end, right) - start)
    return [f"  {head}{shown}{tail}", "  " + " " * (len(head) + start - left) + carets]
