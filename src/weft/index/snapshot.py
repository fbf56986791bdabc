"""Segments on disk. Laws: a directory is opened whole or not at all, and says why; opened, it is mapped into memory, so
that many processes share one copy.

A snapshot is a directory of numpy files and `index.json`, which names them with their sizes and checksums, and is
written last; the directory gets its name by a rename. What is no array (axes, strings, boxes) is in the JSON, filters
as their texts.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import Box
from weft.algebra.express import express
from weft.algebra.normalize import normalize
from weft.algebra.residual import Called, Relation
from weft.errors import FilterError, SnapshotError
from weft.index.axis import Axis
from weft.index.dimension import Dimension
from weft.index.rows import Rows
from weft.index.segment import Segment, Shape, Tree
from weft.language.ast import Call
from weft.language.predicate import Predicates
from weft.language.text import parse
from weft.model.schema import Schema

FORMAT, VERSION = "weft-index", 2
_META = "index.json"
_ROW_ARRAYS = ("starts", "dims", "lows", "highs", "slots", "subs")
_OWN_ARRAYS = ("special", "sorted_subs", "sorted_slots")


def write_snapshot(path: Path, segment: Segment, schema: Schema | None) -> None:
    """Write a segment to a directory, in place of an older snapshot if there is one."""
    if path.exists() and not (path / _META).exists():
        raise SnapshotError(f"{path} is there and is no snapshot: choose another place")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        files = {name: _write(draft / f"{name}.npy", array) for name, array in _arrays(segment).items()}
        meta = {"format": FORMAT, "version": VERSION, "files": files, **_described(segment, schema)}
        text = json.dumps(meta, ensure_ascii=False)
        sealed = json.dumps({"checksum": zlib.crc32(text.encode()), "index": text}, ensure_ascii=False)
        (draft / _META).write_text(sealed, encoding="utf-8")
        old = Path(tempfile.mkdtemp(prefix=f".{path.name}-old-", dir=path.parent))
        if path.exists():
            os.replace(path, old / "snapshot")
        os.replace(draft, path)
        shutil.rmtree(old)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def read_snapshot(path: Path, predicates: Predicates) -> tuple[Segment, Schema | None]:
    """The segment of a directory, mapped into memory. Raises SnapshotError."""
    meta = _read_meta(path)
    arrays = {name: _map(path / f"{name}.npy", said) for name, said in meta["files"].items()}
    try:
        return _built(meta, arrays, predicates)
    except FilterError as error:
        raise SnapshotError(f"{path} has a filter that cannot be read here: {error}") from error
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SnapshotError(f"{path} is torn: {error!r}") from error


def _arrays(segment: Segment) -> dict[str, NDArray[Any]]:
    arrays = {f"tree_{name}": array for name, array in segment.tree._asdict().items()}
    arrays |= {f"rows_{name}": getattr(segment.rows, name) for name in _ROW_ARRAYS}
    arrays |= {name: getattr(segment, name) for name in _OWN_ARRAYS}
    for at, dimension in enumerate(segment.rows.dimensions):
        if not dimension.inexact:
            arrays |= {f"numbers_{at}": dimension.numbers, f"sides_{at}": dimension.sides}
        arrays[f"moments_{at}"] = dimension.moments
    return arrays


def _described(segment: Segment, schema: Schema | None) -> dict[str, Any]:
    rows = segment.rows
    return {
        "axes": [_axis_form(axis) for axis in rows.axes],
        "numbers": {at: d.cuts()[0] for at, d in enumerate(rows.dimensions) if d.inexact},
        "strings": [dimension.strings for dimension in rows.dimensions],
        "boxes": {row: str(express(box)) for row, box in rows.boxes.items()},
        "texts": rows.texts,
        "shared": sorted(rows.shared),
        "shape": list(segment.shape),
        "schema": None if schema is None else schema.to_dict(),
    }


def _axis_form(axis: Axis) -> Any:
    if isinstance(axis.subject, Relation):
        return {"relation": [axis.subject.left, axis.subject.right]}
    if isinstance(axis.subject, Called):
        return {"call": str(axis.subject.call)}
    return {"reverse" if axis.reverse else "attribute": axis.name}


def _axis(form: Any, predicates: Predicates) -> Axis:
    ((kind, value),) = form.items()
    if kind == "relation":
        return Axis(subject=Relation(*value))
    if kind == "call":
        call = parse(value, predicates)
        assert isinstance(call, Call)
        return Axis(subject=Called(call))
    return Axis(value, reverse=kind == "reverse")


def _built(meta: Any, arrays: dict[str, NDArray[Any]], predicates: Predicates) -> tuple[Segment, Schema | None]:
    schema = None if meta["schema"] is None else Schema.from_dict(meta["schema"])
    dimensions = []
    for at, strings in enumerate(meta["strings"]):
        cuts = [tuple(cut) for cut in strings]
        exact = meta["numbers"].get(str(at))
        if exact is not None:
            moments = arrays[f"moments_{at}"].tolist()
            dimensions.append(Dimension.of([(value, side) for value, side in exact], moments, cuts))
        else:
            numbers, sides, moments = (arrays[f"{part}_{at}"] for part in ("numbers", "sides", "moments"))
            dimensions.append(Dimension(numbers, sides, moments, cuts))
    axes = {_axis(form, predicates): at for at, form in enumerate(meta["axes"])}
    if len(axes) != len(dimensions):
        raise ValueError("axes and dimensions differ")
    held: dict[str, Any] = {name: arrays[f"rows_{name}"] for name in _ROW_ARRAYS}
    rows = Rows(
        axes,
        dimensions,
        **held,
        boxes={int(row): _box(text, schema, predicates) for row, text in meta["boxes"].items()},
        shared=frozenset(meta["shared"]),
        texts={int(slot): text for slot, text in meta["texts"].items()},
    )
    tree = Tree(*(arrays[f"tree_{name}"] for name in Tree._fields))
    own: dict[str, Any] = {name: arrays[name] for name in _OWN_ARRAYS}
    assert {field.name for field in fields(Segment)} == {"rows", "tree", "shape", "known", *own}
    return Segment(rows=rows, tree=tree, shape=Shape(*meta["shape"]), **own), schema


def _box(text: str, schema: Schema | None, predicates: Predicates) -> Box:
    (box,) = normalize(parse(text, predicates), schema).boxes
    return box


# -- files -------------------------------------------------------------------------------------------


def _write(path: Path, array: NDArray[Any]) -> dict[str, Any]:
    np.save(path, np.ascontiguousarray(array), allow_pickle=False)
    return {"bytes": path.stat().st_size, "checksum": _checksum(path)}


def _map(path: Path, said: dict[str, Any]) -> NDArray[Any]:
    """An array of the snapshot, copied only where it is written to."""
    try:
        if path.stat().st_size != said["bytes"] or _checksum(path) != said["checksum"]:
            raise SnapshotError(f"{path} is torn: its checksum is another; write the snapshot again")
        array: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise SnapshotError(f"{path} cannot be read: {error}; write the snapshot again") from error
    return array.view(np.ndarray)


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def _read_meta(path: Path) -> Any:
    try:
        sealed = json.loads((path / _META).read_text(encoding="utf-8"))
        text = sealed["index"]
        if zlib.crc32(text.encode()) != sealed["checksum"]:
            raise SnapshotError(f"{path} is torn: its checksum is another; write the snapshot again")
        meta = json.loads(text)
        found, version = meta["format"], meta["version"]
    except FileNotFoundError:
        raise SnapshotError(f"{path} is no snapshot: there is no {_META} in it") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SnapshotError(f"{path} is no snapshot of an index, or a torn one: {error}") from error
    if found != FORMAT:
        raise SnapshotError(f"{path} is no snapshot of an index, but of {found!r}")
    if version < VERSION:
        raise SnapshotError(f"{path} was written by an older Weft (format {version}, now {VERSION}): write it again")
    if version > VERSION:
        raise SnapshotError(f"{path} was written by a newer Weft (format {version}, known {VERSION}): update Weft")
    return meta
