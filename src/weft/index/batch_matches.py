"""The result of `Index.match_batch`: the ids of each event, in the form that is requested. Every form holds the same
matches.

Ids are looked up when they are needed, and written as an Arrow dictionary: a match costs four bytes there, however
long its id is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import EventError, SubscriptionError
from weft.index.base import Ids, Matches
from weft.index.id_names import Id, IdTable, check_name
from weft.index.labelled import labelled
from weft.model.door import shown
from weft.model.notebook import html_table

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

_SHOWN = 10  # rows in a notebook, and ids of a row


class BatchMatches:
    """The ids of each event of a batch, in the order of the events; those of one event are in no order.

    >>> from weft import Index
    >>> found = Index({"high": "x > 5", "low": "x < 3"}).match_batch([{"x": 9}, {"x": 4}, {"x": "?"}, {"x": b"1"}])
    >>> found.lists(), found.counts().tolist()
    ([['high'], [], [], []], [1, 0, 0, 0])
    >>> print(found.errors[3])
    event 3: attribute 'x' is of type bytes, which filters cannot test; put it in the payload
    """

    def __init__(self, found: Matches, table: IdTable) -> None:
        places = table.places(found.ids)
        if len(places) and places.min() < 0:  # removed while the batch was matched
            keep = places >= 0
            kept = np.concatenate([[0], np.cumsum(keep)])
            found, places = Matches(kept[found.offsets], found.ids[keep], found.errors), places[keep]
        self._found = found
        self._places = places
        self._table = table

    @property
    def errors(self) -> Mapping[int, EventError]:
        """The events that could not be read, by position, with the reason. They match nothing. Cost: O(1).

        >>> from weft import Index
        >>> found = Index({"high": "x > 5"}).match_batch([{"x": 9}, {"x": b"1"}])
        >>> {position: error.attribute for position, error in found.errors.items()}
        {1: 'x'}
        """
        return self._found.errors

    def __len__(self) -> int:
        """How many events there are."""
        return len(self._found)

    def __getitem__(self, event: int) -> list[Id]:
        if event < 0:
            event += len(self)
        if not 0 <= event < len(self):
            raise IndexError(f"there are {len(self)} events")
        offsets, ids = self._found.offsets, self._table.ids
        return ids[self._places[offsets[event] : offsets[event + 1]]].tolist()  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[list[Id]]:
        return iter(self.lists())

    def __repr__(self) -> str:
        bad = f", {len(self.errors)} not readable" if self.errors else ""
        return f"<BatchMatches: {len(self._places):,} matches in {len(self):,} events{bad}>"

    def _repr_html_(self) -> str:
        matched = np.flatnonzero(self.counts())[:_SHOWN].tolist()
        rows = [(event, ", ".join(map(str, self[event][:_SHOWN]))) for event in matched]
        more = int(np.count_nonzero(self.counts())) - len(rows)
        return html_table(repr(self).strip("<>"), ("event", "subscriptions"), rows, more)

    def lists(self) -> list[list[Id]]:
        """A list of ids for each event. Cost: O(events + matches), in Python.

        >>> from weft import Index
        >>> Index({"high": "x > 5", "low": "x < 3"}).match_batch([{"x": 9}, {"x": 4}, {"x": 1}]).lists()
        [['high'], [], ['low']]
        """
        flat, ends = self._flat(), self._found.offsets.tolist()
        return [flat[start:end] for start, end in pairwise(ends)]

    def pairs(self) -> list[tuple[int, Id]]:
        """(position of the event, id) for each match. Cost: O(events + matches), in Python.

        >>> from weft import Index
        >>> Index({"high": "x > 5", "low": "x < 3"}).match_batch([{"x": 9}, {"x": 4}, {"x": 1}]).pairs()
        [(0, 'high'), (2, 'low')]
        """
        return list(zip(self.events.tolist(), self._flat(), strict=True))

    def counts(self) -> NDArray[np.int64]:
        """How many ids each event has. Cost: O(events).

        >>> from weft import Index
        >>> Index({"high": "x > 5", "odd": "x = 7"}).match_batch([{"x": 7}, {"x": 1}]).counts().tolist()
        [2, 0]
        """
        return self._found.counts

    def by(self, labels: Mapping[Id, Id]) -> BatchMatches:
        """The distinct labels of each event's ids: which users want it, rather than which of their filters.

        Labels are strings or integers. Raises SubscriptionError for an id that matched and has no label.

        Cost: O(m log m) for m matches.

        >>> from weft import Index
        >>> found = Index({"high": "x > 5", "odd": "x = 7", "low": "x < 3"}).match_batch([{"x": 7}, {"x": 1}])
        >>> found.by({"high": "ann", "odd": "ann", "low": "bob"}).lists()
        [['ann'], ['bob']]
        """
        used, places = np.unique(self._places, return_inverse=True)
        numbers: dict[Id, int] = {}
        codes = np.empty(len(used), np.int64)
        for at, name in enumerate(self._table.ids[used].tolist()):
            if name not in labels:
                raise SubscriptionError(f"the filter {name!r} matched and has no label", name)
            codes[at] = numbers.setdefault(check_name(labels[name]), len(numbers))
        found = labelled(Matches(self._found.offsets, places.astype(np.int64), self.errors), codes)
        kinds = frozenset(map(type, numbers))
        return BatchMatches(found, IdTable(np.array([*numbers, None], object)[:-1], len(numbers), kinds, True))

    @cached_property
    def events(self) -> NDArray[np.int64]:
        """The position of the event, for each match. Cost: O(events + matches) once, then O(1).

        >>> from weft import Index
        >>> Index({"high": "x > 5", "odd": "x = 7"}).match_batch([{"x": 1}, {"x": 7}]).events.tolist()
        [1, 1]
        """
        return np.repeat(np.arange(len(self)), self._found.counts)

    @cached_property
    def ids(self) -> pa.Array[Any]:
        """The id of each match as Arrow has it: a dictionary of strings, or integers.

        Raises SubscriptionError if the index has ids of both types, for which Arrow has no column.

        Cost: O(matches) once, then O(1); the first use after a change of the index also converts its ids.

        >>> from weft import Index
        >>> Index({"high": "x > 5", "low": "x < 3"}).match_batch([{"x": 9}, {"x": 8}]).ids.to_pylist()
        ['high', 'high']
        """
        import pyarrow as pa

        table = self._table
        if table.kinds == {int}:
            return pa.array(table.whole[self._places])
        if int in table.kinds:
            raise SubscriptionError("Arrow has no column for strings mixed with integers; use pairs() or lists()")
        places, texts = self._places, table.texts
        if not table.clean or 4 * len(places) < len(texts):  # leave out what was removed, or what no event matched
            used, places = _distinct(places, len(texts))
            texts = texts.take(used)
        return pa.DictionaryArray.from_arrays(places.astype(np.int32), texts, safe=False)

    def to_arrow(self) -> pa.Table:
        """A table with one row per match: `event`, the position of the event, and `subscription`, its id.

        Cost: O(events + matches), and that of `ids`.

        >>> from weft import Index
        >>> found = Index({"high": "x > 5", "odd": "x = 7"}).match_batch([{"x": 9}, {"x": 1}, {"x": 7}])
        >>> sorted(map(tuple, map(dict.values, found.to_arrow().to_pylist())))
        [(0, 'high'), (2, 'high'), (2, 'odd')]
        """
        import pyarrow as pa

        return pa.table({"event": pa.array(self.events), "subscription": self.ids})

    def join(self, events: Any) -> Any:
        """The events of the batch, one row per match, with the id in a column `subscription`.

        `events` is the batch that was matched: a table of Arrow, pandas or Polars, or a list of mappings; the result is
        of the same kind. A DataFrame of pandas keeps its own index. Raises EventError if it is another batch.

        Cost: O(events + matches).

        >>> import pandas as pd
        >>> from weft import Index
        >>> frame = pd.DataFrame({"x": [9, 4, 1]}, index=["a", "b", "c"])
        >>> print(Index({"high": "x > 5", "low": "x < 3"}).match_batch(frame).join(frame))
           x subscription
        a  9         high
        c  1          low
        """
        size = getattr(events, "num_rows", None)
        if size is None and hasattr(events, "__len__") and not isinstance(events, str):
            size = len(events)
        if size is None:
            raise EventError(f"join() takes a table or a list of mappings, not {shown(events)}; read it first")
        if size != len(self):
            raise EventError(f"join() needs the batch of {len(self):,} events that was matched, not one of {size:,}")
        names = getattr(events, "column_names", getattr(events, "columns", None))
        if names is not None and "subscription" in list(names):
            raise EventError("the events have a column 'subscription' themselves; rename it")
        library = type(events).__module__.partition(".")[0]
        if library == "pandas":
            return events.iloc[self.events].assign(subscription=self._flat())
        if library == "pyarrow":
            return events.take(self.events).append_column("subscription", self.ids)
        if library == "polars":
            return events[self.events].with_columns(self.to_polars()["subscription"])
        rows = list(events)
        if any(not isinstance(each, Mapping) for each in rows):
            raise EventError(f"join() takes a table or a list of mappings, not {shown(events)}")
        return [{**rows[event], "subscription": name} for event, name in self.pairs()]

    def to_pandas(self) -> Any:
        """The table of `to_arrow` as a DataFrame; strings are categories, and ids of both types are objects.

        Cost: as `to_arrow`.

        >>> from weft import Index
        >>> Index({1: "x > 5", 2: "x < 3"}).match_batch([{"x": 9}, {"x": 1}]).to_pandas().values.tolist()
        [[0, 1], [1, 2]]
        """
        import pandas as pd  # type: ignore[import-untyped]

        if len(self._table.kinds) > 1:
            return pd.DataFrame({"event": self.events, "subscription": pd.Series(self._flat(), dtype=object)})
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """The table of `to_arrow` as a Polars DataFrame. Cost: as `to_arrow`.

        >>> from weft import Index
        >>> Index({"high": "x > 5", "low": "x < 3"}).match_batch([{"x": 9}, {"x": 1}]).to_polars().rows()
        [(0, 'high'), (1, 'low')]
        """
        import polars as pl

        return pl.from_arrow(self.to_arrow())  # type: ignore[return-value]

    def _flat(self) -> list[Id]:
        return self._table.ids[self._places].tolist()  # type: ignore[no-any-return]


def _distinct(places: Ids, size: int) -> tuple[Ids, Ids]:
    """The distinct ones among places below `size`, ascending, and where each place is among them."""
    if 16 * len(places) < size:
        used, inverse = np.unique(places, return_inverse=True)
        return used, inverse
    seen = np.zeros(size, bool)
    seen[places] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[places]
