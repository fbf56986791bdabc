"""A broker's place on a ring: its node, its bridge and its connections to other nodes.

The broker talks to the ring as to any neighbour, over a pipe in its own process. A node joins the members that it
remembers, then those that it was told of; if it cannot, it tries again. It begins a ring of its own only if it was told
to and has never been part of one. A node that stops takes no more events and hands its keys over.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from weft.errors import OptionError, WeftError
from weft.language.ast import Filter
from weft.language.text import parse
from weft.log.base import Log, Offset
from weft.model.value import format_timestamp
from weft.protocol.addresses import Address
from weft.protocol.codec import client_messages, encode
from weft.ring.bridge import RING, BridgeClosed, BridgeEffect, Origin, RingBridge, ToBroker
from weft.ring.chord import ChordNode
from weft.ring.filter_semantics import HIGH, LOW
from weft.ring.key_mapping import KeyMapping
from weft.ring.keys_in_hand import Life
from weft.ring.messages import NodeAddress, NodeRef
from weft.ring.rendezvous import RendezvousNode
from weft.ring.rendezvous_messages import JoinedRing, JoiningFailed, LeftRing, RingEffect, RingFrame, RingSend
from weft.ring.ring_settings import RingSettings
from weft.ring.topics import TopicAttribute
from weft.routing.table import About
from weft.server.clock import clock
from weft.server.connection import ServerConnection
from weft.server.node import BrokerNode
from weft.server.ring_config import REISSUE, SPACE, RingConfig
from weft.server.ring_status import NodeReport
from weft.server.ring_transport import RingTransport

FILE = "ring.json"


class RingMemory(msgspec.Struct):
    """What a node remembers from one start to the next: the life of the last one, and the members that it has known.

    It is a file beside the log. It is replaced as a whole, so that a crash leaves the old one or the new one.
    """

    life: int = 0
    members: list[NodeRef] = []

    @classmethod
    def load(cls, directory: Path | None) -> RingMemory:
        """What was stored; nothing at the first start. Raises OptionError if the file cannot be read."""
        if directory is None or not (directory / FILE).exists():
            return cls()
        try:
            return msgspec.json.decode((directory / FILE).read_bytes(), type=cls)
        except (OSError, ValueError) as error:
            raise OptionError(
                f"{directory / FILE} cannot be read: {error}; remove it, and name a node with --join"
            ) from error

    def store(self, directory: Path | None, members: Iterable[NodeRef]) -> None:
        """Replace what was stored, if it is something else."""
        found = sorted(members)
        if directory is None or (found == self.members and (directory / FILE).exists()):
            return
        self.members = found
        new = directory / f"{FILE}.new"
        with new.open("wb") as file:
            file.write(msgspec.json.encode(self))
            file.flush()
            os.fsync(file.fileno())
        new.replace(directory / FILE)


class _BrokerPipe(asyncio.Transport):
    """The broker's end of its link to the bridge: a transport without a network."""

    def __init__(self, said: Callable[[Sequence[Any]], None], ended: Callable[[], None]) -> None:
        super().__init__()
        self._said, self._ended = said, ended
        self._reader = client_messages()
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self._said(self._reader.feed(bytes(data)))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._ended()

    abort = close

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        """Does nothing: the bridge sends little, and its sender waits for the answer."""

    def resume_reading(self) -> None:
        """Nothing to do."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing ever waits to be written."""

    def get_write_buffer_size(self) -> int:
        """Nothing ever waits to be written."""
        return 0


_TICK = 0.1  # seconds
_BEAT = 2.0
_AGAIN = 1.0  # seconds until a node that could not join tries again, or a link that has ended begins anew
_LEAVING = 10.0  # seconds that a node has to hand its keys over
_KNOWN = 20_000  # events of the log that are distinguished from those that arrive after a restart


