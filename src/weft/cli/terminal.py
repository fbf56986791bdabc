"""Text from outside on a terminal: names, filters, reasons and events of others cannot move the cursor, set colours or
spoof lines. What is not printable is shown as an escape sequence of Python or JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

_BREAK = re.compile(r"([\n\t])")


def shown(text: str) -> str:
    r"""A text on one line, without control characters.

    >>> print(shown("a\x1b[2J\n\u202eb"))
    a\x1b[2J\n\u202eb
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def cell(text: str, style: str = "") -> Text:
    """A text in a table."""
    return Text(shown(text), style)


def json_text(facts: Any, indent: int | None = None) -> str:
    r"""JSON in which only printable characters stand for themselves.

    >>> print(json_text({"é": "\x1b\x9b\U000e0001"}))
    {"é": "\u001b\u009b\udb40\udc01"}
    """
    text = json.dumps(facts, indent=indent, ensure_ascii=False)
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1]


class SafeConsole(Console):
    """A console that prints what it is given as text: markup has no effect, and only line ends and tabs pass of what is
    not printable.
    """

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of something."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            if control or text.isprintable():
                yield segment
            else:
                parts = _BREAK.split(text)
                yield Segment("".join(part if _BREAK.fullmatch(part) else shown(part) for part in parts), style)
