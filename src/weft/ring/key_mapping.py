"""The keys that an event visits and under which a subscription is stored (003, 3.1 and 3.3). If an event matches a
subscription, they share a key.

Every attribute value of an event has one key, made of its interval, the attribute and the topic; values of another type
than the intervals are hashed, and so are all values of an attribute without intervals. A conjunction is stored under
all keys of one attribute, of which it allows only values that can be enumerated as keys. A conjunction without such an
attribute is stored under the topic's "any" key, which every event visits too (erratum 9). Disjunctions are stored box
by box.

Partial match: an attribute that an event lacks satisfies every predicate, so a conjunction is stored under all of its
attributes. An event that has none of them matches partially only if it also matches exactly; the paper's definition
would deliver every event to whoever names other attributes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import numpy as np

from weft.algebra import interval
from weft.algebra.box import Box, NormalForm
from weft.algebra.interval import EMPTY, Line
from weft.algebra.profile import Meeting, Profile
from weft.algebra.valueset import PRESENT, ValueSet
from weft.errors import RingError
from weft.index.base import AnyEvent
from weft.language.membership import is_membership
from weft.model.event import attributes_of
from weft.model.lists import AttributeValue
from weft.model.value import Value, to_micros
from weft.ring.identifiers import IdSpace, Key
from weft.ring.intervals import Intervals

_NARROWEST = 1e-3  # the share of its domain that an equality test counts for
_NO_KEYS: frozenset[Key] = frozenset()


class Semantics(StrEnum):
    """What an attribute that an event lacks means."""

    EXACT = "exact"  # it satisfies no predicate, but IS NULL
    PARTIAL = "partial"  # it satisfies every predicate


class Selection(StrEnum):
    """How a conjunction's attribute is chosen."""

    RANDOM = "random"
    PROPORTIONAL = "proportional"  # with a probability that is inverse to the share of the domain that it allows


