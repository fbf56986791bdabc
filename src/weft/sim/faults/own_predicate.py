"""The predicate that filters of a simulated broker may call. Law: `even(x)` is true of even integers."""

from __future__ import annotations

from weft.language.predicate import Arguments, Predicates
from weft.model.value import Type, Value


class Even:
    """`even(x)`."""

    name = "even"
    type = Type.INT

    def check(self, arguments: Arguments) -> None:
        """There are no arguments."""
        if arguments:
            raise ValueError("even takes an attribute and nothing else, as in even(x)")

    def matches(self, value: Value, arguments: Arguments) -> bool:  # noqa: ARG002 - there are none
        """Whether the value is even."""
        return int(value) % 2 == 0  # type: ignore[arg-type]

    def covers(self, wide: Arguments, narrow: Arguments) -> bool:  # noqa: ARG002
        """Always: it is the same test."""
        return True

    def overlaps(self, one: Arguments, other: Arguments) -> bool:  # noqa: ARG002
        """Always: it is the same test."""
        return True


EVEN = Predicates([Even()])
