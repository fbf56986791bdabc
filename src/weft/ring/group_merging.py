"""The merging of topic groups that are alike into super topics, as their roots decide it (003, 3.3).

The root of a group asks one of its members once in a period for another topic, and sends its members to that topic's
root. If the groups are alike, both roots give their topics to the super topic. (The paper probes roots at random;
groups without a common member are never merged, so that only those that members know of need to be asked.) The root of
a super topic checks as often whether all of its topics are still alike, and whether their own roots agree that they are
here; if not, it returns them. Cells stay where they are until their members find that they belong elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from weft.ring.group_state import GroupId, GroupState, root_key
from weft.ring.groups import Groups
from weft.ring.identifiers import IdSpace, Key
from weft.ring.record_keeper import RingReply
from weft.ring.rendezvous_messages import (
    AskTopics,
    Elsewhere,
    FetchSettings,
    Probe,
    Probed,
    RingEffect,
    RingSend,
    TopicsAre,
    WorkAnswer,
)
from weft.ring.topics import SuperTopics, TopicTree, super_topic
from weft.ring.work import NO_TOKEN, RingWork, WorkState, WorkTable

_MOST_HOSTS = 10  # that a probe is referred to


@dataclass(slots=True, eq=False)
class Confirming(RingWork):
    """The own root of a topic is asked who has it, and then those that it refers to."""

    group: GroupId
    hops: int = 0


@dataclass(slots=True, eq=False)
class MergeProbe(RingWork):
    """A root looks for a group that is like its own."""

    host: str
    hops: int = 0
    other: str = ""


class GroupMerging:
    """Merging at the roots of a node. `parts` are the topics of a host, and `give` gives one to another host."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a node that it uses
        self,
        space: IdSpace,
        table: WorkTable,
        groups: Groups,
        rule: SuperTopics,
        topics: TopicTree,
        rng: np.random.Generator,
        parts: Callable[[str], dict[str, GroupState]],
        give: Callable[[GroupId, str, int], list[RingEffect]],
    ) -> None:
        self._space, self._table, self._groups, self._rule, self._topics = space, table, groups, rule, topics
        self._rng, self._parts, self._give = rng, parts, give
        self._due: dict[str, int] = {}
        table.handle(MergeProbe, self._probed_back)
        table.handle(Confirming, self._confirmed)

    def tick(self, hosts: dict[str, list[GroupState]], now: int) -> list[RingEffect]:
        """Review the topics of the hosts that this node is the root of, if it is time, and look for more."""
        effects: list[RingEffect] = []
        rule = self._rule
        self._due = {host: self._due.get(host, now + rule.period) for host in hosts}
        for host in [host for host, due in self._due.items() if due <= now]:
            self._due[host] = now + rule.period
            parts = {part.topic: part.members for part in hosts[host]}
            effects += self._confirm(host, parts, now)
            if (len(parts) == 1 and host in parts) or rule.keeps(parts):
                effects += self._look(host, parts, now)
            else:
                for topic in parts:
                    effects += self._give(GroupId(host, topic), topic, now)
        return effects

    def _confirm(self, host: str, parts: Iterable[str], now: int) -> list[RingEffect]:
        """Ask the own root of each topic whether the topic is here: rings that have met may disagree."""
        effects: list[RingEffect] = []
        for topic in parts:
            if topic != host and all(work.group != (host, topic) for work in self._table.of(Confirming)):
                work = Confirming(GroupId(host, topic))
                self._table.begin(work, WorkState.PROBING)
                effects += self._ask_host(work, topic, now)
        return effects

    def _ask_host(self, work: Confirming, host: str, now: int) -> list[RingEffect]:
        key = root_key(self._space, host)
        return self._table.errand(work, host, key, FetchSettings(NO_TOKEN, key, host, work.group.topic), now)

    def _confirmed(self, work: Confirming, part: str, answer: WorkAnswer, now: int) -> list[RingEffect]:  # noqa: ARG002
        """References lead from a topic's own root to here, or else the topic goes back to it, with its members."""
        host, topic = work.group
        if isinstance(answer, Elsewhere) and answer.host != host and work.hops < _MOST_HOSTS:
            work.hops += 1
            return self._ask_host(work, answer.host, now)
        self._table.end(work)
        agreed = answer is False or (isinstance(answer, Elsewhere) and answer.host == host)
        return [] if agreed or topic not in self._parts(host) else self._give(work.group, topic, now)

    def _look(self, host: str, parts: dict[str, tuple[int, ...]], now: int) -> list[RingEffect]:
        """Ask any member for any topic."""
        members = sorted({member for each in parts.values() for member in each})
        if not members or any(work.host == host for work in self._table.of(MergeProbe)):
            return []
        work = MergeProbe(host)
        self._table.begin(work, WorkState.PROBING)
        member = Key(members[self._rng.integers(len(members))])
        return self._table.errand(work, "topics", member, AskTopics(NO_TOKEN), now)

    def _probed_back(self, work: MergeProbe, part: str, answer: WorkAnswer, now: int) -> list[RingEffect]:
        parts = {topic: state.members for topic, state in self._parts(work.host).items()}
        if part == "topics" and isinstance(answer, TopicsAre) and parts:
            others = [topic for topic in answer.topics if topic not in parts]
            if others:
                work.other = others[self._rng.integers(len(others))]
                return self._probe(work, self._groups.host(work.other), parts, now)
        if isinstance(answer, Elsewhere) and work.hops < _MOST_HOSTS and answer.host != work.host:
            work.hops += 1
            return self._probe(work, answer.host, parts, now)
        self._table.end(work)
        effects: list[RingEffect] = []
        if isinstance(answer, Probed) and answer.into is not None:
            for topic in parts:
                effects += self._give(GroupId(work.host, topic), answer.into, now)
        return effects

    def _probe(self, work: MergeProbe, at: str, parts: dict[str, tuple[int, ...]], now: int) -> list[RingEffect]:
        key = root_key(self._space, at)
        return self._table.errand(work, "probe", key, Probe(NO_TOKEN, key, at, work.other, parts), now)

    def compare(self, message: Probe, now: int, reply: RingReply) -> list[RingEffect]:
        """The root of another host shows its topics' members."""
        mine = {topic: state.members for topic, state in self._parts(message.host).items()}
        both = {**message.parts, **mine}
        into = super_topic(both, self._topics) if mine and self._rule.keeps(both) else None
        effects: list[RingEffect] = [RingSend(reply.to, Probed(reply.token, into))]
        for topic in mine if into is not None else ():
            effects += self._give(GroupId(message.host, topic), into or topic, now)
        return effects
