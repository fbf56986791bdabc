"""`weft match`: matching from files to files, on this machine or on Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.progress import PlainLines, bar
from weft.cli.shell import (
    AsJson,
    Overwrite,
    SchemaFile,
    console,
    emit,
    out_option,
    progress_console,
    read_schema,
    say,
    say_aside,
    say_notes,
)

if TYPE_CHECKING:
    from rich.text import Text

    from weft.pipeline.match_job import MatchReport

FILES = (
    "Parquet, CSV with a header, or one JSON object per line (.jsonl, .json, .ndjson; also .gz): "
    "a file, a folder or a pattern"
)
EventsFile = Annotated[str, typer.Argument(metavar="EVENTS", help=f"Events: {FILES}.", show_default=False)]
RulesFile = Annotated[
    str,
    typer.Argument(
        metavar="RULES",
        help=f"Rules (subscriptions), with columns `id` and `filter`, or `id` and bounds: {FILES}.",
        show_default=False,
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs: local[4], sc://host, ...; by default what spark-submit says, or this machine.",
    ),
]
IdColumn = Annotated[str, typer.Option("--id", metavar="NAME", help="The column with the ids of the subscriptions.")]
FilterColumn = Annotated[str, typer.Option("--filter", metavar="NAME", help="The column with their filters.")]

_COLUMNS, _WIDTH = 5, 24  # of a sample
_CUT = 100  # characters of a bad row


def match(  # noqa: PLR0913, PLR0917 - each has a default that serves
    events: EventsFile,
    subscriptions: Annotated[
        str,
        typer.Argument(
            metavar="RULES",
            help="Rules (subscriptions): the same kinds of files, with columns `id` and `filter`, or `id` and bounds "
            "(x_low, x_high, or x for equality); or the folder of an index snapshot.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str | None,
        out_option("Write the results here; the suffix is the format.", "show some of them"),
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            metavar="FORM",
            help="pairs: one row per match. lists or counts: one row per event, events without a match included.",
        ),
    ] = "pairs",
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            metavar="NAME",
            help="index: one index of all subscriptions on every executor. partitioned: for more subscriptions than "
            "one machine can hold. sql: evaluated by Spark itself, for some hundreds. auto: index or partitioned, "
            "depending on their number.",
        ),
    ] = "auto",
    schema: SchemaFile = None,
    errors: Annotated[
        str | None,
        typer.Option("--errors", metavar="PATH", help="Write the rows that were left out here: side, row, reason."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail at the first row that cannot be read.")] = False,
    lint: Annotated[
        bool, typer.Option("--lint/--no-lint", help="Note subscriptions that are probably mistakes.")
    ] = True,
    id_column: IdColumn = "id",
    filter_column: FilterColumn = "filter",
    overwrite: Overwrite = False,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="local: this machine, without Spark. spark: Spark, here or on a cluster. auto: local for files of "
            "this machine of up to 2 GiB (subscriptions 256 MiB), and where Spark is not installed; else Spark.",
        ),
    ] = "auto",
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Find the subscriptions that each event matches, on this machine or on Spark.

    Rows that cannot be read are left out, on either side: they are counted, the first are shown, and --errors keeps
    them all. Results are written as folders of files, as Spark does. At the end, filters that are probably mistakes are
    noted, as `weft filter lint` reports them.

    \b
    Example:
      $ weft match events.jsonl rules.csv
      $ weft match 'logs/*.parquet' rules.parquet -o matches.parquet --errors refused.jsonl
    """
    from weft.cli.table_order import in_order
    from weft.pipeline.match_job import MatchEngine, MatchJob, Strategy, chosen_engine
    from weft.pipeline.output import Output
    from weft.pipeline.preflight import check_files

    events, subscriptions = in_order(events, subscriptions, filter_column)
    job = MatchJob(
        events=events,
        subscriptions=subscriptions,
        out=out,
        output=one_of(Output, output, "output"),
        strategy=one_of(Strategy, strategy, "strategy"),
        schema=read_schema(schema),
        errors=errors,
        strict=strict,
        id=id_column,
        filter=filter_column,
        overwrite=overwrite,
        lint=lint,
    )
    check_files([events, subscriptions], job.written, overwrite=overwrite, master=master)
    if chosen_engine(one_of(MatchEngine, engine, "engine"), job, master) is MatchEngine.LOCAL:
        from weft.pipeline.local_match import match_locally

        with bar() as tell:
            report = match_locally(job, perf_counter, lambda what: tell(what, 0, 0))
    else:
        from weft.spark.report import match_files

        with at_work(master) as progress:
            report = match_files(progress.spark, job, perf_counter, progress.tell)
    if as_json:
        emit(report.to_dict())
        return
    _show(report)
    if errors is not None:
        say(f"written: {errors} (rows left out)")
    elif report.first:
        say_aside("--errors PATH writes all rows that were left out, with the reasons")


