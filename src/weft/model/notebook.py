"""HTML for notebooks: small tables of text. Everything shown is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_MOST = 200  # characters of a cell


def html_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], more: int = 0) -> str:
    """A table with a caption; `more` is how many further rows there are.

    >>> html_table("2 filters", ["id", "filter"], [("a", "x < 3")], more=1)
    '<table><caption>2 filters</caption><thead><tr><th>id</th><th>filter</th></tr></thead><tbody><tr><td>a</td>\
<td>x &lt; 3</td></tr><tr><td colspan="2">1 more</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    rest = f'<tr><td colspan="{len(heads)}">{more:,} more</td></tr>' if more else ""
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}{rest}</tbody></table>"
    )


def _cell(value: object) -> str:
    text = str(value)
    return escape(text if len(text) <= _MOST else text[: _MOST - 3] + "...")
