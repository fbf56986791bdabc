"""Segments on disk. Laws: a directory is opened whole or not at all, and says why; opened, it is mapped into memory, so
that many processes share one copy; what was admitted to an index is read back, whatever its size.

A snapshot is a directory of arrays and `index.json`, which names them with their sizes and checksums, and is written
last; the directory gets its name by a rename. Names and strings are in the JSON; boxes are bytes (see `box_codec`),
since no limit of the language applies on the way back. Nothing in it is trusted (see `verify`), unless the caller says
that this program has just written it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import Box
from weft.errors import FilterError, SnapshotError
from weft.index.axis import ANCHOR, Axis
from weft.index.box_codec import decode_boxes, decode_subject, encode_subject
from weft.index.coding import rows_of_columns
from weft.index.dimension import AnchorDimension, CodeDimension
from weft.index.filter_columns import columns_of_filters
from weft.index.pieces import LONGEST, Piece, Pieces, is_list_axis
from weft.index.rows import Checked, FilterRows
from weft.index.segment import PartitionTree, Segment, TreeShape, known_places, special_rows
from weft.index.snapshot_files import Folder, opened, write_array, write_folder, write_meta
from weft.index.verify import check_arrays, check_filters, check_needs, check_tree
from weft.language.constant import encodes
from weft.language.membership import MARK
from weft.language.predicate import Predicates
from weft.model.schema import Schema
from weft.model.value import INT_MAX, INT_MIN

FORMAT, VERSION = "weft-index", 7
_WITHOUT_LISTS = 6  # what is written, so that an older Weft can read it, if no filter tests lists
_OLDEST = 5  # that can be read: there, of a longer text only so many bytes were a piece:
_LONGEST_5 = 32
_TYPES: dict[str, tuple[str, ...]] = {
    "tree_nodes": ("int32",),
    "tree_children": ("int32",),
    "tree_columns": ("int32",),
    "tree_data": ("uint16",),
    "tree_ids": ("int32",),
    "tree_live": ("uint32",),
    "rows_starts": ("uint32", "int64"),
    "rows_dims": ("uint16", "int32"),
    "rows_lows": ("uint16", "int32"),
    "rows_highs": ("uint16", "int32"),
    "rows_slots": ("int32",),
    "rows_firsts": ("uint32", "int64"),  # of the subscriptions of each slot
    "rows_subs": ("int64",),
    "special": ("int32",),
    "sorted_subs": ("int64",),
    "sorted_places": ("int32",),
    "shared": ("int32",),
    "numbers": ("float64",),  # of all dimensions, one after another; so are the sides and the timestamps
    "sides": ("uint8",),
    "moments": ("int64",),
    "sources": ("uint8",),  # of the slots whose ranges do not tell their boxes, one after another
    "source_slots": ("int32",),
    "source_ends": ("int64",),
    "piece_bytes": ("uint8",),  # of all pieces, one after another
    "piece_ends": ("int64",),
    "piece_axes": ("int32",),  # the number of its attribute and case, as in the JSON
    "need_starts": ("int64",),
    "needs": ("int32",),
    "checked_rows": ("int32",),  # the rows for which a box is evaluated
    "checked_boxes": ("int32",),  # and the number of that box among those of its slot
}
_AXES = {  # how the axes of an attribute are named, by whether its strings are reversed and folded
    (False, False): "attribute",
    (True, False): "reverse",
    (False, True): "folded",
    (True, True): "reverse_folded",
}
_ROW_ARRAYS = ("starts", "dims", "lows", "highs", "slots", "firsts", "subs")
_OWN_ARRAYS = ("special", "sorted_subs", "sorted_places")


def write_snapshot(path: Path, segment: Segment, schema: Schema | None) -> None:
    """Write a segment to a directory, in place of an older snapshot if there is one."""

    def write(draft: Path) -> None:
        arrays = _arrays(segment)
        files = {name: write_array(draft, name, arrays[name]) for name in _TYPES}
        version = VERSION if _tests_lists(segment.rows) else _WITHOUT_LISTS
        write_meta(draft, {"format": FORMAT, "version": version, "files": files, **_described(segment, schema)})

    write_folder(path, write)


def read_snapshot(
    path: Path, predicates: Predicates, verify: bool = True, trusted: bool = False
) -> tuple[Segment, Schema | None]:
    """The segment of a directory, mapped into memory. Raises SnapshotError.

    The arrays are checked against each other, so that no search can read outside them. With `verify` the rows are
    derived again from the stored filters, so that what is found is what the filters mean. A `trusted` snapshot is
    neither: of its arrays only the sizes are checked.
    """
    with opened(path) as folder:
        meta = _checked_meta(folder)
        try:
            arrays = {name: folder.array(name, meta["files"][name], types, trusted) for name, types in _TYPES.items()}
            segment, schema = _built(meta, arrays, predicates, trusted)
            if meta["version"] == _OLDEST and any(len(p.data) == _LONGEST_5 for p in segment.rows.pieces.pieces):
                return _rebuilt(segment, predicates), schema
            if verify and not trusted:
                check_filters(segment, predicates)
            return segment, schema
        except FilterError as error:
            raise SnapshotError(f"{path} has a filter that cannot be read here: {error}") from error
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
            raise SnapshotError(f"{path} is damaged: {error}; write the snapshot again") from error


def _checked_meta(folder: Folder) -> Any:
    meta = folder.meta()
    try:
        found, version = meta["format"], meta["version"]
        if found != FORMAT:
            raise SnapshotError(f"{folder.path} is not a snapshot of an index, but of {found!r}")
        if version < _OLDEST:
            raise SnapshotError(
                f"{folder.path} was written by an older Weft (format {version}, now {VERSION}); write it again"
            )
        if version > VERSION:
            raise SnapshotError(
                f"{folder.path} was written by a newer Weft (format {version}, known {VERSION}); update Weft"
            )
    except (KeyError, TypeError) as error:
        raise SnapshotError(f"{folder.path} is not a snapshot of an index: {error}") from error
    return meta


# -- writing -----------------------------------------------------------------------------------------


def _arrays(segment: Segment) -> dict[str, NDArray[Any]]:
    rows = segment.rows
    exact = [dimension for dimension in rows.dimensions if not dimension.inexact]
    arrays = {f"tree_{name}": array for name, array in segment.tree._asdict().items()}
    arrays |= {f"rows_{name}": getattr(rows, name) for name in _ROW_ARRAYS}
    arrays |= {name: getattr(segment, name) for name in _OWN_ARRAYS}
    slots, checked = sorted(rows.sources), sorted(rows.boxes)
    sources = [rows.sources[slot] for slot in slots]
    kinds: dict[tuple[Any, ...], int] = {kind: number for number, kind in enumerate(_piece_axes(rows))}
    return arrays | {
        "shared": np.array(sorted(rows.shared), np.int32),
        "numbers": np.concatenate([np.zeros(0), *(dimension.numbers for dimension in exact)]),
        "sides": np.concatenate([np.zeros(0, np.uint8), *(dimension.sides for dimension in exact)]),
        "moments": np.concatenate([np.zeros(0, np.int64), *(dimension.moments for dimension in rows.dimensions)]),
        "sources": np.frombuffer(b"".join(sources), np.uint8),
        "source_slots": np.array(slots, np.int32),
        "source_ends": np.cumsum([len(source) for source in sources], dtype=np.int64),
        "piece_bytes": np.frombuffer(b"".join(piece.data for piece in rows.pieces.pieces), np.uint8),
        "piece_ends": np.cumsum([len(piece.data) for piece in rows.pieces.pieces], dtype=np.int64),
        "piece_axes": np.array([kinds[piece[:2]] for piece in rows.pieces.pieces], np.int32),
        "need_starts": rows.need_starts,
        "needs": rows.needs,
        "checked_rows": np.array(checked, np.int32),
        "checked_boxes": np.array([rows.boxes[row].number for row in checked], np.int32),
    }


def _described(segment: Segment, schema: Schema | None) -> dict[str, Any]:
    dimensions = segment.rows.dimensions
    return {
        "axes": [_axis_form(axis) for axis in segment.rows.axes],
        "cuts": [[0 if d.inexact else len(d.numbers), len(d.moments)] for d in dimensions],
        "numbers": {at: d.cuts()[0] for at, d in enumerate(dimensions) if d.inexact},
        "strings": [dimension.strings for dimension in dimensions],
        "pieces": _piece_axes(segment.rows),
        "shape": list(segment.shape),
        "schema": None if schema is None else schema.to_dict(),
    }


def _tests_lists(rows: FilterRows) -> bool:
    mark = MARK.encode()
    return any(is_list_axis(piece.name) for piece in rows.pieces.pieces) or any(
        mark in source for source in rows.sources.values()
    )


def _piece_axes(rows: FilterRows) -> list[tuple[str, bool]]:
    """The attributes that have pieces, and whether these are of foldings."""
    return sorted({(piece.name, piece.folded) for piece in rows.pieces.pieces})


def _axis_form(axis: Axis) -> Any:
    if axis == ANCHOR:
        return {"anchor": True}
    if axis.subject is not None:
        return {"subject": encode_subject(axis.subject)}
    return {_AXES[axis.reverse, axis.folded]: axis.name}


# -- reading -----------------------------------------------------------------------------------------


def _axis(form: Any, predicates: Predicates) -> Axis:
    ((kind, value),) = form.items()
    if kind == "anchor" and value is True:
        return ANCHOR
    if kind == "subject":
        return Axis(subject=decode_subject(value, predicates))
    if kind not in _AXES.values() or not isinstance(value, str) or not value or not encodes(value):
        raise ValueError(f"{form!r} is not an axis")
    return Axis(value, reverse="reverse" in kind, folded="folded" in kind)


def _built(
    meta: Any, arrays: dict[str, NDArray[Any]], predicates: Predicates, trusted: bool
) -> tuple[Segment, Schema | None]:
    schema = None if meta["schema"] is None else Schema.from_dict(meta["schema"])
    dimensions = _dimensions(meta, arrays)
    axes = {_axis(form, predicates): at for at, form in enumerate(meta["axes"])}
    if len(axes) != len(meta["axes"]) or len(axes) != len(dimensions):
        raise ValueError("an axis is repeated, or has no dimension")
    pieces = _pieces(meta["pieces"], arrays)
    if ANCHOR in axes:
        dimensions[axes[ANCHOR]] = AnchorDimension(len(pieces))
    shape = TreeShape(int(meta["shape"][0]), float(meta["shape"][1]), int(meta["shape"][2]))
    held: dict[str, Any] = {name: arrays[f"rows_{name}"] for name in _ROW_ARRAYS}
    tree = PartitionTree(*(arrays[f"tree_{name}"] for name in PartitionTree._fields))
    if not trusted:
        check_arrays(held, arrays, axes, dimensions)
        check_needs(held, arrays, axes, len(pieces))
    sources = _sources(arrays)
    rows = FilterRows(
        axes,
        dimensions,
        **held,
        boxes=_boxes(held["slots"], arrays, sources, predicates),
        shared=frozenset(arrays["shared"].tolist()),
        sources=sources,
        pieces=pieces,
        need_starts=arrays["need_starts"],
        needs=arrays["needs"],
    )
    own: dict[str, Any] = {name: arrays[name] for name in _OWN_ARRAYS}
    if not trusted and not np.array_equal(special_rows(rows), own["special"]):
        raise ValueError("rows are not named as they must be")
    segment = Segment(rows=rows, tree=tree, shape=shape, known=known_places(rows), **own)
    if not trusted:
        check_tree(segment)
    return segment, schema


def _rebuilt(segment: Segment, predicates: Predicates) -> Segment:
    """The segment of the same filters, built anew. Cost: that of adding them, without parsing."""
    rows = segment.rows
    filters: list[tuple[Box, ...]] = []
    for slot, members in enumerate(np.diff(rows.firsts.astype(np.int64)).tolist()):
        source = rows.sources.get(slot)
        boxes = (
            tuple(rows.box(row) for row in rows.rows_of(slot)) if source is None else decode_boxes(source, predicates)
        )
        filters += [boxes] * members
    return Segment.build(rows_of_columns(columns_of_filters(filters), rows.subs), segment.shape)


def _dimensions(meta: Any, arrays: dict[str, NDArray[Any]]) -> list[CodeDimension]:
    dimensions: list[CodeDimension] = []
    at_number = at_moment = 0
    if len(meta["cuts"]) != len(meta["strings"]) or len(arrays["numbers"]) != len(arrays["sides"]):
        raise ValueError("the dimensions do not have equal numbers of cuts")
    for at, ((numbers, moments), strings) in enumerate(zip(meta["cuts"], meta["strings"], strict=True)):
        if type(numbers) is not int or type(moments) is not int or numbers < 0 or moments < 0:
            raise ValueError("a dimension has an impossible number of cuts")
        values = arrays["numbers"][at_number : at_number + numbers]
        sides = arrays["sides"][at_number : at_number + numbers]
        stamps = arrays["moments"][at_moment : at_moment + moments]
        at_number, at_moment = at_number + numbers, at_moment + moments
        texts = [_string_cut(*cut) for cut in strings]
        exact = meta["numbers"].get(str(at))
        if exact is not None:
            if numbers:
                raise ValueError("a dimension has its numbers twice")
            dimensions.append(CodeDimension.of([_number_cut(*cut) for cut in exact], stamps.tolist(), texts))
        else:
            dimensions.append(CodeDimension(values, sides, stamps, texts))
    if at_number != len(arrays["numbers"]) or at_moment != len(arrays["moments"]):
        raise ValueError("there are cuts that belong to no dimension")
    return dimensions


def _string_cut(text: Any, side: Any) -> tuple[str, int]:
    if not isinstance(text, str) or type(side) is not int or side not in (0, 1) or not encodes(text):
        raise ValueError(f"{text!r} is not a bound of strings")
    return text, side


def _number_cut(value: Any, side: Any) -> tuple[float, int]:
    fine = (type(value) is int and INT_MIN <= value <= INT_MAX) or (type(value) is float and math.isfinite(value))
    if not fine or type(side) is not int or side not in (0, 1):
        raise ValueError(f"{value!r} is not a bound of numbers")
    return value, side


def _pieces(said: Any, arrays: dict[str, NDArray[Any]]) -> Pieces:
    ends, axes, data = arrays["piece_ends"], arrays["piece_axes"], arrays["piece_bytes"].tobytes()
    if len(ends) != len(axes) or (ends[-1] if len(ends) else 0) != len(data):
        raise ValueError("pieces are cut off")
    lengths = np.diff(ends, prepend=0)
    if len(ends) and (lengths.min() < 1 or lengths.max() > LONGEST or axes.min() < 0):
        raise ValueError("a piece is empty, too long or of no attribute")
    kinds = [_piece_axis(*each) for each in said]
    starts = (ends - lengths).tolist()
    cut = zip(axes.tolist(), starts, ends.tolist(), strict=True)
    pieces = Pieces(Piece(kinds[axis][0], kinds[axis][1], data[start:end]) for axis, start, end in cut)
    if len(pieces.numbers) != len(ends):
        raise ValueError("a piece is repeated")
    return pieces


def _piece_axis(name: Any, folded: Any) -> tuple[str, bool]:
    if not isinstance(name, str) or not name or not encodes(name) or not isinstance(folded, bool):
        raise ValueError(f"{name!r} cannot name an attribute with pieces")
    return name, folded


def _sources(arrays: dict[str, NDArray[Any]]) -> dict[int, bytes]:
    data = arrays["sources"].tobytes()
    ends = [0, *arrays["source_ends"].tolist()]
    return {slot: data[ends[at] : ends[at + 1]] for at, slot in enumerate(arrays["source_slots"].tolist())}


def _boxes(
    slots: NDArray[np.int32], arrays: dict[str, NDArray[Any]], sources: dict[int, bytes], predicates: Predicates
) -> dict[int, Checked]:
    boxes: dict[int, Checked] = {}
    slot, found = -1, tuple[Box, ...]()
    for row, number in zip(arrays["checked_rows"].tolist(), arrays["checked_boxes"].tolist(), strict=True):
        if int(slots[row]) != slot:
            slot = int(slots[row])
            try:
                found = decode_boxes(sources[slot], predicates)
            except (KeyError, ValueError) as error:
                sub = int(arrays["rows_subs"][arrays["rows_firsts"][slot]])
                raise type(error)(f"the filter of subscription {sub}: {error}") from error
        if number < 0:
            raise ValueError("a row refers to a box that does not exist")
        boxes[row] = Checked(found[number], number)
    return boxes
