"""What a broker begins with, as Spark has prepared it: subscriptions, and the parameters of its routing table. Laws:
whatever cannot be used is refused before the broker opens; a table that is set up from files loses no event.

`weft aggregate --out` writes a folder, and `weft tune --out` a file. The folder has every subscription that could be
read, in the file `subscriptions.parquet`, whatever the model. A parquet file of one's own will do, too: its rows have
`filter`, and `session` or `id`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from weft.broker.messages import SubNumber
from weft.errors import OptionError, WeftError
from weft.model.regular_file import read_regular
from weft.model.schema import Schema, did_you_mean
from weft.net.config import BrokerConfig
from weft.routing.registry import make_table
from weft.routing.table import RoutingTable
from weft.tuning.parameters import Tuned, read_space

SUBSCRIPTIONS, FACTS = "subscriptions.parquet", "facts.json"
NUMBER = SubNumber(1)  # of a subscription that has its session to itself, as clients number it
_COLUMNS = ("session", "subscription", "owner", "id", "filter")
_ROWS = 10_000  # that are read at once
_BYTES = 1 << 20
_MOST_FACTS = 64 << 20  # bytes of the facts


class InitialSubscription(NamedTuple):
    """A row: the subscription of this number, in the session of this name, which belongs to a principal."""

    session: str
    number: SubNumber
    owner: str
    filter: str


@dataclass(frozen=True, slots=True)
class InitialTable:
    """The subscriptions that a broker begins with, and the model and the parameters by which they were aggregated."""

    path: Path
    files: tuple[Path, ...]
    model: str = ""
    parameters: Any = None

    @staticmethod
    def open(path: Path) -> InitialTable:
        """What is in a folder of `weft aggregate`, or in a parquet file. Raises OptionError if it is neither."""
        place, facts = path, {}
        if (path / FACTS).exists():
            place, facts = path / SUBSCRIPTIONS, _facts(path / FACTS)
            if not place.exists():
                raise OptionError(f"{path} has no {SUBSCRIPTIONS}: aggregate the subscriptions again")
        files = sorted(place.glob("*.parquet")) if place.is_dir() else [place]
        if not files or not files[0].is_file():
            raise OptionError(f"{path} has no subscriptions: name a folder of `weft aggregate`, or a parquet file")
        found = InitialTable(path, tuple(files), str(facts.get("model", "")), facts.get("parameters"))
        for file in files:
            found._check_columns(file)
        return found

    def digest(self) -> str:
        """One short text for the content of its files."""
        digest = blake2b(digest_size=16)
        for file in self.files:
            with file.open("rb") as source:
                while part := source.read(_BYTES):
                    digest.update(part)
        return digest.hexdigest()

    def rows(self) -> Iterator[InitialSubscription]:
        """The subscriptions, in the order of the files. Raises OptionError for a row that does not name one."""
        import pyarrow.parquet as pq

        count = 0
        for path in self.files:
            with pq.ParquetFile(path) as file:
                wanted = [name for name in _COLUMNS if name in file.schema_arrow.names]
                for batch in file.iter_batches(_ROWS, columns=wanted):
                    for row in batch.to_pylist():
                        count += 1
                        yield self._row(row, count)

    def _row(self, row: dict[str, Any], count: int) -> InitialSubscription:
        name = row.get("id") if row.get("session") is None else row["session"]
        number = NUMBER if row.get("subscription") is None else row["subscription"]
        if name is None or not str(name):
            raise OptionError(f"{self.path}: row {count:,} names no session: it has neither session nor id")
        if type(number) is not int or not 0 <= number < 1 << 32:
            raise OptionError(
                f"{self.path}: row {count:,} has the subscription {number!r}, which must be a number below 2 ** 32"
            )
        if row.get("filter") is None:
            raise OptionError(f"{self.path}: row {count:,} has no filter")
        return InitialSubscription(str(name), SubNumber(number), str(row.get("owner") or ""), str(row["filter"]))

    def _check_columns(self, file: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            names = pq.read_schema(file).names
        except (OSError, pa.ArrowException) as error:
            raise OptionError(f"{file} is not a parquet file: {error}") from None
        if "filter" not in names or not {"session", "id"} & set(names):
            missing = "filter" if "filter" not in names else "session"
            hint = did_you_mean(missing, names) or f", only {', '.join(names)}"
            raise OptionError(f"{file} has no column {missing!r}{hint}")


def routing_table(config: BrokerConfig, schema: Schema | None) -> RoutingTable:
    """The routing table that the settings ask for. Raises OptionError, SchemaError or TuningError.

    The parameters of mics and dls are those of the tuning, or those by which the subscriptions were aggregated, or
    else they follow from the schema.
    """
    return make_table(config.model, schema, advertised=config.advertised, **_options(config))


def _options(config: BrokerConfig) -> dict[str, Any]:
    if config.tuning is not None:
        tuned = Tuned.load(config.tuning)
        if tuned.model != config.model:
            raise OptionError(
                f"{config.tuning} is for the model {tuned.model}, but model is {config.model}: set model to "
                f"{tuned.model}, or leave out the tuning"
            )
        if tuned.model == "mics":
            return {"spaces": tuned.space.groups}
        return {"space": tuned.space, "shape": tuned.shape, "rate": tuned.rate}
    if config.load is None:
        return {}
    loaded = InitialTable.open(config.load)
    if loaded.model != config.model or not loaded.parameters:
        return {}
    try:
        space: Any = read_space(loaded.model, loaded.parameters)
    except (WeftError, ValueError, TypeError, OverflowError) as error:
        raise OptionError(f"{config.load / FACTS}: {error}") from None
    return {"spaces": space.groups} if loaded.model == "mics" else {"space": space}


def _facts(place: Path) -> dict[str, Any]:
    """The facts of an aggregation: a line of JSON for each, in one file or several."""
    files = sorted(place.glob("*.json")) if place.is_dir() else [place]
    try:
        lines = [line for file in files for line in read_regular(file, _MOST_FACTS).decode().splitlines()]
        found = [json.loads(line) for line in lines]
        return {each["name"]: json.loads(each["json"]) for each in found}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise OptionError(f"{place} cannot be read: {error}") from None
