"""IS-A over a taxonomy: an example of a user predicate (thesis 6.1).

A concept is itself and each of its ancestors; a concept that is not in the taxonomy is only itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path

from weft.errors import FilterError
from weft.language.predicate import Arguments
from weft.model.value import Type, Value


class Taxonomy:
    """Concepts and their parents; a concept may have several parents, and cycles are refused.

    >>> kinds = Taxonomy({"car": ["vehicle"], "truck": ["vehicle"], "vehicle": ["thing"]})
    >>> kinds.is_a("car", "thing"), kinds.is_a("thing", "car")
    (True, False)
    """

    def __init__(self, parents: Mapping[str, Iterable[str]]) -> None:
        self._parents = {
            child: frozenset([above] if isinstance(above, str) else above) for child, above in parents.items()
        }
        self._above: dict[str, frozenset[str]] = {}
        for concept in _parents_first(self._parents):
            above = {concept}
            for parent in self._parents.get(concept, ()):
                above |= self._above[parent]
            self._above[concept] = frozenset(above)
        below: dict[str, set[str]] = {concept: set() for concept in self._above}
        for concept, ancestors in self._above.items():
            for ancestor in ancestors:
                below[ancestor].add(concept)
        self._below = {concept: frozenset(concepts) for concept, concepts in below.items()}

    @staticmethod
    def load(*paths: str | Path) -> Taxonomy:
        """Read `child = ["parent", ...]` from TOML or JSON files, which together are one hierarchy."""
        parents: dict[str, set[str]] = {}
        for path in paths:
            for child, above in Taxonomy._read(Path(path)).items():
                parents.setdefault(child, set()).update([above] if isinstance(above, str) else above)
        try:
            return Taxonomy(parents)
        except ValueError as error:
            raise FilterError(f"cannot read the taxonomy {', '.join(map(str, paths))}: {error}") from error

    @staticmethod
    def _read(place: Path) -> dict[str, str | list[str]]:
        """The parents of each concept, from one file. Raises FilterError."""
        import tomllib

        try:
            text = place.read_text(encoding="utf-8")
            table = tomllib.loads(text) if place.suffix == ".toml" else json.loads(text)
            if not isinstance(table, dict):
                raise ValueError("it is not a table of child = [parents]")
            for child, above in table.items():
                names = [above] if isinstance(above, str) else above
                if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                    raise ValueError(f"the parents of {child!r} are not a list of strings")
            return table
        except (OSError, ValueError, RecursionError) as error:
            raise FilterError(f"cannot read the taxonomy {place}: {error}") from error

    def is_a(self, concept: str, ancestor: str) -> bool:
        """Whether `ancestor` is the concept itself or above it. Cost: O(1)."""
        return concept == ancestor or ancestor in self._above.get(concept, ())

    def below(self, concept: str) -> frozenset[str]:
        """The concept and everything below it."""
        return self._below.get(concept, frozenset((concept,)))

    @property
    def digest(self) -> str:
        """A short text that is equal for equal taxonomies, on every machine."""
        form = json.dumps(sorted((child, sorted(above)) for child, above in self._parents.items()))
        return blake2b(form.encode(), digest_size=6).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Taxonomy) and self._parents == other._parents

    def __hash__(self) -> int:
        return hash(frozenset(self._parents.items()))

    def __repr__(self) -> str:
        return f"Taxonomy({len(self._above)} concepts)"


class IsA:
    """`is_a(kind, 'vehicle')`: the value is the concept or below it."""

    name = "is_a"
    type = Type.STRING

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy

    @property
    def digest(self) -> str:
        """That of the taxonomy: two programs must agree on it."""
        return self.taxonomy.digest

    def check(self, arguments: Arguments) -> None:
        """There is one argument, the concept."""
        if len(arguments) != 1 or not isinstance(arguments[0], str):
            raise ValueError("is_a takes an attribute and one concept, as in is_a(kind, 'vehicle')")

    def matches(self, value: Value, arguments: Arguments) -> bool:
        """Whether the value is the concept or below it."""
        return self.taxonomy.is_a(str(value), str(arguments[0]))

    def covers(self, wide: Arguments, narrow: Arguments) -> bool:
        """Exact: everything below `narrow` is below `wide`."""
        return self.taxonomy.is_a(str(narrow[0]), str(wide[0]))

    def overlaps(self, one: Arguments, other: Arguments) -> bool:
        """Exact: some concept is below both."""
        return not self.taxonomy.below(str(one[0])).isdisjoint(self.taxonomy.below(str(other[0])))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IsA) and self.taxonomy == other.taxonomy

    def __hash__(self) -> int:
        return hash(self.taxonomy)


def _parents_first(parents: Mapping[str, frozenset[str]]) -> list[str]:
    """All concepts, each after its parents. Raises FilterError on a cycle."""
    done: dict[str, bool] = {}  # False while its ancestors are being visited
    order: list[str] = []
    for start in parents:
        stack = [start]
        while stack:
            concept = stack[-1]
            if concept in done:
                stack.pop()
                if not done[concept]:
                    done[concept] = True
                    order.append(concept)
                continue
            done[concept] = False
            for parent in parents.get(concept, ()):
                if done.get(parent) is False:
                    raise FilterError(f"the taxonomy has a cycle through {parent!r}")
                if parent not in done:
                    stack.append(parent)
    return order
