"""A broker's place on a ring: its node, its bridge and its connections to other nodes. Laws: the broker talks to the
ring as to any neighbour; a node that cannot join tries again; a node that stops hands its keys over first.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import numpy as np

from weft.broker.codec import encode
from weft.errors import WeftError
from weft.language.ast import Filter
from weft.language.text import parse
from weft.log.base import Log, Offset
from weft.net.addresses import Address
from weft.net.broker_pipe import BrokerPipe
from weft.net.clock import clock
from weft.net.node import BrokerNode
from weft.net.ring_config import REISSUE, SPACE, RingConfig
from weft.net.ring_report import NodeReport
from weft.net.ring_transport import RingTransport
from weft.net.server_connection import ServerConnection
from weft.ring.bridge import RING, BridgeClosed, BridgeEffect, RingBridge, ToBroker
from weft.ring.chord import ChordNode
from weft.ring.codec import RingFrame
from weft.ring.incoming_events import Origin
from weft.ring.key_mapping import KeyMapping
from weft.ring.messages import Address as NodeAddress
from weft.ring.rendezvous import RendezvousNode
from weft.ring.rendezvous_messages import JoinedRing, JoiningFailed, LeftRing, RingEffect, RingSend
from weft.ring.ring_settings import RingSettings
from weft.ring.topic_attribute import TopicAttribute
from weft.routing.table import About

_TICK = 0.1  # seconds
_BEAT = 2.0
_AGAIN = 1.0  # seconds until a node that could not join tries again, or a link that has ended begins anew
_LEAVING = 10.0  # seconds that a node has to hand its keys over
_KNOWN = 20_000  # events of the log that are told apart from those that arrive after a restart


class RingService:
    """Keeps a broker on a ring."""

    def __init__(self, node: BrokerNode, config: RingConfig) -> None:
        self._node, self._config = node, config
        self._loop = asyncio.get_running_loop()
        self._transport = RingTransport(
            key=config.key,
            agreement=config.agreement,
            receive=self._receive,
            report=lambda: msgspec.msgpack.encode(self.report()),
            refused=self._refused,
            tls=config.client_tls,
        )
        self.joined: asyncio.Future[None] = self._loop.create_future()
        self._left = asyncio.Event()
        self._link: ServerConnection | None = None
        self._heard: list[Any] = []  # of the broker, in this turn
        self._tries = 0
        self._stopping = False

    async def start(self) -> None:
        """Listen, and join or begin a ring. `joined` says when it is part of it. Raises OptionError."""
        config = self._config
        port = await self._transport.listen(config.listen.host, config.listen.port, config.server_tls)
        address = str(config.listen.at(port))
        mapping = KeyMapping(SPACE, {each.attribute: each for each in config.intervals})
        keep = round(config.keep * 1_000_000)
        settings = RingSettings(
            mapping, replicas=config.replicas, reissue=REISSUE, keep=keep, confirmed=True, groups=config.groups
        )
        chord = ChordNode(SPACE, address, successors=max(4, config.replicas + 2))
        rendezvous = RendezvousNode(chord, settings, np.random.default_rng(secrets.randbits(64)))
        codec = self._node.core.table.codec
        everything = codec.encode_item(About.SUBSCRIPTIONS, parse("TRUE"))

        def decode(body: bytes) -> Filter:
            item = codec.decode_item(About.SUBSCRIPTIONS, body)
            assert isinstance(item, Filter)
            return item

        self.bridge = RingBridge(
            rendezvous,
            secrets.token_hex(16),
            everything,
            decode,
            TopicAttribute(config.topic),
            _origins(self._node.log, self._node.core.end),
            keep,
        )
        self._node.lines.info("ring", address=address, id=chord.me.id)
        if config.join:
            self._join()
        else:
            self.bridge.joined = True
            self.joined.set_result(None)
        self._dial()
        self._timers = [self._loop.call_later(_TICK, self._tick), self._loop.call_later(_BEAT, self._beat)]

    @property
    def address(self) -> NodeAddress:
        """Where other nodes reach this one."""
        return self.bridge.node.me.address

    async def stop(self) -> None:
        """Leave in order: others get the keys of this node. Its clients' durable subscriptions wait for it."""
        self._stopping = True
        if self.joined.done() and self.bridge.node.chord.successors:
            self._ring(self.bridge.node.leave(self._now))
            try:
                async with asyncio.timeout(_LEAVING):
                    await self._left.wait()
                    await asyncio.sleep(_TICK)  # so that the last messages are on their way
            except TimeoutError:
                self._node.lines.warning("ring", reason="the keys of this node could not be handed over in time")
        self.close()

    def close(self) -> None:
        """End at once."""
        for timer in self._timers:
            timer.cancel()
        self._transport.close()
        if not self.joined.done():
            self.joined.cancel()

    # -- joining ---------------------------------------------------------------------------------------

    def _join(self) -> None:
        known = self._config.join[self._tries % len(self._config.join)]
        self._tries += 1
        self._ring(self.bridge.node.join(NodeAddress(str(Address.parse(known))), self._now))

    def _failed(self, reason: str) -> None:
        self._node.lines.warning("not joined", reason=reason)
        if not self._stopping:
            self._loop.call_later(_AGAIN, self._join)

    def _refused(self, reason: str) -> None:
        self._node.lines.error("refused by the ring", reason=reason)

    # -- the broker ------------------------------------------------------------------------------------

    def _dial(self) -> None:
        if not self._stopping and not self._node.stopping and not self._node.ended.done():
            self._link = self._node.new_connection(RING)
            self._link.connection_made(BrokerPipe(self.said, self.ended))

    def said(self, messages: Sequence[Any]) -> None:
        """What the broker says; it is handled after this turn, because the broker is in the middle of it."""
        if not self._heard:
            self._loop.call_soon(self._hear)
        self._heard += messages

    def _hear(self) -> None:
        heard, self._heard = self._heard, []
        if heard:
            try:
                self._perform(self.bridge.receive(heard, self._now))
            except WeftError as error:
                self._node.failed(error)  # part of the broker does not understand another: nothing can be promised

    def ended(self) -> None:
        """The broker has ended the link."""
        link, self._link = self._link, None
        self.bridge.closed()
        self._heard.clear()
        if link is not None:
            self._loop.call_soon(link.connection_lost, None)
        self._loop.call_later(_AGAIN, self._dial)

    # -- the ring --------------------------------------------------------------------------------------

    @property
    def _now(self) -> int:
        return clock().monotonic

    def _receive(self, frame: RingFrame) -> None:
        if not self._left.is_set():
            self._ring(self.bridge.node.receive(frame.sender, frame.messages, self._now))

    def _tick(self) -> None:
        self._timers[0] = self._loop.call_later(_TICK, self._tick)
        self._ring(self.bridge.node.tick(self._now))
        self._perform(self.bridge.tick(self._now))

    def _beat(self) -> None:
        self._timers[1] = self._loop.call_later(_BEAT, self._beat)
        self._perform(self.bridge.beat())

    def _ring(self, effects: list[RingEffect]) -> None:
        for effect in effects:
            if isinstance(effect, JoinedRing) and not self.joined.done():
                self._node.lines.info("joined", successor=self.bridge.node.chord.successor.address)
                self.joined.set_result(None)
            elif isinstance(effect, JoiningFailed):
                self._failed(effect.reason)
            elif isinstance(effect, LeftRing):
                self._left.set()
        self._perform(self.bridge.ring(effects, self._now))

    def _perform(self, effects: list[BridgeEffect]) -> None:
        me = self.bridge.node.me
        for effect in effects:
            match effect:
                case RingSend(to, message):
                    self._transport.send(me, to, message)
                case ToBroker(messages):
                    if self._link is not None:
                        self._link.data_received(encode(messages))
                case BridgeClosed():
                    if self._link is not None:
                        self._link.cut()

    # -- status ----------------------------------------------------------------------------------------

    def report(self) -> NodeReport:
        """What this node is, and what it has to do."""
        node = self.bridge.node
        predecessor = node.chord.predecessor
        return NodeReport(
            id=node.me.id,
            address=node.me.address,
            broker=self._node.name,
            clients=[str(address) for address in self._node.addresses],
            joined=self.bridge.joined,
            predecessor="" if predecessor is None else predecessor.address,
            successors=[each.address for each in node.chord.successors],
            records=len(node.stored.records),
            load=node.stored.load,
            subscriptions=self.bridge.subscriptions,
            published=self.bridge.published,
            visited=node.visited,
            received=self.bridge.incoming.count,
            waiting=self.bridge.waiting,
            owed=len(self.bridge.owed),
            given_up=self.bridge.owed.given_up,
            lost=self._transport.lost,
            topics=list(node.topics),
        )


def _origins(log: Log, end: Offset) -> list[Origin]:
    """Where the last events of a log came from, the oldest first."""
    first = Offset(max(1, end - _KNOWN))
    return [(a, b, c) for group in log.read(first, _KNOWN) for a, b, c in group.events.origins.tolist()]


@asynccontextmanager
async def on_ring(node: BrokerNode, config: RingConfig) -> AsyncIterator[RingService]:
    """A broker on a ring until the block ends; the broker must have the neighbour `ring`."""
    service = RingService(node, config)
    await service.start()
    try:
        yield service
    finally:
        await service.stop()
