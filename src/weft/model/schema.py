"""Schemas: what is known about attributes before any event comes. A schema is valid from birth.

A schema is a promise about events, `conform` makes it so at the door. It promises types and nothing else:
bounds, precision and categories tell grids and volumes where to look, and are not enforced on events.
The order of its attributes is part of a schema: it is the order of columns and of dimensions.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import EventError, SchemaError
from weft.model.door import WELL_KNOWN, check_name, is_unicode, shown
from weft.model.event import Event
from weft.model.lists import AttributeValue
from weft.model.value import INT_MAX, INT_MIN, Type, from_micros, to_micros, type_of

if TYPE_CHECKING:
    import pyarrow as pa

Bound = int | float | datetime


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute's name and type, and what else is known of its values.

    `precision` is the smallest step that means something; `categories` are strings in their own order;
    `data` is the dotted path in a CloudEvent's JSON data from which the attribute is promoted.

    >>> magnitude = Attribute("magnitude", Type.FLOAT, low=-1, high=10, precision=0.01)
    >>> magnitude.low, magnitude.conform(7), magnitude.conform("7")
    (-1.0, 7, None)
    """

    name: str
    type: Type
    low: Bound | None = None
    high: Bound | None = None
    precision: float | None = None
    categories: tuple[str, ...] = ()
    data: str | None = None

    def __post_init__(self) -> None:
        try:
            check_name(self.name)
        except EventError as error:
            raise SchemaError(str(error)) from None
        self._set("type", self._checked_type())
        self._set("low", self._checked_bound("low", self.low))
        self._set("high", self._checked_bound("high", self.high))
        if self.low is not None and self.high is not None and self.low > self.high:  # type: ignore[operator]
            raise self._wrong(f"has low {self.low} above high {self.high}; swap them")
        self._set("precision", self._checked_precision())
        self._set("categories", self._checked_categories())
        self._check_path()

    def conform(self, value: AttributeValue) -> AttributeValue | None:
        """The value in this attribute's type, or None (absent) if it is of another type; of a list, such elements.

        Ints and floats share one line: an int stays an int in a float attribute,
        a float becomes an int in an int attribute where the two are equal.

        Cost: O(1).

        >>> count = Attribute("count", Type.INT)
        >>> count.conform(3.0), count.conform(3.5), count.conform("3")
        (3, None, None)
        """
        if isinstance(value, list):
            kept = [self.conform(each) for each in value]
            same = all(one is other for one, other in zip(kept, value, strict=True))
            return value if same else [each for each in kept if each is not None and not isinstance(each, list)]
        kind = type_of(value)
        if kind is self.type or (kind is Type.INT and self.type is Type.FLOAT):
            return value
        if isinstance(value, float) and self.type is Type.INT and value.is_integer():
            return int(value) if INT_MIN <= value <= INT_MAX else None
        return None

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # before birth is over

    def _wrong(self, what: str) -> SchemaError:
        return SchemaError(f"attribute {self.name!r} {what}")

    def _checked_type(self) -> Type:
        try:
            kind = Type(self.type)
        except ValueError:
            hint = did_you_mean(self.type, Type) or f": use one of {', '.join(Type)}"
            raise self._wrong(f"has the unknown type {shown(self.type)}{hint}") from None
        fixed = WELL_KNOWN.get(self.name, kind)
        if kind is not fixed:
            raise self._wrong(f"is always a {fixed}; do not declare it as {kind}, or choose another name")
        return kind

    def _checked_bound(self, which: str, bound: object) -> Bound | None:
        if bound is None:
            return None
        if self.type is Type.STRING or self.type is Type.BOOL:
            hint = ": list its categories instead" if self.type is Type.STRING else ""
            raise self._wrong(f"is a {self.type}, which has no bounds{hint}")
        if self.type is Type.TIMESTAMP and isinstance(bound, datetime):
            try:
                return from_micros(to_micros(bound))
            except OverflowError:
                raise self._wrong(f"has a {which} bound outside the years 1 to 9999 in UTC; move it") from None
        if self.type.is_number and isinstance(bound, int) and not isinstance(bound, bool):
            if not INT_MIN <= bound <= INT_MAX:
                raise self._wrong(f"has a {which} bound beyond 64 bits; leave it out or choose a smaller one")
            if self.type is Type.INT:
                return int(bound)
            if float(bound) != bound:
                raise self._wrong(f"has the {which} bound {bound}, which no float equals; write it as a float")
            return float(bound)
        if self.type is Type.FLOAT and isinstance(bound, float):
            if not math.isfinite(bound):
                raise self._wrong(f"has the {which} bound {bound}, which is not a number; leave it out")
            return float(bound)
        raise self._wrong(f"has the {which} bound {shown(bound)}, which is not a {self.type}")

    def _checked_precision(self) -> float | None:
        step: object = self.precision
        if step is None:
            return None
        if not self.type.is_number:
            raise self._wrong(f"is a {self.type}, which has no precision; only numbers do")
        if isinstance(step, bool) or not isinstance(step, int | float) or not 0 < step <= sys.float_info.max:
            raise self._wrong(f"has the precision {shown(step)}; write a number above 0")
        return float(step)

    def _checked_categories(self) -> tuple[str, ...]:
        listed: object = self.categories
        if isinstance(listed, str) or not isinstance(listed, Iterable):
            raise self._wrong(f"has the categories {shown(listed)}; write a list of strings")
        names = tuple(listed)
        if names and self.type is not Type.STRING:
            raise self._wrong(f"is a {self.type}, which has no categories; only strings do")
        for name in names:
            if not isinstance(name, str) or not is_unicode(name):
                raise self._wrong(f"has the category {shown(name)}; write a list of strings")
        if (twice := repeated(names)) is not None:
            raise self._wrong(f"has the category {twice!r} twice; keep one")
        return names

    def _check_path(self) -> None:
        path: object = self.data
        if path is None:
            return
        if not isinstance(path, str) or not is_unicode(path) or not all(path.split(".")):
            raise self._wrong(f"has the data path {shown(path)}; write names with dots between them")
        if self.name in WELL_KNOWN:
            raise self._wrong("is an attribute of the CloudEvent itself and has no data path")


