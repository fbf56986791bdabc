"""What befalls one broker and its clients in a run. Law: each fault ends by itself, or when all is mended."""

from __future__ import annotations

from collections.abc import Callable

from weft.sim.faults.client_steps import Act

_DOWN = 30_000  # microseconds that a broker is down, at most
_HOUR = 3_600_000_000


def crash(act: Act) -> None:
    """The broker is killed, wherever it is."""
    act.broker.crash(why="killed")
    act.world.engine.after(act.rng.randrange(_DOWN), act.broker.restart)


def commit_refused(act: Act) -> None:
    """The disk is full for some commits."""
    act.broker.log.fail_commits(act.rng.randint(1, 3))


def sync_failed(act: Act) -> None:
    """The next sync fails, and ends the process."""
    act.broker.log.fail_syncs()


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
    act.broker.jumped = True
    act.broker.skew += act.rng.choice((-_HOUR, -5_000, 5_000, _HOUR))


def quota(act: Act) -> None:
    """The log has little room left for a while."""
    log = act.broker.log
    log.quota = log.size() + act.rng.randrange(2_000)
    act.world.engine.after(act.rng.randrange(200_000), lambda: setattr(act.broker.log, "quota", None))


FAULT_STEPS: dict[str, Callable[[Act], None]] = {
    do.__name__.replace("_", " "): do
    for do in (crash, commit_refused, sync_failed, cut, half_open, take_over, slow_reader, clock_jump, quota)
}
