"""The look of tables, everywhere in Weft."""

from __future__ import annotations

from rich import box
from rich.table import Table


def plain_table(title: str | None = None) -> Table:
    """A table with a line under its head and no other."""
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        header_style="bold",
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
