"""The subscriptions and routing parameters that a broker begins with, as Spark has prepared them.

`weft aggregate --out` writes a folder, and `weft tune --out` a file. The folder has every subscription that could be
read, in the file `subscriptions.parquet`, whatever the model. Any other parquet file with the columns `filter`, and
`session` or `id`, will do as well. Files that cannot be used are refused before the broker opens.

What is loaded passes the same checks as what clients subscribe to, and never touches subscriptions that exist. When the
load is complete, a digest of the files is stored, so that a second load changes nothing; one that was interrupted
begins again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b, file_digest
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

from weft.algebra.normalize import normalize
from weft.broker.broker import Core
from weft.broker.driver import CommitOutcome, Driver
from weft.broker.effects import ConnectionId, Outgoing
from weft.broker.identity import Identity
from weft.errors import FilterError, OptionError, WeftError
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.predicate_modules import filter_predicates
from weft.language.text import parse
from weft.log.base import Group, Log, SetMeta, State
from weft.model.regular_file import read_regular
from weft.model.schema import Schema, did_you_mean
from weft.protocol.messages import Bye, Failed, Hello, QueueNumber, SubNumber, Subscribe
from weft.routing.options import table_with
from weft.routing.table import RoutingTable
from weft.server.clock import clock
from weft.server.config import BrokerConfig
from weft.tuning.parameters import Tuned, read_space

SUBSCRIPTIONS, FACTS = "subscriptions.parquet", "facts.json"
NUMBER = SubNumber(1)  # of a subscription that has its session to itself, as clients number it
_COLUMNS = ("session", "subscription", "owner", "id", "filter")
_ROWS = 10_000  # that are read at once
_MOST_FACTS = 64 << 20  # bytes of the facts
_KEY = "load."  # and the digest: an entry of the log's description
_STORED = 500  # groups that are stored together
_REQUESTS = 100  # subscriptions of one connection: as many as any client may request at once
_SHOWN = 3  # reasons


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
        """A digest of the content of its files."""
        digest = blake2b(digest_size=16)
        for file in self.files:
            with file.open("rb") as source:
                file_digest(source, lambda: digest)
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
    """The routing table of these settings. Raises OptionError, SchemaError or TuningError.

    The parameters of mics and dls are those of the tuning, or those by which the subscriptions were aggregated, or
    else they follow from the schema.
    """
    return table_with(
        config.model,
        schema,
        advertised=config.advertised,
        predicates=filter_predicates(config.predicates, config.taxonomy),
        tuned=_tuned(config),
    )


def _tuned(config: BrokerConfig) -> dict[str, Any]:
    """The space and the filter that were chosen for these subscriptions, if any."""
    model = config.model.name
    if config.tuning is not None:
        tuned = Tuned.load(config.tuning)
        if tuned.model != model:
            raise OptionError(
                f"{config.tuning} is for the model {tuned.model}, but model is {model}: set model to "
                f"{tuned.model}, or leave out the tuning"
            )
        if tuned.model == "mics":
            return {"spaces": tuned.space.groups}
        return {"space": tuned.space, "shape": tuned.shape, "rate": tuned.rate}
    if config.load is None:
        return {}
    loaded = InitialTable.open(config.load)
    if loaded.model != model or not loaded.parameters:
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


@dataclass(slots=True)
class LoadReport:
    """The result of a load: how many subscriptions are new, existed before, or were refused, and why."""

    added: int = 0
    known: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def reasons(self) -> str:
        """The reasons of refusals, the most frequent first."""
        return "; ".join(f"{why} ({count:,} times)" for why, count in self.refused.most_common(_SHOWN))


def is_loaded(stored: State, digest: str) -> bool:
    """Whether a table was loaded completely before, according to the log."""
    return _KEY + digest in stored.meta


def check_rows(table: InitialTable, *, named: bool, predicates: Predicates = NO_PREDICATES) -> int:
    """Read every row; returns how many there are. Raises OptionError that says how many cannot be loaded, and why."""
    count, wrong, first = 0, 0, ""
    for count, row in enumerate(table.rows(), 1):  # noqa: B007 - counted
        try:
            normalize(parse(row.filter, predicates))
        except FilterError as error:
            wrong, first = wrong + 1, first or f"session {row.session!r}: {error}"
        if named and not row.owner:
            raise _no_owner(row.session)
    if wrong:
        raise OptionError(f"{table.path}: {wrong:,} of {count:,} subscriptions cannot be loaded; the first is {first}")
    return count


def load(  # noqa: PLR0913 - what it puts together
    core: Core,
    log: Log,
    rows: Iterable[InitialSubscription],
    digest: str,
    *,
    is_home: Callable[[str], bool] = lambda _: True,
    named: bool = False,
) -> LoadReport:
    """Subscribe for sessions whose clients are not there. Nothing else drives the core meanwhile.

    Only the sessions for which `is_home` holds belong to this broker. `named` says that clients of this broker have
    names: then every row must have an owner. Raises OptionError, or LogError if nothing can be stored.
    """
    loading = _Loading(core, log, named)
    for some in _requests(row for row in rows if is_home(row.session)):
        loading.subscribe(some)
    loading.store()
    log.commit([Group(max(loading.at, clock().utc), None, (SetMeta(_KEY + digest, b""),))])
    return loading.report


def _requests(rows: Iterable[InitialSubscription]) -> Iterator[list[InitialSubscription]]:
    """Rows of the same session that follow each other, not too many at once."""
    for _, each in groupby(rows, lambda row: (row.session, row.owner)):
        while some := list(islice(each, _REQUESTS)):
            yield some


class _Loading:
    """A load: connections that come, subscribe and go, and groups that wait to be stored together."""

    def __init__(self, core: Core, log: Log, named: bool) -> None:
        self._core, self._log, self._named = core, log, named
        self._driver = Driver(
            core, clock, send=self._send, commit=lambda _: None, timer=lambda _: None, close=lambda _: None
        )
        self._count = 0
        self._answers: list[Outgoing] = []  # to the present connection
        self.report = LoadReport()
        self.at = log.restore().at  # of the last group

    def subscribe(self, rows: list[InitialSubscription]) -> None:
        """Subscribe for one session, unless it has these subscriptions."""
        first, report = rows[0], self.report
        if self._named and not first.owner:
            raise _no_owner(first.session)
        there = self._core.subscriptions(first.session)
        new = {row.number: row for row in rows if row.number not in there}
        report.known += len(rows) - len(new)
        if not new:
            return
        self._count += 1
        self._answers.clear()
        connection = ConnectionId(f"load-{self._count}")
        requests = [Subscribe(row.number, row.filter, QueueNumber(row.number), durable=True) for row in new.values()]
        self._driver.connected(connection, authenticate=(lambda _: Identity(first.owner)) if self._named else None)
        self._driver.receive(connection, [Hello(session=first.session), *requests])
        while self._driver.behind:
            self._driver.tick()
        self._driver.lost(connection)
        refused = 0
        for message in self._answers:
            if isinstance(message, Failed | Bye):
                count = 1 if isinstance(message, Failed) else len(new)
                report.refused[message.reason] += count
                refused += count
        report.added += len(new) - refused
        if len(self._driver.waiting) >= _STORED:
            self.store()

    def store(self) -> None:
        """Store what waits, and what follows from that. Raises LogError."""
        while groups := self._driver.begin_commit():
            self._log.commit([each.group for each in groups])
            self.at = max(self.at, *(each.group.at for each in groups))
            self._driver.end_commit(CommitOutcome(groups, len(groups)))

    def _send(self, _: ConnectionId, messages: list[Outgoing]) -> None:
        self._answers += messages


def _no_owner(session: str) -> OptionError:
    return OptionError(
        f"session {session!r} has no owner, and clients of this broker have names: add a column 'owner' with the "
        "principal that each session belongs to"
    )
