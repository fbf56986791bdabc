"""Protocols that the thesis reports from others (5.3), and make-before-break (Algorithms 7 and 8).

Subscribers: four phases, subscriptions on the device, home broker, logging, prefetching. Publishers: tear down and set
up, delayed unadvertisement, proxy.
"""

from __future__ import annotations

from collections import defaultdict, deque
from functools import partial
from typing import ClassVar

from weft.language.meaning import matches
from weftlab.mobility.light import LightWorld
from weftlab.mobility.protocol import Protocol
from weftlab.mobility.trace import MobileEvent, PubId
from weftlab.mobility.world import ClientHandover, Mobile, Phase

UNADVERTISE_DELAY = 1_000_000  # microseconds for which the delayed protocol keeps the old advertisement
LOG_SIZE = 200  # recent events that a broker keeps


class FourPhases(Protocol):
    """The target subscribes, and asks the source at once, beside the tree. Nothing synchronises the two."""

    def arrive(self, handover: ClientHandover) -> None:
        """Subscribe and ask."""
        self.set_up(handover)
        self.request(handover)


class Device(Protocol):
    """The client carries its subscriptions, and the source is not asked: it unsubscribes when the client leaves."""

    def depart(self, handover: ClientHandover) -> None:
        """The source forgets the client."""
        handover.own["old"] = handover.client.mailbox
        self.world.disconnect(handover)
        self.release(handover)

    def arrive(self, handover: ClientHandover) -> None:
        """Subscribe anew."""
        old = handover.own["old"]
        self.set_up(handover)
        handover.own["old"] = old
        self.take(handover, ())


class ForwardingHome(Protocol):
    """The first broker of a client stays subscribed, and forwards everything to where the client is.

    It keeps an event until the other broker has delivered it.
    """

    def __init__(self, world: LightWorld) -> None:
        super().__init__(world)
        self._unconfirmed: dict[str, dict[PubId, MobileEvent]] = defaultdict(dict)
        self._present: dict[str, int] = {}  # where each client has registered
        self._home: dict[str, int] = {}

    def begin(self) -> None:
        """The first brokers become home brokers."""
        for client in self.world.clients.values():
            if client.mailbox is not None:
                self._present[client.name] = self._home[client.name] = client.at
                self.world.redirect(client.mailbox, partial(self._event, client))

    def arrive(self, handover: ClientHandover) -> None:
        """Register at the home broker."""
        home = self._home[handover.client.name]
        with self.world.acting(handover, Phase.TRANSFER):
            self.world.beside(handover.target, home, "register", partial(self._registered, handover))

    def _registered(self, handover: ClientHandover) -> None:
        client = handover.client
        self._present[client.name] = handover.target
        kept = list(self._unconfirmed[client.name].values())
        handover.transferred = len(kept)
        for event in kept:
            self._forward(client, event)
        with self.world.acting(handover, Phase.TRANSFER):
            self.world.beside(
                self._home[client.name], handover.target, "transfer", partial(self.world.finish, handover)
            )

    def _event(self, client: Mobile, event: MobileEvent) -> None:
        self._unconfirmed[client.name][event.event] = event
        self._forward(client, event)

    def _forward(self, client: Mobile, event: MobileEvent) -> None:
        home, present = self._home[client.name], self._present[client.name]
        self.world.forwarded += home != present
        delay = self.world.tree.beside(home, present)
        self.world.engine.after(delay, partial(self._arrived, client, present, event))

    def _arrived(self, client: Mobile, at: int, event: MobileEvent) -> None:
        if not client.connected or client.at != at:
            return  # it comes again when the client has registered elsewhere
        client.receive(event)
        delay = self.world.tree.beside(at, self._home[client.name])
        self.world.engine.after(delay, partial(self._confirmed, client, event))

    def _confirmed(self, client: Mobile, event: MobileEvent) -> None:
        self._unconfirmed[client.name].pop(event.event, None)