@dataclass(frozen=True, slots=True)
class KeyMapping:
    """Keys of events and subscriptions on a circle; `attributes` are those with intervals.

    >>> from weft import normalize, parse
    >>> mapping = KeyMapping(IdSpace(4096), {"price": Intervals("price", 0, 500, 100)})
    >>> stored = mapping.of_subscription("stocks", normalize(parse("price BETWEEN 2 AND 8")), np.random.default_rng(1))
    >>> len(stored), len(stored & mapping.of_event("stocks", {"price": 7}))
    (2, 1)
    """

    space: IdSpace
    attributes: Mapping[str, Intervals] = field(default_factory=dict)
    semantics: Semantics = Semantics.EXACT
    selection: Selection = Selection.PROPORTIONAL
    any_key: bool = True  # without it, filters that need it are refused, and events do not visit it

    # -- events ----------------------------------------------------------------------------------------

    def of_event(self, topic: str, event: AnyEvent) -> frozenset[Key]:
        """The keys that an event visits: one for each attribute, and the "any" key."""
        keys = {
            self.of_value(topic, name, value)
            for name, value in attributes_of(event).items()
            if _is_given(value) and not isinstance(value, list)  # whoever tests a list has the "any" key
        }
        return frozenset(keys | self._any(topic))

    def of_profile(self, topic: str, profile: Profile) -> frozenset[Key]:
        """The keys that an event with ranges visits (erratum 6): all cells of an attribute that it leaves open."""
        keys = set(self._any(topic))
        for box in profile.form.boxes:
            for name in {*box.sets, *self.attributes}:
                if is_membership(name):
                    continue
                keys |= self.of_set(topic, name, box.sets.get(name, PRESENT)) or _NO_KEYS
        return frozenset(keys)

    # -- subscriptions ---------------------------------------------------------------------------------

    def of_subscription(
        self, topic: str, form: NormalForm, rng: np.random.Generator, meeting: Meeting = Meeting.COVERING
    ) -> frozenset[Key]:
        """The keys that a subscription is stored under; `meeting` decides how it meets events that have ranges.

        Raises RingError if it needs the "any" key and there is none.
        """
        keys: set[Key] = set()
        for box in form.boxes:
            partial = self.semantics is Semantics.PARTIAL
            keys |= self._of_all(topic, box) if partial else self._of_one(topic, box, rng, meeting)
        return frozenset(keys)

    def _of_one(self, topic: str, box: Box, rng: np.random.Generator, meeting: Meeting) -> frozenset[Key]:
        usable: dict[str, frozenset[Key]] = {}
        for name, values in box.sets.items():
            if (
                not values.absent
                and not is_membership(name)
                and (meeting is Meeting.COVERING or name in self.attributes)
            ):
                keys = self.of_set(topic, name, values)
                if keys is not None and (not self.any_key or len(keys) < self._cells(name)):
                    usable[name] = keys
        if not usable:
            return self._any_or_refuse(topic, box)
        names = list(usable)
        if self.selection is Selection.RANDOM:
            return usable[names[int(rng.integers(len(names)))]]
        weights = np.array([1 / max(self.share(name, box.sets[name]), _NARROWEST) for name in names])
        return usable[names[int(rng.choice(len(names), p=weights / weights.sum()))]]

    def _of_all(self, topic: str, box: Box) -> frozenset[Key]:
        found = {
            name: None if name not in box.sets or box.sets[name].absent else self.of_set(topic, name, box.sets[name])
            for name in box.names
        }
        keys = {key for each in found.values() if each is not None for key in each}
        if not found or None in found.values():
            keys.update(self._any_or_refuse(topic, box))
        return frozenset(keys)

    def _any_or_refuse(self, topic: str, box: Box) -> frozenset[Key]:
        if not self.any_key:
            raise RingError(
                f"no attribute of {', '.join(sorted(box.names)) or 'the filter'} has values that can be hashed; give "
                "one of them intervals, test one for equality, or allow an 'any' key"
            )
        return self._any(topic)

    # -- values ----------------------------------------------------------------------------------------

    def of_value(self, topic: str, name: str, value: Value) -> Key:
        """The key of one value of an attribute."""
        cut = self.attributes.get(name)
        if cut is None:
            return self.space.hash(f"{name}\x00{topic}\x00{_text(value)}")
        position = cut.position(value)
        cell = self._bucket(cut, value) if position is None else cut.of(position)
        return cut.key(cell, self.space, topic)

    def of_set(self, topic: str, name: str, values: ValueSet) -> frozenset[Key] | None:
        """The keys of all present values of a set; None if they cannot be enumerated."""
        cut = self.attributes.get(name)
        line, others = _divided(cut, values)
        if cut is None:
            if others is None:
                return None
            return frozenset(self.of_value(topic, name, value) for value in others)
        cells = set(range(cut.count)) if others is None else {self._bucket(cut, value) for value in others}
        for low, high in interval.intervals(line):
            cells.update(cut.of_cuts(low, high))
        return frozenset(cut.key(cell, self.space, topic) for cell in cells)

    def share(self, name: str, values: ValueSet) -> float:
        """The part of an attribute's domain that a set holds; 0 for values that are hashed one by one."""
        cut = self.attributes.get(name)
        line, others = _divided(cut, values)
        if cut is None or others is None:
            return float(cut is not None)
        total = 0.0
        for low, high in interval.intervals(line):
            end = cut.high if high is None else min(high[0], cut.high)
            total += max(0.0, end - max(low[0], cut.low))
        return total / (cut.high - cut.low)

    def _cells(self, name: str) -> float:
        """How many keys make an attribute useless: all of its cells, unless there is but one."""
        cut = self.attributes.get(name)
        return math.inf if cut is None or cut.count == 1 else cut.count

    def _bucket(self, cut: Intervals, value: Value) -> int:
        return self.space.hash(f"{cut.attribute}\x00{_text(value)}") % cut.count

    def _any(self, topic: str) -> frozenset[Key]:
        return frozenset((self.space.hash(f"\x00any\x00{topic}"),)) if self.any_key else _NO_KEYS


def partially_matches(form: NormalForm, event: AnyEvent) -> bool:
    """Whether an event satisfies a filter with regard to the attributes that it has.

    >>> from weft import normalize, parse
    >>> partially_matches(normalize(parse("a < 20 AND b > 5")), {"a": 10})
    True
    """
    given = {name: value for name, value in attributes_of(event).items() if _is_given(value)}
    for box in form.boxes:
        if box.admits(given):
            return True
        if given.keys() & box.names and all(given[name] in box.sets[name] for name in given.keys() & box.sets.keys()):
            subjects = [(s, allowed) for s, allowed in box.residuals.items() if given.keys() >= set(s.names)]
            if all(subject.outcome(given) in allowed for subject, allowed in subjects):
                return True
    return False


def _divided(cut: Intervals | None, values: ValueSet) -> tuple[Line, list[Value] | None]:
    """The part of a set that intervals divide, and all other present values, None if they cannot be enumerated."""
    line = EMPTY if cut is None else values.timestamps if cut.timestamps else values.numbers
    timestamps = EMPTY if cut is not None and cut.timestamps else values.timestamps
    others = ValueSet(strings=values.strings, bools=values.bools, timestamps=timestamps).finite()
    numbers = [] if cut is not None and not cut.timestamps else interval.points(values.numbers)
    if others is None or numbers is None:
        return line, None
    return line, [*numbers, *(value for value in others if value is not None)]


def _is_given(value: AttributeValue | None) -> bool:
    return value is not None and value == value  # noqa: PLR0124 - NaN is absent


def _text(value: Value) -> str:
    """The same text for equal values, another one for others."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    if isinstance(value, datetime):
        return f"timestamp\x00{to_micros(value)}"
    kind = "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__
    return f"{kind}\x00{value!r}"
