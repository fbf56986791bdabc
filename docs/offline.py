"""A built site needs no network. Law: no page or style sheet loads a script, style, font or picture from elsewhere.

Run it as `python docs/offline.py build/docs`; links that a reader may follow are not loaded, and are fine.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

# What a browser fetches by itself while it shows a page.
LOADED = {
    "script": ("src",),
    "link": ("href",),
    "img": ("src", "srcset"),
    "source": ("src", "srcset"),
    "image": ("href", "xlink:href"),
    "use": ("href", "xlink:href"),
    "iframe": ("src",),
    "embed": ("src",),
    "object": ("data",),
    "audio": ("src",),
    "video": ("src", "poster"),
}
ELSEWHERE = re.compile(r"^\s*(?:https?:)?//", re.IGNORECASE)
IN_STYLE = re.compile(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)""", re.IGNORECASE)


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name in LOADED.get(tag, ()) and ELSEWHERE.match(value):
                self.found.append(f"<{tag} {name}={value}>")
            if name == "style":
                self.found += IN_STYLE.findall(value)


def loaded_from_elsewhere(text: str) -> list[str]:
    """What a page (or an SVG picture) would fetch from another host.

    >>> loaded_from_elsewhere('<a href="https://example.org">read</a> <script src="_static/here.js"></script>')
    []
    >>> loaded_from_elsewhere('<img src="//example.org/a.png"><style>@import "https://example.org/a.css"</style>')
    ['<img src=//example.org/a.png>', 'https://example.org/a.css']
    """
    parser = _Loads()
    parser.feed(text)
    return parser.found + [
        url for style in re.findall(r"<style.*?</style>", text, re.DOTALL) for url in IN_STYLE.findall(style)
    ]


def main(site: Path) -> int:
    """Print what is loaded from elsewhere, and say by the exit code whether there is any."""
    pages = sorted([*site.rglob("*.html"), *site.rglob("*.svg")])
    if not pages:
        print(f"{site} has no pages; build the site first", file=sys.stderr)
        return 1
    found = [(page, each) for page in pages for each in loaded_from_elsewhere(page.read_text(encoding="utf-8"))]
    for sheet in sorted(site.rglob("*.css")):
        found += [(sheet, each) for each in IN_STYLE.findall(sheet.read_text(encoding="utf-8"))]
    for page, each in found:
        print(f"{page}: loads {each}", file=sys.stderr)
    print(f"{len(pages)} pages and pictures; {len(found)} load something from another host")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
