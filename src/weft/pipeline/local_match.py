"""Matching from files to files on this machine, without Spark. The results, the report and the rows that are left out
are those of `weft.spark.report.match_files`.

One pass over the events, a batch at a time: each is read, matched and handed to a thread that writes it. Memory is that
of the index, of a batch with its matches, and of a row group of results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.errors import EventError, PipelineError, WeftError
from weft.index.bound_rows import bounds_of
from weft.index.tree import TreeIndex
from weft.lint import SeenAttributes
from weft.lint.lint_counts import EXAMPLES, LintCounts, lint_counts
from weft.lint.lint_report import report_of
from weft.model.column import is_list_type
from weft.model.limits import LIMITS, MAX_DEPTH
from weft.model.schema import Attribute, Schema, did_you_mean, repeated
from weft.model.value import MICROS_MAX, MICROS_MIN, Type
from weft.pipeline.attributes import CORRUPT, UNREADABLE, attributes
from weft.pipeline.bound_lint import lint_bounds
from weft.pipeline.boxes import Boxes, Matcher, Reading, open_matcher
from weft.pipeline.lookup import EventSlices
from weft.pipeline.match_job import (
    LIST_TEXT,
    SAMPLED,
    SHOWN,
    MatchJob,
    MatchReport,
    Phases,
    Strategy,
    file_notes,
    list_note,
    number_note,
)
from weft.pipeline.output import Output, write
from weft.pipeline.packed_boxes import PackedBoxes
from weft.pipeline.predicate_settings import environment_predicates
from weft.pipeline.preflight import check_files
from weft.pipeline.result_folder import ResultFolder
from weft.pipeline.row_text import json_rows
from weft.pipeline.subscription_rows import DUPLICATE, lint_notes, read_pieces, repeated_ids
from weft.pipeline.tables import FileTable, open_table
from weft.pipeline.text_values import STRING, ArrowKind, double

_ERRORS = pa.schema([("side", STRING), ("row", STRING), ("reason", STRING)])
_LOOKED_AT = 100_000  # rows in which numbers and lists among texts are looked for
_LIST = re.compile(LIST_TEXT)
_FEW_BOUNDS = 16  # attributes; tables with more are mostly empty
_CANONICAL = r"^(0|-?[1-9][0-9]*)$"
_DAYS = tuple(edge // 86_400_000_000 for edge in (MICROS_MIN, MICROS_MAX))


def match_locally(
    job: MatchJob, clock: Callable[[], float], tell: Callable[[str], None] = lambda _: None
) -> MatchReport:
    """Match the events of a job and write the results. Raises PipelineError; with `strict`, also for a bad row."""
    if job.strategy not in (Strategy.AUTO, Strategy.INDEX):
        raise PipelineError(f"the local engine has no strategy {job.strategy}: use --engine spark, or omit it")
    check_files([job.events, job.subscriptions], job.written, overwrite=job.overwrite, master="local")
    phases = Phases(clock, tell)
    phases.begin("reading the files")
    given = _given(job)
    events = open_table(job.events, given.schema)
    output = Output.named(job.output)
    names = [name for name in events.columns.names if name != CORRUPT]
    output.check(names)
    _check_names(events.columns)
    notes = file_notes((job.events, *((job.subscriptions,) if given.table is not None else ())))
    phases.end("reading")
    phases.begin("preparing the subscriptions")
    with ExitStack() as stack:
        errors = None
        if job.errors is not None:
            errors = stack.enter_context(ResultFolder(job.errors, _ERRORS, job.overwrite))
        left_out = _LeftOut(job.strict, errors)
        matcher = given.matcher(left_out)
        phases.end("preparing")
        phases.begin("matching")
        kept = pa.schema([each for each in events.columns if each.name != CORRUPT])
        added = _added(output, matcher.names is None)
        out = None
        if job.out is not None:
            out = stack.enter_context(ResultFolder(job.out, kept.append(added), job.overwrite))
        work = _Matching(matcher, output, out, left_out)
        texts = _DoubtfulTexts(kept, given.schema) if events.format != "parquet" else None
        try:
            for rows, corrupt in events:
                left_out.add("event", corrupt, [UNREADABLE] * len(corrupt))
                good = _good(rows, left_out, whole=events.format != "parquet")
                if texts is not None:
                    texts.look(good)
                work.match(good)
        except EventError as error:
            raise PipelineError(f"{job.events}: {error}") from error
        if errors is not None:
            errors.commit()
        if out is not None:
            out.commit()
    phases.end("matching")
    phases.begin("looking for rows that were left out")
    notes = [*(texts.notes() if texts is not None else ()), *notes]
    if job.lint and given.table is not None:
        notes += lint_notes(given.lint(kept))
    phases.end("errors")
    return MatchReport(
        strategy=str(Strategy.INDEX),
        output=job.output,
        out=job.out,
        events=work.events,
        subscriptions=len(matcher.index),
        matches=work.matches,
        matched=work.matched,
        errors=left_out.counts,
        first=left_out.first,
        seconds=phases.seconds,
        sample=work.sample,
        notes=notes,
        engine="local",
    )


# -- rows that are left out ------------------------------------------------------------------------------


class _LeftOut:
    """Rows that are left out, counted and written where the job says; with `strict` the first ends the job."""

    def __init__(self, strict: bool = False, folder: ResultFolder | None = None) -> None:
        self.counts = {"event": 0, "subscription": 0}
        self.first: list[dict[str, str]] = []
        self.folder = folder
        self._strict = strict

    def add(self, side: str, rows: list[str], reasons: list[str]) -> None:
        """Count rows, with the reasons. Raises PipelineError if there should be none."""
        if not rows:
            return
        if self._strict:
            raise PipelineError(f"{side} {rows[0]}: {reasons[0]}")
        self.counts[side] += len(rows)
        for row, reason in zip(rows, reasons, strict=True):
            if len(self.first) == SHOWN:
                break
            self.first.append({"side": side, "row": row, "reason": reason})
        if self.folder is not None:
            arrays = [pa.array(each, STRING) for each in ([side] * len(rows), rows, reasons)]
            self.folder.write(pa.RecordBatch.from_arrays(arrays, schema=_ERRORS))


# -- events ----------------------------------------------------------------------------------------------


def _check_names(columns: pa.Schema) -> None:
    """Raise PipelineError if two columns have a name that a filter cannot tell apart."""
    if (twice := repeated(name for name, _ in _leaf_kinds(columns))) is not None:
        raise PipelineError(f"there are two columns {twice!r}: rename one")


def _leaf_kinds(columns: Iterable[Any], prefix: str = "", depth: int = 1) -> Iterator[tuple[str, ArrowKind]]:
    for each in columns:
        if not pa.types.is_struct(each.type):
            yield prefix + each.name, each.type
        elif depth < MAX_DEPTH:
            yield from _leaf_kinds(each.type, f"{prefix}{each.name}.", depth + 1)


def _good(rows: pa.RecordBatch, left_out: _LeftOut, whole: bool) -> pa.RecordBatch:
    """The rows that are events; the others are left out. `whole` says that texts are valid UTF-8."""
    bad: dict[int, str] = {}
    lines: dict[int, str] = {}
    names = rows.schema.names
    if CORRUPT in names:
        column = rows.column(CORRUPT)
        for row in np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).tolist():
            bad[row], lines[row] = UNREADABLE, str(column[row].as_py())
        rows = rows.drop_columns([CORRUPT])
    for name, array in _leaf_arrays(rows):
        for row, reason in _wrong(name, array, whole):
            bad.setdefault(row, reason)
    if not bad:
        return rows
    order = sorted(bad)
    shown = json_rows(rows.take(pa.array(order, pa.int64())))
    shown = [lines.get(row, text) for row, text in zip(order, shown, strict=True)]
    left_out.add("event", shown, [bad[row] for row in order])
    return rows.take(np.delete(np.arange(rows.num_rows), order))


def _leaf_arrays(rows: pa.RecordBatch) -> Iterator[tuple[str, Any]]:
    def below(name: str, array: Any, depth: int) -> Iterator[tuple[str, Any]]:
        if not pa.types.is_struct(array.type):
            yield name, array
        elif depth < MAX_DEPTH:
            for part, child in zip(array.type, array.flatten(), strict=True):
                yield from below(f"{name}.{part.name}", child, depth + 1)

    for name, array in zip(rows.schema.names, rows.columns, strict=True):
        yield from below(name, array, 1)


def _wrong(name: str, array: Any, whole: bool) -> Iterator[tuple[int, str]]:
    """The rows whose value no event can have, and why."""
    kind = array.type
    if is_list_type(kind):
        yield from _wrong_lists(name, array, whole)
    elif pa.types.is_string(kind):
        if whole:
            return
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            for row, value in enumerate(array):
                if value.is_valid and not _is_utf8(value.as_buffer().to_pybytes()):
                    yield row, f"the text of {name!r} is not valid UTF-8"
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        first, last = (MICROS_MIN, MICROS_MAX) if pa.types.is_timestamp(kind) else _DAYS
        numbers = array.cast(pa.int64() if pa.types.is_timestamp(kind) else pa.int32())
        ends = pc.min_max(numbers)
        if ends["min"].as_py() is None or (ends["min"].as_py() >= first and ends["max"].as_py() <= last):
            return
        values = numbers.fill_null(first).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero((values < first) | (values > last)).tolist():
            yield row, f"{name!r} is outside the years 1 to 9999"


def _wrong_lists(name: str, array: Any, whole: bool) -> Iterator[tuple[int, str]]:
    """The rows whose list is too long, or has an element that no event can have, and why."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    long = {*np.flatnonzero(lengths > LIMITS.elements).tolist()}
    for row in sorted(long):
        yield row, f"{name!r} is a list of more than {LIMITS.elements:,} values"
    if pa.types.is_nested(array.type.value_type):
        return
    parents = pc.list_parent_indices(array).to_numpy(zero_copy_only=False)
    for place, reason in _wrong(name, pc.list_flatten(array), whole):
        yield int(parents[place]), reason


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


