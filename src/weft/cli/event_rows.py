"""Events as lines of text. Law: whatever an event holds, it takes one line, without control characters."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import datetime
from typing import Any

from weft.model.value import format_timestamp, to_micros
from weft.net.received import SyncReceivedEvent

_WIDEST = 24  # characters of a column


class EventRows:
    """A table that grows. The first event decides on the columns; what does not fit them follows as name=value.

    >>> rows = EventRows()
    >>> rows.of(7, {"place": "Chile", "magnitude": 6.1})
    ['offset   place  magnitude', '7        Chile  6.1']
    >>> rows.of(12, {"place": "Peru", "depth": 10})
    ['12       Peru              depth=10']
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._widths: list[int] = []

    def lines(self, event: SyncReceivedEvent) -> list[str]:
        """The line of an event; before the first one, the header."""
        extra = f"  ({len(event.payload):,} bytes)" if event.payload else ""
        *head, last = self.of(event.offset, event.attributes)
        return [*head, last + extra]

    def of(self, offset: int, attributes: dict[str, Any]) -> list[str]:
        """The same, of an offset and attributes."""
        lines = []
        if not self._widths:
            self._names = list(attributes)
            cells = [_shown(attributes[name]) for name in self._names]
            self._widths = [
                min(_WIDEST, max(len(name), len(cell))) for name, cell in zip(self._names, cells, strict=True)
            ]
            lines.append(self._row("offset", self._names))
        cells = [_shown(attributes[name]) if name in attributes else "" for name in self._names]
        others = [f"{_clean(name)}={_shown(value)}" for name, value in attributes.items() if name not in self._names]
        lines.append("  ".join([self._row(str(offset), cells), *others]) if others else self._row(str(offset), cells))
        return lines

    def _row(self, offset: str, cells: list[str]) -> str:
        parts = [f"{offset:<7}", *(f"{cell:<{width}}" for cell, width in zip(cells, self._widths, strict=True))]
        return "  ".join(parts).rstrip() if cells and cells[-1] else "  ".join(parts)


def _shown(value: Any) -> str:
    return _clean(format_timestamp(to_micros(value)) if isinstance(value, datetime) else str(value))


def _clean(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def plain(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes as JSON has them: timestamps are text."""
    return {
        name: format_timestamp(to_micros(value)) if isinstance(value, datetime) else value
        for name, value in attributes.items()
    }


def json_line(event: SyncReceivedEvent) -> str:
    """An event as one line of JSON. A payload that is neither JSON nor text is in base64."""
    facts: dict[str, Any] = {
        "offset": event.offset,
        "attempt": event.attempt,
        "stored_at": format_timestamp(to_micros(event.stored_at)),
        "attributes": plain(event.attributes),
    }
    if event.payload:
        facts |= _payload(event)
    return json.dumps(facts, ensure_ascii=False)


def _payload(event: SyncReceivedEvent) -> dict[str, Any]:
    kind = event.datacontenttype or str(event.get("datacontenttype", ""))
    facts: dict[str, Any] = {"datacontenttype": kind} if kind else {}
    try:
        if "json" in kind:
            return facts | {"payload": event.json()}
        return facts | {"payload": event.text}
    except (ValueError, RecursionError):
        return facts | {"payload_base64": b64encode(event.payload).decode()}
