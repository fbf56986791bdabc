"""Docstrings are plain text, and this Sphinx extension shows them as such. Law: what a terminal shows, the site shows.

Docstrings have doctests, names in backquotes, drawn trees and Markdown tables. Sphinx reads reStructuredText, which
knows the first two; drawn trees become literal blocks here, and tables become `list-table` directives. The blank line
that ends an example, so that doctest does not take the fence for output, is not shown.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

DRAWN = ("├", "└", "│", "─")


def indent_of(line: str) -> str:
    """The blanks that a line begins with."""
    return line[: len(line) - len(line.lstrip())]


def table(rows: list[str]) -> list[str]:
    """A Markdown table as a directive; its second row only divides the head from the body.

    >>> print(*table(["| a | b |", "|---|---|", "| 1 | |"]), sep="\\n")
    .. list-table::
       :header-rows: 1
    <BLANKLINE>
       * - a
         - b
       * - 1
         -
    """
    before = indent_of(rows[0])
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [rows[0], *rows[2:]]:
        cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
        lines += [f"   {'* -' if at == 0 else '  -'} {cell}".rstrip() for at, cell in enumerate(cells)]
    return [f"{before}{line}" if line else "" for line in lines]


def to_rst(lines: list[str]) -> list[str]:
    """A docstring, paragraph by paragraph.

    >>> to_rst(["Errors.", "", "WeftError", "├── A   one", "└── B   two"])
    ['Errors.', '', '::', '', '   WeftError', '   ├── A   one', '   └── B   two', '']
    """
    made: list[str] = []
    for blank, group in groupby(lines, key=lambda line: not line.strip()):
        paragraph = list(group)
        if blank:
            made += paragraph
        elif any(line.lstrip().startswith(DRAWN) for line in paragraph) and ">>>" not in paragraph[0]:
            made += ["::", "", *(f"   {line}" for line in paragraph), ""]
        elif len(paragraph) > 2 and all(line.lstrip().startswith("|") for line in paragraph):
            made += [*table(paragraph), ""]
        else:
            made += paragraph
    return made


def _rewrite(app: Any, what: str, name: str, about: Any, options: Any, lines: list[str]) -> None:  # noqa: ARG001, PLR0917
    lines[:] = to_rst(lines)


def _trim(app: Any, doctree: Any) -> None:  # noqa: ARG001
    from docutils import nodes  # the tests import this module, and may lack Sphinx

    for block in doctree.findall(nodes.literal_block):
        block.rawsource = block.astext().rstrip("\n")  # Sphinx highlights what equals its source
        block[:] = [nodes.Text(block.rawsource)]


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls."""
    app.connect("autodoc-process-docstring", _rewrite)
    app.connect("doctree-read", _trim)
    return {"parallel_read_safe": True}
