"""The network of a run: how many brokers, which tree, whose clients, which model; and the predicate that filters call.

It is drawn from a seed before the run begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from weft.language.predicate import Arguments, Predicates
from weft.model.schema import Schema
from weft.model.value import Type, Value
from weft.models.candidates import options_of
from weft.routing.dls.space import LabelSpace
from weft.routing.dls.structure import FilterShape
from weft.routing.options import table_with
from weft.routing.registry import MODELS, make_table
from weft.routing.table import Role, RoutingTable


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


SCHEMA = Schema.from_dict(
    {"attributes": {"x": {"type": "int", "bounds": [0, 7]}, "y": {"type": "string", "categories": ["a", "b"]}}}
)
Attributes = dict[str, object]
EVENTS: tuple[Attributes, ...] = tuple(  # all that clients publish
    {"x": x} if y is None else {"x": x, "y": y} for x in range(8) for y in ("a", "b", None)
)
SPACES = tuple(LabelSpace.of(SCHEMA, granules) for granules in (None, 4))  # among which a network is re-tuned


class Shape(NamedTuple):
    """Brokers are numbered from 0, the root; broker i + 1 is linked to the earlier broker `parents[i]`."""

    parents: tuple[int, ...] = ()
    roles: tuple[Role, ...] = ()  # what the parent is to each broker but the root
    homes: tuple[int, ...] = (0,)  # the broker of each client, over and over
    model: str = "covering"  # with options, if any: see `weft.models.candidates.options_of`
    advertised: bool = False
    hashed: bool = False  # label sets are looked up in counting filters, which grow

    def __str__(self) -> str:
        if not self.parents:
            return f"one broker{' with advertisements' if self.advertised else ''}"
        return f"{self.brokers} brokers, {self.model}{' with advertisements' if self.advertised else ''}"

    @property
    def brokers(self) -> int:
        """How many there are."""
        return len(self.parents) + 1

    @property
    def links(self) -> Iterator[tuple[int, int, Role]]:
        """The links of the tree: the broker nearer to the root, the other one, and what the first is to the other."""
        for far, (near, role) in enumerate(zip(self.parents, self.roles, strict=True), 1):
            yield near, far, role

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the brokers."""
        return ("broker",) if not self.parents else tuple(f"b{number}" for number in range(1, self.brokers + 1))

    def make_table(self) -> RoutingTable:
        """A table for one of the brokers."""
        if ":" in self.model:
            return table_with(options_of(self.model), self.schema, advertised=self.advertised, predicates=EVEN)
        options = {"shape": FilterShape(4, hashes=1), "rate": 0.2} if self.hashed and self.model == "dls" else {}
        return make_table(self.model, self.schema, advertised=self.advertised, predicates=EVEN, **options)

    @property
    def schema(self) -> Schema | None:
        """What all brokers agree on about attributes."""
        with_volume = "added_volume" in self.model
        return SCHEMA if MODELS[self.kind].bounded or with_volume else None

    @property
    def kind(self) -> str:
        """The model without its options."""
        return self.model.partition(":")[0]


ONE = Shape()


def draw_shape(
    rng: Random, clients: int, brokers: int | None = None, model: str | None = None, advertised: bool | None = None
) -> Shape:
    """A random tree; what is given is not drawn. Each draw is made in any case, so that a choice changes no other.

    >>> draw_shape(Random(3), 2, brokers=4, model="identity", advertised=False).brokers
    4
    """
    size, name, with_adverts = rng.choice((3, 3, 3, 4, 4, 5, 6, 8, 12)), rng.choice(list(MODELS)), rng.random() < 0.3
    size = size if brokers is None else brokers
    deep, hierarchy = rng.random() < 0.5, rng.random() < 0.15
    parents = tuple(rng.randrange(max(0, i - 1) if deep else 0, i + 1) for i in range(size - 1))
    roles = tuple(Role.PARENT if hierarchy else Role.PEER for _ in parents)
    homes = tuple(rng.randrange(size) for _ in range(clients))
    named = name if model is None else model
    return Shape(parents, roles, homes, named, with_adverts if advertised is None else advertised, rng.random() < 0.5)
