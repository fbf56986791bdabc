"""Events of several files and pipes, one after the other. Lines are read as they come, so that a pipe may be endless;
what is not an event is reported at once, with its place, up to a number, and the others go on.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from weft.cli.arguments import read_event
from weft.cli.event_files import read_events
from weft.cli.input_files import read_bytes
from weft.cli.shell import say
from weft.errors import EventError
from weft.model.event import Event
from weft.model.schema import Schema

_TABLES = (".csv", ".parquet", ".pq")
_LONGEST = 16 * 1024 * 1024  # bytes of a line: an event in JSON takes less
_REMEMBERED = 1_000  # bad events
REPORTED = 20  # bad events that are shown


def _report(place: str, reason: str) -> None:
    say(f"weft: {place}: {reason}", stderr=True)


class EventSource:
    """Iterates over events. `bad` has the place and the reason of the first that are not, and `refused` counts them."""

    def __init__(
        self,
        files: Sequence[str],
        stdin: BinaryIO,
        schema: Schema | None = None,
        report: Callable[[str, str], None] = _report,
        ranges: Collection[str] = (),
    ) -> None:
        self.bad: list[tuple[str, str]] = []
        self.refused = 0  # what is not an event
        self.count = 0  # events so far
        self._files, self._stdin, self._schema, self._report = files, stdin, schema, report
        self._ranges = ranges  # attributes that are pairs: the ends of ranges
        self._starts: list[tuple[int, str]] = []  # the first event of each file
        self._lines = array("q")  # of each event

    def __iter__(self) -> Iterator[Event]:
        for path in self._files:
            self._starts.append((self.count, "" if path == "-" or len(self._files) == 1 else f"{path}: "))
            suffix = "" if path == "-" else Path(path).suffix.lower()
            if suffix in _TABLES:
                yield from self._table(path)
            elif suffix == ".json":
                yield from self._document(path)
            elif path == "-":
                yield from self._from_lines(self._stdin)
            else:
                with Path(path).open("rb") as file:
                    yield from self._from_lines(file)

    def place(self, position: int) -> str:
        """Where an event stood."""
        file = [name for start, name in self._starts if start <= position][-1]
        return f"{file}line {self._lines[position]}"

    def _from_lines(self, file: BinaryIO) -> Iterator[Event]:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), 1):
            if len(line) == _LONGEST:  # nothing that follows can be told apart
                self._refuse(f"line {number}", f"it has more than {_LONGEST:,} bytes; the rest of the file is not read")
                return
            text = line.strip()
            if number == 1:
                text = text.removeprefix(b"\xef\xbb\xbf")
            if not text or text.startswith(b"#"):
                continue
            event = self._read(text, number)
            if event is not None:
                yield event

    def _read(self, text: bytes, number: int) -> Event | None:
        try:
            if text.startswith(b"@"):  # on the command line it names a file; a file names no other
                raise EventError("the event is not a JSON object")
            event = self._ranged(read_event(text.decode(), self._schema))
        except UnicodeDecodeError:
            self._refuse(f"line {number}", "it is not valid UTF-8")
            return None
        except EventError as error:
            self._refuse(f"line {number}", str(error))
            return None
        self._lines.append(number)
        self.count += 1
        return event

    def _ranged(self, event: Event) -> Event:
        if not self._ranges:
            return event
        from weft.ring.filter_semantics import ranged_event

        return Event(ranged_event(event.attributes, self._ranges), event.payload)

    def _document(self, path: str) -> Iterator[Event]:
        """One JSON object, or an array of them; otherwise lines."""
        data = read_bytes(path, lambda: b"", EventError)
        try:
            tree = json.loads(data)
        except (ValueError, RecursionError):
            with Path(path).open("rb") as file:
                yield from self._from_lines(file)
            return
        for number, item in enumerate(tree if isinstance(tree, list) else [tree], 1):
            event = self._read(json.dumps(item).encode(), number)
            if event is not None:
                yield event

    def _table(self, path: str) -> Iterator[Event]:
        import numpy as np

        found = read_events(path, lambda: b"", self._schema, np.random.default_rng(0))
        for bad in found.refused:
            self._refuse(bad.place, str(bad.error))
        for number, event in enumerate(found.events, 1):
            try:
                ranged = self._ranged(event)
            except EventError as error:
                self._refuse(f"line {number + 1}", str(error))
                continue
            self._lines.append(number + 1)  # after the header
            self.count += 1
            yield ranged

    def _refuse(self, place: str, reason: str) -> None:
        name = self._starts[-1][1]
        self.refused += 1
        if self.refused <= REPORTED:
            self._report(f"{name}{place}", reason)
        if self.refused <= _REMEMBERED:
            self.bad.append((f"{name}{place}", reason))
