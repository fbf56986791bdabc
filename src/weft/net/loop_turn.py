"""What a core wants done, in turns of the loop. Laws: effects are carried out in order; what is sent and stored in one
turn goes out together, once per connection and once to the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from weft.broker.codec import encode_all
from weft.broker.delivery_run import DeliveryRun
from weft.broker.effects import Close, Effect, Outgoing, Persist, Send, SetTimer
from weft.broker.messages import Bye, Deliver
from weft.errors import LocalProtocolError
from weft.net.clock import clock
from weft.net.server_connection import ServerConnection

if TYPE_CHECKING:
    from weft.net.node import BrokerNode


class LoopTurn:
    """Carries out the effects of a node's core. `tick` is called when the core's timer is due."""

    def __init__(self, node: BrokerNode, tick: Callable[[], None]) -> None:
        self._node = node
        self._tick = tick
        self._loop = asyncio.get_running_loop()
        self._dirty: dict[ServerConnection, None] = {}  # that were sent something in this turn
        self._turning = False
        self._timer: asyncio.Handle | None = None
        self._soon = False  # the timer is in the past

    def perform(self, effects: list[Effect], sources: Sequence[ServerConnection] = ()) -> None:
        """Carry out effects, of what `sources` published if there are any."""
        node = self._node
        for effect in effects:
            if isinstance(effect, Send):
                connection = node.connections.get(effect.connection)
                if connection is not None:
                    self._send(connection, effect.messages)
                    node.counts["events delivered"] += sum(map(_deliveries, effect.messages))
            elif isinstance(effect, Persist):
                node.committer.add(effect)
                if sources and effect.group.events is not None:
                    node.backlog.add(sources)
                    node.backlog.watch(node.committer.bytes)
            elif isinstance(effect, SetTimer):
                self._set_timer(effect.at)
            elif isinstance(effect, Close):
                connection = node.connections.get(effect.connection)
                if connection is not None:
                    node.close_connection(connection)
        if not self._turning and effects:
            self._turning = True
            self._loop.call_soon(self.end)

    def _send(self, connection: ServerConnection, messages: list[Outgoing]) -> None:
        """Send at the end of the turn. What fits no frame ends its connection, and nobody else's."""
        try:
            connection.send(encode_all(messages))
        except LocalProtocolError as error:
            self._node.lines.error("not sent", connection=connection.id, reason=error)
            self._node.dismiss(connection, Bye("internal", "the broker could not send a message; see its log"))
        else:
            self._dirty[connection] = None

    def end(self) -> None:
        """Write what was sent, and have stored what is to be stored."""
        self._turning = False
        if self._node.ended.done():
            return
        self._node.counts["turns"] += 1
        self._node.committer.go()
        dirty, self._dirty = self._dirty, {}
        for connection in dirty:
            connection.flush()

    def forget(self, connection: ServerConnection) -> None:
        """A connection is gone."""
        self._dirty.pop(connection, None)

    # -- the timer -------------------------------------------------------------------------------------

    def _set_timer(self, at: int) -> None:
        if self._soon:
            return  # a tick that comes too early does no harm
        self.stop_timer()
        wait = (at - clock().monotonic) / 1e6
        self._soon = wait <= 0
        self._timer = self._loop.call_soon(self._tick) if self._soon else self._loop.call_later(wait, self._tick)

    def timer_over(self) -> None:
        """The core's tick is called now, whether it was due or not."""
        self._timer, self._soon = None, False

    def stop_timer(self) -> None:
        """Nothing is due any more, unless another timer is set."""
        if self._timer is not None:
            self._timer.cancel()


def _deliveries(message: Outgoing) -> int:
    kind = type(message)
    return 1 if kind is Deliver else len(message) if kind is DeliveryRun else 0  # type: ignore[arg-type]
