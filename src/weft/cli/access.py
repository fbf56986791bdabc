"""`weft access`: files of access rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weft.cli.shell import AsJson, emit, say, say_notes

access = typer.Typer(no_args_is_help=True)


@access.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of access rules.", show_default=False)],
    principal: Annotated[
        str | None, typer.Option("--for", metavar="NAME", help="Show the rules of this principal.", show_default=False)
    ] = None,
    subscribe: Annotated[
        str | None,
        typer.Option(
            "--subscribe",
            metavar="FILTER",
            help="Check whether that principal may subscribe to this.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a file of access rules; show what a principal may do, or whether it may subscribe to a filter.

    The exit code is 1 if the file cannot be used, or the subscription is not allowed.

    \b
    Example:
      $ weft access check access.toml --for ann --subscribe "magnitude >= 4"
    """
    from weft.errors import OptionError
    from weft.language.text import parse
    from weft.server.security.access_file import read_access

    rules = read_access(file)
    if principal is None:
        if subscribe is not None:
            raise OptionError("--subscribe needs --for: whose subscription is it?")
        names = list(rules.principals())
        if as_json:
            emit({"principals": names})
        else:
            say(f"{file} is valid. It names {len(names)} principals: {', '.join(names)}")
        return
    grant = rules.of(principal)
    if subscribe is not None:
        grant.check_subscribe(parse(subscribe))
        if as_json:
            emit({"principal": principal, "filter": subscribe, "allowed": True})
        else:
            say(f"{principal} may subscribe to {subscribe}")
        return
    if principal not in rules.principals():
        say_notes([f"no rule or group names {principal!r}"])
    rights = grant.rights
    if as_json:
        emit({"principal": principal, **rights._asdict(), "further": sorted(rights.further)})
        return
    for name, texts in (("subscribe", rights.subscribe), ("publish", rights.publish)):
        listed = ["anything"] if texts is None else texts or ["nothing"]
        for text in listed:
            say(f"{name}: {text}")
    say(f"rights: {', '.join(sorted(rights.further)) or 'none'}")
