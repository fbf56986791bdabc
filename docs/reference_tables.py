"""Pages that are made of the code when the site is built: every command with its options, and every metric of a broker.

They are Sphinx directives, so that no page of this kind can be out of date:

    ```{weft-commands}
    ```
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective


def command_pages() -> str:
    """Every command in Markdown: what it does, its arguments and its options."""
    import click
    import typer

    from weft.cli.app import app

    root: Any = typer.main.get_command(app)
    lines: list[str] = []

    def write(command: Any, path: str) -> None:
        if isinstance(command, click.Group) or hasattr(command, "commands"):
            for name in sorted(command.commands):
                if not command.commands[name].hidden:
                    write(command.get_command(click.Context(command), name), f"{path} {name}")
            return
        lines.extend([f"## {path}", "", _described(command.help or ""), ""])
        context = click.Context(command, info_name=path)
        usage = " ".join([path, *command.collect_usage_pieces(context)])
        lines.extend(["```text", usage, "```", ""])
        rows = [row for each in command.get_params(context) if (row := _row(each, context))]
        lines.extend(["| option | what it does |", "|---|---|", *rows, ""])

    write(root, "weft")
    return "\n".join(lines)


def _described(text: str) -> str:
    """The help of a command without its marks for the terminal; examples are code."""
    made: list[str] = []
    for paragraph in text.split("\n\n"):
        if paragraph.lstrip().startswith("\b"):
            lines = paragraph.lstrip().lstrip("\b\n").rstrip().splitlines()
            if lines[0] == "Example:":  # the lines below are what a reader copies
                made.append("```console\n" + "\n".join(line.strip() for line in lines[1:]) + "\n```")
            else:
                made.append("```text\n" + "\n".join(lines) + "\n```")
        else:
            made.append(" ".join(paragraph.split()))
    return "\n\n".join(made).replace("<", "\\<")


def _row(parameter: Any, context: Any) -> str:
    if getattr(parameter, "hidden", False) or {"--help", "--quiet", "--verbose"} & {*parameter.opts}:
        return ""  # what every command has is said at the top of the page
    record = parameter.get_help_record(context)
    if record is None:
        names = parameter.make_metavar(context)
        help = getattr(parameter, "help", None) or ""
    else:
        names, help = record
    names = re.sub(r" <[\w\[\]]+>", "", names)  # the types of arguments
    cells = (text.replace("|", "\\|") for text in (names, " ".join(help.split())))
    return "| `{}` | {} |".format(*cells)


def metric_table() -> str:
    """Every metric of a broker in Markdown, as a broker in this process reports them."""
    from weft.server.metrics import metrics_of
    from weft.testing import broker

    with broker() as local:
        found = local.call(lambda node: metrics_of(node.core.status(1)))
    rows = sorted(
        (f"{each.name}_total" if each.type == "counter" else each.name, each.type, each.documentation) for each in found
    )
    return "\n".join(
        ["| metric | type | what it is |", "|---|---|---|", *(f"| `{a}` | {b} | {c} |" for a, b, c in rows)]
    )


class _Commands(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(command_pages(), allow_section_headings=True)


class _Metrics(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(metric_table())


def setup(app: Any) -> dict[str, bool]:
    """Make the directives known to Sphinx."""
    app.add_directive("weft-commands", _Commands)
    app.add_directive("weft-metrics", _Metrics)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
