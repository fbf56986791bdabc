"""`weft sim mobility`: hand-over protocols of moving clients side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from weft.cli.progress import bar
from weft.cli.shell import AsJson, Overwrite, check_outputs, console, emit, say
from weftlab.commands.sim_options import FirstSeed, Seeds, plot_option, record_option

if TYPE_CHECKING:
    from weftlab.mobility.campaign import NetworkSettings, ProtocolRow
    from weftlab.mobility.claims import MobilityClaim
    from weftlab.mobility.script import Movers, Script, ScriptSettings
    from weftlab.mobility.topology import BrokerTree

_MILLISECOND = 1000


def mobility(  # noqa: PLR0913, PLR0917 - a simulation has many sides
    protocols: Annotated[
        str, typer.Option("--protocols", metavar="A,B", help="The protocols to compare. Default: all that can.")
    ] = "",
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            metavar="FILE",
            help="A topology that BRITE wrote, or campus or regions, which come with Weft. Default: generated.",
        ),
    ] = None,
    areas: Annotated[int, typer.Option("--areas", metavar="N", min=1, help="Autonomous areas to generate.")] = 4,
    routers: Annotated[int, typer.Option("--routers", metavar="N", min=1, help="Routers in each area.")] = 25,
    root: Annotated[
        int, typer.Option("--root", metavar="N", min=0, help="Where the breadth-first search for the tree begins.")
    ] = 0,
    subscribers: Annotated[
        int | None, typer.Option("--subscribers", metavar="N", min=1, help="Default: 50; 6 with --busy.")
    ] = None,
    publishers: Annotated[
        int | None, typer.Option("--publishers", metavar="N", min=1, help="Default: 1; 3 with --busy.")
    ] = None,
    moves: Annotated[int, typer.Option("--moves", metavar="N", min=1, help="Moves of each seed.")] = 100,
    movers: Annotated[
        str, typer.Option("--movers", metavar="WHO", help="Who moves: subscribers, publishers or both.")
    ] = "subscribers",
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="AREA", help="border: between edge brokers. full: between all brokers."),
    ] = None,
    busy: Annotated[
        bool,
        typer.Option(
            "--busy", help="Publish during moves, let moves overlap, and let other subscriptions come and go."
        ),
    ] = False,
    interval: Annotated[
        float | None, typer.Option("--interval", metavar="MS", min=0, help="Milliseconds between moves.")
    ] = None,
    away: Annotated[
        float | None, typer.Option("--away", metavar="MS", min=0, help="Milliseconds between leaving and arriving.")
    ] = None,
    events: Annotated[
        int | None, typer.Option("--events", metavar="N", min=0, help="Events published around each arrival.")
    ] = None,
    types: Annotated[
        int, typer.Option("--types", metavar="K", min=1, help="Types of events, each with a rendezvous point.")
    ] = 1,
    seed: FirstSeed = 1,
    seeds: Seeds = 1,
    script: Annotated[
        Path | None, typer.Option("--script", metavar="FILE", help="Replay this script instead of generating one.")
    ] = None,
    save_script: Annotated[
        Path | None, typer.Option("--save-script", metavar="FILE", help="Write the script of the first seed.")
    ] = None,
    claims: Annotated[
        str,
        typer.Option(
            "--claims",
            metavar="A,B",
            help="Also check the thesis's claims of 5.10, 5.11, 5.12, 5.13, 5.14 or table-5.4, or all.",
        ),
    ] = "",
    plots: Annotated[Path | None, plot_option("Also draw charts, as SVG files in this folder.")] = None,
    record: Annotated[
        Path | None,
        record_option("one protocol and one seed"),
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Also show hops by phase and kind, and what events cost.")
    ] = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Compare protocols that hand moving clients over from one broker to another: what they lose, cost and take.

    Every protocol replays the same script on the same network. Without --busy the settings are those of the thesis:
    a move every hour, and nothing is published meanwhile. Exits with 1 if a protocol that should be safe loses an
    event, if a client is notified twice or of what it did not subscribe to, or if a cost is beyond its bounds.

    \b
    lost        events that a subscriber never received
    again       duplicates that clients recognised by their identifiers
    order       events that arrived behind a later one of the same publisher
    signals     message hops for each move
    updated     intermediate brokers updated for each move; `at most` is the mean upper bound
    latency     milliseconds from the first signal at the target to the end
    pause       milliseconds for which the client was not served
    skipped     moves whose update was left out, because nothing had to be told

    \b
    Example:
      $ weft sim mobility --busy --areas 4 --routers 6 --moves 40
      $ weft sim mobility --protocols acyclic,weft --moves 10 --save-script moves.jsonl
      $ weft sim mobility --claims 5.13 --seeds 3
    """
    from weftlab.mobility.campaign import NetworkSettings
    from weftlab.mobility.claims import figures_of
    from weftlab.mobility.script import MobilityArea, Movers, Script
    from weftlab.mobility.topology import find_topology

    who = Movers(_member(Movers, movers, "--movers"))
    lengths = {
        name: None if length is None else round(length * _MILLISECOND)
        for name, length in (("interval", interval), ("away", away))
    }
    area = None if where is None else _member(MobilityArea, where, "--where")
    changes = {"subscribers": subscribers, "publishers": publishers, "events": events, "area": area, **lengths}
    settings = _settings(busy, {"moves": moves, "movers": who, "kinds": types, **changes})
    given = None if script is None else Script.load(script)
    chosen = _chosen(protocols, who, given)
    if record is not None and (len(chosen) > 1 or seeds > 1):
        raise typer.BadParameter("a recording has one protocol and one seed; give --protocols NAME, without --seeds")
    if given is not None and seeds > 1:
        raise typer.BadParameter("a script is played once; leave out --seeds")
    if plots is not None and not plots.is_dir():
        raise typer.BadParameter(f"there is no directory {plots} for the charts; create it first")
    check_outputs(overwrite, save_script, record)
    network = NetworkSettings(None if topology is None else find_topology(topology), areas, routers, root)
    answer = _run(
        network, settings, chosen, _Wishes(seed, seeds, given, save_script, figures_of(claims), plots, record)
    )
    failures = [each for row in answer.rows for each in row.failures]
    if as_json:
        emit(
            {
                "network": {"topology": answer.tree.topology.name, "brokers": answer.tree.size, "root": root},
                "script": settings.to_dict() if given is None else str(script),
                "protocols": [row.to_dict() for row in answer.rows],
                "claims": [each.to_dict() for each in answer.claims],
                "failures": failures,
            }
        )
    else:
        _show(answer.title, answer.rows)
        if details:
            _show_details(answer.rows)
        _show_claims(answer.claims)
        for written in (save_script, record):
            if written is not None:
                say(f"written: {written}")
        for each in failures:
            say(each, "red")
    if failures:
        raise typer.Exit(1)


