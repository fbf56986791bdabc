"""A precise timer calls back once, never early, with the kernel's timers and without them."""

import asyncio
import os
from itertools import pairwise

import pytest

from weft.server import clock
from weft.server.clock import PreciseTimer


@pytest.fixture(params=["kernel", "loop"])
def _timers(request, monkeypatch):
    if request.param == "loop":
        monkeypatch.setattr(clock, "_timer_calls", lambda: None)


pytestmark = pytest.mark.usefixtures("_timers")


async def _called(set_up):
    """The times at which a timer called back, within a tenth of a second, as the loop's clock has them."""
    loop, times = asyncio.get_running_loop(), []
    timer = PreciseTimer(lambda: times.append(loop.time()))
    try:
        set_up(timer, loop.time())
        await asyncio.sleep(0.1)
    finally:
        timer.close()
    await asyncio.sleep(0.01)
    return times


def test_it_calls_back_once_and_not_early():
    dues = []

    def set_up(timer, now):
        dues.append(now + 0.01)
        timer.set(dues[0])
        assert timer.due == dues[0]

    times = asyncio.run(_called(set_up))
    assert len(times) == 1
    assert times[0] >= dues[0]


def test_a_time_in_the_past_is_due_at_once():
    assert len(asyncio.run(_called(lambda timer, now: timer.set(now - 1)))) == 1


def test_the_last_time_counts():
    dues = []

    def set_up(timer, now):
        timer.set(now + 0.001)
        dues.append(now + 0.03)
        timer.set(dues[0])

    times = asyncio.run(_called(set_up))
    assert len(times) == 1
    assert times[0] >= dues[0]


def test_an_earlier_time_replaces_a_later_one():
    def set_up(timer, now):
        timer.set(now + 60)
        timer.set(now + 0.001)

    assert len(asyncio.run(_called(set_up))) == 1


def test_it_does_not_call_back_when_it_was_cancelled_and_can_be_set_again():
    def set_up(timer, now):
        timer.set(now + 0.001)
        timer.cancel()
        assert timer.due is None

    assert asyncio.run(_called(set_up)) == []

    def again(timer, now):
        set_up(timer, now)
        timer.set(now + 0.002)

    assert len(asyncio.run(_called(again))) == 1


def test_it_can_set_itself_again():
    async def run():
        loop, times, ended = asyncio.get_running_loop(), [], asyncio.Event()

        def call():
            times.append(loop.time())
            timer.set(loop.time() + 0.001) if len(times) < 5 else ended.set()

        timer = PreciseTimer(call)
        timer.set(loop.time())
        await asyncio.wait_for(ended.wait(), 10)
        timer.close()
        assert all(later - earlier >= 0.001 for earlier, later in pairwise(times))

    asyncio.run(run())


def test_a_closed_timer_leaves_nothing_open():
    async def run():
        loop, called = asyncio.get_running_loop(), []
        before = _open_files()
        timer = PreciseTimer(lambda: called.append(1))
        kernel = _open_files() - before
        assert len(kernel) == (clock._timer_calls() is not None)
        timer.set(loop.time() + 0.001)
        timer.close()
        timer.close()
        for file in kernel:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(file)
        assert _open_files() == before
        await asyncio.sleep(0.01)
        assert not called

    asyncio.run(run())


def _open_files():
    """The descriptors of this process that are open."""
    found = set()
    for number in range(256):
        try:
            os.fstat(number)
        except OSError:
            continue
        found.add(number)
    return found