class _DoubtfulTexts:
    """Text columns whose values are mostly numbers, which no comparison with a number matches, or of which some are
    lists, whose elements no HAS sees; by the first rows.
    """

    def __init__(self, columns: pa.Schema, schema: Schema | None) -> None:
        declared: Any = schema or ()
        self._counts = {each.name: [0, 0, 0] for each in columns if each.type == STRING and each.name not in declared}
        self._left = _LOOKED_AT

    def look(self, rows: pa.RecordBatch) -> None:
        """Count the numbers and lists among the first rows."""
        some = rows.slice(0, self._left)
        self._left -= some.num_rows
        if not some.num_rows:
            return
        for name, counts in self._counts.items():
            found: Any = pc.value_counts(some.column(name).drop_null())
            for each in found.to_pylist():
                counts[0] += each["counts"] if double(each["values"].strip()) is not None else 0
                counts[1] += each["counts"]
                counts[2] += each["values"].startswith("[") and _LIST.match(each["values"]) is not None

    def notes(self) -> list[str]:
        """A sentence for each such column."""
        found = [
            number_note(name) for name, (numbers, every, _) in self._counts.items() if every and 2 * numbers > every
        ]
        return found + [list_note(name) for name, (_, _, lists) in self._counts.items() if lists]


# -- matching --------------------------------------------------------------------------------------------


