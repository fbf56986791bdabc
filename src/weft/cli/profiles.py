"""`weft profiles`: events that are regions and last for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import uuid4

import typer

from weft.cli.arguments import read_age
from weft.cli.broker_options import Authority, BrokerArguments, Certificate, TokenFile, client_of
from weft.cli.questions import At
from weft.cli.shell import AsJson, Commands, console, emit, say

if TYPE_CHECKING:
    from weft.client.events import SyncReceivedEvent
    from weft.client.sync import SyncClient
    from weft.protocol.questions import ProfileFacts

profiles = typer.Typer(cls=Commands, no_args_is_help=True)

PUBLISHER = "weft-pub"  # the session of profiles that the command line publishes without --name
_MOST = 1_000  # rows that are shown unless more are asked for

PublisherName = Annotated[str, typer.Option("--name", metavar="NAME", help="The name of the publisher.")]


def publish_region(  # noqa: PLR0913, PLR0917 - the options of a command
    client: SyncClient, region: str, lasting: str, profile_id: str, payload: str, as_json: bool
) -> None:
    """Publish a profile, and say until when it lasts."""
    name = profile_id or uuid4().hex[:8]
    made = client.publish_profile(name, region, read_age(lasting, "--for"), payload=payload or None)
    if as_json:
        emit({"id": made.id, "version": made.version, "expires": made.expires.isoformat()})
    else:
        say(f"profile {made.id} lasts until {made.expires:%Y-%m-%d %H:%M:%S} UTC")


@profiles.command("list")
def list_profiles(  # noqa: PLR0913, PLR0917 - a command has its options
    session: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Show only those of this publisher.", show_default=False)
    ] = "",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Show at most N.")] = _MOST,
    at: At = "",
    brokers: BrokerArguments = None,
    token_file: TokenFile = None,
    authority: Authority = None,
    certificate: Certificate = None,
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

    with client_of(brokers, token_file, authority, certificate) as client:
        rows = [*islice(client.profiles(session, broker=at), limit + 1)]
    more, rows = len(rows) > limit, rows[:limit]
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
        say(f"there are more; --limit {2 * limit} shows them", stderr=True)


@profiles.command()
def withdraw(  # noqa: PLR0913, PLR0917 - a command has its options
    profile_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the profile.", show_default=False)],
    name: PublisherName = PUBLISHER,
    brokers: BrokerArguments = None,
    token_file: TokenFile = None,
    authority: Authority = None,
    certificate: Certificate = None,
    as_json: AsJson = False,
) -> None:
    """End a profile before its time. Subscribers that were shown it are told.

    \b
    Example:
      $ weft profiles withdraw storm --name station
    """
    from weft.errors import RequestError

    with client_of(brokers, token_file, authority, certificate, name) as client:
        if not client.withdraw_profile(profile_id):
            raise RequestError(f"{name} has no profile {profile_id}; `weft profiles list` shows them", "unknown")
    if as_json:
        emit({"withdrawn": profile_id})
    else:
        say(f"profile {profile_id} is withdrawn")


@profiles.command()
def watch(  # noqa: PLR0913, PLR0917 - a command has its options
    wanted: Annotated[str, typer.Argument(metavar="FILTER", help="The area to watch.", show_default=False)],
    meeting: Annotated[
        str, typer.Option("--meeting", metavar="covering|overlap", help="How much of a profile the filter must match.")
    ] = "overlap",
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
    brokers: BrokerArguments = None,
    token_file: TokenFile = None,
    authority: Authority = None,
    certificate: Certificate = None,
    as_json: AsJson = False,
) -> None:
    """Show the profiles that meet a filter, those of now and those to come, and what becomes of them.

    \b
    Example:
      $ weft profiles watch "lat BETWEEN 44 AND 46"
      $ weft profiles watch "lat > 40 AND lon < 10" --meeting covering --json
    """
    how: Literal["covering", "overlap"]
    if meeting == "covering":
        how = "covering"
    elif meeting == "overlap":
        how = "overlap"
    else:
        raise typer.BadParameter(f"--meeting is covering or overlap, not {meeting!r}")
    from weft.cli.terminal import json_text

    seen = 0
    with (
        client_of(brokers, token_file, authority, certificate) as client,
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
