"""Predicates: tests of one attribute that are called by name, brought by the user or built in.

A predicate is a pure function of the value, NULL for absent values and those of another type; its `covers` is True only
when proven, its `overlaps` False only when disproved.

Built in are `cidr` and `time_like`: every set of predicates has them, and a user's own of the same name comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from weft.errors import FilterError
from weft.language.cidr import CIDR
from weft.language.lexer import RESERVED
from weft.language.time_like import TIME_LIKE
from weft.model.value import Type, Value

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Arguments = tuple[Value, ...]


@runtime_checkable
class Predicate(Protocol):
    """What a predicate brings; `is_a(kind, 'vehicle')` in a text has the arguments ("vehicle",)."""

    @property
    def name(self) -> str:
        """Its name in filters."""
        ...

    @property
    def type(self) -> Type:
        """The type of the values that it tests; for any other value it is NULL."""
        ...

    def check(self, arguments: Arguments) -> None:
        """Raise ValueError if it cannot be called with these arguments."""
        ...

    def matches(self, value: Value, arguments: Arguments) -> bool:
        """Whether the value passes."""
        ...

    def covers(self, wide: Arguments, narrow: Arguments) -> bool:
        """True only if every value that passes with `narrow` passes with `wide`."""
        ...

    def overlaps(self, one: Arguments, other: Arguments) -> bool:
        """False only if no value passes with both."""
        ...


class Predicates:
    """The predicates that filters can call, by name.

    >>> from weft.language.taxonomy import IsA, Taxonomy
    >>> known = Predicates([IsA(Taxonomy({"car": ["vehicle"]}))])
    >>> known["is_a"].covers(("vehicle",), ("car",))
    True
    """

    def __init__(self, predicates: list[Predicate] | tuple[Predicate, ...] = ()) -> None:
        self._known: dict[str, Predicate] = {}
        for predicate in predicates:
            self.register(predicate)

    def register(self, predicate: Predicate) -> None:
        """Register a predicate. Raises FilterError if another one has the same name. Cost: O(1).

        >>> from weft.language.taxonomy import IsA, Taxonomy
        >>> known = Predicates()
        >>> known.register(IsA(Taxonomy({"car": ["vehicle"]})))
        >>> list(known)
        ['is_a']
        """
        if isinstance(predicate, type) or not isinstance(predicate, Predicate):
            raise FilterError(
                f"{predicate!r} is not a predicate: it needs name, type, check, matches, covers and overlaps"
            )
        if not _NAME.fullmatch(predicate.name) or predicate.name.upper() in RESERVED:
            raise FilterError(
                f"{predicate.name!r} cannot name a predicate: use letters, digits and '_', and not a keyword"
            )
        known = self._known.setdefault(predicate.name, predicate)
        if known != predicate:
            raise FilterError(f"another predicate is already registered as {predicate.name!r}")

    def get(self, name: str) -> Predicate | None:
        """The predicate of that name, registered or built in, or None. Cost: O(1).

        >>> Predicates().get("cidr").name, Predicates().get("is_a")
        ('cidr', None)
        """
        return self._known[name] if name in self._known else BUILT_IN.get(name)

    def __getitem__(self, name: str) -> Predicate:
        return self._known[name] if name in self._known else BUILT_IN[name]

    def __iter__(self) -> Iterator[str]:
        """The names of those that were registered."""
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


BUILT_IN: Mapping[str, Predicate] = MappingProxyType({CIDR.name: CIDR, TIME_LIKE.name: TIME_LIKE})
NO_PREDICATES = Predicates()
