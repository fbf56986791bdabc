"""Topics that one host gives to another. Laws: a root stops answering for a topic before the next one begins; whoever
has given a topic away refers to the host that has taken it. (003, 3.3)

The state as it was given away is the reference, and is copied like every state: the root tells the other host's root
until that has taken it, and so does the root after it. What is stored for the topic stays where it is meanwhile: the
next root begins with the views of the one before, and changes them as any view is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.ring.group_messages import Entrust
from weft.ring.group_state import GroupId, GroupRule, GroupState, members_together, root_key
from weft.ring.rendezvous_messages import RingEffect
from weft.ring.requests import Answer, Then

if TYPE_CHECKING:
    from weft.ring.group_root import GroupRoots
    from weft.ring.rendezvous import RendezvousNode

_AGAIN = 10  # periods of merging after which the other root is told again: it may have died with all copies


class GroupReferences:
    """What the roots on a node give away and take."""

    def __init__(self, node: RendezvousNode, roots: GroupRoots, rule: GroupRule) -> None:
        self._node, self._roots, self._rule = node, roots, rule
        self._again = None if rule.merging is None else _AGAIN * rule.merging.period
        self.told: dict[GroupId, tuple[int, int | None]] = {}  # serials of references, and when they were acknowledged

    def give(self, group: GroupId, host: str, now: int) -> list[RingEffect]:
        """Give a topic to another host, and keep a reference."""
        if group.host == host:
            return []
        return self._roots.change(group, lambda state: state and state.given_to(host), now, lambda *_: [])

    def hand_on(self, state: GroupState, host: str, now: int) -> list[RingEffect]:
        """Tell the root of the host that a topic was given to, unless it knows."""
        serial, since = self.told.get(state.id, (0, None))
        again = since is not None and self._again is not None and state.host == state.topic
        if serial == state.serial and not (again and now - (since or 0) >= (self._again or 0)):
            return []
        self.told[state.id] = state.serial, None
        key = root_key(self._node.chord.space, host)

        def wanted() -> bool:
            return self._node.keys.serves(state.key) and self._roots.states.get(state.id) == state

        def taken(answer: Answer, now: int) -> list[RingEffect]:
            if self.told.get(state.id) == (state.serial, None):
                self.told[state.id] = (0, None) if answer is False else (state.serial, now)
            return []

        return self._node.until_done(key, lambda token: Entrust(token, key, host, state), taken, now, wanted)

    def take(self, message: Entrust, now: int, answer: Then) -> list[RingEffect]:
        """Take a topic that was given to a host of which this node is the root, unless that was done before."""
        host, given = message.host, message.state

        def taken(known: GroupState | None) -> GroupState | None:
            if known is not None and known.serial > given.serial:
                return known
            peers = [part for topic, part in self._roots.parts(host).items() if topic != given.topic]
            tree = peers[0].tree if peers else self._rule.tree(self._node.chord.space, host)
            return given.taken_by(host, tree, members_together([*peers, given]))

        if given.entrusted != host:
            return answer(False, now)
        return self._roots.enqueue(GroupId(host, given.topic), taken, now, answer)
