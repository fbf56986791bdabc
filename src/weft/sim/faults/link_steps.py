"""What befalls links and networks of brokers in a run. Law: each fault ends by itself, or when all is mended."""

from __future__ import annotations

from collections.abc import Callable

from weft.errors import LocalProtocolError
from weft.sim.faults.client_steps import Act
from weft.sim.faults.shape import SPACES
from weft.sim.faults.trunk import Trunk

_DOWN = 60_000  # microseconds that brokers are down, at most
_APART = 300_000  # that a partition or a detachment lasts, at most
_SLOW = 300_000  # that an end of a link reads nothing, at most
_RESYNC = 8_000  # after which a resync that has begun is cut, at most


def crash_several(act: Act) -> None:
    """Several brokers are killed at once, and come back one after another."""
    several = act.rng.sample(act.world.brokers, act.rng.randint(2, len(act.world.brokers)))
    for broker in several:
        broker.crash(why="killed, with others")
        act.world.engine.after(act.rng.randrange(_DOWN), broker.restart)


def link_cut(act: Act) -> None:
    """The connection of two brokers breaks, perhaps within a frame."""
    _count(act, act.trunk.cut(), "fault: link cut")


def link_cut_in_use(act: Act) -> None:
    """The connection breaks right after events have come, and the other end has not stored them yet."""
    act.trunk.fragile = True


def link_half_open(act: Act) -> None:
    """The connection of two brokers breaks, and one end, or none, notices."""
    _count(act, act.trunk.cut(half_open=True), "fault: link half-open")


def link_dialled_twice(act: Act) -> None:
    """Two brokers connect while they are connected."""
    _count(act, act.trunk.dial_twice(), "fault: link dialled twice")


def link_reads_slowly(act: Act) -> None:
    """One end of a link reads nothing for a while."""
    trunk = act.trunk
    if trunk.pause():
        act.world.trace.count("fault: link reads slowly")
        act.world.engine.after(act.rng.randrange(_SLOW), trunk.resume)


def resync_cut(act: Act) -> None:
    """A link comes up, and breaks again soon, perhaps before both ends agree."""
    trunk = act.trunk
    trunk.cut()
    for _ in range(act.rng.randint(1, 3)):
        act.world.engine.after(20_000 + act.rng.randrange(_RESYNC), lambda: _cut_resync(act, trunk))


def _cut_resync(act: Act, trunk: Trunk) -> None:
    cold = trunk.is_resyncing
    if trunk.cut() and cold:
        act.world.trace.count("fault: resync cut midway")


def partition(act: Act) -> None:
    """Some links are cut and cannot be dialled until the network heals."""
    trunks = act.rng.sample(act.world.trunks, act.rng.randint(1, len(act.world.trunks)))
    act.world.trace.count("fault: partition")
    for trunk in trunks:
        trunk.separated += 1
        trunk.cut(half_open=act.rng.random() < 0.5)

    def heal() -> None:
        for trunk in trunks:
            trunk.separated = max(0, trunk.separated - 1)

    act.world.engine.after(act.rng.randrange(_APART), heal)


def detach(act: Act) -> None:
    """Two brokers stop being neighbours, and become so again later."""
    trunk = act.trunk
    if trunk.attached:
        act.world.detach(trunk)
        act.world.trace.count("fault: detach")
        act.world.engine.after(act.rng.randrange(_APART), lambda: act.world.attach(trunk))


def stale_hello(act: Act) -> None:
    """A hello of an earlier connection, perhaps of an earlier process, arrives late."""
    _count(act, act.trunk.say_stale_hello(act.draw >> 8), "fault: stale hello")


def retune(act: Act) -> None:
    """A network of label sets gets another label space, from one broker.

    Not where a part of the network could come back with the old one: it would be refused.
    """
    core, faults = act.broker.core, act.world.plan.faults
    if act.world.plan.shape.model != "dls" or core is None or faults & {"detach", "restore backup"}:
        return
    try:
        act.broker.perform(core.retune(act.rng.choice(SPACES), act.broker.now))
    except LocalProtocolError:  # another one is in progress
        return
    act.world.trace.count("op: re-tuned")


def back_up(act: Act) -> None:
    """The log of a broker without clients is copied, and later restored under a new id."""
    broker = act.broker
    if act.world.has_clients(broker) or broker.core is None or broker.commits.busy:
        return
    act.world.numbers += 1
    copy = broker.log.backup(f"{broker.log.log_id}.{act.world.numbers}")
    act.world.engine.after(act.rng.randrange(_APART), lambda: act.world.rewind(broker, copy))


def _count(act: Act, happened: bool, what: str) -> None:
    if happened:
        act.world.trace.count(what)


LINK_STEPS: dict[str, Callable[[Act], None]] = {
    "crash several": crash_several,
    "link cut": link_cut,
    "link cut in use": link_cut_in_use,
    "link half open": link_half_open,
    "link dialled twice": link_dialled_twice,
    "link reads slowly": link_reads_slowly,
    "resync cut": resync_cut,
    "partition": partition,
    "detach": detach,
    "stale hello": stale_hello,
    "retune": retune,
    "restore backup": back_up,
}
