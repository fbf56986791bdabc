"""Requests of other nodes, done and answered. Law: a request for a key that the node does not serve is refused, so that
whoever asks looks the key up again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.ring.group_member import GroupMember
from weft.ring.group_messages import (
    AskTopics,
    Deregister,
    Entrust,
    FetchViews,
    Probe,
    Register,
    Renew,
    Reshape,
    Settle,
    Shift,
    TopicsAre,
)
from weft.ring.messages import NodeRef
from weft.ring.rendezvous_messages import (
    AskLoad,
    CopyRecords,
    DeliverEvent,
    Done,
    Examine,
    Handover,
    Hold,
    LoadIs,
    Recall,
    Recalled,
    Release,
    ReleaseAll,
    RemoveRecord,
    Request,
    RingEffect,
    RingSend,
    Store,
    Visit,
    Visited,
)
from weft.ring.requests import Answer, Silent

if TYPE_CHECKING:
    from weft.ring.rendezvous import RendezvousNode


class RequestAnswers:
    """What a node does when others ask."""

    def __init__(self, node: RendezvousNode) -> None:
        self._node = node
        self._member = GroupMember(node)

    def asked(self, sender: NodeRef, message: Request, now: int) -> list[RingEffect]:
        """Do what is asked, and answer."""
        node = self._node

        def answer(ok: Answer, _: int) -> list[RingEffect]:
            return [RingSend(sender.address, Done(message.token, ok is not False))]

        def visited(silent: Silent, _: int) -> list[RingEffect]:
            return [RingSend(sender.address, Visited(message.token, tuple(sorted(silent))))]

        match message:
            case DeliverEvent():
                return node.own.deliver(sender.address, message)
            case Store(_, key, records) if node.keys.serves(key):
                return node.stored.store(records, now, answer)
            case RemoveRecord(_, slot, version) if node.keys.serves(slot.key):
                return node.stored.remove(slot, now, answer, version)
            case Visit(_, key, event) if node.keys.serves(key):
                node.visited += 1
                return node.visits.visit(key, event, now, visited)
            case AskTopics(token):
                return [RingSend(sender.address, TopicsAre(token, node.topics))]
            case Register() | Renew() | Deregister() | Reshape() | FetchViews() | Probe() | Entrust() if (
                node.keys.serves(message.key)
            ):
                return node.roots.asked(sender.address, message, now, answer)
            case Shift() if node.keys.serves(message.key):
                return self._member.shift(message, now, answer)
            case Settle() if node.keys.serves(message.key):
                return self._member.settle(message, now, answer)
            case Store() | RemoveRecord() | Visit():
                return answer(False, now)
            case Register() | Renew() | Deregister() | Reshape() | FetchViews() | Probe() | Entrust():
                return answer(False, now)
            case Shift() | Settle():
                return answer(False, now)
            case Handover():
                accepted, effects = node.keys.handed(sender, message, now)
                return [*effects, *answer(accepted, now)]
            case CopyRecords(_, records, groups):
                node.take(records, groups, now)
                return answer(True, now)
            case Recall(token, after, upto):
                if node.keys.serves(upto):  # nobody has told this node of the sender yet
                    return [RingSend(sender.address, Recalled(token, None))]
                return [RingSend(sender.address, Recalled(token, *node.under(after, upto)))]
            case Hold(_, epoch, records):
                return answer(node.stored.hold(sender, epoch, records), now)
            case ReleaseAll(_, epoch):
                node.stored.release_all(sender, epoch)
                return answer(True, now)
            case Release():
                node.stored.release(sender, message)
                return answer(True, now)
            case AskLoad(token):
                return [RingSend(sender.address, LoadIs(token, node.me, node.stored.known_load(now)))]
            case Examine():
                examined = node.visits.examine_for(sender, message, now, visited)
                return answer(False, now) if examined is None else examined
        raise AssertionError(message)
