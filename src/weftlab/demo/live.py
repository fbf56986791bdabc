"""Real events through a real broker, which is killed on the way. What is shown as received was delivered by the broker,
and is compared with what the filters mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle, zip_longest
from threading import Event as Flag
from threading import Lock, Thread
from time import perf_counter, sleep
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from weft.algebra.normalize import normalize
from weft.client.sync import SyncClient, SyncSubscription, connect_sync
from weft.errors import ClientClosedError
from weft.language.meaning import matches
from weft.language.text import parse
from weft.model.event import Event, attributes_of
from weft.tables import plain_table
from weftlab.demo.broker_process import DemoBroker
from weftlab.demo.feeds import feeds

FLIGHTS = 1_500
_SLICE = 50  # events that are published together
_AT_ONCE = 1_000  # events that are there when the console is first looked at
_PACE = 0.2  # seconds between two events, while the demo stays up
_PATIENCE = 60.0  # seconds that the last event may take

WATCHERS = {
    "strong": "magnitude >= 4.5",
    "alarm": "magnitude >= 6 OR tsunami",
    "Alaska": "latitude BETWEEN 51 AND 72 AND longitude BETWEEN -180 AND -130",
    "late": "dep_delay >= 120",
    "Boston": "dest = 'BOS' AND carrier IN ('B6', 'DL') AND dep_delay > 30",
}


@dataclass(slots=True)
class Watcher:
    """A durable subscriber in a thread of its own."""

    name: str
    text: str
    received: dict[int, dict[str, Any]] = field(default_factory=dict)  # by offset: an event that returns counts once
    returned: int = 0
    latest: str = ""
    _lock: Lock = field(default_factory=Lock)

    def watch(self, subscription: SyncSubscription) -> None:
        """Receive until the subscription ends."""
        names = sorted({name for box in normalize(self.text).boxes for name in box.names})
        try:
            for event in subscription:
                with self._lock:
                    self.returned += event.offset in self.received
                    self.received[event.offset] = dict(event.attributes)
                    self.latest = _why(event.attributes, names)
                event.ack()
        except (ClientClosedError, StopIteration):
            return

    def wanted(self, events: Sequence[dict[str, Any]]) -> int:
        """How many of some events its filter matches, by the definition of matching."""
        filter = parse(self.text)  # noqa: A001
        return sum(matches(filter, event) for event in events)


def replayed(events: Sequence[Event]) -> list[dict[str, Any]]:
    """The earthquakes and some flights, one after the other; values that are missing are left out."""
    quakes = [dict(attributes_of(event)) for event in events]
    flights: list[dict[str, Any]] = []
    for feed in feeds(FLIGHTS):
        if feed.name == "flights":
            flights = [{"source": "nycflights", **row} for row in feed.table.to_pylist()]
    both = [each for pair in zip_longest(quakes, flights) for each in pair if each is not None]
    return [{name: value for name, value in each.items() if value is not None} for each in both]


def _watchers(events: Sequence[dict[str, Any]]) -> list[Watcher]:
    """The subscribers; those of flights only where flights are installed."""
    with_flights = any(event.get("source") == "nycflights" for event in events)
    return [Watcher(name, text) for name, text in WATCHERS.items() if with_flights or "dep_delay" not in text]


def through_a_broker(console: Console, events: Sequence[Event]) -> dict[str, Any]:
    """Publish everything, kill the broker halfway, and see what the subscribers got."""
    everything = replayed(events)
    watchers = _watchers(everything)
    wanted = {watcher.name: watcher.wanted(everything) for watcher in watchers}
    kinds = "earthquakes and flights" if len(watchers) == len(WATCHERS) else "earthquakes"
    console.print(
        f"A broker runs in a process of its own, and {len(watchers)} subscribers wait for what matches their filters. "
        f"{len(everything):,} {kinds} are published. Halfway the broker is killed, and started again.\n"
    )
    half = len(everything) // 2
    with Show(console, watchers) as show:
        began = perf_counter()
        show.publish(everything[:half])
        show.broker.kill()
        show.broker.start()
        down = perf_counter()
        show.publish(everything[half:])
        show.wait(wanted)
        seconds = perf_counter() - began
        again = down - began
    facts: dict[str, Any] = {"events": len(everything), "seconds": seconds, "restarted_after": again, "watchers": {}}
    for watcher in watchers:
        facts["watchers"][watcher.name] = {
            "filter": watcher.text,
            "wanted": wanted[watcher.name],
            "received": len(watcher.received),
            "returned": watcher.returned,
        }
    lost = sum(max(0, wanted[each.name] - len(each.received)) for each in watchers)
    wrong = sum(not matches(parse(each.text), event) for each in watchers for event in each.received.values())
    facts |= {"lost": lost, "wrong": wrong}
    console.print(view(watchers, wanted))
    total = sum(len(each.received) for each in watchers)
    console.print(
        f"\nEvery publish was acknowledged by the disk. [bold]{total:,}[/] deliveries, [bold]{lost}[/] lost and "
        f"[bold]{wrong}[/] wrong, although the broker was killed; {seconds:.1f} s in all, most of it the restart."
    )
    return facts


def stay_up(console: Console, events: Sequence[Event]) -> None:
    """Replay the events slowly until interrupted."""
    everything = replayed(events)
    watchers = _watchers(everything)
    with Show(console, watchers, gateway=True) as show:
        show.publish(everything[:_AT_ONCE])
        web = show.broker.gateway
        console.print(
            f"The broker stays up at [bold]{show.broker.address}[/], and its web console at\n\n"
            f"  [bold cyan]{web}/ui[/]\n\n"
            f"Look first at the workbench: what a filter means, covers, and matched in the last\n"
            f"hour. Then at the live tail of events, and at why 'alarm' gets so little:\n\n"
            f"  [cyan]{web}/ui/filters?where=magnitude+%3E%3D+4.5[/]\n"
            f"  [cyan]{web}/ui/events?where=dep_delay+%3E%3D+60[/]\n"
            f"  [cyan]{web}/ui/why/alarm[/]\n\n"
            f"In another terminal, try\n\n"
            f"  [cyan]weft sub --broker {show.broker.address} 'magnitude >= 2.5'[/]\n\nCtrl-C ends the demo.\n",
            soft_wrap=True,
        )
        with Live(console=console, refresh_per_second=4) as live:
            for event in cycle(everything):
                show.publish([event])
                live.update(view(watchers))
                sleep(_PACE)


class Show:
    """A broker, a publisher and subscribers; everything ends with the block."""

    def __init__(self, console: Console, watchers: Sequence[Watcher], *, gateway: bool = False) -> None:
        self._console, self._gateway = console, gateway
        self._watchers = watchers
        self._stack = ExitStack()
        self._threads: list[Thread] = []

    def __enter__(self) -> Show:
        with self._console.status("starting the broker"):
            self.broker = self._stack.enter_context(DemoBroker(gateway=self._gateway))
            self._publisher: SyncClient = self._stack.enter_context(connect_sync(self.broker.address, name="demo"))
            for watcher in self._watchers:
                client = self._stack.enter_context(connect_sync(self.broker.address))
                subscription = client.subscribe(watcher.text, name=watcher.name)
                thread = Thread(target=watcher.watch, args=(subscription,), daemon=True)
                thread.start()
                self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        for thread in self._threads:
            thread.join(5)

    def publish(self, events: Sequence[dict[str, Any]]) -> None:
        """Publish events; they are on the broker's disk when this returns."""
        for some in _slices(events):
            self._publisher.publish_many(some)

    def wait(self, wanted: dict[str, int]) -> None:
        """Wait until every subscriber has what it should have, for a minute at most."""
        tick, end = Flag(), perf_counter() + _PATIENCE
        while perf_counter() < end and any(len(each.received) < wanted[each.name] for each in self._watchers):
            tick.wait(0.02)


def view(watchers: Sequence[Watcher], wanted: dict[str, int] | None = None) -> RenderableType:
    """What has reached whom, and the values that made the latest event match."""
    table: Table = plain_table()
    table.add_column("subscriber", no_wrap=True)
    table.add_column("filter, and why the latest event matches", ratio=1)
    table.add_column("received" if wanted is None else "received of", justify="right", no_wrap=True)
    for watcher in watchers:
        number = f"{len(watcher.received):,}"
        said = Text(watcher.text, "cyan")
        table.add_row(
            Text(watcher.name, "bold"),
            _two(said, Text(watcher.latest, "dim")),
            number if wanted is None else f"{number} of {wanted[watcher.name]:,}",
        )
    return table


def _two(first: Text, second: Text) -> RenderableType:
    from rich.console import Group

    return Group(first, Padding(second, (0, 0, 0, 2)))


def _why(event: Any, names: Sequence[str]) -> str:
    place = event.get("place") or " to ".join(str(event[name]) for name in ("origin", "dest") if name in event)
    values = ", ".join(f"{name} {event[name]}" for name in names if name in event)
    return f"{values}: {place}" if place else values


def _slices(events: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    for at in range(0, len(events), _SLICE):
        yield events[at : at + _SLICE]
