"""What connections say goes to the core. Laws: a connection's first message is answered before anything behind it is
read; a connection that has said more than the core has handled is not read.

Events of a turn are stored together, and apart from what anybody asks for: whoever asks is not refused because an event
does not fit into the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from weft.broker.link_messages import IncomingMessage, LinkEvents
from weft.broker.messages import Publish
from weft.net.gathered_reads import GatheredReads, Read
from weft.net.server_connection import ServerConnection

if TYPE_CHECKING:
    from weft.net.node import BrokerNode


class Hearing:
    """Hands the messages of a node's connections to its core, in turns."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self._reads = GatheredReads(self._heard)
        self._behind: dict[ServerConnection, None] = {}  # that have said more than the core has handled

    @property
    def is_behind(self) -> bool:
        """Whether some connection has said more than the core has handled."""
        return bool(self._behind)

    def greeted(self, connection: ServerConnection, hello: IncomingMessage) -> None:
        """The first message of a connection."""
        self.take()
        self._heard([Read(connection, [hello])])

    def add(self, connection: ServerConnection, messages: Sequence[IncomingMessage], size: int) -> None:
        """What one read of so many bytes brought."""
        self._reads.add(Read(connection, messages), size)

    def take(self) -> None:
        """Hand on whatever waits, before something else is said about a connection."""
        self._reads.take()

    def go_on(self) -> None:
        """Read those connections again whose messages the core has handled meanwhile."""
        is_behind = self._node.core.is_behind
        for connection in [each for each in self._behind if not is_behind(each.id)]:
            del self._behind[connection]
            connection.read_on("requests")

    def forget(self, connection: ServerConnection) -> None:
        """A connection is gone."""
        self._behind.pop(connection, None)

    def close(self) -> None:
        """Hand on nothing any more."""
        self._reads.close()

    def _heard(self, reads: list[Read]) -> None:
        for asks, some in groupby(reads, key=attrgetter("asks")):
            for turn in [[read] for read in some] if asks else [list(some)]:
                self._hear(turn)

    def _hear(self, reads: Sequence[Read]) -> None:
        node, publishers = self._node, []
        for connection, messages in reads:
            kinds = [type(message) for message in messages]
            node.counts["events received"] += kinds.count(Publish)
            if Publish in kinds or LinkEvents in kinds:
                publishers.append(connection)
        node.do(node.core.receive_all, [(read.connection.id, read.messages) for read in reads], sources=publishers)
        for connection, _ in reads:
            if node.core.is_behind(connection.id):
                connection.hold("requests")
                self._behind[connection] = None
