"""`weft profiles`: events that are regions and last for a while."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import uuid4

import typer

from weft.cli.connection import LOCAL, BrokerOptions, connected
from weft.cli.questions import At
from weft.cli.shell import (
    AsJson,
    Commands,
    FilterFileName,
    Overwrite,
    check_outputs,
    console,
    emit,
    out_option,
    say,
    say_aside,
)

if TYPE_CHECKING:
    from weft.client.events import SyncReceivedEvent
    from weft.client.sync import SyncClient
    from weft.profiles.directory import Directory
    from weft.protocol.questions import ProfileFacts

profiles = typer.Typer(cls=Commands, no_args_is_help=True)

PUBLISHER = "weft-pub"  # the session of profiles that the command line publishes without --name
_MOST = 1_000  # rows that are shown unless more are asked for

Meets = Annotated[
    str, typer.Option("--meeting", metavar="covering|overlap", help="How much of a profile the filter must match.")
]
PublisherName = Annotated[str, typer.Option("--name", metavar="NAME", help="The name of the publisher.")]


def publish_region(  # noqa: PLR0913, PLR0917 - the options of a command
    client: SyncClient, region: str, lasting: str, profile_id: str, payload: str, as_json: bool
) -> None:
    """Publish a profile, and say until when it lasts."""
    name = profile_id or uuid4().hex[:8]
    from weft.cli.arguments import read_age

    made = client.publish_profile(name, region, read_age(lasting, "--expires"), payload=payload or None)
    if as_json:
        emit({"id": made.id, "version": made.version, "expires": made.expires.isoformat()})
    else:
        say(f"profile {made.id} lasts until {made.expires:%Y-%m-%d %H:%M:%S} UTC")


@profiles.command("list")
@connected
def list_profiles(  # noqa: PLR0913, PLR0917 - a command has its options
    session: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Show only those of this publisher.", show_default=False)
    ] = "",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Show at most N.")] = _MOST,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Also write them to a file, for tree and merge.")
    ] = None,
    overwrite: Overwrite = False,
    at: At = "",
    connection: BrokerOptions = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Show the living profiles that a broker knows: its own, and those that its subscribers asked for.

    Without the right `status` they are your own.

    \b
    Example:
      $ weft profiles list
      $ weft profiles list station --json > station.json
    """
    from itertools import islice

    check_outputs(overwrite, save)
    with connection.client() as client:
        rows = [*islice(client.profiles(session, broker=at), limit + 1)]
    more, rows = len(rows) > limit, rows[:limit]
    if save is not None:
        _directory(rows).save(save)
    if as_json:
        emit({"profiles": [_facts(each) for each in rows], "more": more})
        return
    if not rows:
        say("there are no profiles")
        return
    from rich.table import Table

    from weft.cli.terminal import cell

    table = Table("publisher", "id", "until", "shown to", "region")
    for each in rows:
        until = _facts(each)["expires"][:19].replace("T", " ")
        table.add_row(*map(cell, (each.source, each.id, until, f"{each.shown:,}", each.region)))
    console().print(table)
    if more:
        say_aside(f"there are more; --limit {2 * limit} shows them")


