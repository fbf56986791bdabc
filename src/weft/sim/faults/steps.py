"""What can happen in a run, step by step: what clients do, and faults."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from weft.broker.messages import QueueNumber, SubNumber, Subscribe
from weft.log.base import Offset
from weft.sim.faults.client import SimClient

if TYPE_CHECKING:
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
SHARE = "workers"
_SHARED = SubNumber(900)  # the number of the shared subscription in each session
_DOWN = 30_000  # microseconds that a broker is down, at most
_HOUR = 3_600_000_000


class Act(NamedTuple):
    """One step: in which world, to which client, with which draws."""

    world: World
    client: SimClient
    rng: Random


# -- clients -----------------------------------------------------------------------------------------


def publish(act: Act) -> None:
    """Some durable events."""
    for _ in range(act.rng.randint(1, 5)):
        act.client.publisher.publish(_uid(act), _event(act.rng))


def publish_once(act: Act) -> None:
    """An event that is not durable."""
    act.client.publisher.publish_once(_uid(act), _event(act.rng))


def publish_with_ttl(act: Act) -> None:
    """An event that expires."""
    act.client.publisher.publish(_uid(act), _event(act.rng), ttl=act.rng.choice((5_000, 500_000)))


def subscribe(act: Act, durable: bool = True, ordered: bool = True) -> None:
    """A subscription, in a queue of its own or together with others."""
    number = _number(act)
    durable = durable and not act.client.anonymous
    own = not (durable and ordered) or act.rng.random() < 0.4
    queue = QueueNumber(number if own else 0)
    act.client.requests.subscribe(
        Subscribe(SubNumber(number), _filter(act.rng), queue, durable=durable, ordered=ordered)
    )


def subscribe_once(act: Act) -> None:
    """A subscription that is not durable."""
    subscribe(act, durable=False)


def subscribe_unordered(act: Act) -> None:
    """A subscription whose failures hold nothing up."""
    subscribe(act, ordered=False)


def subscribe_shared(act: Act) -> None:
    """A seat among competing consumers."""
    if _SHARED not in act.client.state.subs and not act.client.anonymous:
        act.client.requests.subscribe(Subscribe(_SHARED, FILTERS[1], QueueNumber(_SHARED), share=SHARE))


def subscribe_since(act: Act) -> None:
    """A subscription to older events, too."""
    if act.client.anonymous:
        return
    number, first = _number(act), Offset(act.rng.randint(1, act.world.oracle.next))
    act.client.requests.subscribe(Subscribe(SubNumber(number), _filter(act.rng), QueueNumber(number), since=first))


def replace(act: Act) -> None:
    """Another filter for a subscription."""
    number = _some(act)
    if number is not None:
        act.client.requests.replace(number, _filter(act.rng))


def unsubscribe(act: Act) -> None:
    """The end of a subscription."""
    number = _some(act)
    if number is not None:
        act.client.requests.unsubscribe(number)


def advertise(act: Act) -> None:
    """A promise to publish anything."""
    act.client.requests.advertise(_number(act))


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
    if queues:
        act.client.consumer.look_for_dead(act.rng.choice(queues), act.rng.choice(("list", "retry", "drop")))


def trim(act: Act) -> None:
    """The log is trimmed as far as it may be."""
    act.world.broker.trim()


# -- faults ------------------------------------------------------------------------------------------


def crash(act: Act) -> None:
    """The broker is killed, wherever it is."""
    act.world.broker.crash(why="killed")
    act.world.engine.after(act.rng.randrange(_DOWN), act.world.broker.restart)


def commit_refused(act: Act) -> None:
    """The disk is full for some commits."""
    act.world.broker.log.fail_commits(act.rng.randint(1, 3))


def sync_failed(act: Act) -> None:
    """The next sync fails, and ends the process."""
    act.world.broker.log.fail_syncs()


def cut(act: Act) -> None:
    """A connection breaks, perhaps within a frame."""
    act.client.connection.cut(half_open=False)


def half_open(act: Act) -> None:
    """A connection breaks, and the broker does not notice."""
    act.client.connection.cut(half_open=True)


def take_over(act: Act) -> None:
    """A client connects a second time."""
    act.client.connection.take_over()


def slow_reader(act: Act) -> None:
    """A client reads nothing for a while."""
    act.client.connection.pause()
    act.world.engine.after(act.rng.randrange(300_000), act.client.connection.resume)


def clock_jump(act: Act) -> None:
    """The broker's UTC clock jumps."""
    act.world.broker.skew += act.rng.choice((-_HOUR, -5_000, 5_000, _HOUR))


def quota(act: Act) -> None:
    """The log has little room left for a while."""
    log = act.world.broker.log
    log.quota = log.size() + act.rng.randrange(2_000)
    act.world.engine.after(act.rng.randrange(200_000), lambda: setattr(act.world.broker.log, "quota", None))


# -- draws -------------------------------------------------------------------------------------------


def _uid(act: Act) -> str:
    act.world.uids += 1
    return f"{act.client.name}:{act.world.uids}"


def _number(act: Act) -> int:
    act.world.numbers += 1
    return act.world.numbers


def _some(act: Act) -> SubNumber | None:
    """A subscription of the client; the shared one stays as it is."""
    live = [number for number, sub in act.client.state.subs.items() if not sub.ended and number != _SHARED]
    return act.rng.choice(live) if live else None


def _filter(rng: Random) -> str:
    return rng.choice(FILTERS)


def _event(rng: Random) -> dict[str, object]:
    event: dict[str, object] = {"x": rng.randrange(8)}
    if rng.random() < 0.8:
        event["y"] = rng.choice("ab")
    return event


STEPS: dict[str, Callable[[Act], None]] = {
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
        goodbye,
        stop_acknowledging,
        refuse_deliveries,
        dead_letters,
        trim,
        crash,
        commit_refused,
        sync_failed,
        cut,
        half_open,
        take_over,
        slow_reader,
        clock_jump,
        quota,
    )
}
