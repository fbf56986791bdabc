"""`weft log`: inspection and maintenance of a broker's durable log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.shell import AsJson, Since, TaxonomyFile, console, emit, say, say_notes

if TYPE_CHECKING:
    from weft.log.base import StoredGroup
    from weft.log.opening import OpenedLog
    from weft.log.tools import LogSummary

log = typer.Typer(no_args_is_help=True)

_Directory = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="A data directory, which has log.sqlite.", show_default=False),
]


@log.command()
def info(
    directory: _Directory,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Show at most N queues and links, the furthest behind.")
    ] = 10,
    as_json: AsJson = False,
) -> None:
    """Show what a log holds: events, bytes, rows, and how far behind each queue and link is.

    Everything below the floor of a queue is acknowledged; its lag is the number of its events from there on. A
    subscription has the floor and the lag of its queue. The broker may be running.

    \b
    Example:
      $ weft log info data
    """
    from msgspec import to_builtins

    from weft.broker.queue import acked_above, queue_id
    from weft.log.tools import summarize

    summary = summarize(directory, queue_id, acked_above)
    if as_json:
        emit(to_builtins(summary))
    else:
        _show_summary(summary, limit)


@log.command()
def show(
    directory: _Directory,
    since: Since = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Show at most N.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show which events are stored: when, from which session, and for how many subscriptions and links (seats).

    To see their attributes, use `weft sub --since OFFSET`. The broker may be running.

    \b
    Example:
      $ weft log show data --since 2026-05-01T12:00:00Z --limit 5
    """
    from weft.cli.arguments import read_position
    from weft.log.base import Offset
    from weft.log.schema import DATABASE
    from weft.log.sqlite import SqliteReader
    from weft.model.value import to_micros

    position = read_position(since, "--since") or 1
    reader = SqliteReader(directory / DATABASE)
    try:
        begin = max(1, position if isinstance(position, int) else reader.find(to_micros(position)))
        rows = [row for group in reader.read(Offset(begin), limit) for row in _rows(group)]
    finally:
        reader.close()
    if as_json:
        emit({"events": rows})
    else:
        _show_events(rows)


@log.command()
def verify(directory: _Directory, as_json: AsJson = False) -> None:
    """Check everything in a log: its pages, every group of events, every row.

    The broker may be running; meanwhile the log's WAL file grows. The exit code is 1 if anything is wrong.

    \b
    Example:
      $ weft log verify data
    """
    from msgspec import to_builtins

    from weft.cli.progress import bar
    from weft.log.tools import verify as verified

    with bar() as progress:
        report = verified(directory, progress)
    if as_json:
        emit(to_builtins(report))
    else:
        counted = f"{report.events:,} events in {report.groups:,} groups, {report.rows:,} rows"
        for problem in report.problems:
            say(f"wrong: {problem}", "red", stderr=True)
        if report.problems:
            say(f"weft: {directory} is damaged; restore it from a backup", stderr=True)
        else:
            say(f"{directory} is intact: {counted}")
    if report.problems:
        raise typer.Exit(1)


