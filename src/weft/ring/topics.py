"""Topics: the attribute that names them, their hierarchy, and which of them share a super topic (003, 3.3). A general
topic stands for its leaves. What is merged would not be separated at once, and what is separated not merged at once.

Only leaf topics have groups. Groups with enough common members and few different ones are merged into a super topic:
the topic above them if it has just these leaves, else a virtual one whose name is made of theirs. All pairs of its
topics must be alike, when they are merged and afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from weft.algebra.normalize import normalize
from weft.errors import RingError
from weft.language.ast import Filter
from weft.model.lists import AttributeValue

EVERY = ""  # the topic of filters that do not name any
Members = Mapping[str, Collection[int]]  # the members of topics' groups


@dataclass(frozen=True, slots=True)
class TopicTree:
    """Topics and what is right below them.

    >>> topics = TopicTree({"news": ["sports", "politics"], "sports": ["tennis", "chess"]})
    >>> topics.leaves("sports"), topics.leaves("tennis")
    (('chess', 'tennis'), ('tennis',))
    """

    below: Mapping[str, Collection[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        done: set[str] = set()
        for topic in self.below:
            self._check(topic, [], done)

    def _check(self, topic: str, path: list[str], done: set[str]) -> None:
        if topic in path:
            circle = " > ".join([*path[path.index(topic) :], topic])
            raise RingError(f"topics must not form a cycle: {circle}")
        if topic not in done:
            for under in self.below.get(topic, ()):
                self._check(under, [*path, topic], done)
            done.add(topic)

    def leaves(self, topic: str) -> tuple[str, ...]:
        """The leaf topics at or below a topic; one that the hierarchy does not name is a leaf."""
        found: set[str] = set()
        waiting = [topic]
        while waiting:
            at = waiting.pop()
            under = self.below.get(at, ())
            waiting += under
            if not under:
                found.add(at)
        return tuple(sorted(found))

    def related(self, topic: str) -> tuple[str, ...]:
        """The topics of the hierarchy that have a leaf in common with one of them; none for any other topic."""
        known = {*self.below, *(leaf for each in self.below.values() for leaf in each)}
        leaves = set(self.leaves(topic))
        return tuple(sorted(each for each in known if leaves.intersection(self.leaves(each)))) if topic in known else ()

    def above(self, leaves: Iterable[str]) -> str | None:
        """A topic that has just these leaves, if there is one."""
        wanted = tuple(sorted(leaves))
        return next((topic for topic in sorted(self.below) if self.leaves(topic) == wanted), None)


@dataclass(frozen=True, slots=True)
class TopicAttribute:
    """The attribute whose value is the topic of an event. An event and a filter that match have a topic in common.

    A filter that allows finitely many strings of the attribute belongs to these topics. Every other filter belongs to
    `EVERY`, and so does every event, besides the topic that it names. Without a name, everything belongs to `EVERY`.
    An event of a general topic is published to all of its leaves, so that a filter that allows the general topic needs
    one of them.

    >>> from weft import parse
    >>> kind = TopicAttribute("kind")
    >>> kind.of_filter(parse("kind IN ('a', 'b') AND x > 3")), kind.of_filter(parse("x > 3"))
    (('a', 'b'), ('',))
    >>> kind.of_event({"kind": "a", "x": 4})
    ('', 'a')
    >>> general = TopicAttribute("kind", TopicTree({"sport": ["tennis", "chess"]}))
    >>> general.of_event({"kind": "sport"}), general.of_filter(parse("kind IN ('sport', 'tennis')"))
    (('', 'chess', 'tennis'), ('tennis',))
    """

    name: str = ""
    topics: TopicTree = field(default_factory=TopicTree)

    def of_event(self, attributes: Mapping[str, AttributeValue]) -> tuple[str, ...]:
        """The topics that an event is published to."""
        value = attributes.get(self.name)
        return (EVERY, *self.topics.leaves(value)) if isinstance(value, str) and value != EVERY else (EVERY,)

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
        return self._needed(topics)

    def _needed(self, topics: Collection[str]) -> tuple[str, ...]:
        """Leaf topics that have one in common with each of these."""
        leaves = {topic: self.topics.leaves(topic) for topic in sorted(topics)}
        needed = {topic for topic, below in leaves.items() if below == (topic,)}
        for below in leaves.values():
            if needed.isdisjoint(below):
                needed.add(below[0])
        return tuple(sorted(needed))


@dataclass(frozen=True, slots=True)
class SuperTopics:
    """Which groups are merged: those with enough common members and few different ones, topic by topic.

    >>> rule = SuperTopics(least_equal=2, most_unequal=1)
    >>> rule.keeps({"tennis": {1, 2, 3}, "chess": {2, 3}}), rule.keeps({"tennis": {1, 2, 3}, "chess": {2}})
    (True, False)
    >>> super_topic(["tennis", "chess"])
    'chess+tennis'
    """

    least_equal: int
    most_unequal: int
    period: int = 30_000_000  # microseconds after which the root of a group looks for another one

    def __post_init__(self) -> None:
        if self.least_equal < 1 or self.most_unequal < 0:
            raise RingError("groups are merged with one common member or more, and a number of different ones")
        if self.period < 1:
            raise RingError(f"the period of merging is 1 microsecond or more, not {self.period}")

    def alike(self, one: Collection[int], other: Collection[int]) -> bool:
        """Whether two groups' members are alike enough to share a tree."""
        first, second = frozenset(one), frozenset(other)
        return len(first & second) >= self.least_equal and len(first ^ second) <= self.most_unequal

    def keeps(self, parts: Members) -> bool:
        """Whether topics are merged, or stay so: there are several, and each two have members that are alike."""
        topics = sorted(parts)
        pairs = [(a, b) for at, a in enumerate(topics) for b in topics[at + 1 :]]
        return len(topics) > 1 and all(self.alike(parts[a], parts[b]) for a, b in pairs)


def super_topic(parts: Iterable[str], topics: TopicTree | None = None) -> str:
    """The name of a super topic: that of the topic above its parts, or else one made of theirs."""
    ordered = sorted(set(parts))
    return (topics or TopicTree()).above(ordered) or "+".join(ordered)
