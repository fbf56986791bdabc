"""The end of a run: faults stop, everything is mended, and all must be done within a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.sim.faults.path_walk import disagreement
from weft.sim.faults.views import LossyView

if TYPE_CHECKING:
    from weft.sim.faults.client import SimClient
    from weft.sim.faults.world import World


def mend(world: World) -> None:
    """No more faults: brokers run, disks have room, links can be dialled, clients behave."""
    for broker in world.brokers:
        broker.log.quota = None
        broker.skew = max(broker.skew, 0)
        broker.restart()
    for trunk in world.trunks:
        trunk.separated, trunk.fragile = 0, False
        world.attach(trunk)
        trunk.resume()
    for client in world.clients:
        client.mend()


def unfinished(world: World) -> str:
    """What is not done yet, in a sentence; empty when all is."""
    for broker in world.brokers:
        if broker.core is None:
            return f"{broker.name} is down"
    for client in world.clients:
        waiting = (
            client.is_waiting
            or _undelivered(client)
            or _lost_once(client)
            or _allowed_still(client)
            or (_incomplete(client) if world.trunks else "")
        )
        if waiting:
            return waiting
    return _unlinked(world) or world.network.lacking()


def _undelivered(client: SimClient) -> str:
    broker, oracle = client.broker, client.broker.oracle
    utc = max(broker.now.utc, broker.latest)  # what has expired once is not required
    for queue, view in client.state.queues.items():
        subs = [sub for sub in client.state.subs.values() if sub.queue == queue and sub.durable]
        missing = oracle.missing(subs, view, utc)
        if missing:
            uid = oracle.history[missing[0]].uid
            return f"{client.name} queue {queue} lacks {len(missing)} events, first {uid} at {missing[0]}"
    return ""


def _lost_once(client: SimClient) -> str:
    """Events that a queue that is not durable should have had on this connection."""
    state = client.state
    for queue in sorted({sub.queue for sub in state.subs.values() if not sub.durable}):
        subs = [sub for sub in state.subs.values() if sub.queue == queue and not sub.durable]
        lost = client.broker.oracle.lost_once(subs, state.lossy.get(queue, LossyView()), client.principal)
        if lost:
            return f"{client.name} queue {queue}, which is not durable, lacks {lost} events"
    return ""


def _allowed_still(client: SimClient) -> str:
    """A subscription that the access rules do not cover, and that goes on."""
    for number, sub in client.state.subs.items():
        if not sub.ended and client.book.leaves_out(client.principal, str(sub.versions[-1].filter)):
            return f"{client.name} has subscription {number}, and the rules do not allow {sub.versions[-1].filter}"
    return ""


def _incomplete(client: SimClient) -> str:
    """A subscription that its broker has not called complete."""
    for number, sub in client.state.subs.items():
        if not sub.ended and sub.completed < len(sub.versions) - 1:
            return f"{client.name} does not know that subscription {number} is complete"
    return ""


def _unlinked(world: World) -> str:
    """Neighbours that are not connected, still busy, or of different minds."""
    for trunk in world.trunks:
        near, far = trunk.near, trunk.far
        for one, other in ((near, far), (far, near)):
            assert one.core is not None
            if one.table.pending:
                return f"{one.name} has more to tell"
            behind = one.behind(other.name)
            if behind:
                return behind
        apart = disagreement(near, far)
        if apart:
            return apart
    return ""
