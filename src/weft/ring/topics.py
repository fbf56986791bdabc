"""Topics in a hierarchy, and similar groups merged into one. Law: a subscription and an event whose topics have a leaf
in common use a common group, merged or not. (003, 3.3)

Only leaf topics have groups. A general subscription or event stands for its leaves. Groups with enough common members
and few different ones are merged into a super topic: the topic above them if it has just these leaves, else a virtual
one whose name is made of theirs. Merged groups keep a reference; when they are no longer alike it is taken back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field

from weft.errors import RingError


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

    def above(self, leaves: Iterable[str]) -> str | None:
        """A topic that has just these leaves, if there is one."""
        wanted = tuple(sorted(leaves))
        return next((topic for topic in sorted(self.below) if self.leaves(topic) == wanted), None)


class SuperTopics:
    """Which groups are merged.

    >>> merged = SuperTopics(least_equal=2, most_unequal=1)
    >>> merged.probe("tennis", {1, 2, 3}, "chess", {2, 3})
    'chess+tennis'
    >>> merged.group("chess"), merged.group("golf")
    ('chess+tennis', 'golf')
    """

    def __init__(self, least_equal: int, most_unequal: int, topics: TopicTree | None = None) -> None:
        if least_equal < 1 or most_unequal < 0:
            raise RingError("groups are merged with one common member or more, and a number of different ones")
        self._least = least_equal
        self._most = most_unequal
        self._topics = topics or TopicTree()
        self._reference: dict[str, str] = {}  # of a topic to its super topic
        self._parts: dict[str, tuple[str, ...]] = {}

    def alike(self, one: Set[int], other: Set[int]) -> bool:
        """Whether two groups' members are alike enough to share a tree."""
        return len(one & other) >= self._least and len(one ^ other) <= self._most

    def group(self, topic: str) -> str:
        """The group of a leaf topic: its own, or the super topic that it refers to."""
        return self._reference.get(topic, topic)

    def groups(self, topic: str) -> tuple[str, ...]:
        """The groups of a topic of any level, each once."""
        return tuple(sorted({self.group(leaf) for leaf in self._topics.leaves(topic)}))

    def parts(self, group: str) -> tuple[str, ...]:
        """The leaf topics of a group."""
        return self._parts.get(group, (group,))

    def probe(self, one: str, members: Set[int], other: str, others: Set[int]) -> str | None:
        """The root of one group probes another: they are merged if they are alike. The super topic, or None."""
        first, second = self.group(one), self.group(other)
        if first == second or not self.alike(members, others):
            return None
        parts = tuple(sorted({*self.parts(first), *self.parts(second)}))
        made = self._topics.above(parts) or "+".join(parts)
        for gone in (first, second):
            self._parts.pop(gone, None)
        self._parts[made] = parts
        self._reference.update(dict.fromkeys(parts, made))
        return made

    def review(self, group: str, members: Mapping[str, Set[int]]) -> tuple[str, ...]:
        """Undo a merger whose topics are no longer alike, pair by pair; the topics that have their own group again."""
        parts = self._parts.get(group, ())
        empty: frozenset[int] = frozenset()
        pairs = [(a, b) for at, a in enumerate(parts) for b in parts[at + 1 :]]
        if all(self.alike(members.get(a, empty), members.get(b, empty)) for a, b in pairs):
            return ()
        del self._parts[group]
        for topic in parts:
            del self._reference[topic]
        return parts
