"""`weft console`: the address of the web console, and a browser that shows it."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.connection import Authority, TokenFile, token_of
from weft.cli.shell import say


def console(
    gateway: Annotated[
        str,
        typer.Option("--gateway", metavar="URL", envvar="WEFT_GATEWAY", help="The HTTP gateway that serves it."),
    ] = "http://localhost:9380",
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in your browser.")] = False,
    token_file: TokenFile = None,
    authority: Authority = None,
) -> None:
    """Show the address of the web console, or open it in a browser.

    A broker with a gateway has one: `weft serve --gateway 9380`. With a token, the address logs in once, within a
    minute; nobody has to paste the token.

    \b
    Example:
      $ weft console --open
    """
    import webbrowser

    from weft.console.launch import console_address

    address = console_address(gateway, token_of(token_file), authority)
    say(address)
    if open_browser and not webbrowser.open(address):
        say("no browser could be started; open the address yourself", "yellow")
