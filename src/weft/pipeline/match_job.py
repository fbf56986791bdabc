"""A job of matching, from files to files, its engine, and its report. Every number of the report is counted while
matching, none is estimated. Every row of the inputs is either matched or among the errors.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from weft.errors import PipelineError
from weft.model.schema import Schema
from weft.pipeline.file_names import data_files, files_without_bytes, format_of, plain_path
from weft.pipeline.output import Output
from weft.pipeline.preflight import is_here, local_path

ID, FILTER = "id", "filter"  # the columns of subscriptions, unless told otherwise
SHOWN = 3  # errors in a report
SAMPLED = 8  # rows of results in a report
MOST_BYTES = 2 << 30  # of all inputs, that are matched here unless told otherwise
MOST_SUBSCRIPTIONS = 256 << 20  # bytes of subscriptions, of which one index is built here unless told otherwise


class Strategy(StrEnum):
    """How events and subscriptions are brought together."""

    AUTO = "auto"
    INDEX = "index"
    PARTITIONED = "partitioned"
    SQL = "sql"


class MatchEngine(StrEnum):
    """Where a job runs; `auto` is by its files."""

    AUTO = "auto"
    SPARK = "spark"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class MatchJob:
    """What is matched with what, and where the results go. Raises PipelineError if the job cannot be done.

    >>> MatchJob("events.jsonl", "subscriptions.csv", out="matches.csv", output="lists")
    Traceback (most recent call last):
    weft.errors.PipelineError: matches.csv: a CSV file cannot hold lists: write .parquet or .json
    """

    events: str
    subscriptions: str  # rows, or the folder of a snapshot
    out: str | None = None  # without it results are only counted, and some shown
    output: str = "pairs"
    strategy: str = "auto"
    schema: Schema | None = None
    errors: str | None = None
    strict: bool = False
    id: str = ID
    filter: str = FILTER
    overwrite: bool = False
    lint: bool = True  # note subscriptions that are probably mistakes

    @property
    def written(self) -> list[str]:
        """What the job writes."""
        return [path for path in (self.out, self.errors) if path is not None]

    def __post_init__(self) -> None:
        Output.named(self.output)
        if self.strategy not in set(Strategy):
            raise PipelineError(f"there is no strategy {self.strategy!r}: use one of {', '.join(Strategy)}")
        if self.out is not None and self.output == Output.LISTS and format_of(self.out) == "csv":
            raise PipelineError(f"{self.out}: a CSV file cannot hold lists: write .parquet or .json")
        for path in self.written:
            format_of(path)
        if len({*map(_place, self.written)}) < len(self.written):
            raise PipelineError("results and errors cannot be written to the same path: name two")
        for path in self.written:
            for given in (self.events, self.subscriptions):
                if _place(path) == _place(given) or _place(path) in _place(given).parents:
                    raise PipelineError(f"{path} contains an input: write elsewhere")


def chosen_engine(engine: str, job: MatchJob, master: str | None = None) -> MatchEngine:
    """The engine of a job. Raises PipelineError if the engine that was named cannot do it.

    By default a job runs here if all its files are this machine's and not large, no master is given and its strategy is
    that of one index; and if Spark is not installed, however large they are.
    """
    elsewhere = [path for path in (job.events, job.subscriptions, *job.written) if local_path(path) is None]
    if engine == MatchEngine.LOCAL:
        if elsewhere:
            raise PipelineError(f"{elsewhere[0]} is not a file of this machine: use --engine spark")
        if master is not None:
            raise PipelineError("--master says where Spark runs: use --engine spark, or omit it")
        return MatchEngine.LOCAL
    if engine == MatchEngine.SPARK or elsewhere or master is not None:
        return MatchEngine.SPARK
    if job.strategy not in (Strategy.AUTO, Strategy.INDEX):
        return MatchEngine.SPARK
    if importlib.util.find_spec("pyspark") is None:
        return MatchEngine.LOCAL
    few = _bytes(job.subscriptions)
    small = few <= MOST_SUBSCRIPTIONS and few + _bytes(job.events) <= MOST_BYTES
    return MatchEngine.LOCAL if is_here(None) and small else MatchEngine.SPARK


@dataclass(frozen=True, slots=True)
class MatchReport:
    """What happened."""

    strategy: str
    output: str
    out: str | None
    events: int  # that were matched, with whatever result
    subscriptions: int
    matches: int
    matched: int  # events that match at least one subscription
    errors: dict[str, int]  # rows left out, of each side
    first: list[dict[str, str]]  # errors: side, row, reason
    seconds: dict[str, float]
    sample: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)
    engine: str = "spark"

    @property
    def rate(self) -> float:
        """Events matched and written per second."""
        return self.events / max(self.seconds["matching"], 1e-9)

    def to_dict(self) -> dict[str, Any]:
        """The facts, of JSON's types."""
        return {
            **{name: getattr(self, name) for name in self.__slots__ if name not in ("sample", "seconds")},
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "events_per_second": round(self.rate, 1),
        }


def file_notes(paths: Iterable[str]) -> list[str]:
    """What to say about the files of some inputs: a copy that was not finished may have no bytes."""
    return [
        f"{file} has 0 bytes and was skipped: it may be a copy that was not finished"
        for path in paths
        for file in files_without_bytes(path)
    ]


def number_note(name: str) -> str:
    """What to say about a column of texts that are mostly numbers."""
    return (
        f"the column {name!r} of the events is text although most of its values are numbers, and text never matches a "
        "comparison with a number: declare its type in a schema"
    )


# A list in a column of texts: in CSV, and in JSON where other lines have a value that is not a list.
LIST_TEXT = r'^\[\s*(\]|"|-?[0-9]|true|false|null|\[|\{)[\s\S]*\]$|^\[\]$'


def list_note(name: str) -> str:
    """What to say about a column of texts of which some are lists."""
    return (
        f"the column {name!r} of the events is text although some of its values are lists, and HAS does not see their "
        'elements: write JSON with a list in every event, ["a"] for a single value, or Parquet'
    )


class Phases:
    """The seconds of each part of a job, by the caller's clock."""

    def __init__(self, clock: Callable[[], float], tell: Callable[[str], None]) -> None:
        self.seconds: dict[str, float] = {}
        self._clock, self._tell, self._start = clock, tell, clock()

    def begin(self, what: str) -> None:
        """Start a part, and report what it does."""
        self._start = self._clock()
        self._tell(what)

    def end(self, name: str) -> None:
        """Count the seconds since the last beginning to a part."""
        self.seconds[name] = self.seconds.get(name, 0.0) + self._clock() - self._start


def _bytes(path: str) -> int:
    """The bytes of all files of a path."""
    return sum(Path(file).stat().st_size for file in data_files(path))


def _place(path: str) -> Path:
    return Path(plain_path(path)).absolute()
