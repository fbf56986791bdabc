"""The topic of an event is the value of one of its attributes. Law: an event and a filter that match have a topic in
common.

A filter that allows finitely many strings of the attribute belongs to these topics. Every other filter belongs to
`EVERY`, and so does every event, besides the topic that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.algebra.normalize import normalize
from weft.language.ast import Filter
from weft.model.value import Value

EVERY = ""  # the topic of filters that do not name any


@dataclass(frozen=True, slots=True)
class TopicAttribute:
    """Topics by an attribute; without a name, everything belongs to `EVERY`.

    >>> from weft import parse
    >>> kind = TopicAttribute("kind")
    >>> kind.of_filter(parse("kind IN ('a', 'b') AND x > 3")), kind.of_filter(parse("x > 3"))
    (('a', 'b'), ('',))
    >>> kind.of_event({"kind": "a", "x": 4})
    ('', 'a')
    """

    name: str = ""

    def of_event(self, attributes: Mapping[str, Value]) -> tuple[str, ...]:
        """The topics that an event is published to."""
        value = attributes.get(self.name)
        return (EVERY, value) if isinstance(value, str) and value != EVERY else (EVERY,)

    def of_filter(self, filter: Filter) -> tuple[str, ...]:
        """The topics that a filter subscribes to; none if it matches nothing."""
        if not self.name:
            return (EVERY,)
        topics: set[str] = set()
        for box in normalize(filter).boxes:
            values = box.sets.get(self.name)
            finite = None if values is None or values.absent else values.finite()
            if finite is None or not all(isinstance(value, str) for value in finite):
                return (EVERY,)
            topics.update(value for value in finite if isinstance(value, str))
        return tuple(sorted(topics))
