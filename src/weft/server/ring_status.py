"""The status of a ring, as its nodes report it.

Every node that can be reached from the first one by successors is listed once, in the order of the circle.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table

from weft.errors import OptionError, RemoteProtocolError
from weft.protocol.addresses import Address
from weft.protocol.codec import FrameReader, joined
from weft.server.ring_config import SPACE, read_key
from weft.server.ring_transport import RingGreeting, RingRefusal


class NodeReport(msgspec.Struct, frozen=True, tag=True):
    """The status of one node, as it reports it."""

    id: int
    address: str
    broker: str
    clients: list[str]  # addresses for clients
    joined: bool
    predecessor: str
    successors: list[str]
    records: int  # records stored here, copies included; a subscription has one under each of its keys
    load: int  # records that it matches
    subscriptions: int  # of its own clients, as the ring knows them
    published: int  # events of its own clients, since its start
    visited: int  # events that came to be matched here
    received: int  # events for its own clients
    waiting: int  # events on their way
    owed: int  # events of its own clients that wait for a broker that is down
    given_up: int  # and those that have waited for too long
    lost: int  # messages that could not be sent
    topics: list[str] = []  # whose groups it is a member of
    members: int = 0  # other nodes that it knows
    unreachable: dict[str, str] = {}  # those of them that do not answer, and since when


_PATIENCE = 5.0  # seconds
_BAR = 6  # characters
_MOST = 1_000  # nodes
_MEANINGS = {  # of columns
    "share": "part of the circle that the node answers for",
    "matches": "records that it matches",
    "stored": "records that it stores: a subscription is stored under each of its keys, with copies",
    "own": "subscriptions of its clients",
    "sent": "events of its clients",
    "matched": "events that came to it to be matched",
    "got": "events for its clients",
    "topics": "groups that it is a member of",
    "owed": "events that wait for a broker that is down",
    "lost": "events that have waited for too long",
}

_decoder: msgspec.msgpack.Decoder[NodeReport | RingRefusal] = msgspec.msgpack.Decoder(NodeReport | RingRefusal)


async def ask(address: str, key: bytes = b"", forgets: str = "") -> NodeReport:
    """The report of one node, which forgets another one first. Raises OptionError if it does not answer, or refuses."""
    place = Address.parse(address)
    try:
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection(place.host, place.port)
            try:
                writer.write(joined([msgspec.msgpack.encode(RingGreeting(key, asks=True, forgets=forgets))]))
                data = await reader.read(-1)
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error
        raise OptionError(f"no node of a ring answers at {place}: {reason or 'no answer'}") from None
    try:
        answer = _decoder.decode(FrameReader().feed(data)[0])
    except (IndexError, ValueError, RemoteProtocolError):
        raise OptionError(f"what listens at {place} is not a node of a ring; pass a node's ring address") from None
    if isinstance(answer, RingRefusal):
        raise OptionError(f"{place} refuses: {answer.reason}")
    return answer


async def walk(address: str, key: bytes = b"") -> list[NodeReport]:
    """All nodes, by identifier, beginning with any one of them. Nodes that do not answer are left out."""
    first = await ask(address, key)
    found = {first.address: first}
    tried = {first.address}
    waiting = list(first.successors)
    while waiting and len(found) < _MOST:
        some = [each for each in dict.fromkeys(waiting) if each not in tried]
        tried.update(some)
        waiting = []
        for report in await asyncio.gather(*(ask(each, key) for each in some), return_exceptions=True):
            if isinstance(report, NodeReport):
                found[report.address] = report
                waiting += report.successors
            elif not isinstance(report, OptionError):
                raise report
    return sorted(found.values(), key=lambda report: report.id)


def forget_node(address: str, at: list[str], key: Path | None) -> list[str]:
    """Have all nodes that can be reached forget one; returns their addresses. Raises OptionError."""
    gone, secret = str(Address.parse(address)), read_key(key)

    async def forget() -> list[str]:
        reports = {report.address: report for each in at for report in await walk(each, secret)}
        if gone in reports:
            raise OptionError(f"{gone} answers; stop it first")
        for each in reports:
            await ask(each, secret, forgets=gone)
        return sorted(reports)

    return asyncio.run(forget())


def ring_reports(address: str, key: Path | None) -> list[NodeReport]:
    """The reports of the nodes of a ring, by identifier. Raises OptionError."""
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
    silent = {address: since for report in reports for address, since in report.unreachable.items()}
    if silent:
        members = f"{len(silent)} member{'s' * (len(silent) != 1)}"
        nodes += f"; {members} unreachable: {', '.join(f'{a} since {t}' for a, t in sorted(silent.items()))}"
    legend = Table(box=None, pad_edge=False, show_header=False, style="dim")
    for word, meaning in _MEANINGS.items():
        if word in {column.header for column in table.columns}:
            legend.add_row(word, meaning)
    return Group(nodes, table, "", legend)


def _bar(part: float) -> str:
    return ("█" * round(part * _BAR)).ljust(_BAR, "░")
