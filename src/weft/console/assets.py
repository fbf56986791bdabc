"""The files of the pages, in memory, with their hashes as tags."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

KINDS = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "html": "text/html; charset=utf-8",
}


class Asset(NamedTuple):
    """A file that browsers load."""

    body: bytes
    kind: str
    tag: str  # changes with the file


@cache
def assets() -> dict[str, Asset]:
    """All files by their path below static/. Cost: reads them once."""
    found: dict[str, Asset] = {}

    def add(folder: Traversable, path: str) -> None:
        for each in folder.iterdir():
            name = path + each.name
            if each.is_dir():
                add(each, name + "/")
            elif (kind := KINDS.get(each.name.rpartition(".")[2])) is not None:
                body = each.read_bytes()
                found[name] = Asset(body, kind, f'"{sha256(body).hexdigest()[:16]}"')

    add(files("weft.console") / "static", "")
    return found
