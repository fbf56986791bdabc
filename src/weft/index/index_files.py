"""An `Index` on disk: a snapshot of its tree, and its ids. A directory is opened whole or not at all.

The ids are in `index.json`, sealed with a checksum; the tree is a snapshot in the folder `tree`. The directory gets its
name by a rename, as a snapshot does. Nothing in it is trusted: the ids must be those of the tree's subscriptions.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import SnapshotError, SubscriptionError
from weft.index.id_names import Id, check_names
from weft.index.snapshot import FORMAT as TREE_FORMAT
from weft.index.snapshot_files import opened, write_folder, write_meta
from weft.language.predicate import Predicates

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from weft.index.tree import TreeIndex

FORMAT, VERSION, TREE = "weft-ids", 1, "tree"
_MOST = 2**62  # of the numbers: there must be room for those that follow


def write_index(path: Path, tree: TreeIndex, names: dict[int, Id]) -> None:
    """Write a tree and the ids of its subscriptions to a directory, in place of an older one if there is one."""

    def write(draft: Path) -> None:
        tree.snapshot(draft / TREE)
        write_meta(draft, {"format": FORMAT, "version": VERSION, "numbers": list(names), "ids": list(names.values())})

    write_folder(path, write)


def read_index(
    path: Path, predicates: Predicates, executor: Executor | None, verify: bool
) -> tuple[TreeIndex, dict[int, Id]]:
    """The tree and the ids of a directory. Raises SnapshotError."""
    from weft.index.tree import TreeIndex

    with opened(path) as folder:
        meta = folder.meta()
    kind = meta.get("format") if isinstance(meta, dict) else None
    if kind == TREE_FORMAT:  # of a TreeIndex, whose subscriptions are their own ids
        tree = TreeIndex.open(path, predicates=predicates, executor=executor, verify=verify)
        subs = tree.subscriptions()
        if subs and subs[-1] >= _MOST:
            raise SnapshotError(f"{path} has ids beyond {_MOST}; open it with TreeIndex.open()")
        return tree, {sub: sub for sub in subs}
    if kind != FORMAT or meta.get("version") != VERSION:
        raise SnapshotError(f"{path} was not written by Index.save(), or by another version of Weft; save it again")
    tree = TreeIndex.open(path / TREE, predicates=predicates, executor=executor, verify=verify)
    names = _checked(path, meta)
    if list(names) != tree.subscriptions():
        raise SnapshotError(f"{path} is damaged: its ids are not those of its filters; save it again")
    return tree, names


def _checked(path: Path, meta: dict[str, Any]) -> dict[int, Id]:
    numbers, ids = meta.get("numbers"), meta.get("ids")
    if not isinstance(numbers, list) or not isinstance(ids, list) or len(numbers) != len(ids):
        raise SnapshotError(f"{path} is damaged: it has no list of ids; save it again")
    if not all(type(number) is int and number < _MOST for number in numbers):
        raise SnapshotError(f"{path} is damaged: a number of an id is impossible; save it again")
    try:
        return dict(zip(numbers, check_names(ids), strict=True))
    except SubscriptionError as error:
        raise SnapshotError(f"{path} is damaged: {error}; save it again") from error
