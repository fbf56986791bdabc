"""A broker's events through Spark into a table of matches that grows on the screen. What is shown was read from the
results of the stream, and is compared with what the filters mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, Queue
from time import perf_counter
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from weft.client.sync import connect_sync
from weft.errors import PipelineError
from weft.language.meaning import matches
from weft.language.text import parse
from weft.model.event import Event
from weft.tables import plain_table
from weftlab.demo.broker_process import DemoBroker
from weftlab.demo.live import WATCHERS, replayed

_COLUMNS = (  # of the events, as far as the filters and the screen need them
    "magnitude double, tsunami boolean, latitude double, longitude double, place string, "
    "dep_delay bigint, carrier string, origin string, dest string"
)
_SLICES = 4  # in which the second half of the events comes, each when the one before has been matched
_PATIENCE = 300.0  # seconds that a slice may take, on a busy machine
_WIDTH = 34  # characters of the latest match


class MatchTable:
    """How many matches each subscription has, and its latest one, as micro-batches come."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._latest: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.events = self.batches = 0
        self.seconds: list[float] = []

    def take(self, metrics: Any) -> None:
        """Read what a micro-batch has written."""
        import pyarrow.parquet as pq

        self.events += metrics.events or 0
        self.batches += 1
        self.seconds.append(metrics.seconds or 0.0)
        for file in sorted((self._folder / f"batch={metrics.batch}").glob("*.parquet")):
            for row in pq.read_table(file, partitioning=None).to_pylist():
                self.counts[row["subscription"]] += 1
                self._latest[row["subscription"]] = _shown(row)

    def view(self) -> RenderableType:
        """The table as it is now."""
        table = plain_table(f"micro-batch {self.batches}: {self.events:,} events")
        table.add_column("subscription", no_wrap=True)
        table.add_column("matches", justify="right", no_wrap=True)
        table.add_column("latest", ratio=1, no_wrap=True)
        for name in WATCHERS:
            table.add_row(Text(name, "bold"), f"{self.counts[name]:,}", Text(self._latest.get(name, ""), "dim"))
        return table


def through_spark(console: Console, spark: Any, events: Sequence[Event], place: Path) -> dict[str, Any]:
    """Publish everything into a broker, half of it while a stream reads its log. Raises PipelineError."""
    from weft.spark import match_stream, register

    everything = replayed(events)
    wanted = {name: sum(matches(parse(text), event) for event in everything) for name, text in WATCHERS.items()}
    half = len(everything) // 2
    step = -(-(len(everything) - half) // _SLICES)
    console.print(
        "\nNow live: events are published into a broker. A stream on Spark reads the broker's log, matches each event "
        "once with the filters of the chapter on the broker, and commits the matches to a table.\n"
    )
    table, told, start = MatchTable(place / "matches"), Queue[Any](), perf_counter()
    with ExitStack() as stack:
        with console.status("starting a broker and a stream"):
            broker = stack.enter_context(DemoBroker())
            client = stack.enter_context(connect_sync(broker.address, name="demo"))
            client.publish_many(everything[:half])
            register(spark)
            stream = match_stream(
                spark.readStream.format("weft").schema(_COLUMNS).option("url", broker.address).load(),
                None,
                place / "state",
                place / "matches",
                initial=spark.createDataFrame(list(WATCHERS.items()), "id string, filter string"),
                tell=told.put,
            )
            stack.callback(stream.stop)
        live = stack.enter_context(Live(table.view(), console=console, auto_refresh=False))
        for sent in [half, *range(half + step, len(everything) + step, step)]:
            if sent > half:
                client.publish_many(everything[sent - step : sent])
            _until(table, min(sent, len(everything)), told, stream, live)
    seconds = perf_counter() - start
    equal = sum(table.counts[name] == count for name, count in wanted.items())
    console.print(
        f"\n[bold]{table.events:,}[/] events in {table.batches} micro-batches, {seconds:.1f} s with the start of the "
        f"broker and the stream. Compared with the definition of matching: [bold]{equal}[/] of {len(wanted)} "
        "subscriptions have exactly their matches."
    )
    found = {name: {"wanted": count, "found": table.counts[name]} for name, count in wanted.items()}
    return {"events": table.events, "batches": table.batches, "seconds": seconds, "equal": equal, "matches": found}


def _until(table: MatchTable, events: int, told: Queue[Any], stream: Any, live: Live) -> None:
    """Show micro-batches until a number of events have been matched."""
    end = perf_counter() + _PATIENCE
    while table.events < events:
        try:
            table.take(told.get(timeout=1.0))
        except Empty:
            if stream.wait(0.001) or perf_counter() > end:  # raises what ended it
                raise PipelineError("the stream of the demo did not go on") from None
            continue
        live.update(table.view(), refresh=True)


def _shown(row: dict[str, Any]) -> str:
    """A match in a few words."""
    place = row.get("place") or f"{row.get('origin')} to {row.get('dest')}"
    what = f"magnitude {row['magnitude']}" if row.get("magnitude") is not None else f"late by {row.get('dep_delay')}"
    return f"{what}: {place}"[:_WIDTH]