@log.command()
def backup(
    directory: _Directory,
    to: Annotated[Path, typer.Argument(metavar="TO", help="A directory that has no log.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Copy a log into another directory, as it is now. The broker may be running.

    To restore the copy, use it as a data directory. It gets a new log id when it is first opened, so that neighbours
    do not take its new events for old ones.

    \b
    Example:
      $ weft log backup data backup-monday
    """
    from weft.cli.progress import bar
    from weft.log.tools import back_up

    with bar() as progress:
        back_up(directory, to, progress)
    if as_json:
        emit({"backup": str(to)})
    else:
        say(f"{directory} is copied to {to}")


@log.command()
def restore(directory: _Directory, as_json: AsJson = False) -> None:
    """Give a log a new log id, after its files were restored from a backup or a snapshot of the disk.

    It is not needed for copies that `weft log backup` made. The broker must be stopped.

    \b
    Example:
      $ weft log restore data
    """
    from weft.cli.progress import bar
    from weft.log.opening import LogOptions, open_log
    from weft.log.schema import DATABASE

    _check_there(directory / DATABASE)
    with bar() as progress:
        opened = open_log(directory, LogOptions(any_schema=True, restore=True, progress=progress))
        opened.log.close()
    if as_json:
        emit({"log_id": opened.log.log_id, "incarnation": opened.log.incarnation})
    else:
        say(f"{directory} has the new log id {opened.log.log_id}")


@log.command()
def migrate(
    directory: _Directory,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", metavar="FILE", help="The new event schema, .toml or .json. Default: no schema."),
    ] = None,
    taxonomy: TaxonomyFile = None,
    as_json: AsJson = False,
) -> None:
    """Change the event schema of a log, and list the stored filters that may now mean something else.

    No filter is dropped. Stored events stay as they are. The broker must be stopped.

    \b
    Example:
      $ weft log migrate data --schema events.toml
    """
    from msgspec import to_builtins

    from weft.cli.arguments import read_predicates
    from weft.cli.progress import bar
    from weft.cli.shell import read_schema
    from weft.log.opening import LogOptions, open_log
    from weft.log.schema import DATABASE

    _check_there(directory / DATABASE)
    predicates = read_predicates(taxonomy)
    with bar() as progress:
        options = LogOptions(read_schema(schema), migrate=True, predicates=predicates, progress=progress)
        opened = open_log(directory, options)
        opened.log.close()
    if as_json:
        emit({"affected": to_builtins(opened.affected)})
    else:
        _show_affected(directory, opened)


# -- what is shown -----------------------------------------------------------------------------------


def _check_there(path: Path) -> None:
    from weft.errors import LogError

    if not path.exists():
        raise LogError(f"{path.parent} has no log: there is no {path.name} in it")


def _time(micros: int) -> str:
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    except OverflowError:
        return str(micros)
    return moment.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def _rows(group: StoredGroup) -> list[dict[str, Any]]:
    events = group.events
    ends = events.starts.tolist()
    return [
        {
            "offset": events.first + at,
            "at": _time(group.at),
            "session": session,
            "epoch": epoch,
            "sequence": sequence,
            "seats": events.seats[ends[at] : ends[at + 1]].tolist(),
            "head_bytes": len(events.heads[at]),
            "payload_bytes": len(events.payloads[at]),
        }
        for at, (session, epoch, sequence) in enumerate(events.origins.tolist())
    ]


def _show_events(rows: list[dict[str, Any]]) -> None:
    from weft.tables import plain_table

    table = plain_table()
    for name in ("offset", "stored (UTC)", "session", "epoch", "sequence", "seats", "head", "payload"):
        table.add_column(name, justify="left" if name == "stored (UTC)" else "right", no_wrap=True)
    for row in rows:
        numbers = (row["session"], row["epoch"], row["sequence"], len(row["seats"]))
        table.add_row(
            f"{row['offset']}", row["at"], *map(str, numbers), f"{row['head_bytes']:,}", f"{row['payload_bytes']:,}"
        )
    console().print(table)
    say(f"{len(rows):,} event{'' if len(rows) == 1 else 's'}; head and payload are in bytes")


def _show_summary(summary: LogSummary, shown: int) -> None:
    from weft.cli.display import named
    from weft.cli.terminal import cell
    from weft.tables import plain_table

    rows = ", ".join(_counted(count, name) for name, count in summary.rows.items() if count)
    console().print(
        named(
            ("log id", f"{summary.log_id}, incarnation {summary.incarnation}, format {summary.format}"),
            ("events", f"{summary.events:,} in {_counted(summary.groups, 'groups')}, {summary.event_bytes:,} bytes"),
            ("offsets", f"{summary.first:,} is the first, {summary.next:,} the next"),
            ("last group", f"{_time(summary.at)} UTC" if summary.at else "none"),
            ("database", f"{summary.file_bytes:,} bytes, {summary.used_bytes:,} of them in use"),
            ("rows", rows or "none"),
            ("event schema", summary.schema or "none"),
        )
    )
    if not summary.seats or not shown:
        return
    table = plain_table()
    for name in ("seat", "kind", "of", "floor", "lag", "dead", "filter"):
        right = name in ("seat", "floor", "lag", "dead")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "filter")
    for each in summary.seats[:shown]:
        counts = (each.floor, each.lag, each.dead)
        numbers = ["-"] * 3 if each.floor is None else [f"{count:,}" for count in counts]
        table.add_row(str(each.seat), each.kind, cell(each.owner), *numbers, cell(each.filter))
    console().print("")
    console().print(table)
    if len(summary.seats) > shown:
        say(f"{len(summary.seats) - shown:,} more seats are not further behind than these")


def _counted(count: int, plural: str) -> str:
    return f"{count:,} {plural.removesuffix('s') if count == 1 else plural}"


def _show_affected(directory: Path, opened: OpenedLog) -> None:
    for each in opened.affected:
        say(f"{each.kind} {each.id}: {each.filter}")
        say(f"  {each.reason}", "yellow")
    many = f"{len(opened.affected):,} stored filter{'' if len(opened.affected) == 1 else 's'}"
    say(
        f"{directory} has the new event schema; {many} may mean something else"
        if opened.affected
        else f"{directory} has the new event schema; every stored filter means the same"
    )
    if opened.copied:
        say_notes([f"the log has a new log id: {opened.copied}"])
