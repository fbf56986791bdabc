"""The processor time that a broker needs for an event when events come one by one: 1,000 a second, one publisher, one
consumer. Transient, and durable with each event acknowledged. With `--threads`, also what each thread took.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import weft

_BROKER = """
import sys
from pathlib import Path
from weft.testing import broker
with broker(Path(sys.argv[1]) / "data") as running:
    print(running.address, flush=True)
    sys.stdin.read()
"""
_TICK = os.sysconf("SC_CLK_TCK")


@contextmanager
def broker_process() -> Iterator[tuple[str, int]]:
    """A broker in a process of its own: its address and the process."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-c", _BROKER, directory]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), process.pid


def spent(process: int) -> dict[str, float]:
    """The processor seconds that each thread of a process has taken so far."""
    seconds = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
        seconds[task.name] = (int(fields[11]) + int(fields[12])) / _TICK
    return seconds


def measure(durable: bool, events: int, rate: float) -> dict[str, float]:
    """Microseconds of processor time for an event, by thread."""
    warm = events // 6
    with (
        broker_process() as (address, process),
        weft.connect_sync(address, name="consumer") as consumer,
        weft.connect_sync(address) as publisher,
        consumer.subscribe("n >= 0", name="all" if durable else "") as subscription,
    ):

        def consume() -> None:
            for _ in range(warm + events):
                event = next(subscription)
                if durable:
                    event.ack()

        consuming = threading.Thread(target=consume, daemon=True)
        consuming.start()
        begun, before = time.perf_counter(), {}
        for number in range(warm + events):
            if number == warm:
                before = spent(process)
            time.sleep(max(0.0, begun + number / rate - time.perf_counter()))
            publisher.publish({"n": number, "s": "x"}, durable=durable)
        consuming.join(60)
        assert not consuming.is_alive(), "not every event was delivered"
        return {thread: (now - before.get(thread, 0.0)) / events * 1e6 for thread, now in spent(process).items()}


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--events", type=int, default=6_000)
    options.add_argument("--rate", type=float, default=1_000.0, help="events per second")
    options.add_argument("--threads", action="store_true", help="list the threads of the broker, too")
    given = options.parse_args()
    found = {}
    for durable in (False, True):
        threads = measure(durable, given.events, given.rate)
        figures = {"us per event": round(sum(threads.values()))}
        if given.threads:
            figures.update({f"thread {at}": round(us) for at, us in enumerate(threads.values()) if us >= 1})
        found["durable" if durable else "transient"] = figures
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
