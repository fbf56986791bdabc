"""`weft token`: keys and tokens for a broker's clients."""

from __future__ import annotations

import sys
from pathlib import Path
from time import time
from typing import Annotated, Any, Literal

import typer

from weft.cli.shell import AsJson, emit, say

token = typer.Typer(no_args_is_help=True)

PrivateKey = Annotated[Path, typer.Argument(metavar="KEY", help="The file of the private key.", show_default=False)]


@token.command()
def new(
    key: PrivateKey,
    keys: Annotated[
        Path,
        typer.Option(
            "--keys", metavar="FILE", help="The broker's key file (auth.keys), to which the public half is added."
        ),
    ] = Path("keys.json"),
    algorithm: Annotated[
        Literal["EdDSA", "RS256", "HS256"], typer.Option("--algorithm", help="How tokens are signed.")
    ] = "EdDSA",
    name: Annotated[str, typer.Option("--id", metavar="ID", help="The id of the key; a random one if not given.")] = "",
) -> None:
    """Create a key that signs tokens: the private half for you, the public half for the broker.

    \b
    Example:
      $ weft token new signing.jwk --keys keys.json
    """
    from weft.server.security.tokens import add_public, new_key, write_private

    private, public = new_key(algorithm, name)
    write_private(key, private)
    number = add_public(keys, public)
    several = "key" if number == 1 else "keys"
    say(f"{key} signs tokens; keep it secret. {keys} has {number} {several}; set the broker's auth.keys to this file.")


@token.command()
def sign(  # noqa: PLR0913, PLR0917 - a command has its options
    key: PrivateKey,
    principal: Annotated[
        str, typer.Option("--for", metavar="NAME", help="The client's name (principal).", show_default=False)
    ],
    expires: Annotated[
        str, typer.Option("--expires", metavar="TIME", help="How long the token is valid: 8h, 30d.")
    ] = "1h",
    audience: Annotated[str, typer.Option("--audience", metavar="NAME", help="Valid for this broker only.")] = "",
    issuer: Annotated[str, typer.Option("--issuer", metavar="NAME", help="The issuer of the token.")] = "",
    once: Annotated[bool, typer.Option("--once", help="The token is accepted only once.")] = False,
) -> None:
    """Create a token and print it.

    \b
    Example:
      $ weft token sign signing.jwk --for ann --expires 8h
    """
    from secrets import token_hex

    from weft.errors import OptionError
    from weft.server.security.tokens import sign as signed
    from weft.server.settings import read_duration

    valid = read_duration(expires)
    if not valid:
        raise OptionError(f"--expires is {expires!r}; write a duration, such as 8h or 30d")
    now = int(time())
    claims: dict[str, Any] = {"sub": principal, "iat": now, "exp": now + valid // 1_000_000}
    claims |= {"aud": audience} if audience else {}
    claims |= {"iss": issuer} if issuer else {}
    claims |= {"once": True, "jti": token_hex(16)} if once else {}
    typer.echo(signed(key, claims))


@token.command()
def check(
    keys: Annotated[Path, typer.Argument(metavar="KEYS", help="The broker's key file.", show_default=False)],
    audience: Annotated[str, typer.Option("--audience", metavar="NAME", help="The broker's auth.audience.")] = "",
    issuer: Annotated[str, typer.Option("--issuer", metavar="NAME", help="The broker's auth.issuer.")] = "",
    as_json: AsJson = False,
) -> None:
    """Verify a token, read from standard input, as a broker would.

    \b
    Example:
      $ weft token sign signing.jwk --for ann | weft token check keys.json
    """
    from datetime import UTC, datetime

    from weft.server.security.tokens import TokenPolicy, Tokens, read_keys

    tokens = Tokens(read_keys(keys), TokenPolicy(audience, issuer))
    who = tokens.verify(sys.stdin.buffer.read().strip(), int(time() * 1e6))
    until = datetime.fromtimestamp(who.until / 1e6, UTC).isoformat(timespec="seconds")
    if as_json:
        emit({"principal": who.principal, "until": until})
    else:
        say(f"{who.principal}, until {until}")
