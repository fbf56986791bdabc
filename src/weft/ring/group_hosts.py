"""Who is the host of a topic's group: the topic itself, or a super topic. Law: references lead to the host that the
topic was given to last, so that whoever follows them finds it. (003, 3.3)

A reference is made when a topic is given away, and replaced when it comes back; each leads to a later moment than the
one before. A host that never had the topic sends back to the topic itself. While a topic is on its way, nobody has it,
and whoever asks tries again in a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.ring.group_messages import Elsewhere
from weft.ring.group_state import root_key
from weft.ring.identifiers import Key
from weft.ring.messages import Token
from weft.ring.rendezvous_messages import Request, RingEffect
from weft.ring.requests import Answer, Then

if TYPE_CHECKING:
    from weft.ring.rendezvous import RendezvousNode

_MOST_KNOWN = 10_000  # topics whose hosts are remembered

ToHost = Callable[[Token, Key, str], Request]  # a request, given the host's key and the host


class GroupHosts:
    """The hosts that a node has been referred to."""

    def __init__(self, node: RendezvousNode) -> None:
        self._node = node
        self._hosts: dict[str, str] = {}

    def host(self, topic: str) -> str:
        """The host of a topic that was heard of last."""
        return self._hosts.get(topic, topic)

    def ask(  # noqa: PLR0913 - what to ask, and what follows
        self,
        topic: str,
        message: ToHost,
        then: Then,
        now: int,
        wanted: Callable[[], bool] = lambda: True,
        *,
        asked: frozenset[str] = frozenset(),
    ) -> list[RingEffect]:
        """Ask the root of whichever host has the topic, until it is done or not wanted any more."""
        host = self.host(topic)
        key, been = root_key(self._node.chord.space, host), asked | {host}

        def again(now: int) -> list[RingEffect]:
            self._node.end()
            return self.ask(topic, message, then, now, wanted)

        def answered(answer: Answer, now: int) -> list[RingEffect]:
            if not isinstance(answer, Elsewhere):
                return then(answer, now)
            self._remember(topic, answer.host)
            if not wanted():
                return then(False, now)
            if answer.host not in been:
                return self.ask(topic, message, then, now, wanted, asked=been)
            self._node.begin()  # the topic is on its way
            self._node.later(now, again)
            return []

        return self._node.until_done(key, lambda token: message(token, key, host), answered, now, wanted)

    def _remember(self, topic: str, host: str) -> None:
        self._hosts.pop(topic, None)
        if host != topic:
            self._hosts[topic] = host
        while len(self._hosts) > _MOST_KNOWN:
            del self._hosts[next(iter(self._hosts))]
