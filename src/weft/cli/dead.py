"""`weft dead`: events that a subscriber failed to handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.connection import LOCAL, BrokerOptions, connected
from weft.cli.shell import AsJson, Commands, console, emit, say

if TYPE_CHECKING:
    from weft.client.sync import SyncClient

dead = typer.Typer(cls=Commands, no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the subscription.", show_default=False)]
Shared = Annotated[bool, typer.Option("--shared", help="The name is shared by several consumers.")]
_Offsets = Annotated[
    list[int] | None, typer.Argument(metavar="OFFSET", help="The offsets of the letters.", show_default=False)
]
All = Annotated[bool, typer.Option("--all", help="All letters.")]


@dead.command("list")
@connected
def list_letters(
    name: Name,
    shared: Shared = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Show at most N.")] = 100,
    connection: BrokerOptions = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Show the dead letters of a subscription, without disturbing its consumers.

    \b
    Example:
      $ weft dead list alerts
    """
    from weft.cli.event_rows import plain

    with connection.client() as client:
        letters = client.dead_letters.list(name, shared=shared, limit=limit)
    if as_json:
        emit(
            [
                {
                    "offset": each.offset,
                    "failures": each.failures,
                    "reason": each.reason,
                    "died_at": each.died_at.isoformat(),
                    "attributes": plain(each.attributes),
                    "payload_bytes": len(each.payload),
                }
                for each in letters
            ]
        )
        return
    from rich.table import Table

    from weft.cli.terminal import cell, json_text

    if not letters:
        say(f"{name} has no dead letters")
        return
    table = Table("offset", "failures", "reason", "died", "attributes")
    for each in letters:
        row = (
            str(each.offset),
            str(each.failures),
            each.reason,
            f"{each.died_at:%Y-%m-%d %H:%M:%S}",
            json_text(plain(each.attributes)),
        )
        table.add_row(*map(cell, row))
    console().print(table)


@dead.command()
@connected
def retry(  # noqa: PLR0913, PLR0917 - a command has its options
    name: Name,
    offsets: _Offsets = None,
    every: All = False,
    shared: Shared = False,
    connection: BrokerOptions = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Deliver dead letters once more, to the current consumers of the subscription.

    \b
    Example:
      $ weft dead retry alerts 17 23
    """
    with connection.client() as client:
        wanted = _wanted(client, name, shared, offsets, every)
        done = client.dead_letters.redeliver(*wanted, name=name, shared=shared)
    _answer("delivered again", done, wanted, as_json, "the others are not dead letters, or no consumer takes them now")


@dead.command()
@connected
def drop(  # noqa: PLR0913, PLR0917 - a command has its options
    name: Name,
    offsets: _Offsets = None,
    every: All = False,
    shared: Shared = False,
    connection: BrokerOptions = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Remove dead letters for good.

    \b
    Example:
      $ weft dead drop alerts --all
    """
    with connection.client() as client:
        wanted = _wanted(client, name, shared, offsets, every)
        done = client.dead_letters.discard(*wanted, name=name, shared=shared)
    _answer("removed", done, wanted, as_json, "the others are not dead letters")


_MOST = 1_000_000  # letters with --all


def _wanted(client: SyncClient, name: str, shared: bool, offsets: list[int] | None, every: bool) -> list[int]:
    if bool(offsets) == every:
        raise typer.BadParameter("give the offsets of the letters, as `weft dead list` shows them, or pass --all")
    return offsets or [each.offset for each in client.dead_letters.list(name, shared=shared, limit=_MOST)]


def _answer(what: str, done: list[int], wanted: list[int], as_json: bool, hint: str) -> None:
    if as_json:
        emit({"offsets": done})
    else:
        of, rest = (f" of {len(wanted):,}", f"; {hint}") if len(done) < len(wanted) else ("", "")
        say(f"{len(done):,}{of} {what}{rest}")
    if len(done) < len(wanted):
        raise typer.Exit(1)
