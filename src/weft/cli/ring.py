"""`weft ring`: brokers that form a ring. No logic of its own: `weft.server` has it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.cli.shell import AsJson, console, emit

app = typer.Typer(no_args_is_help=True, help="Run brokers that form a ring, and show their load.")

_Key = Annotated[
    Path | None,
    typer.Option("--ring-key", metavar="FILE", help="A secret that all nodes of the ring share.", show_default=False),
]


@app.command()
def serve(  # noqa: PLR0913, PLR0917 - a command has its options
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The directory of the log.", show_default=False)
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="ADDRESS", help="Where clients connect.", show_default=False),
    ] = None,
    ring: Annotated[
        str, typer.Option("--ring", metavar="HOST:PORT", help="Where other nodes connect; port 0 means any free one.")
    ] = "127.0.0.1:0",
    bind: Annotated[
        str | None,
        typer.Option(
            "--ring-bind",
            metavar="HOST:PORT",
            help="Where to listen for other nodes, if they reach this one at another address: in a container, or "
            "behind a proxy.",
            show_default=False,
        ),
    ] = None,
    join: Annotated[
        list[str] | None,
        typer.Option(
            "--join",
            metavar="HOST:PORT",
            help="A node of the ring to join; may be repeated. A node that has been part of a ring needs none.",
            show_default=False,
        ),
    ] = None,
    new_ring: Annotated[
        bool,
        typer.Option(
            "--new-ring", help="Begin a ring, once: a node that has been part of one joins its members again."
        ),
    ] = False,
    interval: Annotated[
        list[str] | None,
        typer.Option(
            "--intervals",
            metavar="NAME=LOW:HIGH:COUNT",
            help="Place filters by this attribute, its values divided into COUNT intervals; LOW..HIGH for timestamps; "
            "may be repeated.",
            show_default=False,
        ),
    ] = None,
    replicas: Annotated[
        int, typer.Option("--replicas", metavar="N", min=1, help="How many nodes store each subscription.")
    ] = 2,
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            metavar="NAME",
            help="The attribute whose values are topics: each is stored at the nodes that subscribe to it.",
            show_default=False,
        ),
    ] = "",
    general: Annotated[
        list[str] | None,
        typer.Option(
            "--general",
            metavar="NAME=TOPIC,TOPIC",
            help="A general topic and the topics below it; may be repeated.",
            show_default=False,
        ),
    ] = None,
    depth: Annotated[int, typer.Option("--depth", metavar="N", min=0, help="Depth of a topic group's tree.")] = 4,
    rotate: Annotated[
        float | None,
        typer.Option(
            "--rotate",
            metavar="SECONDS",
            min=0.1,
            help="How often a group looks for a rotation of its tree that spreads subscriptions more evenly.",
            show_default=False,
        ),
    ] = None,
    merge: Annotated[
        str | None,
        typer.Option(
            "--merge",
            metavar="EQUAL:UNEQUAL",
            help="Merge topic groups with at least EQUAL members in common and at most UNEQUAL others.",
            show_default=False,
        ),
    ] = None,
    share: Annotated[
        str | None,
        typer.Option(
            "--share",
            metavar="KIND:NODES:THRESHOLD",
            help="Let others examine subscriptions for a node that has more than THRESHOLD, by replication or "
            "partition among NODES, such as replication:5:50.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        float,
        typer.Option(
            "--keep", metavar="SECONDS", help="How long subscriptions and events wait for a broker that is down."
        ),
    ] = 3600.0,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="The name of this broker.", show_default=False)
    ] = "",
    key: _Key = None,
    memory: Annotated[bool, typer.Option("--memory", help="Store nothing on disk: for tests.")] = False,
) -> None:
    """Run a broker that is a node of a ring, until it is interrupted.

    Clients connect to any node and get what is published at any other. All nodes need the same intervals, replicas,
    topic, general, depth, merge, share, keep and key. A broker that is to get what was published while it was down must
    come back with the same --data and the same --ring address; the same command does.

    \b
    Example:
      $ weft ring serve --listen weft://127.0.0.1:7001 --ring 127.0.0.1:8001 --data node1 --new-ring
      $ weft ring serve --listen weft://127.0.0.1:7002 --ring 127.0.0.1:8002 --join 127.0.0.1:8001 --data node2
    """
    from weft.server.config import load_config
    from weft.server.ring_config import ring_config
    from weft.server.serve import serve_ring

    flags = {"data": data, "memory": memory or None, "listen": None if listen is None else [listen]}
    given: dict[str, Any] = {path: value for path, value in flags.items() if value is not None}
    config = load_config(None, os.environ, given).config
    others: dict[str, Any] = {"replicas": replicas, "topic": topic, "depth": depth, "rotate": rotate, "keep": keep}
    others |= {"new_ring": new_ring, "bind": bind}
    made = ring_config(ring, join or (), interval or (), key, merge, share, general or (), **others)
    serve_ring(config, made, name)


@app.command()
def forget(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The node that will never come back.")],
    at: Annotated[
        list[str],
        typer.Option("--node", metavar="HOST:PORT", help="A node of the ring; all nodes it can reach are told."),
    ],
    key: _Key = None,
    as_json: AsJson = False,
) -> None:
    """Forget a node that is gone for good: nothing waits for it any more, and what is owed to it is given up.

    \b
    Example:
      $ weft ring forget 127.0.0.1:8003 --node 127.0.0.1:8001
    """
    from weft.server.ring_status import forget_node

    told = forget_node(address, at, key)
    if as_json:
        emit({"told": told})
        return
    console().print(f"{address} is forgotten by {len(told)} node{'s' * (len(told) != 1)}")


@app.command()
def status(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where a node of the ring listens for others.")],
    key: _Key = None,
    as_json: AsJson = False,
) -> None:
    """Draw the ring with the load of its nodes.

    \b
    Example:
      $ weft ring status 127.0.0.1:8001
    """
    from weft.server.ring_status import ring_reports

    reports = ring_reports(address, key)
    if as_json:
        from msgspec import to_builtins

        emit({"nodes": to_builtins(reports)})
        return
    from weft.server.ring_status import view

    console().print(view(reports))