class _Wishes(NamedTuple):
    """What a user wants besides the comparison."""

    seed: int
    seeds: int
    script: Script | None
    save_script: Path | None
    figures: tuple[str, ...]
    plots: Path | None
    record: Path | None


class _Answer(NamedTuple):
    tree: BrokerTree
    title: str
    rows: list[ProtocolRow]
    claims: list[MobilityClaim]


def _settings(busy: bool, changes: dict[str, Any]) -> ScriptSettings:
    from dataclasses import replace

    from weftlab.mobility.script import BUSY, ScriptSettings

    given = {name: value for name, value in changes.items() if value is not None}
    return replace(BUSY if busy else ScriptSettings(), **given)


def _run(network: NetworkSettings, settings: ScriptSettings, chosen: list[str], wishes: _Wishes) -> _Answer:
    """Play the scripts, check the claims, and write the files."""
    from weft.kernels.jit import load
    from weftlab.mobility.campaign import check_scene, compare, prepared
    from weftlab.mobility.charts import draw_protocols
    from weftlab.mobility.claims import MobilityStudy
    from weftlab.mobility.recorded import record_run

    seeds = range(wishes.seed, wishes.seed + wishes.seeds)
    tree, script = prepared(network, settings, wishes.seed)
    script = wishes.script or script
    check_scene(chosen, tree, script)
    if wishes.save_script is not None:
        script.save(wishes.save_script)
    load()
    claims: list[MobilityClaim] = []
    with bar() as report:
        if wishes.record is not None:
            rows = [record_run(chosen[0], tree, script, wishes.record)]
        elif wishes.script is not None:
            rows = compare(chosen, [(tree, script)], report, 1)
        else:
            rows = compare(chosen, (prepared(network, settings, each) for each in seeds), report, len(seeds))
        if wishes.figures:
            study = MobilityStudy(network, seeds, settings.moves, report)
            claims = study.claims(wishes.figures)
            if wishes.plots is not None:
                study.draw(wishes.figures, wishes.plots)
    title = _title(tree.topology.name, settings, wishes.seed, wishes.seeds)
    if wishes.plots is not None:
        draw_protocols(rows, title, wishes.plots / "protocols.svg")
    return _Answer(tree, title, rows, claims)