def one_of(known: Any, name: str, what: str) -> str:
    """Return a known name; any other is wrong usage."""
    if name not in list(known):
        raise typer.BadParameter(f"there is no {what} {name!r}: choose one of {', '.join(known)}")
    return name


# -- while Spark works -------------------------------------------------------------------------------


class TaskProgress:
    """What is going on, redrawn by the console; where that is not a terminal, in plain lines."""

    def __init__(self, plain: PlainLines | None = None) -> None:
        self.spark: Any = None
        self._plain = plain
        self.tell("starting Spark")

    def tell(self, what: str, done: int = 0, of: int = 0) -> None:
        """Say what is being done, and how much of it is done."""
        self._what = f"{what}, {done / of:.0%}" if of else what
        if self._plain is not None:
            self._plain(what, done, of)

    def __rich__(self) -> Text:
        from rich.text import Text

        from weft.spark.command_session import tasks

        done = None if self.spark is None else tasks(self.spark)
        return Text(self._what if done is None else f"{self._what}, {done[0]:,} of {done[1]:,} tasks")


@contextmanager
def at_work(master: str | None) -> Iterator[TaskProgress]:
    """A session, with progress on stderr."""
    from weft.spark.command_session import command_session

    page = progress_console()
    progress = TaskProgress(None if page.is_terminal else PlainLines())
    with page.status(progress), command_session(master) as spark:
        progress.spark = spark
        try:
            yield progress
        finally:
            progress.spark = None


# -- what is shown -----------------------------------------------------------------------------------


def show_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Names with their values."""
    from weft.tables import plain_table

    table = plain_table()
    table.show_header = False
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console().print(table)


def _show(report: MatchReport) -> None:
    if report.sample:
        _show_sample(report)
    share = report.matched / max(report.events, 1)
    seconds = report.seconds
    rows = [
        ("events", f"{report.events:,}"),
        ("subscriptions", f"{report.subscriptions:,}"),
        ("matches", f"{report.matches:,}"),
        ("events matched", f"{report.matched:,} ({share:.1%})"),
        ("events left out", f"{report.errors['event']:,}"),
        ("subscriptions left out", f"{report.errors['subscription']:,}"),
        ("reading", f"{seconds['reading']:.2f} s"),
        ("preparing subscriptions", f"{seconds['preparing']:.2f} s"),
        ("matching and writing" if report.out else "matching", f"{seconds['matching']:.2f} s"),
        ("looking for errors", f"{seconds['errors']:.2f} s"),
        ("events per second", f"{report.rate:,.0f}"),
        ("strategy", report.strategy),
        ("engine", report.engine),
    ]
    show_rows(rows)
    if report.out is not None:
        say(f"written: {report.out} ({report.output})")
    say_notes(report.notes)
    say_left_out(report.errors, [(each["side"], each["row"], each["reason"]) for each in report.first])


def say_left_out(counts: dict[str, int], first: Sequence[tuple[str, str, str]]) -> None:
    """How many rows of each side were left out, and the first of them: side, row and reason."""
    total = sum(counts.values())
    if not total:
        return
    many = " and ".join(f"{count:,} {side}{'' if count == 1 else 's'}" for side, count in counts.items() if count)
    which = f"; the first {len(first)}:" if total > len(first) else ":"
    say_aside(f"{many} left out{which}", "yellow")
    for side, row, reason in first:
        shown = row if len(row) <= _CUT else row[:_CUT] + "…"
        say_aside(f"  {side} {shown}: {reason.partition(chr(10))[0]}", "yellow")


def _show_sample(report: MatchReport) -> None:
    """Some results: the first columns of the events, and the column that was added."""
    from rich.text import Text

    from weft.tables import plain_table

    *names, added = report.sample[0]
    shown = [*names[:_COLUMNS], added]
    table = plain_table(f"some of the {report.output}")
    for name in shown:
        table.add_column(Text(name), max_width=_WIDTH, no_wrap=True, overflow="ellipsis")
    for row in report.sample:
        table.add_row(*(Text("" if row[name] is None else str(row[name])) for name in shown))
    console().print(table, "", sep="\n")
