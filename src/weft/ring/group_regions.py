"""The servers of a group's regions, which know the members of each region and say where a cell should be (003, 3.2).

A node is the server of the regions whose upper ends it answers for, and goes on for its predecessor. Whoever is told a
place may rely on it after the next death: a change is answered when its copies are made.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.ring.group_state import RegionState, StateId, StateStore
from weft.ring.identifiers import Key
from weft.ring.keys_in_hand import KeysInHand
from weft.ring.messages import NodeRef
from weft.ring.record_keeper import RingReply
from weft.ring.rendezvous_messages import (
    Enter,
    Entered,
    Exit,
    Locate,
    Located,
    RegionRequest,
    RingEffect,
    RingSend,
    WorkAnswer,
)
from weft.ring.work import RingWork, WorkState, WorkTable


@dataclass(slots=True, eq=False)
class Filing(RingWork):
    """A region's state is being copied."""

    reply: RingReply
    affected: tuple[Key, ...] | None
    peers: tuple[Key, ...]


class RegionServers:
    """The regions that a node is the server of."""

    def __init__(self, table: WorkTable, keys: KeysInHand, states: StateStore) -> None:
        self._table, self._keys, self._states = table, keys, states
        table.handle(Filing, self._filed)

    def asked(self, message: RegionRequest, now: int, reply: RingReply) -> list[RingEffect]:
        """A request to the server of a region, which this node is."""
        tree, key = message.tree, message.key
        of = (message.host, tree.depth, tree.rotation, message.level)
        found = self._states.get(StateId("region", key, of))
        state = found if isinstance(found, RegionState) else RegionState(message.host, tree, message.level, key)
        if isinstance(message, Locate):
            if not state.members:
                return [RingSend(reply.to, Located(reply.token, None))]
            member, after, upto = tree.place_among(message.level, message.cell, state.members)
            return [RingSend(reply.to, Located(reply.token, member, after, upto))]
        if isinstance(message, Enter):
            made, affected = state.entered(message.member), state.affected_by(message.member)
        else:
            assert isinstance(message, Exit)
            made, affected = state.without(message.member), None
        if made is state:  # it was known
            peers = tuple(Key(each) for each in made.members if each != message.member)
            return reply.done() if affected is None else [RingSend(reply.to, Entered(reply.token, (), peers))]
        self._states.take((made,))
        work = Filing(reply, affected, tuple(Key(each) for each in made.members if each != message.member))
        self._table.begin(work, WorkState.COPYING)
        effects = self._keys.copy_state(work, made, now)
        return effects if work.open else [*effects, *self._filed(work, None, True, now)]

    def _filed(self, work: Filing, part: NodeRef | None, answer: WorkAnswer, now: int) -> list[RingEffect]:  # noqa: ARG002
        if answer is False:
            self._table.end(work)
            return work.reply.done(ok=False)
        if work.open:
            return []
        self._table.end(work)
        if work.affected is None:
            return work.reply.done()
        return [RingSend(work.reply.to, Entered(work.reply.token, work.affected, work.peers))]
