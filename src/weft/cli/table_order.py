"""The order of arguments: every command that takes both takes events first, then rules. Files in the other order are
recognised by what they hold, and exchanged with a note.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection
from glob import glob
from pathlib import Path

from weft.cli.shell import say_notes

_HEAD = 1 << 16  # bytes in which a header or a first line ends


def in_order(events: str, rules: str, filter_column: str = "filter") -> tuple[str, str]:
    """The events and the rules, exchanged if the first file holds rules and the second does not."""
    if _holds_rules(events, filter_column) and not _holds_rules(rules, filter_column):
        say_notes([f"{events} holds rules and was taken for them; the order of arguments is EVENTS RULES"])
        return rules, events
    return events, rules


def _holds_rules(path: str, column: str) -> bool:
    """Whether a file of this machine certainly holds rules; False also if it cannot be read: others say why."""
    try:
        found = _first_file(path)
        return found is not None and _is_of_rules(found, column)
    except (OSError, ValueError, RecursionError):  # Arrow's errors are ValueErrors
        return False


def _first_file(path: str) -> Path | None:
    """The first file of a path: a file, a folder or a pattern. Pipes and devices are not opened."""
    folder = Path(path)
    if folder.is_file():
        return folder
    names = sorted(folder.iterdir() if folder.is_dir() else map(Path, glob(path)))
    return next((each for each in names if each.is_file() and not each.name.startswith(("_", "."))), None)


def _is_of_rules(path: Path, column: str) -> bool:
    suffixes = [each.lower() for each in path.suffixes[-2:]]
    if suffixes[-1:] in ([".parquet"], [".pq"]):
        from pyarrow import parquet

        return _are_of_rules(parquet.read_schema(path).names, column)
    with gzip.open(path) if suffixes[-1:] == [".gz"] else path.open("rb") as file:
        lines = file.read(_HEAD).decode("utf-8-sig", "replace").splitlines()
    if ".csv" in suffixes:
        return bool(lines) and _are_of_rules([each.strip('" ') for each in lines[0].split(",")], column)
    first = next((line.strip() for line in lines if line.strip() and not line.startswith(("#", "--"))), "")
    if not first.startswith("{"):
        return bool(first) and path.suffix.lower() in ("", ".txt")  # an event is a JSON object
    return _are_of_rules(json.loads(first), column)


def _are_of_rules(names: Collection[str], column: str) -> bool:
    """Whether rules have these columns: their texts, or an id and bounds."""
    bounds = [name for name in names if name.endswith("_low") and f"{name.removesuffix('_low')}_high" in names]
    return column in names or ("id" in names and bool(bounds))