@profiles.command()
@connected
def preload(
    file: FilterFileName,
    meeting: Meets = "overlap",
    at: At = "",
    connection: BrokerOptions = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Have a broker compare the filters that subscriptions are expected to have with its profiles, before they come.

    Such a subscription costs no comparison when it comes. It needs the right `operate`, and lasts until the broker
    stops.

    \b
    Example:
      $ weft profiles preload routes.txt
    """
    from weft.cli.filter_files import read_filter_texts

    given = [text for _, text in read_filter_texts(file, sys.stdin.buffer.read)]
    with connection.client() as client:
        done = client.preload_profiles(given, _meeting(meeting), broker=at)
    if as_json:
        emit({"preloaded": done})
    else:
        say(f"{done:,} filters are preloaded")


@profiles.command()
@connected
def tree(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A saved list; without it, a broker is asked.", show_default=False),
    ] = None,
    at: At = "",
    connection: BrokerOptions = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Show living profiles as a taxonomy: a region stands below one that covers it.

    \b
    Example:
      $ weft profiles tree
      $ weft profiles tree profiles.jsonl
    """
    from weft.algebra.profile import Meeting
    from weft.profiles.directory import Directory

    if file is None:
        with connection.client() as client:
            directory = _directory([*client.profiles(broker=at)])
    else:
        directory = Directory.load(file, partition="")
    side = directory.forest(Meeting.COVERING).profiles
    if as_json:
        emit({"profiles": side.taxonomy()})
    else:
        say(side.outline() or "there are no profiles")


@profiles.command()
def merge(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Lists saved with `weft profiles list --save`.")
    ],
    out: Annotated[Path, out_option("Where to write the merged list.")],
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Merge saved lists of profiles. An id that means two different things is an error.

    \b
    Example:
      $ weft profiles merge north.jsonl south.jsonl -o both.jsonl
    """
    from weft.profiles.directory import Directory

    check_outputs(overwrite, out)
    merged = Directory.load(files[0])
    for file in files[1:]:
        other = Directory.load(file)
        merged.expire(max(merged.clock, other.clock))
        merged.merge(other)
    merged.save(out)
    if as_json:
        emit({"profiles": len(merged), "out": str(out)})
    else:
        say(f"{len(merged):,} profiles written to {out}")


def _directory(rows: list[ProfileFacts]) -> Directory:
    """The profiles of a list, in a directory of their own."""
    from weft.algebra.profile import Profile
    from weft.language.text import parse
    from weft.profiles.directory import Directory

    directory = Directory(partition="")
    for each in rows:
        region, ends = parse(each.region), max(1, each.expires)
        directory.add_profile(Profile(each.source, each.id, region, 0, ends, version=each.version))
    return directory


@profiles.command()
@connected
def withdraw(
    profile_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the profile.", show_default=False)],
    name: PublisherName = PUBLISHER,
    connection: BrokerOptions = LOCAL,
    as_json: AsJson = False,
) -> None:
    """End a profile before its time. Subscribers that were shown it are told.

    \b
    Example:
      $ weft profiles withdraw storm --name station
    """
    from weft.errors import RequestError

    with connection.client(name) as client:
        if not client.withdraw_profile(profile_id):
            raise RequestError(f"{name} has no profile {profile_id}; `weft profiles list` shows them", "unknown")
    if as_json:
        emit({"withdrawn": profile_id})
    else:
        say(f"profile {profile_id} is withdrawn")


@profiles.command()
@connected
def watch(  # noqa: PLR0913, PLR0917 - a command has its options
    wanted: Annotated[str, typer.Argument(metavar="FILTER", help="The area to watch.", show_default=False)],
    meeting: Meets = "overlap",
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Go on where the last watch of this name has stopped.")
    ] = "",
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", min=1, help="Stop after N notices.", show_default=False)
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", help="Stop when nothing comes for so long.", show_default=False),
    ] = None,
    connection: BrokerOptions = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Show the profiles that meet a filter, those of now and those to come, and what becomes of them.

    \b
    Example:
      $ weft profiles watch "lat BETWEEN 44 AND 46"
      $ weft profiles watch "lat > 40 AND lon < 10" --meeting covering --json
    """
    how = _meeting(meeting)
    from weft.cli.terminal import json_text

    seen = 0
    with (
        connection.client() as client,
        client.subscribe(wanted, name=name, profiles=how) as events,
    ):
        while count is None or seen < count:
            try:
                event = events.receive(timeout)
            except (StopIteration, TimeoutError):
                break
            notice = event.profile
            event.ack()
            if notice is not None:
                seen += 1
                typer.echo(json_text(_notice(event)) if as_json else _line(event))


def _meeting(text: str) -> Literal["covering", "overlap"]:
    if text == "covering":
        return "covering"
    if text == "overlap":
        return "overlap"
    raise typer.BadParameter(f"--meeting is covering or overlap, not {text!r}")


def _notice(event: SyncReceivedEvent) -> dict[str, Any]:
    notice = event.profile
    assert notice is not None
    facts = notice._asdict() | {"expires": notice.expires.isoformat()}
    return facts | {"payload": event.payload.decode(errors="backslashreplace")}


def _line(event: SyncReceivedEvent) -> str:
    from weft.cli.terminal import shown

    notice = event.profile
    assert notice is not None
    what = f"{notice.change:<8}  {shown(notice.source)}/{shown(notice.id)}"
    if notice.change == "ended":
        return f"{what}  ({notice.reason})"
    text = shown(event.payload.decode(errors="backslashreplace"))
    return f"{what}  until {notice.expires:%Y-%m-%d %H:%M:%S}  {shown(notice.region)}" + (f"  {text}" if text else "")


def _facts(each: ProfileFacts) -> dict[str, Any]:
    from msgspec import to_builtins

    from weft.model.value import from_micros

    return to_builtins(each) | {"expires": from_micros(each.expires).isoformat()}  # type: ignore[no-any-return]