def _member(known: Iterable[StrEnum], name: str, what: str) -> StrEnum:
    for each in known:
        if each == name:
            return each
    raise typer.BadParameter(f"{what} cannot be {name!r}: choose one of {', '.join(known)}")


def _chosen(names: str, movers: Movers, script: Script | None) -> list[str]:
    """The named protocols, or all that can move these clients."""
    from weftlab.mobility.protocols import PROTOCOLS
    from weftlab.mobility.script import Movers

    if not names:
        if script is not None:
            moved = {each.publishes for each in script.clients if script.moves_client(each.name)}
            movers = Movers.BOTH if len(moved) > 1 else Movers.PUBLISHERS if True in moved else Movers.SUBSCRIBERS
        return [name for name, info in PROTOCOLS.items() if info.moves(movers)]
    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in PROTOCOLS:
            raise typer.BadParameter(f"there is no protocol {name!r}: choose one of {', '.join(PROTOCOLS)}")
    return chosen


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _title(topology: str, settings: ScriptSettings, seed: int, seeds: int) -> str:
    runs = f"seed {seed}" if seeds == 1 else f"seeds {seed} to {seed + seeds - 1}"
    return (
        f"{topology}, {_many(settings.subscribers, 'subscriber')}, {_many(settings.publishers, 'publisher')}, "
        f"{_many(settings.moves, 'move')} ({settings.movers}, {settings.area}), {runs}"
    )


def _show(title: str, rows: Sequence[ProtocolRow]) -> None:
    from weft.tables import plain_table

    delivered, cost = plain_table(title), plain_table()
    for table, headings in (
        (delivered, ("protocol", "lost", "of", "again", "order", "verdict")),
        (cost, ("protocol", "signals", "updated", "at most", "latency", "pause", "skipped")),
    ):
        for heading in headings:
            justify = "left" if heading in {"protocol", "verdict"} else "right"
            table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        total = row.total
        counts = (total.lost, total.due, total.duplicates, total.disordered)
        delivered.add_row(row.name, *(f"{each:,}" for each in counts), row.verdict)
        bounded = bool(total.upper)
        cost.add_row(
            row.name,
            f"{total.mean('signals'):,.1f}",
            f"{total.mean('updated'):,.1f}" if bounded else "",
            f"{total.mean('upper'):,.0f}" if bounded else "",
            f"{total.mean('latencies') / _MILLISECOND:,.1f}",
            f"{total.mean('pauses') / _MILLISECOND:,.1f}",
            f"{total.skipped:,}",
        )
    console().print(delivered, "", cost, sep="\n")
    for row in rows:
        if row.total.losses:
            causes = ", ".join(f"{count:,} {cause}" for cause, count in row.total.losses.most_common())
            say(f"{row.name} lost {causes}", "dim")


def _show_details(rows: Sequence[ProtocolRow]) -> None:
    say("\nhops for each move, by phase and kind", "bold")
    for row in rows:
        total = row.total
        moves = max(1, total.moves - total.unfinished)
        say(f"{row.name}: " + ", ".join(f"{what} {hops / moves:.1f}" for what, hops in sorted(total.hops.items())))
        events = f"{total.event_hops:,} hops of events, {total.useless_hops:,} of them for nobody"
        say(f"  {events}; {total.forwarded:,} forwarded, {total.transferred:,} transferred", "dim")


def _show_claims(claims: Sequence[MobilityClaim]) -> None:
    if claims:
        say("\nclaims of the thesis", "bold")
    for each in claims:
        say(f"{each.figure}: {each.text}: {each.verdict} ({each.holds} of {each.seeds} seeds)")
        if each.evidence:
            say(f"  {each.evidence}", "dim")