def _added(output: Output, numbered: bool) -> pa.Field[Any]:
    kind = pa.int64() if numbered or output is Output.COUNTS else STRING
    if output is Output.LISTS:
        return pa.field(output.column, pa.list_(pa.field("element", kind, nullable=False)))
    return pa.field(output.column, kind)


@dataclass(slots=True)
class _Matching:
    """Events matched so far, and what was found."""

    matcher: Matcher
    output: Output
    out: ResultFolder | None
    left_out: _LeftOut
    events: int = 0
    matches: int = 0
    matched: int = 0
    sample: list[dict[str, Any]] = field(default_factory=list)
    _slices: EventSlices | None = None

    def match(self, rows: pa.RecordBatch) -> None:
        """Match some events and hand on the results."""
        if not rows.num_rows:
            return
        self.events += rows.num_rows
        seen = attributes(rows)
        if self.output is Output.COUNTS:
            counts = self.matcher.index.count_batch(seen)
            self._count(counts)
            self._hand_on(pa.record_batch([*rows.columns, pa.array(counts)], names=[*rows.schema.names, "matches"]))
            return
        self._slices = self._slices or EventSlices(len(self.matcher.index))
        for first, last in self._slices.of(rows.num_rows):
            found = self.matcher.match(seen.slice(first, last - first))
            self._slices.learn(last - first, len(found.ids))
            self._count(found.counts)
            if self.out is not None or len(self.sample) < SAMPLED:
                for made in write(rows.slice(first, last - first), found, self.output, self.matcher.ids):
                    self._hand_on(made)

    def _count(self, counts: Any) -> None:
        self.matches += int(counts.sum())
        self.matched += int(np.count_nonzero(counts))

    def _hand_on(self, made: pa.RecordBatch) -> None:
        if self.out is not None:
            self.out.write(made)
        elif len(self.sample) < SAMPLED:
            self.sample += made.slice(0, SAMPLED - len(self.sample)).to_pylist()


