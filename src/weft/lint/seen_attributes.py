"""The attributes that events have, and their types. An attribute is known if a schema declares it or an event has it;
its types are those that its values, or the elements of its lists, have.

With a schema alone, `id`, `source`, `type` and `time` are known too: every CloudEvent may have them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from weft.errors import EventError
from weft.model.batch import list_columns
from weft.model.door import WELL_KNOWN
from weft.model.event import Event, as_event, ignored_lists
from weft.model.schema import Schema
from weft.model.value import Type, type_of

if TYPE_CHECKING:
    import pyarrow as pa

SomeEvents = Iterable[Event | Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class SeenAttributes(Mapping[str, frozenset[Type]]):
    """The types of each known attribute, or of the elements of its lists, and who knows them: events, or only a schema.

    `lists` are the attributes that are a list wherever they are: only HAS can test them. `ignored` are lists of
    mappings or of lists, which no filter can test, with the number of events that have one; 0 if that is not known.

    >>> seen = SeenAttributes.of_events([{"x": 1}, {"x": 2.5, "at": {"place": "here"}}])
    >>> sorted(seen), sorted(seen["x"])
    (['at.place', 'x'], [<Type.FLOAT: 'float'>, <Type.INT: 'int'>])
    """

    types: Mapping[str, frozenset[Type]]
    by_events: bool = True
    lists: frozenset[str] = frozenset()
    ignored: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of_columns(types: Mapping[str, Type], lists: Mapping[str, Type], ignored: Iterable[str] = ()) -> SeenAttributes:
        """What columns of values and columns of lists have; `ignored` are the other columns of lists."""
        return SeenAttributes(
            {name: frozenset([kind]) for name, kind in {**types, **lists}.items()},
            lists=frozenset(lists),
            ignored=dict.fromkeys(ignored, 0),
        )

    @staticmethod
    def of_schema(schema: Schema) -> SeenAttributes:
        """What a schema declares."""
        declared = {attribute.name: attribute.type for attribute in schema.attributes}
        return SeenAttributes({name: frozenset([kind]) for name, kind in ({**WELL_KNOWN, **declared}).items()}, False)

    @staticmethod
    def of_events(events: SomeEvents) -> SeenAttributes:
        """What events have. An event that cannot be read is skipped; raises EventError if none can be read."""
        found: dict[str, set[Type]] = {}
        values_of: set[str] = set()  # attributes that are not always lists
        ignored: Counter[str] = Counter()
        wrong, read = None, False
        for event in events:
            try:
                values = as_event(event).attributes
            except EventError as error:
                wrong = wrong or error
                continue
            read = True
            if isinstance(event, Mapping):
                ignored.update(ignored_lists(event))
            for name, value in values.items():
                several = isinstance(value, list)
                for each in value if isinstance(value, list) else (value,):
                    kind = type_of(each)
                    if kind is not None:
                        found.setdefault(name, set()).add(kind)
                if several:
                    found.setdefault(name, set())
                else:
                    values_of.add(name)
        if wrong is not None and not read:
            raise wrong
        types = {name: frozenset(kinds) for name, kinds in found.items()}
        return SeenAttributes(types, lists=frozenset(found.keys() - values_of), ignored=ignored)

    @staticmethod
    def of_table(rows: pa.Table | pa.RecordBatch) -> SeenAttributes:
        """What the columns of an Arrow table have; one without values is not there."""
        types = {each.name: frozenset([each.type]) for each in Schema.infer(rows).attributes}
        lists, ignored = list_columns(rows)
        for name in lists:
            types.setdefault(name, frozenset())
        return SeenAttributes(types, lists=lists, ignored=ignored)

    @staticmethod
    def of(schema: Schema | None = None, events: Any = None) -> SeenAttributes | None:
        """What a schema and events say together, the schema having the last word on types; None without either.

        Events are Events, mappings, SeenAttributes, or a table of Arrow or of anything that exports Arrow's C stream,
        as pandas and Polars do.
        """
        if events is None:
            return None if schema is None else SeenAttributes.of_schema(schema)
        if isinstance(events, SeenAttributes):
            seen = events
        elif isinstance(events, Event | Mapping):
            seen = SeenAttributes.of_events([events])
        elif hasattr(events, "schema") and hasattr(events, "num_rows"):
            seen = SeenAttributes.of_table(events)
        elif hasattr(events, "__arrow_c_stream__"):
            import pyarrow as pa

            seen = SeenAttributes.of_table(pa.table(events))
        else:
            seen = SeenAttributes.of_events(events)
        declared = {} if schema is None else {each.name: frozenset([each.type]) for each in schema.attributes}
        return SeenAttributes({**seen.types, **declared}, seen.by_events, seen.lists, seen.ignored)

    def merged(self, other: SeenAttributes) -> SeenAttributes:
        """What both say."""
        names = {**self.types, **other.types}
        types = {name: self.types.get(name, frozenset()) | other.types.get(name, frozenset()) for name in names}
        lists = {name for name in names if all(name in each.lists for each in (self, other) if name in each.types)}
        ignored = Counter(self.ignored) + Counter(other.ignored)
        return SeenAttributes(types, self.by_events or other.by_events, frozenset(lists), ignored)

    def __getitem__(self, name: str) -> frozenset[Type]:
        return self.types[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.types)

    def __len__(self) -> int:
        return len(self.types)
