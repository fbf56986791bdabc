"""`weft sim ring`: the designs of the ring side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.progress import bar
from weft.cli.shell import AsJson, Overwrite, check_outputs, console, emit, say
from weftlab.commands.sim_options import FirstSeed, Seeds, plot_option, record_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftlab.ring.ring_claims import Claim
    from weftlab.ring.ring_comparison import DesignRow
    from weftlab.ring.ring_peers import SchemeCounts


def ring(  # noqa: PLR0913, PLR0917 - a simulation has many sides
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", min=2, help="How many nodes.")] = 512,
    ring_size: Annotated[int, typer.Option("--ring", metavar="N", help="Size of the circle, a power of two.")] = 4096,
    subscriptions: Annotated[
        int, typer.Option("--subscriptions", metavar="N", min=1, help="How many subscriptions.")
    ] = 3000,
    events: Annotated[int, typer.Option("--events", metavar="N", min=1, help="How many events.")] = 9000,
    theta: Annotated[
        float, typer.Option("--theta", metavar="SKEW", min=0, max=5, help="Skew of the topics; 0 is uniform.")
    ] = 0.6,
    environment: Annotated[str, typer.Option("--environment", metavar="NAME", help="busy or free.")] = "free",
    depth: Annotated[int, typer.Option("--depth", metavar="N", min=0, help="Depth of a group's tree.")] = 6,
    rotation: Annotated[
        int, typer.Option("--rotation", metavar="N", min=0, help="Rotation distance of a group's tree.")
    ] = 250,
    sharers: Annotated[int, typer.Option("--sharers", metavar="C", min=2, help="How many nodes share a load.")] = 5,
    threshold: Annotated[
        int, typer.Option("--threshold", metavar="N", min=1, help="Share the load above this number of subscriptions.")
    ] = 50,
    by_topic: Annotated[
        bool,
        typer.Option(
            "--by-topic", help="Nodes examine only the subscriptions of the event's topic, not all that they store."
        ),
    ] = False,
    search: Annotated[
        bool, typer.Option("--search", help="Find the depth and the threshold with the least cost first.")
    ] = False,
    peers: Annotated[bool, typer.Option("--peers", help="Also count brokers like the paper's Table 1.")] = False,
    claims: Annotated[
        str, typer.Option("--claims", metavar="4,5", help="Also check the claims of these figures (4 to 9), or all.")
    ] = "",
    seeds: Seeds = 1,
    seed: FirstSeed = 1,
    plot: Annotated[Path | None, plot_option("Also draw a chart, an .svg file.")] = None,
    designs: Annotated[
        str, typer.Option("--designs", metavar="A,B", help="The designs to compare. Default: all of them.")
    ] = "",
    record: Annotated[
        Path | None,
        record_option("one design and one seed"),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Compare ways to place subscriptions on a peer-to-peer ring: what they cost, and how soon matches are found.

    The settings are those of the paper that the ring follows. A design that misses a match is a bug, and ends the
    command with 1.

    \b
    cost       seconds that nodes work: storing, registering, routing, examining
    latency    mean seconds from publishing an event to the discovery of a match
    hops       mean hops of an event to all nodes that it visits
    stores     nodes that store subscriptions
    largest    most subscriptions at one node
    gini       0 if all nodes store equally many, towards 1 if few store everything

    \b
    Example:
      $ weft sim ring --nodes 128 --environment busy --events 2000
      $ weft sim ring --claims 4 --seeds 3 --events 2000
      $ weft sim ring --designs "topic groups" --nodes 64 --subscriptions 200 --events 50 --record groups.weftrun
    """
    from weftlab.ring.ring_comparison import RingOptions, compare, figures_of
    from weftlab.ring.ring_workload import RingWorkloadSettings

    settings = RingWorkloadSettings(
        nodes=nodes, ring=ring_size, subscriptions=subscriptions, events=events, theta=theta
    )
    options = RingOptions(environment, depth, rotation, sharers, threshold, search, by_topic)
    chosen = figures_of(claims)
    names = [name.strip() for name in designs.split(",")] if designs else []
    if record is not None and (len(names) != 1 or seeds > 1):
        raise typer.BadParameter("a recording has one design and one seed; give --designs NAME, without --seeds")
    check_outputs(overwrite, plot, record)
    if plot is not None:
        from weftlab.ring.ring_chart import check_svg

        check_svg(plot)
    with bar() as report:
        found = compare(
            settings, options, range(seed, seed + seeds), chosen, peers=peers, names=names, record=record, report=report
        )
    runs = f"seed {seed}" if seeds == 1 else f"seeds {seed} to {seed + seeds - 1}"
    title = f"{nodes:,} nodes, {subscriptions:,} subscriptions, {events:,} events, {environment}, {runs}"
    if plot is not None:
        from weftlab.ring.ring_chart import draw_designs

        draw_designs(found.rows, title, plot)
    if as_json:
        emit(found.to_dict())
        return
    _show_designs(title, found.rows)
    if found.schemes:
        _show_schemes(found.schemes)
    if found.claims:
        _show_claims(found.claims)
    for written in (plot, record):
        if written is not None:
            say(f"written: {written}")


def _show_designs(title: str, rows: Sequence[DesignRow]) -> None:
    from weft.tables import plain_table

    table = plain_table(title)
    for heading in ("design", "cost", "latency", "hops", "examined", "stores", "largest", "gini"):
        table.add_column(heading, justify="left" if heading == "design" else "right", no_wrap=True)
    for row in rows:
        facts = row.means()
        table.add_row(
            row.name,
            f"{facts['cost']:,.1f}",
            f"{facts['latency']:.2f}",
            f"{facts['hops']:.1f}",
            f"{facts['examined']:.1f}",
            f"{facts['rendezvous']:,.0f}",
            f"{facts['largest']:,.0f}",
            f"{facts['gini']:.2f}",
        )
    console().print(table)
    matches = sum(outcome.matches for outcome in rows[0].outcomes)
    say(f"every design found the same {matches:,} matches; none was missed", "dim")


def _show_schemes(schemes: Sequence[SchemeCounts]) -> None:
    from weft.tables import plain_table

    table = plain_table("brokers that a scheme hashes to")
    for heading in ("scheme", "a subscription", "an event", "in all"):
        table.add_column(heading, justify="left" if heading == "scheme" else "right", no_wrap=True)
    for each in schemes:
        table.add_row(each.scheme, f"{each.per_subscription:.2f}", f"{each.per_event:.2f}", f"{each.rendezvous:,}")
    console().print("", table, sep="\n")


def _show_claims(claims: Sequence[Claim]) -> None:
    say("\nclaims of the paper", "bold")
    for each in claims:
        say(f"figure {each.figure}: {each.text}: {each.verdict} ({each.holds} of {each.seeds} seeds)")
        if each.evidence:
            say(f"  {each.evidence}", "dim")
