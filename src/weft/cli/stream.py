"""`weft stream`: matching a stream on Spark."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Annotated

import typer

from weft.cli.connection import Authority, TokenFile
from weft.cli.pipeline import Master, at_work, one_of, show_rows
from weft.cli.shell import AsJson, SchemaFile, emit, out_option, read_schema, say, say_aside, say_notes


def stream(  # noqa: PLR0913, PLR0917 - each has a default that serves
    events: Annotated[
        str,
        typer.Argument(
            metavar="EVENTS",
            help="A folder to which files of events are moved (JSON lines, CSV or Parquet), the data directory of a "
            "broker, whose log is read, or the address of a running broker.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str, out_option("Where results go: a folder, with one for each micro-batch, or a broker's address.")
    ],
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", metavar="DIR", help="The state of the stream; pass it again to resume.")
    ],
    rules: Annotated[
        str | None,
        typer.Argument(
            metavar="[RULES]",
            help="The rules (subscriptions) that a new stream begins with: a file, as for `weft match`.",
            show_default=False,
        ),
    ] = None,
    former_rules: Annotated[str | None, typer.Option("--subscriptions", hidden=True)] = None,
    commands: Annotated[
        str | None,
        typer.Option(
            "--commands",
            metavar="DIR",
            help="A folder to which files of commands are moved: lines with action, id and filter.",
        ),
    ] = None,
    schema: SchemaFile = None,
    output: Annotated[
        str, typer.Option("--output", metavar="FORM", help="pairs, lists or counts, as for `weft match`.")
    ] = "pairs",
    carry: Annotated[
        str | None, typer.Option("--carry", metavar="A,B", help="Keep only these columns of the events.")
    ] = None,
    watermark: Annotated[
        str | None,
        typer.Option(
            "--watermark",
            metavar="DELAY",
            help="Leave out duplicates, and events that are later than this: '10 minutes'.",
        ),
    ] = None,
    time: Annotated[
        str, typer.Option("--time", metavar="NAME", help="The time of an event, for --watermark.")
    ] = "time",
    identity: Annotated[
        str, typer.Option("--identity", metavar="A,B", help="The columns that identify an event.")
    ] = "source,id",
    once: Annotated[bool, typer.Option("--once", help="Exit when everything there is now has been matched.")] = False,
    interval: Annotated[
        str | None,
        typer.Option("--interval", metavar="TIME", help="Time between micro-batches: '5 seconds'."),
    ] = None,
    first: Annotated[
        int, typer.Option("--first", metavar="OFFSET", min=0, help="For a log: begin at this offset.")
    ] = 0,
    token_file: TokenFile = None,
    authority: Authority = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            metavar="PORT",
            min=0,
            max=65535,
            help="Serve metrics to Prometheus here; 0 takes a free port.",
        ),
    ] = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Match events as they come, while subscriptions change.

    Every event is matched once, even if processes are killed and restarted: the checkpoint holds the state. Ctrl-C or
    SIGTERM ends the stream after the current micro-batch.

    \b
    Example:
      $ weft stream incoming rules.csv --commands changes -o matches --checkpoint state
      $ weft stream broker-data rules.csv -o matches --checkpoint state --once
    """
    from weft.pipeline.output import Output
    from weft.spark.stream import Watermark
    from weft.spark.stream_job import StreamJob, check_job, run_stream, wait_for_files
    from weft.spark.stream_journal import BatchMetrics
    from weft.spark.stream_prometheus import StreamExporter

    if former_rules is not None:
        say_notes(["--subscriptions FILE is now the second argument: weft stream EVENTS RULES"])
    late = None if watermark is None else Watermark(watermark, time, tuple(identity.split(",")))
    job = StreamJob(
        events=events,
        checkpoint=checkpoint,
        out=out,
        subscriptions=rules or former_rules,
        commands=commands,
        output=one_of(Output, output, "output"),
        carry=None if carry is None else tuple(carry.split(",")),
        watermark=late,
        once=once,
        interval=interval,
        first=first,
        token_file=str(token_file or ""),
        authority=str(authority or ""),
        schema=read_schema(schema),
    )
    check_job(job, master)
    stopping = Event()
    exporter = None if metrics_port is None else StreamExporter(metrics_port)

    def tell(metrics: BatchMetrics) -> None:
        say_aside(metrics.line())
        if exporter is not None:
            exporter.tell(metrics)

    def note(said: str) -> None:
        say_aside(said, "yellow")

    if exporter is not None:
        say_aside(f"metrics: http://127.0.0.1:{exporter.port}/metrics")
    try:
        with _told_to_stop(stopping):
            if not wait_for_files(job, note, stopping):
                return
        with at_work(master or "local[*,4]") as progress:  # a worker that dies is no reason to end
            progress.tell("matching")
            with _told_to_stop(stopping):
                report = run_stream(progress.spark, job, tell, stopping, note)
    finally:
        if exporter is not None:
            exporter.close()
    if as_json:
        emit(report.to_dict())
        return
    show_rows(
        [
            ("micro-batches", f"{report.batches:,}"),
            ("events", f"{report.events:,}"),
            ("matches", f"{report.matches:,}"),
            ("events left out", f"{report.refused:,}"),
            ("commands left out", f"{report.commands_left_out:,}"),
            ("subscriptions left out", f"{report.subscriptions_left_out:,}"),
            ("subscriptions", f"{report.subscriptions:,} (version {report.version:,})"),
            ("matching and committing", f"{report.seconds:.2f} s"),
        ]
    )
    say(f"written: {out}")
    if report.refused or report.commands_left_out or report.subscriptions_left_out:
        say_aside(f"what was left out, with the reasons, is in {checkpoint}/errors", "yellow")


@contextmanager
def _told_to_stop(stopping: Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM set the event; Spark's own answer to Ctrl-C would cancel the micro-batch."""
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
