"""Events as lines of text. Whatever an event contains, it takes one line, without control characters."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import datetime
from typing import Any

from weft.cli.terminal import json_text, shown
from weft.client.events import SyncReceivedEvent
from weft.client.history import HistoricEvent
from weft.model.value import format_timestamp, to_micros

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
                min(_WIDEST, max(len(shown(name)), len(cell))) for name, cell in zip(self._names, cells, strict=True)
            ]
            lines.append(self._row("offset", [*map(shown, self._names)]))
        cells = [_shown(attributes[name]) if name in attributes else "" for name in self._names]
        others = [f"{shown(name)}={_shown(value)}" for name, value in attributes.items() if name not in self._names]
        lines.append("  ".join([self._row(str(offset), cells), *others]) if others else self._row(str(offset), cells))
        return lines

    def _row(self, offset: str, cells: list[str]) -> str:
        parts = [f"{offset:<7}", *(f"{cell:<{width}}" for cell, width in zip(cells, self._widths, strict=True))]
        return "  ".join(parts).rstrip() if cells and cells[-1] else "  ".join(parts)


def _shown(value: Any) -> str:
    return shown(format_timestamp(to_micros(value)) if isinstance(value, datetime) else str(value))


def plain(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes as JSON has them: timestamps are text."""
    return {
        name: format_timestamp(to_micros(value)) if isinstance(value, datetime) else value
        for name, value in attributes.items()
    }


def json_line(event: SyncReceivedEvent | HistoricEvent) -> str:
    """An event as one line of JSON. A payload that is neither JSON nor text is in base64."""
    facts: dict[str, Any] = {"offset": event.offset}
    if isinstance(event, SyncReceivedEvent):
        facts["attempt"] = event.attempt
    facts |= {"stored_at": format_timestamp(to_micros(event.stored_at)), "attributes": plain(event.attributes)}
    if event.payload:
        facts |= _payload(event)
    return json_text(facts)


def _payload(event: SyncReceivedEvent | HistoricEvent) -> dict[str, Any]:
    kind = event.datacontenttype or str(event.attributes.get("datacontenttype", ""))
    facts: dict[str, Any] = {"datacontenttype": kind} if kind else {}
    try:
        text = event.payload.decode()
        return facts | {"payload": json.loads(text) if "json" in kind else text}
    except (ValueError, RecursionError):
        return facts | {"payload_base64": b64encode(event.payload).decode()}
