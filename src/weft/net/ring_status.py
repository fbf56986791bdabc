"""A ring as its nodes describe it. Law: every node that can be reached from the first one by successors is listed once,
in the order of the circle.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table

from weft.broker.frames import FrameReader, joined
from weft.errors import OptionError, RemoteProtocolError
from weft.net.addresses import Address
from weft.net.ring_config import SPACE
from weft.net.ring_options import read_key
from weft.net.ring_report import NodeReport
from weft.net.ring_transport import RingGreeting, RingRefusal

_PATIENCE = 5.0  # seconds
_BAR = 6  # characters
_MOST = 1_000  # nodes
_MEANINGS = {  # of columns
    "share": "part of the circle that the node answers for",
    "matches": "subscriptions that it matches for others",
    "stored": "subscriptions that it stores, with copies",
    "own": "subscriptions of its clients",
    "sent": "events of its clients",
    "matched": "events that came to it to be matched",
    "got": "events for its clients",
    "topics": "groups that it is a member of",
    "owed": "events that wait for a broker that is down",
    "lost": "events that have waited for too long",
}

_decoder: msgspec.msgpack.Decoder[NodeReport | RingRefusal] = msgspec.msgpack.Decoder(NodeReport | RingRefusal)


async def ask(address: str, key: bytes = b"", tls: ssl.SSLContext | None = None) -> NodeReport:
    """What one node says of itself. Raises OptionError if it cannot be reached or refuses."""
    place = Address.parse(address)
    try:
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection(place.host, place.port, ssl=tls)
            try:
                writer.write(joined([msgspec.msgpack.encode(RingGreeting(key, asks=True))]))
                data = await reader.read(-1)
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error
        raise OptionError(f"no node of a ring answers at {place}: {reason or 'no answer'}") from None
    answer = _read(data)
    if answer is None:
        raise OptionError(f"what listens at {place} is not a node of a ring; pass a node's ring address")
    if isinstance(answer, RingRefusal):
        raise OptionError(f"{place} refuses: {answer.reason}")
    return answer


def _read(data: bytes) -> NodeReport | RingRefusal | None:
    try:
        return _decoder.decode(FrameReader().feed(data)[0])
    except (IndexError, ValueError, RemoteProtocolError):
        return None


async def walk(address: str, key: bytes = b"", tls: ssl.SSLContext | None = None) -> list[NodeReport]:
    """All nodes, by identifier, beginning with any one of them. Nodes that do not answer are left out."""
    first = await ask(address, key, tls)
    found = {first.address: first}
    tried = {first.address}
    waiting = list(first.successors)
    while waiting and len(found) < _MOST:
        some = [each for each in dict.fromkeys(waiting) if each not in tried]
        tried.update(some)
        waiting = []
        for report in await asyncio.gather(*(ask(each, key, tls) for each in some), return_exceptions=True):
            if isinstance(report, NodeReport):
                found[report.address] = report
                waiting += report.successors
            elif not isinstance(report, OptionError):
                raise report
    return sorted(found.values(), key=lambda report: report.id)


def ring_reports(address: str, key: Path | None) -> list[NodeReport]:
    """What the nodes of a ring say of themselves, by identifier. Raises OptionError."""
    return asyncio.run(walk(address, read_key(key)))


def view(reports: list[NodeReport]) -> RenderableType:
    """The circle, unrolled: one line per node, with its share of the identifiers and its load."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("node", "broker", "share", "matches"):
        table.add_column(name, no_wrap=True)
    for name in ("stored", "own", "sent", "matched", "got"):
        table.add_column(name, justify="right")
    grouped = any(report.topics for report in reports)
    owing = any(report.owed or report.given_up for report in reports)
    for name, shown in (("topics", grouped), ("owed", owing), ("lost", owing)):
        if shown:
            table.add_column(name, justify="right")
    most = max((report.load for report in reports), default=0)
    digits = len(f"{most:,}")
    for at, report in enumerate(reports):
        share = SPACE.distance(reports[at - 1].id, report.id) / SPACE.size if len(reports) > 1 else 1.0
        counts = [report.records, report.subscriptions, report.published, report.visited, report.received]
        counts += [len(report.topics)] if grouped else []
        counts += [report.owed, report.given_up] if owing else []
        table.add_row(
            report.address.removeprefix("weft://"),
            report.broker if report.joined else f"{report.broker} (joining)",
            f"{_bar(share)} {share:4.0%}",
            f"{_bar(report.load / most if most else 0)} {report.load:>{digits},}",
            *(f"{count:,}" for count in counts),
        )
    nodes = "1 node" if len(reports) == 1 else f"{len(reports)} nodes, in the order of the circle"
    legend = Table(box=None, pad_edge=False, show_header=False, style="dim")
    for word, meaning in _MEANINGS.items():
        if word in {column.header for column in table.columns}:
            legend.add_row(word, meaning)
    return Group(nodes, table, "", legend)


def _bar(part: float) -> str:
    return ("█" * round(part * _BAR)).ljust(_BAR, "░")
