"""The common part of commands: arguments, answers, failures. With --json, stdout has one JSON document, also for a
failure. Markup in a text has no effect, and control characters are shown escaped.
"""

from __future__ import annotations

import inspect
import logging
import sys
import traceback
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from weft.cli.former_options import current_options
from weft.errors import FilterSyntaxError, WeftError

if TYPE_CHECKING:
    from rich.console import Console

    from weft.language.ast import Filter
    from weft.model.schema import Schema

_JSON = "weft.json"  # where a context keeps whether --json was given
_ANSWER = "weft.answer"  # and whether the exit code is the answer
INTERRUPTED = 130  # as shells have it: 128 and the number of the signal


class Commands(TyperGroup):
    """Commands whose failures are sentences, not tracebacks, and whose help fits the width of the terminal."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name, or None."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _join_lines(command)
            _add_verbosity(command)
            _hide_types(command, ctx)
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the group."""
        _hide_types(self, ctx)
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # typer ends quietly
        except WeftError as error:
            failure: Exception = error
            _trace(error)
        except OSError as error:
            _trace(error)
            failure = WeftError(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        except KeyboardInterrupt:
            return fail(WeftError("interrupted"), ctx.meta.get(_JSON, False), INTERRUPTED)
        return fail(failure, ctx.meta.get(_JSON, False), 2 if ctx.meta.get(_ANSWER) else 1)


class Program(Commands):
    """All commands. Options are also known by their former names."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of the arguments."""
        args, notes = current_options(args)
        name, command, rest = super().resolve_command(ctx, args)
        if not ctx.resilient_parsing and not {"-q", "--quiet"} & {*rest}:  # resilient: a shell completes the line
            say_notes(notes)
        return name, command, rest


def _join_lines(command: Any) -> None:
    """Make each paragraph of a help text one line, except those marked with \\b: Typer keeps all line breaks."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(each if each.startswith("\b") else " ".join(each.split("\n")) for each in paragraphs)
    for each in getattr(command, "commands", {}).values():
        _join_lines(each)


def _hide_types(command: Any, ctx: Any) -> None:
    """Show flags as `--json` and arguments by their names alone, not as `--json <bool>`, `NAME <str>` and `{NAME}`."""
    for param in command.get_params(ctx):
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
        if param.param_type_name == "argument":
            param.display_type_rich = lambda **_: None
            param.get_usage_pieces = partial(_usage, param)
    for each in getattr(command, "commands", {}).values():
        _hide_types(each, ctx)


def _usage(argument: Any, _: Any) -> list[str]:
    """An argument in a line of usage: an optional one in brackets, a repeated one with dots."""
    name = argument.metavar or argument.name.upper()
    repeated = f"{name}..." if argument.nargs != 1 and "[" not in name and not name.endswith("...") else name
    return [repeated if argument.required or name.startswith("[") else f"[{repeated}]"]


# -- how much is said --------------------------------------------------------------------------------


class _Output:
    """What a command prints beside its answer."""

    is_quiet = False
    is_verbose = False


_output = _Output()


def _keep_quiet(wanted: bool) -> None:
    _output.is_quiet = wanted


def _keep_verbose(wanted: bool) -> None:
    _output.is_verbose = wanted
    if wanted:
        logging.disable(logging.NOTSET)
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
        logging.getLogger("weft").setLevel(logging.DEBUG)


def _verbosity(
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", callback=_keep_quiet, is_eager=True, help="Print only the answer and failures, no notes."
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", callback=_keep_verbose, is_eager=True, help="Log to standard error, with tracebacks."
        ),
    ] = False,
) -> None:
    """Give every command these options."""


@cache
def _verbosity_options() -> list[Any]:
    page = typer.Typer(add_completion=False)
    page.command()(_verbosity)
    options = [each for each in typer.main.get_command(page).params if each.name in ("quiet", "verbose")]
    for each in options:
        each.expose_value = False
    return options


def _add_verbosity(command: Any) -> None:
    if subcommands := getattr(command, "commands", {}):
        for each in subcommands.values():
            _add_verbosity(each)
    else:
        command.params += [each for each in _verbosity_options() if each not in command.params]


def _trace(error: Exception) -> None:
    if _output.is_verbose:
        traceback.print_exception(error, file=sys.stderr)


def is_quiet() -> bool:
    """Whether notes and progress are not wanted."""
    return _output.is_quiet


# -- arguments ---------------------------------------------------------------------------------------


def _keep_answer(ctx: typer.Context, wanted: bool) -> bool:
    ctx.meta[_ANSWER] = wanted
    return wanted


def _keep_json(ctx: typer.Context, wanted: bool) -> bool:
    ctx.meta[_JSON] = wanted
    return wanted


TEXT = (
    "A filter, as text, as JSON or as an EventBridge pattern; - reads one per line from standard input. "
    "Put -- before a text that starts with a dash."
)
Texts = Annotated[list[str], typer.Argument(metavar="TEXT", help=TEXT, show_default=False)]
OneText = Annotated[str, typer.Argument(metavar="TEXT", help=TEXT, show_default=False)]
FilterFileName = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Filters: one per line as text or JSON; .csv, .parquet or .jsonl with a column `filter` and, if you like, "
        "`id` and `interface`; - is standard input.",
        show_default=False,
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option("--schema", metavar="FILE", help="A schema, .toml or .json: types and bounds of attributes."),
]
TaxonomyFile = Annotated[
    Path | None,
    typer.Option("--taxonomy", metavar="FILE", help="A taxonomy, .toml or .json, for is_a(name, 'concept')."),
]
AsJson = Annotated[bool, typer.Option("--json", callback=_keep_json, is_eager=True, help="Print JSON.")]


def out_option(help: str, default: str = "") -> Any:
    """The option that names what a command writes: every command has it as --out and -o."""
    return typer.Option("--out", "-o", metavar="PATH", help=f"{help} Default: {default}." if default else help)


Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace output files that already exist.")]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="OFFSET|TIME|AGE",
        help="Begin at an offset, a time such as 2026-11-16T12:00, or an age such as 30m, 2h or 7d; 0 is the oldest "
        "event.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The seed of random samples.")]
ExitCode = Annotated[
    bool,
    typer.Option(
        "--exit-code",
        callback=_keep_answer,
        is_eager=True,
        help="Answer with the exit code, too: 0 for yes, 1 for no, 2 for any failure.",
    ),
]


def read_schema(path: Path | None) -> Schema | None:
    """The schema of --schema."""
    from weft.model.schema import Schema

    return None if path is None else Schema.load(path)


def read_filters(texts: Sequence[str], taxonomy: Path | None, least: int = 1, most: int | None = None) -> list[Filter]:
    """The filters of the texts. Raises FilterError for the first that is wrong; too few or too many are wrong usage."""
    from weft.cli.arguments import read_filter, read_predicates

    predicates = read_predicates(taxonomy)
    return [read_filter(text, place, predicates) for text, place in read_texts_of(texts, least, most)]


def read_texts_of(given: Sequence[str], least: int = 1, most: int | None = None) -> list[tuple[str, str]]:
    """The texts, with the place of each that comes from standard input; too few or too many are wrong usage."""
    from weft.cli.arguments import read_texts
    from weft.cli.input_files import standard_input

    texts = list(read_texts(given, standard_input))
    if not least <= len(texts) <= (most or len(texts)):
        wanted = f"{least} filter{'s' if least > 1 else ''}{'' if most else ' or more'}"
        raise typer.BadParameter(f"{wanted} expected, {len(texts)} given")
    return texts


def check_outputs(overwrite: bool, *paths: Path | None) -> None:
    """Raise WeftError for files that exist and must not be replaced, or whose folder is missing."""
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise WeftError(f"{path} is a folder: name a file")
        if path.is_file() and not overwrite:
            raise WeftError(f"{path} already exists: choose another name, or pass --overwrite")
        if not path.absolute().parent.is_dir():
            raise WeftError(f"{path} cannot be written: there is no folder {path.absolute().parent}")


# -- answers -----------------------------------------------------------------------------------------


def console(stderr: bool = False) -> Console:
    """Where answers go: stdout, or stderr for what is not the answer."""
    from weft.cli.terminal import SafeConsole

    return SafeConsole(stderr)


def progress_console() -> Console:
    """Where progress is shown: stderr, or nowhere with --quiet."""
    page = console(stderr=True)
    page.quiet = _output.is_quiet
    return page


def say(text: str, style: str = "", stderr: bool = False) -> None:
    """Print a text; no line is wrapped."""
    from rich.text import Text

    console(stderr).print(Text(text, style), soft_wrap=True)


def say_notes(notes: Sequence[str]) -> None:
    """Print what is odd, but not wrong."""
    for note in notes:
        say_aside(f"note: {note}", "yellow")


def say_aside(text: str, style: str = "dim") -> None:
    """Print what is not part of the answer, to standard error; --quiet leaves it out."""
    if not _output.is_quiet:
        say(text, style, stderr=True)


def emit(facts: Any) -> None:
    """Print the answer to --json."""
    from weft.cli.terminal import json_text

    typer.echo(json_text(facts, indent=2))


def answer_by_code(wanted: bool, yes: bool) -> None:
    """End with 1 for no, if the exit code is to be the answer."""
    if wanted and not yes:
        raise typer.Exit(1)


def fail(error: Exception, as_json: bool, code: int = 1) -> NoReturn:
    """Say what went wrong and end with a code."""
    if as_json:
        emit({"error": told(error)})
    else:
        say(f"weft: {said(error)}", stderr=True)
    raise typer.Exit(code)


def said(error: Exception) -> str:
    """An error in words, with its notes."""
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def told(error: Exception) -> dict[str, Any]:
    """An error as JSON."""
    place = error if isinstance(error, FilterSyntaxError) else None
    return {
        "kind": type(error).__name__,
        "message": place.message if place else str(error),
        "line": place.line if place else None,
        "column": place.column if place else None,
        "hint": (place.hint or None) if place else None,
        "notes": list(getattr(error, "__notes__", [])),
    }