# -- subscriptions ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Given:
    """The subscriptions of a job: rows of a table, read one way, or a snapshot."""

    schema: Schema | None
    snapshot: Path | None = None
    table: FileTable | None = None
    names: tuple[str, ...] = ()
    reading: Reading | None = None

    def matcher(self, left_out: _LeftOut) -> Matcher:
        """The index of all that can be used; the others are left out."""
        if self.snapshot is not None:
            return open_matcher(self.snapshot, trusted=False)
        assert self.reading is not None
        boxes, unread = self._boxes(left_out)
        twice = repeated_ids(pa.concat_arrays([boxes.ids, unread.drop_null()]))
        if len(twice):
            once = np.flatnonzero(~pc.is_in(boxes.ids, twice).to_numpy(zero_copy_only=False))
            boxes = boxes.of_owners(once)
            self._leave_out_repeated(twice, left_out)
        return boxes.matcher(self.reading.schema)

    def _boxes(self, left_out: _LeftOut) -> tuple[Boxes, Any]:
        """The boxes of rows that can be read, and the ids of those that cannot."""
        assert self.reading is not None
        parts: list[PackedBoxes] = []
        whole: list[pa.RecordBatch] = []
        unread: list[Any] = [pa.array([], pa.int64() if self.reading.numbered else STRING)]
        plain = self.reading.bounds is not None and len(self.reading.bounds) <= _FEW_BOUNDS
        for rows, batch in self._batches(left_out):
            refused: dict[int, str] = {}
            if plain:
                _, refused = self.reading.read(batch)
                whole.append(batch.take(_others(batch.num_rows, refused)) if refused else batch)
            else:
                for first, boxes, some in self.reading.pieces(batch):
                    parts.append(PackedBoxes.of(boxes))
                    refused |= {first + row: reason for row, reason in some.items()}
            if refused:
                at = pa.array(list(refused), pa.int64())
                unread.append(self.reading.ids(batch).take(at))
                left_out.add("subscription", json_rows(rows.take(at)), list(refused.values()))
        if plain and whole:
            (batch,) = pa.Table.from_batches(whole).combine_chunks().to_batches() or whole[:1]
            read = [boxes for boxes, _ in read_pieces(self.reading, batch)]
            if len(read) == 1:
                return read[0], pa.concat_arrays(unread)
            parts = [PackedBoxes.of(each) for each in read]
        if not parts:
            return Boxes.none(self.reading.numbered), pa.concat_arrays(unread)
        return PackedBoxes.joined(parts).boxes(), pa.concat_arrays(unread)

    def _batches(self, left_out: _LeftOut | None = None) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """The rows, whole, and the columns that are read of them, by their places."""
        assert self.table is not None
        for rows, corrupt in self.table:
            if left_out is not None:
                left_out.add("subscription", corrupt, [UNREADABLE] * len(corrupt))
            read = rows.select(list(self.names)).rename_columns([f"c{place}" for place in range(len(self.names))])
            if rows.num_rows:
                yield rows, read

    def _leave_out_repeated(self, twice: Any, left_out: _LeftOut) -> None:
        """Leave out the rows that only have another's id; those that cannot be read are left out for that."""
        assert self.reading is not None
        for rows, batch in self._batches():
            found = np.flatnonzero(pc.is_in(self.reading.ids(batch), twice).to_numpy(zero_copy_only=False))
            if not len(found):
                continue
            _, refused = self.reading.read(batch.take(found))
            mine = found[_others(len(found), refused)]
            left_out.add("subscription", json_rows(rows.take(mine)), [DUPLICATE] * len(mine))

    def lint(self, events: pa.Schema) -> Any:
        """What is wrong with the subscriptions, given the columns of events."""
        assert self.reading is not None
        kinds = dict(_leaf_kinds(events))
        lists = {name: each.value_type for name, each in kinds.items() if is_list_type(each)}
        seen = SeenAttributes.of_columns(
            {name: kind for name, each in kinds.items() if (kind := _type_of(each)) is not None},
            {name: kind for name, each in lists.items() if (kind := _type_of(each)) is not None},
            [name for name, each in lists.items() if pa.types.is_nested(each)],
        )
        if self.reading.filter is None:
            boxes, unread = self._boxes(_LeftOut())
            return report_of(lint_bounds(boxes, len(unread), seen, self.schema), seen, most=1)
        counts: list[LintCounts] = []
        for _, batch in self._batches():
            ids, texts = self.reading.ids(batch).to_pylist(), _texts_of(batch.column(1))
            counts.append(lint_counts(ids, texts, seen, self.schema, most=EXAMPLES, duplicates=True))
        return report_of(LintCounts.merged(counts, EXAMPLES), seen, most=1)


