"""`weft ring status` draws a ring as its nodes describe it."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console

from weft.server.ring_status import NodeReport, view

QUARTER = 1 << 30
NODE = NodeReport(
    id=QUARTER,
    address="weft://127.0.0.1:8001",
    broker="north",
    clients=[],
    joined=True,
    predecessor="",
    successors=[],
    records=1_500,
    load=1_200,
    subscriptions=3,
    published=40,
    visited=50,
    received=60,
    waiting=0,
    owed=0,
    given_up=0,
    lost=0,
)
OTHER = msgspec.structs.replace(
    NODE, id=4 * QUARTER - 1, address="weft://127.0.0.1:8002", broker="south", joined=False, load=600
)


def drawn(*reports: NodeReport) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(view(list(reports)))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_each_node_has_a_line_with_its_share_and_its_load() -> None:
    first, *rest = drawn(NODE, OTHER).split("\n\n")
    assert first == (
        "2 nodes, in the order of the circle\n"
        "node            broker           share        matches       stored  own  sent  matched  got\n"
        "127.0.0.1:8001  north            ██░░░░  25%  ██████ 1,200   1,500    3    40       50   60\n"
        "127.0.0.1:8002  south (joining)  ████░░  75%  ███░░░   600   1,500    3    40       50   60"
    )
    assert "own      subscriptions of its clients" in rest[0]


def test_topics_and_debts_are_shown_where_there_are_any() -> None:
    assert "owed" not in drawn(NODE)
    assert "topics" not in drawn(NODE)
    owing = drawn(msgspec.structs.replace(NODE, owed=7, given_up=2), OTHER)
    assert "owed  lost" in owing
    assert "events that wait for a broker that is down" in owing
    assert "topics" in drawn(msgspec.structs.replace(NODE, topics=["tennis"]))
