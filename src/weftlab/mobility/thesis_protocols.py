"""The three families of the thesis: ping/pong (5.4), acyclic graphs (5.5), rendezvous points (5.6)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import ClassVar

from weft.algebra.relate import covers, overlaps
from weft.language.ast import Filter
from weft.language.text import parse
from weft.network.tables import BrokerId
from weft.routing.table import About, Link
from weftlab.mobility.light import LinkNote, Plane, Signal
from weftlab.mobility.protocol import Protocol
from weftlab.mobility.topology import broker
from weftlab.mobility.world import FILTERS, ClientHandover, Phase

PING_PERIOD = 100_000  # microseconds (thesis 5.8)
MOST_ROUNDS = 50  # a hand-over that needs more is stuck


class PingPong(Protocol):
    """The generic protocol: the target pings the source with events until a pong comes back.

    Ping and pong are advertised and subscribed to like any event, so no broker knows of moves. The source prepares when
    the client leaves.
    """

    publishers = True

    def depart(self, handover: ClientHandover) -> None:
        """The source subscribes to pings and advertises pongs."""
        world, at = self.world, handover.source
        with world.acting(handover, Phase.SET_UP, "ping"):
            handover.own["ping"] = world.listen(at, _of("ping", handover), partial(self._ping_came, handover))
        with world.acting(handover, Phase.SET_UP, "pong"):
            handover.own["pong advert"] = world.advertise(_name("pong", handover), at, _of("pong", handover))
        world.disconnect(handover)

    def arrive(self, handover: ClientHandover) -> None:
        """The target subscribes to pongs, advertises pings, and pings."""
        world, at = self.world, handover.target
        self.set_up(handover, FILTERS)
        with world.acting(handover, Phase.SET_UP, "pong"):
            handover.own["pong"] = world.listen(at, _of("pong", handover), partial(self._pong_came, handover))
        with world.acting(handover, Phase.SET_UP, "ping"):
            handover.own["ping advert"] = world.advertise(_name("ping", handover), at, _of("ping", handover))
        self._ping(handover, 0)

    def _ping(self, handover: ClientHandover, round: int) -> None:
        if "answered" in handover.own or round > MOST_ROUNDS:
            return
        handover.rounds = round
        self._say(handover, "ping", handover.target, f"ping {round}")
        self.world.engine.after(PING_PERIOD, partial(self._ping, handover, round + 1))

    def _ping_came(self, handover: ClientHandover, _: Signal) -> None:
        if "answered" not in handover.own:
            pongs = handover.own["pongs"] = handover.own.get("pongs", 0) + 1
            self._say(handover, "pong", handover.source, f"pong {pongs}")

    def _say(self, handover: ClientHandover, kind: str, at: int, group: str) -> None:
        with self.world.acting(handover, Phase.SYNCHRONISE, group):
            self.world.signal(_name(kind, handover), at, Signal(kind, handover), {"signal": _signal(kind, handover)})

    def _pong_came(self, handover: ClientHandover, _: Signal) -> None:
        if "answered" in handover.own:
            return
        handover.own["answered"] = True
        world = self.world
        with world.acting(handover, Phase.TEAR_DOWN):
            world.unlisten(handover.target, handover.own["pong"])
            world.unadvertise(_name("ping", handover), handover.target, handover.own["ping advert"])
        with world.acting(handover, Phase.TRANSFER):
            world.beside(handover.target, handover.source, "request", partial(self._end, handover))
        if handover.client.spec.publishes:
            self.publish_here(handover)
            world.finish(handover)

    def _end(self, handover: ClientHandover) -> None:
        world, at = self.world, handover.source
        with world.acting(handover, Phase.TEAR_DOWN):
            world.unlisten(at, handover.own["ping"])
            world.unadvertise(_name("pong", handover), at, handover.own["pong advert"])
        if handover.client.spec.publishes:
            self.release(handover)
        else:
            self.give(handover)


class PingPongRendezvous(PingPong):
    """Ping/pong whose advertisements go to a rendezvous point only."""

    rendezvous = True


def _name(kind: str, handover: ClientHandover) -> str:
    return f"{kind}-{handover.number}"


def _signal(kind: str, handover: ClientHandover) -> int:
    return 2 * handover.number + (kind == "pong")


def _of(kind: str, handover: ClientHandover) -> Filter:
    return parse(f"signal = {_signal(kind, handover)} AND x IS NULL")  # overlaps no other filter


class Acyclic(Protocol):
    """The update runs from the target to the source along the tree, behind the subscription or advertisement."""

    publishers = True
    complete: ClassVar[bool] = False  # skip the update if the target had nothing to tell (the covering optimisation)
    flooding: ClassVar[bool] = True  # look for the source by content, not by its address

    def arrive(self, handover: ClientHandover) -> None:
        """The target subscribes or advertises, and sends the update."""
        told = self.set_up(handover)
        if self.complete and not told:
            handover.skipped = True
            self._skip(handover)
        elif self.flooding:
            self._flood(handover, 0)
        else:
            self._send_to_source(handover)

    def _send_to_source(self, handover: ClientHandover) -> None:
        way = self.path(handover.target, handover.source)
        self.walk(handover, way, "update", partial(self._came, handover), "update")

    def _skip(self, handover: ClientHandover) -> None:
        if not handover.client.spec.publishes:
            self.request(handover)
            return
        with self.world.acting(handover, Phase.TRANSFER):
            self.world.beside(handover.target, handover.source, "request", partial(self.let_go, handover))
        self.publish_here(handover)
        self.world.finish(handover)

    def _came(self, handover: ClientHandover) -> None:
        """The update has reached the source."""
        if "given" in handover.own:
            return
        handover.own["given"] = True
        if handover.client.spec.publishes:
            back = self.path(handover.source, handover.target)
            self.walk(handover, back, "reply", partial(self._replied, handover), "reply")
            self.release(handover)
        else:
            self.give(handover)

    def _replied(self, handover: ClientHandover) -> None:
        self.publish_here(handover)
        self.world.finish(handover)

    # -- content-based flooding -------------------------------------------------------------------------

    def _flood(self, handover: ClientHandover, round: int) -> None:
        """Send the update wherever the source may be; again after a while, until the hand-over is complete.

        If nobody advertises what the client wants, no direction is known, and an address must be used (thesis 5.5.1).
        """
        if handover.finished >= 0 or "given" in handover.own or round > MOST_ROUNDS:
            return
        handover.rounds = round
        if not self._directions(handover, round, handover.target):
            handover.unlocated = True
            self._send_to_source(handover)
            return
        with self.world.acting(handover, Phase.SYNCHRONISE, f"update {round}" if round else "update"):
            self._spread(handover, round, handover.target, -1)
        self.world.engine.after(PING_PERIOD, partial(self._flood, handover, round + 1))

    def _spread(self, handover: ClientHandover, round: int, here: int, came: int) -> None:
        if here == handover.source:
            self._came(handover)
            return
        for there in self._directions(handover, round, here):
            if there != came:
                self.world.post(self.plane, here, there, LinkNote("update", partial(self._spread, handover, round)))

    def _directions(self, handover: ClientHandover, round: int, here: int) -> list[int]:
        """Where overlapping advertisements or covering subscriptions came from; for a publisher the other way round.

        The complete protocol follows what had to be told on account of this move, as far as there is any.
        """
        if self.complete and not round:
            told = handover.told.get(here)
            if told:
                return sorted(told)
        publishes, wanted = handover.client.spec.publishes, handover.client.filter
        same, other = (About.ADVERTISEMENTS, About.SUBSCRIPTIONS)[:: 1 if publishes else -1]
        table, network = self.plane.network.table(broker(here)), self.plane.network
        found = []
        for name in network.links(broker(here)):
            link = Link(name)
            if any(_covers(item, wanted) for item in table.heard(link, same).values()) or any(
                _overlaps(item, wanted) for item in table.heard(link, other).values()
            ):
                found.append(_number(name))
        return sorted(found)


def _number(name: BrokerId) -> int:
    return int(name[1:])


@lru_cache(maxsize=1 << 16)
def _covers(wide: Filter, narrow: Filter) -> bool:
    return covers(wide, narrow)


@lru_cache(maxsize=1 << 16)
def _overlaps(one: Filter, other: Filter) -> bool:
    return overlaps(one, other)


class AcyclicOverlay(Acyclic):
    """The source is found by its overlay address."""

    flooding = False


class AcyclicComplete(Acyclic):
    """The subscription is assumed to be complete, so the covering optimisation is used."""

    complete = True


class AcyclicCompleteOverlay(AcyclicOverlay):
    """Complete, and the source is found by its overlay address."""

    complete = True


class Rendezvous(Protocol):
    """The update runs from the target to the rendezvous points, which notify the source along the tree.

    Before it leaves, the client waits until its subscription or advertisement is known to be complete at the points.
    Several types are chained: each point passes the update on to that of the supertype.
    """

    publishers = True
    rendezvous = True
    complete: ClassVar[bool] = False  # no check at the source, and the covering optimisation at the target

    def depart(self, handover: ClientHandover) -> None:
        """Check that the client is complete at the rendezvous points, then disconnect."""
        if self.complete:
            self.world.disconnect(handover)
            return
        handover.own["checks"] = set(range(len(self._ways(handover.source))))
        for number, (plane, way) in enumerate(self._ways(handover.source)):
            back = plane.tree.path(way[-1], handover.source)
            answer = partial(self._checked, handover, number)
            self._walk_on(
                handover, plane, way, "check", "check", partial(self._walk_on, handover, plane, back, "ack", "", answer)
            )

    def _checked(self, handover: ClientHandover, number: int) -> None:
        handover.own["checks"].discard(number)
        if not handover.own["checks"]:
            self.world.disconnect(handover)

    def arrive(self, handover: ClientHandover) -> None:
        """The target subscribes or advertises, and sends the update to the rendezvous points."""
        ways = self._ways(handover.target)
        handover.way = {(plane.number, at) for plane, way in ways for at in way}
        told = self.set_up(handover)
        publishes = handover.client.spec.publishes
        if self.complete and not told:
            handover.skipped = True
            if publishes:
                with self.world.acting(handover, Phase.TRANSFER):
                    self.world.beside(handover.target, handover.source, "request", partial(self.let_go, handover))
                self._published(handover)
            else:
                self.request(handover)
            return
        handover.own["notices"], handover.own["answers"] = set(range(len(ways))), set(range(len(ways)))
        for number, (plane, way) in enumerate(ways):
            self._walk_on(
                handover, plane, way, "update", "update", partial(self._at_point, handover, number, plane, way[-1])
            )

    def _at_point(self, handover: ClientHandover, number: int, plane: Plane, point: int) -> None:
        self._notify(handover, number, plane, point)
        if handover.client.spec.publishes:
            to_target = plane.tree.path(point, handover.target)
            self._walk_on(handover, plane, to_target, "answer", "reply", partial(self._answered, handover, number))

    def _notify(self, handover: ClientHandover, number: int, plane: Plane, point: int) -> None:
        """The point notifies the source, behind the events that it has sent there."""
        to_source = plane.tree.path(point, handover.source)
        self._walk_on(handover, plane, to_source, "notify", "", partial(self._notified, handover, number))

    def _notified(self, handover: ClientHandover, number: int) -> None:
        """A rendezvous point has notified the source."""
        handover.own["notices"].discard(number)
        if handover.own["notices"]:
            return
        if handover.client.spec.publishes:
            self.release(handover)
        else:
            self.give(handover)

    def _answered(self, handover: ClientHandover, number: int) -> None:
        """A rendezvous point has answered the target, behind the subscriptions that it knows."""
        handover.own["answers"].discard(number)
        if not handover.own["answers"]:
            self._published(handover)

    def _published(self, handover: ClientHandover) -> None:
        self.publish_here(handover)
        self.world.finish(handover)

    def _ways(self, start: int) -> list[tuple[Plane, list[int]]]:
        """The ways of an update: one, from point to point."""
        way = [start]
        for point in self.world.script.rendezvous:
            way += self.path(way[-1], point)[1:]
        return [(self.plane, way)]

    def _walk_on(  # noqa: PLR0913, PLR0917 - a message has many sides
        self, handover: ClientHandover, plane: Plane, way: list[int], kind: str, group: str, then: Callable[[], None]
    ) -> None:
        with self.world.acting(handover, Phase.SYNCHRONISE, group):
            self.world.walk(plane, way, kind, then)


class RendezvousComplete(Rendezvous):
    """Rendezvous points with the covering optimisation."""

    complete = True


class RendezvousBeside(Rendezvous):
    """The rendezvous point notifies the source beside the tree: sooner, and not behind the events."""

    def _notify(self, handover: ClientHandover, number: int, plane: Plane, point: int) -> None:  # noqa: ARG002
        with self.world.acting(handover, Phase.SYNCHRONISE):
            self.world.beside(point, handover.source, "notify", partial(self._notified, handover, number))


class CyclicRendezvous(Rendezvous):
    """Rendezvous points on a cyclic graph: each type has its own tree, and its own update and notice."""

    cyclic = True

    def _ways(self, start: int) -> list[tuple[Plane, list[int]]]:
        return [(plane, plane.tree.path(start, plane.tree.root)) for plane in self.world.planes]


class CyclicRendezvousComplete(CyclicRendezvous):
    """The same with the covering optimisation."""

    complete = True


class CyclicRendezvousChained(CyclicRendezvous):
    """The points pass on to that of the supertype that they have the update, and only the last one notifies the source.

    With more than one type, events of the others take ways that no notice has travelled.
    """

    def _at_point(self, handover: ClientHandover, number: int, plane: Plane, point: int) -> None:  # noqa: ARG002
        handover.own.setdefault("points", set()).add(number)
        self._pass_on(handover)

    def _pass_on(self, handover: ClientHandover) -> None:
        """Notices go from point to point as far as updates have come."""
        planes, reached = self.world.planes, handover.own.setdefault("reached", 0)
        if handover.own.get("passing") or reached not in handover.own["points"]:
            return
        if reached == len(planes) - 1:
            handover.own["notices"], handover.own["answers"] = {reached}, {reached}
            super()._at_point(handover, reached, planes[reached], planes[reached].tree.root)
            return
        handover.own["passing"] = True
        way = planes[reached + 1].tree.path(planes[reached].tree.root, planes[reached + 1].tree.root)
        self._walk_on(handover, planes[reached + 1], way, "chain", "", partial(self._passed_on, handover))

    def _passed_on(self, handover: ClientHandover) -> None:
        handover.own["passing"] = False
        handover.own["reached"] += 1
        self._pass_on(handover)