def _given(job: MatchJob) -> _Given:
    """The subscriptions that a job names. Raises PipelineError."""
    if Path(job.subscriptions, "index.json").is_file():
        if job.schema is not None:
            raise PipelineError("a snapshot has its own schema: omit the schema")
        try:
            index = TreeIndex.open(job.subscriptions, predicates=environment_predicates())
        except WeftError as error:
            raise PipelineError(str(error)) from error
        return _Given(index.schema, Path(job.subscriptions))
    table = open_table(job.subscriptions, Schema((Attribute(job.filter, Type.STRING),)))
    if table.format == "csv" and job.id in table.columns.names:
        table = _ids_as_written(job, table)
    names, reading = _reading(job, table.columns)
    return _Given(job.schema, None, table, names, reading)


def _ids_as_written(job: MatchJob, table: FileTable) -> FileTable:
    """The table with ids as texts, unless all are integers in their usual spelling: 01 and 1 are two."""
    kind = table.columns.field(job.id).type
    if kind == STRING:
        return table
    texts = open_table(job.subscriptions, Schema((Attribute(job.id, Type.STRING), Attribute(job.filter, Type.STRING))))
    for rows, _ in texts:
        usual = pc.match_substring_regex(rows.column(job.id), _CANONICAL)
        if not pc.all(usual, min_count=0).as_py():
            return texts
    return table


def _reading(job: MatchJob, columns: pa.Schema) -> tuple[tuple[str, ...], Reading]:
    """The columns that are read, the id first, and how. Raises PipelineError."""
    names = columns.names
    _check_names(columns)
    if job.id not in names:
        hint = did_you_mean(job.id, names) or f", only {', '.join(name for name in names if name != CORRUPT)}"
        raise PipelineError(f"the subscriptions have no column {job.id!r}{hint}: rename one, or name it")
    kind = columns.field(job.id).type
    if not (kind == STRING or pa.types.is_integer(kind)):
        raise PipelineError(f"the ids of subscriptions are of type {kind}: make them bigint or string")
    numbered = kind != STRING
    if job.filter in names:
        if columns.field(job.filter).type != STRING:
            raise PipelineError(f"the column {job.filter!r} is not text: cast it to string")
        return (job.id, job.filter), Reading("c0", "c1", schema=job.schema, numbered=numbered)
    read = [job.id, *(name for name in names if name not in (job.id, CORRUPT))]
    bounds = bounds_of((name, f"c{place}") for place, name in enumerate(read[1:], 1))
    if not any(ends.low or ends.high for ends in bounds.values()):
        hint = did_you_mean(job.filter, names)
        raise PipelineError(
            f"the subscriptions have neither a column {job.filter!r} of text nor bounds such as x_low and x_high{hint}"
        )
    for name in read[1:]:
        if _type_of(columns.field(name).type) is None:
            raise PipelineError(
                f"the column {name!r} is of type {columns.field(name).type}, which cannot be a bound: drop it"
            )
    return tuple(read), Reading("c0", bounds=bounds, schema=job.schema, numbered=numbered)


def _type_of(kind: ArrowKind) -> Type | None:
    """The type of values that filters see in a column; None if they see none."""
    tests = (
        (pa.types.is_integer, Type.INT),
        (pa.types.is_floating, Type.FLOAT),
        (pa.types.is_decimal, Type.FLOAT),
        (pa.types.is_string, Type.STRING),
        (pa.types.is_boolean, Type.BOOL),
        (pa.types.is_timestamp, Type.TIMESTAMP),
        (pa.types.is_date, Type.TIMESTAMP),
    )
    return next((found for test, found in tests if test(kind)), None)


def _others(size: int, refused: dict[int, str]) -> Any:
    return np.delete(np.arange(size), list(refused))


def _texts_of(column: Any) -> list[str | None]:
    """Texts, None for those that are not valid UTF-8."""
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [
            text.decode() if text is not None and _is_utf8(text) else None
            for text in column.cast(pa.binary()).to_pylist()
        ]
