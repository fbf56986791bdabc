"""`Index`: filters by id, and which of them an event matches. It answers as `base` says. A change is made whole or not
at all, and after a refused one the index answers as before.

It is a `TreeIndex` whose subscriptions have the ids that users have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.algebra.bounds import bounds_size
from weft.algebra.box import NormalForm
from weft.algebra.bulk import columns_of_texts
from weft.algebra.columns import BoxColumns
from weft.algebra.normalize import normalize
from weft.algebra.relate import as_form
from weft.errors import FilterError, SubscriptionError, UnknownIdError
from weft.index.base import AnyBatch
from weft.index.batch_matches import BatchMatches
from weft.index.bound_rows import bounds_of, boxes_of_bounds
from weft.index.filter_columns import columns_of_filters
from weft.index.filter_source import BoundTable, entries_of
from weft.index.id_names import Id, NumberedIds, check_name, check_names
from weft.index.single_event import IdMemory
from weft.index.stats import Stats
from weft.index.subscription_ids import already_exists
from weft.index.tree import TreeIndex
from weft.language.any_filter import AnyFilter, as_filter
from weft.language.ast import Filter
from weft.language.dialects import is_json
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.trace import Trace
from weft.model.door import shown
from weft.model.frame import AnyEvent
from weft.model.notebook import html_table
from weft.model.schema import Schema

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from weft.lint import LintReport

_SHOWN = 10  # filters in a notebook


class Index:
    """Filters by id. Ids are strings or integers; filters are text, built with `F`, JSON, or normal forms.

    >>> index = Index({"strong": "magnitude >= 5", "shallow": "depth < 70"})
    >>> sorted(index.match({"magnitude": 6.1, "depth": 12.5}))
    ['shallow', 'strong']
    >>> index
    <weft.Index: 2 filters, 'strong', 'shallow'>

    A `schema` is a promise about the events; `predicates` are tests of your own that filters may call. Large parts of
    the index are rebuilt by the `executor`, or by a thread of the index.
    """

    def __init__(
        self,
        filters: Any = (),
        *,
        schema: Schema | None = None,
        predicates: Predicates = NO_PREDICATES,
        executor: Executor | None = None,
    ) -> None:
        self._tree = TreeIndex(schema, predicates=predicates, executor=executor)
        self._ids = NumberedIds()
        self._numbers: dict[Id, int] = {}
        self.update(filters)

    @property
    def schema(self) -> Schema | None:
        """The schema that the index was made with. Cost: O(1).

        >>> list(Index(schema=Schema.of(x="float")).schema)
        ['x']
        """
        return self._tree.schema

    @property
    def predicates(self) -> Predicates:
        """The predicates that filters may call. Cost: O(1).

        >>> Index().predicates["cidr"].name
        'cidr'
        """
        return self._tree.predicates

    # -- changes --------------------------------------------------------------------------------

    def add(self, id: Id, filter: AnyFilter | NormalForm) -> None:
        """Add a filter. Raises DuplicateIdError if the id exists. Cost: about O(log n), amortised.

        >>> index = Index()
        >>> index.add("rule-1", "x > 5")
        >>> index.add("rule-1", "x > 7")
        Traceback (most recent call last):
            ...
        weft.errors.DuplicateIdError: subscription 'rule-1' already exists; use replace()
        """
        name, form = check_name(id), self._form(filter)
        with self._tree.changing:
            if name in self:
                raise already_exists(name)
            self._add(name, form)

    def replace(self, id: Id, filter: AnyFilter | NormalForm) -> None:
        """Give an id another filter, or add it; no match sees both filters or none. Cost: as `add`.

        >>> index = Index({"rule-1": "x > 5"})
        >>> index.replace("rule-1", "x > 7")
        >>> index.match({"x": 6})
        []
        """
        name, form = check_name(id), self._form(filter)
        with self._tree.changing:
            number = self._numbers.get(name)
            if number is not None and number in self._tree:
                self._tree.replace(number, form)
            else:
                self._add(name, form)

    def discard(self, id: Id) -> None:
        """Remove a filter, if there is one with this id. Cost: about O(log n), amortised.

        >>> index = Index({"rule-1": "x > 5"})
        >>> index.discard("rule-1")
        >>> index.discard("rule-2")
        >>> len(index)
        0
        """
        self.discard_many((id,))

    def discard_many(self, ids: Iterable[Id]) -> None:
        """Remove many filters at once; ids that do not exist are ignored. Cost: about O(log n) for each, amortised.

        >>> index = Index({"rule-1": "x > 5", "rule-2": "x > 7"})
        >>> index.discard_many(["rule-1", "rule-3"])
        >>> list(index)
        ['rule-2']
        """
        names = [check_name(each, at) for at, each in enumerate(ids)]
        with self._tree.changing:
            numbers = [self._numbers[name] for name in names if name in self._numbers]
            self._tree.discard_many(numbers)
            for name in self._ids.forget(numbers):
                del self._numbers[name]

    def update(self, filters: Any) -> None:
        """Add many filters, and replace those whose ids exist: all of them, or none if one is refused.

        Filters come as a mapping, as pairs (id, filter), as a table of Arrow, pandas or Polars with the columns `id`
        and `filter`, or as the path of a .csv, .jsonl, .json or .parquet file. A table or file may have bounds instead
        of texts: columns `x_low` and `x_high` for an attribute x, or `x` for equality. An error has the `position` and
        the `id` of the entry. Cost: about 10 us for a plain filter, 3 us for a row of bounds.

        >>> index = Index()
        >>> index.update({"rule-1": "x > 5", 2: {"exact": {"type": "order"}}})
        >>> index.update([("rule-3", "x > 5"), ("rule-4", "x => 7")])
        Traceback (most recent call last):
            ...
        weft.errors.FilterSyntaxError: filter 1 (id 'rule-4'): unknown operator '=>' at column 3
          x => 7
            ^^
        did you mean '>='?
        >>> sorted(map(str, index))
        ['2', 'rule-1']
        """
        entries = entries_of(filters)
        if isinstance(entries, BoundTable):
            self._update_bounds(entries)
            return
        names = check_names([name for name, _ in entries])
        try:
            self._update(names, self._columns([given for _, given in entries]))
        except FilterError as error:
            raise error if error.position is None else error.at(error.position, names[error.position]) from None

    def update_columns(self, ids: Iterable[Id], bounds: Mapping[str, Any]) -> None:
        """Add or replace many filters given as columns, all or none; the fastest way, since no text is parsed.

        `bounds` has for each attribute a pair (low, high), both included, or the values to equal. Arrays are numpy's or
        Arrow's; NaN, None and NULL mean "no bound". Cost: about 3 us for each filter.

        >>> index = Index()
        >>> index.update_columns(["low", "high"], {"x": ([0, 5], [4, 9]), "kind": ["a", None]})
        >>> print(index.filter("low"), index.filter("high"), sep="; ")
        x BETWEEN 0 AND 4 AND kind = 'a'; x BETWEEN 5 AND 9
        """
        names = check_names(ids)
        if len(names) != bounds_size(bounds):
            raise SubscriptionError(f"there are {len(names)} ids for {bounds_size(bounds)} filters")
        self._update(names, BoxColumns.from_bounds(bounds))

    def _update_bounds(self, given: BoundTable) -> None:
        """Add or replace the filters of a table of bounds."""
        table = given.table.combine_chunks()
        names = check_names(table.column("id").to_pylist())
        (batch,) = table.to_batches() or [None]
        if batch is None:
            return
        refused: dict[int, str] = {}
        bounds = bounds_of((name, name) for name in table.column_names if name != "id")
        columns = boxes_of_bounds(batch, bounds, self.schema, refused)
        if refused:
            row = min(refused)
            raise SubscriptionError(f"{given.place}, row {row}: {refused[row]}", names[row], row)
        self._update(names, columns)

    def _update(self, names: list[Id], columns: BoxColumns) -> None:
        """Add or replace the filters of owners 0, 1, 2... under these ids."""
        if not names:
            return
        with self._tree.changing:
            numbers = self._ids.extend(names)  # before any match can find them
        try:
            self._tree.add_boxes(np.array(numbers), columns, lambda: self._renumber(names, numbers))
        except BaseException:
            with self._tree.changing:
                self._ids.forget(numbers)
            raise

    def _renumber(self, names: list[Id], numbers: range) -> list[int]:
        """Give ids their new numbers; returns the old ones. The tree calls it when nothing can go wrong any more."""
        old = [self._numbers[name] for name in names if name in self._numbers]
        self._ids.forget(old)
        self._numbers.update(zip(names, numbers, strict=True))
        return old

    def _add(self, name: Id, form: NormalForm) -> None:
        (number,) = self._ids.extend([name])  # before any match can find it
        try:
            self._tree.add(number, form)
        except BaseException:
            self._ids.forget([number])
            raise
        self._numbers[name] = number

    def _form(self, filter: AnyFilter | NormalForm) -> NormalForm:
        if isinstance(filter, NormalForm):
            return as_form(filter, self.schema)
        return normalize(as_filter(filter, self.predicates), self.schema)

    def _columns(self, filters: list[Any]) -> BoxColumns:
        """The boxes of filters, those of filter n with owner n."""
        if all(type(given) is str and not is_json(given[:80]) for given in filters):
            return columns_of_texts(filters, self.schema, self.predicates)
        forms = []
        for at, given in enumerate(filters):
            try:
                forms.append(self._form(given))
            except FilterError as error:
                raise error.at(at) from None
        return columns_of_filters(form.boxes for form in forms)

    # -- matching -------------------------------------------------------------------------------

    def match(self, event: AnyEvent) -> list[Id]:
        """The ids whose filters the event matches, in no order, each once. Raises EventError.

        An event is a mapping as `json.loads` gives it, an `Event`, or a row of a table. Cost: some microseconds, and
        the matches.

        >>> Index({"rule-1": "place.country = 'Chile'"}).match({"place": {"country": "Chile"}})
        ['rule-1']
        """
        return self._tree.match_as(event, self._ids.listed)

    def match_batch(self, batch: AnyBatch, *, by: Mapping[Id, Id] | None = None) -> BatchMatches:
        """The ids of each event of a batch, which is much quicker than one event at a time.

        With `by`, a mapping of ids to labels, the result has the distinct labels of each event (`BatchMatches.by`).

        A batch is a table of Arrow, pandas or Polars (a reader, dataset or lazy frame is read whole), the path of a
        .parquet, .arrow or .jsonl file, or a list of events. An event that cannot be read is set aside in `errors` of
        the result, and the others are matched. Cost: as `TreeIndex.match_batch`.

        >>> import pyarrow as pa
        >>> found = Index({"high": "x > 5", "low": "x < 3"}).match_batch(pa.table({"x": [9, 4, 1]}))
        >>> found.lists(), found.pairs()
        ([['high'], [], ['low']], [(0, 'high'), (2, 'low')])
        """
        found = self._tree.match_batch(batch)
        with self._tree.changing:
            table = self._ids.table()
        named = BatchMatches(found, table)
        return named if by is None else named.by(by)

    def explain(self, event: AnyEvent, id: Id) -> Trace:
        """Why the event matches the filter or not: the truth of each part, with the values of its attributes.

        Cost: that of `filter`, and O(size of the filter).

        >>> index = Index({"rule-1": "x > 5 AND y = 'a'"})
        >>> [str(part.filter) for part in index.explain({"x": 3, "y": "a"}, "rule-1").parts if not part.truth]
        ['x > 5']
        """
        return self._tree.explain(event, self._number(id))

    # -- what is in it --------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many filters there are."""
        return len(self._tree)

    def __contains__(self, id: object) -> bool:
        if not isinstance(id, str | int | np.integer) or isinstance(id, bool):
            return False
        number = self._numbers.get(id)  # type: ignore[arg-type] # an integer of numpy's equals one of Python's
        return number is not None and number in self._tree

    def __iter__(self) -> Iterator[Id]:
        """The ids, in the order in which their filters were given."""
        return iter(list(self._numbers))

    def filter(self, id: Id) -> Filter:
        """The filter of an id, or one that means the same. Raises UnknownIdError, which is a KeyError.

        Cost: O(size of the filter); the boxes of a disjunction are simplified first, within a budget.

        >>> print(Index({"rule-1": "NOT (x <= 5 OR x > 9)"}).filter("rule-1"))
        x > 5 AND x <= 9
        """
        return self._tree.filter(self._number(id))

    def __getitem__(self, id: Id) -> Filter:
        return self.filter(id)

    def items(self) -> Iterator[tuple[Id, Filter]]:
        """Each id with its filter, in the order in which the filters were given. Cost: that of `filter` for each.

        >>> [(id, str(each)) for id, each in Index({"rule-1": "x>5", "rule-2": "x < 3"}).items()]
        [('rule-1', 'x > 5'), ('rule-2', 'x < 3')]
        """
        for name in self:
            with suppress(UnknownIdError):  # removed meanwhile
                yield name, self.filter(name)

    def _number(self, id: Id) -> int:
        name = check_name(id)
        number = self._numbers.get(name)
        if number is None or number not in self._tree:
            raise UnknownIdError(f"there is no filter with the id {shown(name)}", name)
        return number

    def stats(self) -> Stats:
        """Sizes, shape and costs, as docs/guides/matching.md explains them. Cost: O(size).

        >>> stats = Index({"rule-1": "x > 5", "rule-2": "x > 7"}).stats()
        >>> stats.subscriptions, stats.segments
        (2, 1)
        """
        found = self._tree.stats()
        names = self._ids.names
        return replace(found, expensive=[(names[sub], count) for sub, count in found.expensive if sub in names])

    def lint(self, events: Any = None) -> LintReport:
        """Filters that are probably mistakes: `weft.lint_filters` of all of them, under the index's schema.

        `events` is a sample, by which attributes and types are judged: events, mappings, or a table. Cost: O(size).

        >>> index = Index()
        >>> index.add("rule-1", "magnitud >= 5")
        >>> print(*index.lint([{"magnitude": 6.1}]).lines(), sep="\\n")
        1 filter names attributes that no event has
          no event has 'magnitud'; did you mean 'magnitude'?
            rule-1: magnitud >= 5
        """
        from weft.lint import lint_filters

        pairs = ((name, self.filter(name)) for name in self)
        return lint_filters(pairs, self.schema, events, self.predicates)

    def settle(self) -> None:
        """Wait for the rebuild that is going on, if there is one.

        Cost: what is left of the rebuild, about O(n log n) at most; O(1) if there is none.

        >>> index = Index({"rule-1": "x > 5"})
        >>> index.settle()
        """
        self._tree.settle()

    def __repr__(self) -> str:
        first = [*map(repr, list(self._numbers)[:3])]
        more = ", ..." if len(self._numbers) > 3 else ""
        typed = "" if self.schema is None else f", schema of {len(self.schema)}"
        return f"<weft.Index: {len(self):,} filters{''.join(f', {shown}' for shown in first)}{more}{typed}>"

    def _repr_html_(self) -> str:
        first = list(islice(self, _SHOWN))
        rows = [(name, self.filter(name)) for name in first if name in self]
        return html_table(f"weft.Index: {len(self):,} filters", ("id", "filter"), rows, len(self) - len(rows))

    # -- files and copies -----------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the index to a directory that `open` maps into memory; an older one there is replaced.

        Cost: as `TreeIndex.snapshot`.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Index({"rule-1": "x > 5"}).save(f"{folder}/rules")
        ...     Index.open(f"{folder}/rules").match({"x": 7})
        ['rule-1']
        """
        from weft.index.index_files import write_index  # only where it is needed: a process starts sooner

        with self._tree.changing:
            tree, names = self._tree.__copy__(), dict(self._ids.names)
        write_index(Path(path), tree, names)

    @staticmethod
    def open(
        path: str | Path,
        *,
        predicates: Predicates = NO_PREDICATES,
        executor: Executor | None = None,
        verify: bool = True,
    ) -> Index:
        """The index of a directory that `save` wrote, or `TreeIndex.snapshot`. Raises SnapshotError.

        Nothing in the directory is trusted; see `TreeIndex.open`. Predicates are not stored: pass the same ones.

        Cost: O(size) to check it; large arrays are mapped into memory, and shared between processes.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Index({"rule-1": "x > 5"}).save(f"{folder}/rules")
        ...     list(Index.open(f"{folder}/rules"))
        ['rule-1']
        """
        from weft.index.index_files import read_index

        tree, names = read_index(Path(path), predicates, executor, verify)
        return _made(tree, names)

    def __copy__(self) -> Index:
        """An index of what is in this one now, which then goes its own way. Cost: O(ids), without copying filters."""
        with self._tree.changing:
            return _made(self._tree.__copy__(), dict(self._ids.names), self._ids.end)

    def __deepcopy__(self, memo: dict[int, Any]) -> Index:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """A snapshot in memory; the executor stays behind."""
        with self._tree.changing:
            return _made, (self._tree.__copy__(), dict(self._ids.names), self._ids.end)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. Cost: O(size).

        >>> Index({"rule-1": "x > 5"}).check()
        """
        self._tree.check()
        with self._tree.changing:
            names = self._ids.names
            assert {name: number for number, name in names.items()} == self._numbers
            assert list(names) == self._tree.subscriptions()
            assert self._ids.end > max(names, default=-1)
            assert self._ids.listed(IdMemory.of(np.array(list(names), np.int64)), len(names)) == list(names.values())


def _made(tree: TreeIndex, names: dict[int, Id], end: int | None = None) -> Index:
    """The index of a tree and the ids of its numbers."""
    index = Index()
    index._tree = tree
    index._ids = NumberedIds(names, end)
    index._numbers = {name: number for number, name in names.items()}
    return index
