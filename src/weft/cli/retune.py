"""`weft retune`: another label space for a network that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weft.cli.connection import LOCAL, BrokerOptions, connected
from weft.cli.progress import bar
from weft.cli.shell import AsJson, SchemaFile, emit, read_schema, say
from weft.errors import OptionError


@connected
def retune(
    tuning: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A tuning that `weft tune --model dls` has written.", show_default=False),
    ] = None,
    schema: SchemaFile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    connection: BrokerOptions = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Give a network of brokers with the model dls another label space while it runs. Nothing is lost meanwhile.

    With a file, its label space is used. Without one, a space is chosen by the subscriptions and the stored events of
    the broker, under a schema with bounds, and used only if at least a fifth fewer unwanted events would pass. The
    setting `retune_every` makes brokers do this. One broker of a network begins re-tunings; the command finds it.

    \b
    Example:
      $ weft retune tuning.json
      $ weft retune --schema schema.toml
    """
    from weft.models.retuning import proposal_for, read_retuning
    from weft.pipeline.predicate_settings import environment_predicates

    with connection.client() as client:
        if tuning is not None:
            space, answer = read_retuning(tuning.read_text(encoding="utf-8")), {}
        else:
            declared = read_schema(schema)
            if declared is None:
                raise OptionError("name a tuning, or a schema with bounds by which one is chosen: --schema FILE")
            with bar() as progress:
                found = proposal_for(client, declared, environment_predicates(), progress)
            space = found.space
            answer = {"unwanted": found.now, "unwanted_then": found.then, "pays": found.pays}
            shown = f"{found.now:.1%} of the events are unwanted now, {found.then:.1%} would be"
            if not found.pays:
                if as_json:
                    emit({**answer, "retuned": False})
                else:
                    say(f"{shown}: the label space stays as it is")
                return
            if not as_json:
                say(shown)
        done = "" if dry_run else client.retune(space.to_json())
    if as_json:
        emit({**answer, "retuned": not dry_run})
    else:
        say("nothing was changed" if dry_run else done)
