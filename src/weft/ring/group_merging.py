"""Similar topic groups are merged into super topics, and separated again. Law: what a root decides here changes where
topics are stored, never whether events are found. (003, 3.3)

The root of a group asks one of its members, now and then, for another topic, and shows that topic's root its members.
If the groups are alike, both roots give their topics to the super topic. (The paper probes roots at random; groups
without a common member are never merged, so that only those that members know of need to be asked.) The root of a
super topic gives every topic back to its own root as soon as two of them are no longer alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft.ring.group_messages import AskTopics, Probe, Probed, TopicsAre
from weft.ring.group_state import GroupId
from weft.ring.identifiers import Key
from weft.ring.messages import Address
from weft.ring.rendezvous_messages import RingEffect, RingSend
from weft.ring.requests import Answer
from weft.ring.topics import SuperTopics, super_topic

if TYPE_CHECKING:
    from weft.ring.group_root import GroupRoots
    from weft.ring.rendezvous import RendezvousNode

Parts = Mapping[str, tuple[int, ...]]  # the members of each topic of a host


class GroupMerging:
    """What the roots on a node do about groups that are alike."""

    def __init__(self, node: RendezvousNode, roots: GroupRoots, rule: SuperTopics) -> None:
        self._node, self._roots, self._rule = node, roots, rule
        self._due: dict[str, int] = {}
        self._turn = 0
        self._probing: set[str] = set()

    def tick(self, host: str, parts: Parts, now: int) -> list[RingEffect]:
        """Review a host's topics if it is time, and look for more."""
        if now < self._due.setdefault(host, now + self._rule.period):
            return []
        self._due[host] = now + self._rule.period
        if (len(parts) > 1 or host not in parts) and not self._rule.keeps(parts):
            del self._due[host]
            return [effect for topic in parts for effect in self._roots.give(GroupId(host, topic), topic, now)]
        return self._look(host, parts, now)

    def _look(self, host: str, parts: Parts, now: int) -> list[RingEffect]:
        """Ask a member for a topic, in turn."""
        members = sorted({member for each in parts.values() for member in each})
        if not members or host in self._probing:
            return []
        self._turn += 1

        def answered(answer: Answer, now: int) -> list[RingEffect]:
            others = [t for t in answer.topics if t not in parts] if isinstance(answer, TopicsAre) else []
            return self._probe(host, others[self._turn % len(others)], now) if others else []

        return self._node.until_done(Key(members[self._turn % len(members)]), AskTopics, answered, now, lambda: False)

    def _probe(self, host: str, other: str, now: int) -> list[RingEffect]:
        parts = self._parts(host)
        if not parts or other in parts or host in self._probing:
            return []
        self._probing.add(host)

        def probed(answer: Answer, now: int) -> list[RingEffect]:
            self._probing.discard(host)
            into = answer.into if isinstance(answer, Probed) else None
            return [] if into is None else self._give(host, parts, into, now)

        return self._node.hosts.ask(
            other,
            lambda token, key, at: Probe(token, key, at, other, parts),
            probed,
            now,
            lambda: bool(self._roots.parts(host)),
        )

    def probed(self, sender: Address, message: Probe, now: int) -> list[RingEffect]:
        """The root of another host shows its topics' members."""
        mine = self._parts(message.host)
        both = {**message.parts, **mine}
        into = super_topic(both, self._node.settings.topics) if self._rule.keeps(both) else None
        effects = [] if into is None else self._give(message.host, mine, into, now)
        return [RingSend(sender, Probed(message.token, into)), *effects]

    def _parts(self, host: str) -> dict[str, tuple[int, ...]]:
        return {topic: part.members for topic, part in self._roots.parts(host).items()}

    def _give(self, host: str, parts: Parts, into: str, now: int) -> list[RingEffect]:
        return [effect for topic in parts for effect in self._roots.give(GroupId(host, topic), into, now)]
