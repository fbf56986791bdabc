"""What clients do in a run, step by step."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weft.broker.messages import QueueNumber, SubNumber, Subscribe
from weft.language.meaning import matches
from weft.log.base import Offset
from weft.sim.faults.client import SimClient
from weft.sim.faults.consumer import SHARE, SHARED, SHARED_QUEUE

if TYPE_CHECKING:
    from weft.sim.faults.broker_process import BrokerProcess
    from weft.sim.faults.trunk import Trunk
    from weft.sim.faults.world import World

FILTERS = (
    "TRUE",
    "x < 4",
    "x BETWEEN 2 AND 5",
    "x = 3",
    "y = 'a'",
    "x >= 3 AND y = 'b'",
    "x < 2 OR y = 'a'",
    "y IS NULL",
)
ONE_FILTERS = (*FILTERS, "even(x)", "even(x) AND y = 'a'")  # of clients of one broker


class Act(NamedTuple):
    """One step: in which world, to which client, with which draws."""

    world: World
    client: SimClient
    rng: Random
    draw: int = 0

    @property
    def broker(self) -> BrokerProcess:
        """The broker that a fault befalls."""
        return self.world.brokers[self.draw % len(self.world.brokers)]

    @property
    def trunk(self) -> Trunk:
        """The link that a fault befalls."""
        return self.world.trunks[self.draw % len(self.world.trunks)]


# -- clients -----------------------------------------------------------------------------------------


def publish(act: Act) -> None:
    """Some durable events."""
    if not act.world.trunks and act.rng.random() < 0.3:  # in one read, perhaps with very many matches
        with act.client.connection.together():
            for _ in range(act.rng.choice((3, 15))):
                _publish(act, draw_event(act.rng))
        return
    for _ in range(act.rng.randint(1, 5)):
        _publish(act, draw_event(act.rng))


def publish_once(act: Act) -> None:
    """An event that is not durable."""
    uid, event = new_uid(act), draw_event(act.rng)
    act.world.network.published(act.client, uid, event)
    act.client.publisher.publish_once(uid, event)


def publish_with_ttl(act: Act) -> None:
    """An event that expires."""
    _publish(act, draw_event(act.rng), ttl=act.rng.choice((5_000, 500_000)))


def subscribe(act: Act, durable: bool = True, ordered: bool = True) -> None:
    """A subscription, in a queue of its own or together with others."""
    number = new_number(act)
    durable = durable and not act.client.anonymous
    own = not (durable and ordered) or act.rng.random() < 0.4
    queue = QueueNumber(number if own else 0)
    act.client.requests.subscribe(
        Subscribe(SubNumber(number), draw_filter(act), queue, durable=durable, ordered=ordered)
    )


def subscribe_once(act: Act) -> None:
    """A subscription that is not durable."""
    subscribe(act, durable=False)


def subscribe_unordered(act: Act) -> None:
    """A subscription whose failures hold nothing up."""
    subscribe(act, ordered=False)


def subscribe_shared(act: Act) -> None:
    """A seat among competing consumers."""
    if SHARED not in act.client.state.subs and not act.client.anonymous:
        act.client.requests.subscribe(Subscribe(SHARED, FILTERS[1], SHARED_QUEUE, share=SHARE))


def subscribe_since(act: Act) -> None:
    """A subscription to older events, too."""
    if act.client.anonymous:
        return
    number, oracle = new_number(act), act.client.broker.oracle
    first = Offset(act.rng.randint(1, oracle.next))
    wanted = Subscribe(SubNumber(number), draw_filter(act), QueueNumber(number), since=first)
    if not act.world.trunks and act.rng.random() < 0.6:
        past = act.rng.choice([event.at for event in oracle.history.values()] or [1])
        since: dict[str, dict[str, Any]] = {
            "begin": {"since": 0},
            "future": {"since": oracle.next + 5},
            "event": {"since": None, "since_time": past},
            "between": {"since": None, "since_time": past + 1},
            "now": {"since": None, "since_time": act.client.broker.latest},
            "later": {"since": None, "since_time": act.client.broker.latest + 1_000_000_000_000},
        }
        kind = act.rng.choice(sorted(since))
        act.world.trace.count(f"since: {kind}")
        wanted = msgspec.structs.replace(wanted, **since[kind])
    act.client.requests.subscribe(wanted)


def replace(act: Act) -> None:
    """Another filter for a subscription."""
    number = some_sub(act)
    if number is not None:
        act.client.requests.replace(number, draw_filter(act))


def unsubscribe(act: Act) -> None:
    """The end of a subscription."""
    number = some_sub(act)
    if number is not None:
        act.client.requests.unsubscribe(number)


def advertise(act: Act) -> None:
    """A promise to publish nothing else."""
    text = draw_filter(act) if act.world.plan.shape.advertised else "TRUE"
    act.client.requests.advertise(new_number(act), text)


def unadvertise(act: Act) -> None:
    """A promise taken back; where it matters, at once after the last events that depend on it are confirmed."""
    numbers = [number for number, advert in act.client.state.adverts.items() if advert.in_force]
    if not numbers:
        return
    number = act.rng.choice(numbers)
    if act.world.plan.shape.advertised:
        for _ in range(act.rng.choice((0, 3, 15))):
            _publish(act, draw_event(act.rng))
        for wait in range(1_000, 10_000, 1_000):
            act.world.engine.after(wait, lambda: act.client.requests.unadvertise(number))
    act.client.requests.unadvertise(number)


def goodbye(act: Act) -> None:
    """A client disconnects in order, and comes back."""
    act.client.connection.leave()


def stop_acknowledging(act: Act) -> None:
    """A client is busy for a while."""
    act.client.consumer.acking = False
    act.world.engine.after(act.rng.randrange(200_000), lambda: setattr(act.client.consumer, "acking", True))


def refuse_deliveries(act: Act) -> None:
    """A client cannot handle what it gets for a while."""
    act.client.consumer.nacks = act.rng.choice((0.2, 1.0))
    act.world.engine.after(act.rng.randrange(400_000), lambda: setattr(act.client.consumer, "nacks", 0.0))


def dead_letters(act: Act) -> None:
    """A client looks after its dead letters."""
    queues = sorted(act.client.state.queues)
    if not act.world.trunks:  # where there may be any
        queues = [queue for queue in queues if act.client.state.queues[queue].refused] or queues
    if queues:
        act.client.consumer.look_for_dead(act.rng.choice(queues), act.rng.choice(("list", "retry", "drop")))
    if act.world.trunks or act.rng.random() < 0.7:
        return
    other = act.rng.choice([each for each in act.world.clients if each.principal == act.client.principal])
    theirs = sorted(queue for queue in other.state.queues if queue and queue != SHARED_QUEUE)
    if theirs and other is not act.client and not other.anonymous:
        act.client.consumer.look_for_dead(act.rng.choice(theirs), act.rng.choice(("list", "retry", "drop")), other)


def trim(act: Act) -> None:
    """The log is trimmed as far as it may be."""
    act.broker.trim()


# -- draws -------------------------------------------------------------------------------------------


def _publish(act: Act, event: dict[str, object], ttl: int = 0) -> None:
    """Publish a durable event, if the client may."""
    adverts = act.client.state.adverts.values()
    if act.world.plan.shape.advertised and not any(
        advert.in_force and matches(advert.filter, event)  # type: ignore[arg-type]
        for advert in adverts
    ):
        return
    uid = new_uid(act)
    act.world.network.published(act.client, uid, event)
    act.client.publisher.publish(uid, event, ttl)


def new_uid(act: Act) -> str:
    """The name of a new event."""
    act.world.uids += 1
    return f"{act.client.name}:{act.world.uids}"


def new_number(act: Act) -> int:
    """A number that no subscription has had."""
    act.world.numbers += 1
    return act.world.numbers


def some_sub(act: Act) -> SubNumber | None:
    """A subscription of the client; the shared one stays as it is."""
    live = [number for number, sub in act.client.state.subs.items() if not sub.ended and number != SHARED]
    return act.rng.choice(live) if live else None


def draw_filter(act: Act) -> str:
    """The text of a random filter."""
    return act.rng.choice(FILTERS if act.world.trunks else ONE_FILTERS)


def draw_event(rng: Random) -> dict[str, object]:
    """The attributes of a random event, of 24 possible ones."""
    event: dict[str, object] = {"x": rng.randrange(8)}
    if rng.random() < 0.8:
        event["y"] = rng.choice("ab")
    return event


CLIENT_STEPS: dict[str, Callable[[Act], None]] = {
    do.__name__.replace("_", " "): do
    for do in (
        publish,
        publish_once,
        publish_with_ttl,
        subscribe,
        subscribe_once,
        subscribe_shared,
        subscribe_unordered,
        subscribe_since,
        replace,
        unsubscribe,
        advertise,
        unadvertise,
        goodbye,
        stop_acknowledging,
        refuse_deliveries,
        dead_letters,
        trim,
    )
}
