"""A hand-over protocol: what happens when a client leaves a broker, and when it arrives at another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from weft.errors import WeftError
from weftlab.mobility.light import Mailbox
from weftlab.mobility.trace import MobileEvent
from weftlab.mobility.world import ClientHandover, Phase

if TYPE_CHECKING:
    from weftlab.mobility.light import LightWorld, Plane
    from weftlab.mobility.world import Mobile


class Protocol:
    """The base of protocols on light brokers.

    A protocol moves subscribers, publishers or both. By default a client breaks before it makes: it disconnects, its
    source buffers, and the exchange begins when it arrives at its target.
    """

    subscribers: ClassVar[bool] = True  # what it can move
    publishers: ClassVar[bool] = False
    rendezvous: ClassVar[bool] = False  # advertisements go to rendezvous points only
    cyclic: ClassVar[bool] = False  # each type has a tree of its own, around its rendezvous point
    logs: ClassVar[bool] = False  # brokers keep a log of recent events

    def __init__(self, world: LightWorld) -> None:
        self.world = world

    def begin(self) -> None:
        """The warm-up has ended."""

    def depart(self, handover: ClientHandover) -> None:
        """The client is about to leave the source."""
        self.world.disconnect(handover)

    def arrive(self, handover: ClientHandover) -> None:
        """The client has arrived at the target."""
        raise NotImplementedError

    def passed(self, at: int, event: MobileEvent) -> None:
        """An event has come to a broker (only if `logs`)."""

    # -- what protocols have in common ----------------------------------------------------------------

    @property
    def plane(self) -> Plane:
        """The only plane."""
        return self.world.planes[0]

    def path(self, one: int, other: int) -> list[int]:
        """The way along the tree."""
        return self.plane.tree.path(one, other)

    def set_up(self, handover: ClientHandover, group: str = "update") -> int:
        """Subscribe or advertise for the client at the target; returns how many updates had to be sent."""
        world, client = self.world, handover.client
        with world.acting(handover, Phase.SET_UP, group):
            if client.spec.publishes:
                handover.own["old advert"] = client.advert
                client.advert = world.advertise(client.name, handover.target, client.filter)
            else:
                handover.own["old"] = client.mailbox
                handover.own["new"] = world.subscribe(client, handover.target)
        return len(world.last_told)

    def release(self, handover: ClientHandover) -> list[MobileEvent]:
        """Take back what the client has at the source; returns what was buffered there."""
        world, client = self.world, handover.client
        with world.acting(handover, Phase.TEAR_DOWN):
            if client.spec.publishes:
                world.unadvertise(client.name, handover.source, handover.own["old advert"])
                return []
            return world.unsubscribe(self.old(handover))

    def let_go(self, handover: ClientHandover) -> None:
        """Take back what the client has at the source, and drop what was buffered."""
        self.release(handover)

    def old(self, handover: ClientHandover) -> Mailbox:
        """The subscriber's mailbox at the source."""
        mailbox = handover.own["old"]
        assert isinstance(mailbox, Mailbox)
        return mailbox

    def new(self, handover: ClientHandover) -> Mailbox:
        """The subscriber's mailbox at the target."""
        mailbox = handover.own["new"]
        assert isinstance(mailbox, Mailbox)
        return mailbox

    def give(self, handover: ClientHandover) -> None:
        """The source unsubscribes and sends the target, beside the tree, what it has buffered."""
        items = self.release(handover)
        with self.world.acting(handover, Phase.TRANSFER):
            self.world.beside(handover.source, handover.target, "transfer", partial(self.take, handover, items))

    def take(self, handover: ClientHandover, items: Sequence[MobileEvent]) -> None:
        """The target hands over what the source had, then what it has collected itself."""
        client, mailbox = handover.client, self.new(handover)
        handover.transferred += len(items)
        for event in items:
            client.receive(event)
        client.mailbox = mailbox
        mailbox.open()
        self.world.finish(handover)

    def request(self, handover: ClientHandover) -> None:
        """The target asks the source beside the tree."""
        with self.world.acting(handover, Phase.TRANSFER):
            self.world.beside(handover.target, handover.source, "request", partial(self.give, handover))

    def publish_here(self, handover: ClientHandover) -> None:
        """The publisher publishes at the target from now on."""
        client: Mobile = handover.client
        client.resume(partial(self.world.publish, client.name, handover.target))

    def walk(
        self, handover: ClientHandover, path: Sequence[int], kind: str, then: Callable[[], None], group: str = ""
    ) -> None:
        """Send a message along the tree, in order with events and updates."""
        phase = Phase.TRANSFER if kind in _TRANSFERS else Phase.SYNCHRONISE
        with self.world.acting(handover, phase, group):
            self.world.walk(self.plane, path, kind, then)


_TRANSFERS = frozenset({"pull", "chunk", "finish", "done"})


def check_role(kind: type[Protocol], name: str, moves_subscribers: bool, moves_publishers: bool) -> None:
    """Raise WeftError if the protocol cannot move the clients of a script."""
    for wanted, has, whom in (
        (moves_subscribers, kind.subscribers, "subscribers"),
        (moves_publishers, kind.publishers, "publishers"),
    ):
        if wanted and not has:
            raise WeftError(f"the protocol {name} does not move {whom}; choose another protocol or other movers")
