"""Progress of long commands, on stderr. On a terminal it is one line, which is removed at the end; elsewhere plain
lines, one every few seconds and none for quick work. Nothing of it goes to stdout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import typer

from weft.cli.shell import is_quiet, progress_console

EVERY = 5.0  # seconds between two plain lines

ProgressReport = Callable[[str, int, int], None]  # what is being done, how many of how many (0: nobody knows)


class PlainLines:
    """What is being done, in plain lines: one every few seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic, write: Callable[[str], None] | None = None) -> None:
        self._clock = clock
        self._write = write or (lambda line: None if is_quiet() else typer.echo(line, err=True))
        self._start = self._last = clock()

    def __call__(self, what: str, done: int, of: int) -> None:
        """Print a line, if it is time to."""
        now = self._clock()
        if now - self._last >= EVERY:
            self._last = now
            share = f", {done / of:.0%}" if of else ""
            self._write(f"weft: {now - self._start:.0f} s: {what}{share}")


@contextmanager
def bar() -> Iterator[ProgressReport]:
    """A bar on a terminal, plain lines elsewhere."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    page = progress_console()
    if not page.is_terminal:
        yield PlainLines()
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(24), TaskProgressColumn())
    with Progress(*columns, TimeElapsedColumn(), console=page, transient=True) as shown:
        task = shown.add_task("", total=None)
        yield lambda what, done, of: shown.update(task, description=what, completed=done, total=of or None)
