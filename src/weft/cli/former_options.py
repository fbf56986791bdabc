"""Options that have another name now. The former names still work, and the command says what to write instead.

A test compares the options of all commands: one name has one meaning. These are the names that had two.
"""

from __future__ import annotations

from collections.abc import Sequence

FORMER_OPTIONS = {  # (command, former name): the name now
    ("log info", "--seats"): "--limit",
    ("log show", "--first"): "--since",
    ("order show", "--first"): "--limit",
    ("pub", "--for"): "--expires",
    ("ring forget", "--at"): "--node",
    ("ring serve", "--interval"): "--intervals",
    ("sessions list", "--subscriptions"): "--with-subscriptions",
    ("sim faults", "--svg"): "--plot",
    ("sim mobility", "--plots"): "--plot",
    ("tune", "--false-positives"): "--max-false-positives",
    ("tune", "--forwarded"): "--max-forwarded",
    ("tune", "--memory"): "--max-memory",
}


def current_options(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments of the program with the names of today, and a note for each that was changed.

    >>> current_options(["order", "show", "rules.csv", "--first=5"])
    (['order', 'show', 'rules.csv', '--limit=5'], ['--first of `weft order show` is now --limit'])
    """
    given = list(arguments)
    commands = {" ".join(given[:1]), " ".join(given[:2])}
    if given[:1] == ["sessions"] and given[1:2] != ["move"]:
        commands.add("sessions list")  # which may be left out
    notes: list[str] = []
    for at, argument in enumerate(given):
        if argument == "--":
            break
        name, separator, value = argument.partition("=")
        if name == "--json" and given[0] == "bench" and (value or "".join(given[at + 1 : at + 2])).endswith(".json"):
            given[at] = f"--out{separator}{value}"
            notes.append("a file of figures is now named with --out; --json prints them")
        for command in commands:
            if (now := FORMER_OPTIONS.get((command, name))) is not None:
                given[at] = f"{now}{separator}{value}"
                notes.append(f"{name} of `weft {command}` is now {now}")
    return given, notes
