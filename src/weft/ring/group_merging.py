"""Similar topic groups are merged into super topics, and separated again. Law: what a root decides here changes where
topics are stored, never whether events are found. (003, 3.3)

Once in a period, the root of a group asks one of its members for another topic, and shows that topic's root its
members. If the groups are alike, both roots give their topics to the super topic. (The paper probes roots at random;
groups without a common member are never merged, so that only those that members know of need to be asked.) The root of
a super topic looks as often whether all of its topics are still alike; if not, it gives every one back to its own root.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft.ring.group_messages import AskTopics, Probe, Probed, TopicsAre
from weft.ring.group_state import GroupId, GroupState
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

    def __init__(self, node: RendezvousNode, roots: GroupRoots, rule: SuperTopics, rng: np.random.Generator) -> None:
        self._node, self._roots, self._rule, self._rng = node, roots, rule, rng
        self._due: dict[str, int] = {}
        self._probing: set[str] = set()

    def tick(self, hosts: Mapping[str, Sequence[GroupState]], now: int) -> list[RingEffect]:
        """Review the topics of the hosts that this node is the root of, if it is time, and look for more."""
        effects: list[RingEffect] = []
        self._due = {host: self._due.get(host, now + self._rule.period) for host in hosts}
        for host in [host for host, due in self._due.items() if due <= now]:
            self._due[host] = now + self._rule.period
            effects += self._review(host, {part.topic: part.members for part in hosts[host]}, now)
        return effects

    def _review(self, host: str, parts: Parts, now: int) -> list[RingEffect]:
        if (len(parts) == 1 and host in parts) or self._rule.keeps(parts):
            return self._look(host, parts, now)
        effects: list[RingEffect] = []
        for topic in parts:
            effects += self._roots.references.give(GroupId(host, topic), topic, now)
        return effects

    def _look(self, host: str, parts: Parts, now: int) -> list[RingEffect]:
        """Ask any member for any topic."""
        members = sorted({member for each in parts.values() for member in each})
        if not members or host in self._probing:
            return []

        def answered(answer: Answer, now: int) -> list[RingEffect]:
            others = [t for t in answer.topics if t not in parts] if isinstance(answer, TopicsAre) else []
            return self._probe(host, others[self._rng.integers(len(others))], now) if others else []

        member = Key(members[self._rng.integers(len(members))])
        return self._node.until_done(member, AskTopics, answered, now, lambda: False)

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
        return [effect for topic in parts for effect in self._roots.references.give(GroupId(host, topic), into, now)]