class Logging(FourPhases):
    """Brokers keep a log of recent events; the target replays from its own, and the source sends only the rest."""

    logs = True

    def __init__(self, world: LightWorld) -> None:
        super().__init__(world)
        self._log: dict[int, deque[MobileEvent]] = defaultdict(partial(deque, maxlen=LOG_SIZE))

    def passed(self, at: int, event: MobileEvent) -> None:
        """Keep it."""
        self._log[at].append(event)

    def arrive(self, handover: ClientHandover) -> None:
        """Subscribe, replay, and ask for the rest."""
        self.set_up(handover)
        client = handover.client
        for event in self._log[handover.target]:
            if event.event not in client.seen and matches(client.filter, {"x": event.x}):
                client.receive(event)
        self.ask(handover)

    def ask(self, handover: ClientHandover) -> None:
        """Ask the source."""
        self.request(handover)

    def give(self, handover: ClientHandover) -> None:
        """The source leaves out what the target has."""
        logged = {event.event for event in self._log[handover.target]}
        items = [event for event in self.release(handover) if event.event not in logged]
        with self.world.acting(handover, Phase.TRANSFER):
            self.world.beside(handover.source, handover.target, "transfer", partial(self.take, handover, items))


class LoggingSynchronised(Logging):
    """Logging whose question travels along the tree, behind the subscription."""

    def ask(self, handover: ClientHandover) -> None:
        """Ask along the tree."""
        way = self.path(handover.target, handover.source)
        self.walk(handover, way, "update", partial(self.give, handover), "update")


class Prefetching(Protocol):
    """Make-before-break: the source sends the update to the target as soon as it knows where the client goes.

    The target subscribes when the update comes, and asks the source beside the tree when the client has arrived.
    """

    def depart(self, handover: ClientHandover) -> None:
        """Send the update towards the target, and disconnect."""
        way = self.path(handover.source, handover.target)
        self.walk(handover, way, "update", partial(self._prepared, handover), "update")
        self.world.disconnect(handover)

    def _prepared(self, handover: ClientHandover) -> None:
        self.set_up(handover)
        handover.own["prepared"] = True
        if "waiting" in handover.own:
            self.request(handover)

    def arrive(self, handover: ClientHandover) -> None:
        """Ask for the state, once the update has come."""
        if "prepared" in handover.own:
            self.request(handover)
        else:
            handover.own["waiting"] = True


class PublisherProtocol(Protocol):
    """Protocols of publishers that nothing synchronises."""

    subscribers: ClassVar[bool] = False
    publishers: ClassVar[bool] = True

    def arrive(self, handover: ClientHandover) -> None:
        """Advertise and publish at once."""
        self.set_up(handover)
        self.publish_here(handover)
        self.world.finish(handover)


class TearDown(PublisherProtocol):
    """The source unadvertises when the publisher leaves; the target advertises when it arrives."""

    def depart(self, handover: ClientHandover) -> None:
        """Unadvertise."""
        self.world.disconnect(handover)
        handover.own["old advert"] = handover.client.advert
        self.release(handover)


class Delayed(PublisherProtocol):
    """The source unadvertises some time after the publisher has arrived."""

    def arrive(self, handover: ClientHandover) -> None:
        """Advertise and publish; the source follows later."""
        super().arrive(handover)
        self.world.engine.after(UNADVERTISE_DELAY, partial(self.let_go, handover))


class Proxy(PublisherProtocol):
    """The first broker of a publisher keeps the advertisement; events are sent to it beside the tree."""

    def arrive(self, handover: ClientHandover) -> None:
        """Publish through the proxy."""
        handover.client.resume(partial(self._tunnel, handover.client, handover.target))
        self.world.finish(handover)

    def _tunnel(self, client: Mobile, at: int, event: MobileEvent) -> None:
        world, proxy = self.world, client.spec.at
        world.forwarded += at != proxy
        world.engine.after(world.tree.beside(at, proxy), partial(world.publish, client.name, proxy, event))