@dataclass(frozen=True, slots=True)
class Schema(Mapping[str, Attribute]):
    """An ordered, immutable mapping from names to attributes.

    >>> schema = Schema.of(magnitude="float", status="string")
    >>> schema["magnitude"].type, list(schema), "depth" in schema
    (<Type.FLOAT: 'float'>, ['magnitude', 'status'], False)
    >>> schema.conform(Event.of(magnitude="high", place="Chile")).attributes
    {'place': 'Chile'}
    """

    attributes: tuple[Attribute, ...] = ()
    _named: dict[str, Attribute] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(self.attributes))
        object.__setattr__(self, "_named", {attribute.name: attribute for attribute in self.attributes})
        if (twice := repeated(attribute.name for attribute in self.attributes)) is not None:
            raise SchemaError(f"attribute {twice!r} is declared twice; keep one")

    @staticmethod
    def of(*attributes: Attribute, **named: str | Attribute) -> Schema:
        """A schema of attributes, and of names with their types. Cost: O(attributes).

        >>> list(Schema.of(Attribute("magnitude", Type.FLOAT, low=0, high=10), status="string"))
        ['magnitude', 'status']
        """
        for name, given in named.items():
            if isinstance(given, Attribute) and given.name != name:
                raise SchemaError(f"attribute {given.name!r} is given under the name {name!r}; use one name")
        short = (g if isinstance(g, Attribute) else Attribute(n, g) for n, g in named.items())  # type: ignore[arg-type]
        return Schema((*attributes, *short))

    @staticmethod
    def infer(rows: pa.Table | pa.RecordBatch, *, most_categories: int = 64) -> Schema:
        """The schema that an Arrow table suggests: types, observed bounds, and categories.

        Strings have categories when there are at most `most_categories` and each occurs twice on average.
        Of lists, their elements count. Columns that cannot be attributes (binary, ...) are left out: they are payload.

        Cost: O(rows * columns).

        >>> import pyarrow as pa
        >>> schema = Schema.infer(pa.table({"depth": [12.5, 70.0], "raw": [b"a", b"b"]}))
        >>> [(name, str(each.type), each.low, each.high) for name, each in schema.items()]
        [('depth', 'float', 12.5, 70.0)]
        """
        from weft.model.batch import infer_schema

        return infer_schema(rows, most_categories)

    @staticmethod
    def from_dict(form: Mapping[str, Any]) -> Schema:
        """The schema of its file form, `{"attributes": {name: {"type": ...}}}`; `name: type` is a shorter way.

        Cost: O(attributes).

        >>> schema = Schema.from_dict({"attributes": {"depth": {"type": "float", "low": 0}, "status": "string"}})
        >>> schema["depth"].low, schema["status"].type
        (0.0, <Type.STRING: 'string'>)
        """
        from weft.model.schema_file import read_form

        return Schema(read_form(form))

    def to_dict(self) -> dict[str, Any]:
        """The file form, as JSON types; `from_dict` reads it back. Cost: O(attributes).

        >>> Schema.of(depth="float", status="string").to_dict()
        {'attributes': {'depth': {'type': 'float'}, 'status': {'type': 'string'}}}
        """
        from weft.model.schema_file import form_of

        return form_of(self.attributes)

    @staticmethod
    def load(path: str | Path) -> Schema:
        """The schema in a .toml or .json file. Raises SchemaError that names the file and the place.

        Cost: O(size of the file).

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "quakes.toml")
        ...     _ = path.write_text('[attributes]\\ndepth = "float"')
        ...     Schema.load(path)["depth"].type
        <Type.FLOAT: 'float'>
        """
        from weft.model.schema_file import read_file

        return Schema(read_file(Path(path)))

    def save(self, path: str | Path) -> None:
        """Write the file form as JSON; `load` reads it back. Cost: O(attributes).

        >>> import tempfile
        >>> schema = Schema.of(depth="float", status="string")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     schema.save(f"{folder}/quakes.json")
        ...     Schema.load(f"{folder}/quakes.json") == schema
        True
        """
        from weft.model.schema_file import write_file

        write_file(Path(path), self.attributes)

    def conform(self, event: Event) -> Event:
        """The event as promised: a declared attribute is of its type, a list of it, or absent; the rest is untouched.

        Cost: O(attributes declared); the event itself is returned if nothing has to change.

        >>> Schema.of(count="int").conform(Event.of(count=3.0, place="Chile")).attributes
        {'count': 3, 'place': 'Chile'}
        """
        given = event.attributes
        changed: dict[str, AttributeValue] | None = None
        for attribute in self.attributes:
            value = given.get(attribute.name)
            if value is None:
                continue
            kept = attribute.conform(value)
            if kept is not value:
                changed = dict(given) if changed is None else changed
                if kept is None:
                    del changed[attribute.name]
                else:
                    changed[attribute.name] = kept
        return event if changed is None else Event(changed, event.payload)

    def __getitem__(self, name: str) -> Attribute:
        return self._named[name]

    def __contains__(self, name: object) -> bool:
        return name in self._named

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """The end of an error's sentence: the known word that is nearest, or nothing.

    >>> did_you_mean("flaot", ["int", "float"])
    ": did you mean 'float'?"
    """
    from difflib import get_close_matches

    near = get_close_matches(word, [str(k) for k in known], n=1) if isinstance(word, str) else []
    return f": did you mean {near[0]!r}?" if near else ""


def repeated(names: Iterable[str]) -> str | None:
    """The first name that was there before, None where all are unlike."""
    before: set[str] = set()
    for name in names:
        if name in before:
            return name
        before.add(name)
    return None