class RingService:
    """Keeps a broker on a ring until the block ends; the broker must have the neighbour `ring`. Raises OptionError."""

    def __init__(self, node: BrokerNode, config: RingConfig) -> None:
        self._node, self._config = node, config
        self._loop = asyncio.get_running_loop()
        self._transport = RingTransport(
            config, self._receive, lambda: msgspec.msgpack.encode(self.report()), self._refused, self.forget
        )
        self.joined: asyncio.Future[None] = self._loop.create_future()
        self._left = asyncio.Event()
        self._link: ServerConnection | None = None
        self._received: list[Any] = []  # from the broker, in this turn
        self._tries = 0
        self._stopping = False
        self._others: list[str] = []  # addresses of nodes to join
        self._silent: dict[NodeAddress, int] = {}  # members that could not be reached when that was logged last

    async def __aenter__(self) -> Self:
        """Listen, and join or begin a ring. `joined` says when it is part of it."""
        config = self._config
        self._memory = memory = RingMemory.load(config.data)
        if not (memory.members or config.join or config.new_ring):
            raise OptionError("this node knows no ring; name a node of one with --join, or begin one with --new-ring")
        memory.life = max(memory.life + 1, clock().utc // 1_000_000)
        memory.store(config.data, memory.members)
        place = config.bind or config.listen
        port = await self._transport.listen(place.host, place.port)
        address = str(config.listen if config.bind is not None else config.listen.at(port))
        ends = [replace(each, attribute=each.attribute + end) for each in config.intervals for end in (LOW, HIGH)]
        mapping = KeyMapping(SPACE, {each.attribute: each for each in (*ends, *config.intervals)})
        keep = round(config.keep * 1_000_000)
        settings = RingSettings(
            mapping,
            replicas=config.replicas,
            sharing=config.sharing,
            reissue=REISSUE,
            keep=keep,
            confirmed=True,
            groups=config.groups,
            topics=config.topics,
            predicates=config.predicates,
        )
        chord = ChordNode(SPACE, address, successors=max(4, config.replicas + 2), life=memory.life)
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
            TopicAttribute(config.topic, config.topics),
            _origins(self._node.log, self._node.core.end),
            keep,
        )
        self._node.lines.info("ring", address=address, id=chord.me.id)
        self._others = [str(Address.parse(each)) for each in config.join]
        self._others += [member.address for member in memory.members if member.address not in self._others]
        self._others = [each for each in self._others if each != address]
        if self._others:
            rendezvous.wait(memory.members)
            self._join()
        else:
            self.bridge.joined = True
            self.joined.set_result(None)
        self._node.more_health = self._health
        self._dial()
        self._timers = [self._loop.call_later(_TICK, self._tick), self._loop.call_later(_BEAT, self._beat)]
        return self

    @property
    def address(self) -> NodeAddress:
        """The address at which other nodes reach this one."""
        return self.bridge.node.me.address

    async def __aexit__(self, *_: object) -> None:
        """Leave in order: others get the keys of this node. Its clients' durable subscriptions wait for it."""
        self._stopping = True
        self._remember()
        if self.joined.done() and self.bridge.node.chord.successors:
            self.bridge.refuse()
            self._ring(self.bridge.node.leave(self._now))
            try:
                async with asyncio.timeout(_LEAVING):
                    await self._left.wait()
                    await asyncio.sleep(_TICK)  # so that the last messages are on their way
            except TimeoutError:
                self._node.lines.warning("ring", reason="the keys of this node could not be handed over in time")
        for timer in self._timers:
            timer.cancel()
        self._transport.close()
        if not self.joined.done():
            self.joined.cancel()

    # -- joining ---------------------------------------------------------------------------------------

    def _join(self) -> None:
        if self.bridge.node.life is Life.JOINING and not self._stopping:
            known = self._others[self._tries % len(self._others)]
            self._tries += 1
            self._ring(self.bridge.node.join(NodeAddress(known), self._now))

    def _refused(self, reason: str) -> None:
        self._node.lines.error("refused by the ring", reason=reason)
        if not self.joined.done() and not self._stopping:  # it will be refused again: its settings are other ones
            self._node.failed(OptionError(reason))

    def _remember(self) -> None:
        """Store the members, and say which of them cannot be reached."""
        members = self.bridge.node.chord.members
        self._memory.store(self._config.data, [member.node for member in members.values()])
        silent = self.bridge.node.chord.unreachable()
        if silent.keys() != self._silent.keys():
            self._silent = silent
            if silent:
                self._node.lines.warning("unreachable", members=len(silent), addresses=" ".join(silent))
            else:
                self._node.lines.info("reachable", members=len(members))

    def _unreachable(self) -> dict[str, str]:
        """The members that do not answer, and since when."""
        time = clock()
        found = self.bridge.node.chord.unreachable()
        return {address: format_timestamp(time.utc - (time.monotonic - since)) for address, since in found.items()}

    def _health(self) -> dict[str, Any]:
        silent = self._unreachable()
        return {"ring": {"members": len(self.bridge.node.chord.members), "unreachable": silent}}

    # -- the broker ------------------------------------------------------------------------------------

    def _dial(self) -> None:
        if not self._stopping and not self._node.stopping and not self._node.ended.done():
            self._link = self._node.new_connection(RING)
            self._link.connection_made(_BrokerPipe(self.said, self.ended))

    def said(self, messages: Sequence[Any]) -> None:
        """Receive what the broker sends. It is handled after this turn, because the broker is in the middle of it."""
        if not self._received:
            self._loop.call_soon(self._handle_received)
        self._received += messages

    def _handle_received(self) -> None:
        received, self._received = self._received, []
        if received:
            try:
                self._perform(self.bridge.receive(received, self._now))
            except WeftError as error:
                self._node.failed(error)  # part of the broker does not understand another: nothing can be promised

    def ended(self) -> None:
        """The broker has ended the link."""
        link, self._link = self._link, None
        self.bridge.closed()
        self._received.clear()
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
        self._remember()

    def _ring(self, effects: list[RingEffect]) -> None:
        for effect in effects:
            if isinstance(effect, JoinedRing) and not self.joined.done():
                self._node.lines.info("joined", successor=self.bridge.node.chord.successor.address)
                self.joined.set_result(None)
            elif isinstance(effect, JoiningFailed):
                self._node.lines.warning("not joined", reason=effect.reason)
                if not self._stopping:
                    self._loop.call_later(_AGAIN, self._join)
        self._perform(self.bridge.ring(effects, self._now))
        if any(isinstance(effect, LeftRing) for effect in effects):
            self._left.set()

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
        """The status of this node."""
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
            records=len(node.records),
            load=node.keeper.load,
            subscriptions=self.bridge.subscriptions,
            published=self.bridge.published,
            visited=node.visits.count,
            received=self.bridge.incoming.count,
            waiting=self.bridge.waiting,
            owed=len(self.bridge.owed),
            given_up=self.bridge.owed.given_up,
            lost=self._transport.lost,
            topics=list(node.topics),
            members=len(node.chord.members),
            unreachable=self._unreachable(),
        )

    def forget(self, address: str) -> bool:
        """A member will never come back: nothing waits for it. Returns whether it was known."""
        known = address in self.bridge.node.chord.members
        self._perform(self.bridge.forget(NodeAddress(address), self._now))
        return known


def _origins(log: Log, end: Offset) -> list[Origin]:
    """Where the last events of a log came from, the oldest first."""
    first = Offset(max(1, end - _KNOWN))
    return [(a, b, c) for group in log.read(first, _KNOWN) for a, b, c in group.events.origins.tolist()]
