"""`weft serve`: a log, a core and a node put together, and the life of their process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import re
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.broker.broker import Core
from weft.client.tls import client_context, server_context
from weft.errors import OptionError, WeftError
from weft.language.predicate_modules import filter_predicates
from weft.log.base import Log, State
from weft.log.memory import MemoryLog
from weft.log.opening import LogOptions, open_log
from weft.model.schema import Schema
from weft.protocol.addresses import Address
from weft.routing.options import ModelOptions
from weft.routing.table import Role
from weft.server import children
from weft.server.committer import Trimmer
from weft.server.config import BrokerConfig, http_place
from weft.server.connection import Dialler
from weft.server.initial_load import InitialTable, check_rows, is_loaded, load, routing_table
from weft.server.log_lines import LogLines
from weft.server.metrics import http_server
from weft.server.node import BrokerNode, NodeOptions
from weft.server.process import GarbageRounds, is_cold, keep_pauses_short, room_for, warm_up
from weft.server.security.files import Security
from weft.server.workers import WorkerPlace, check_count, home_of, run_pool

if TYPE_CHECKING:
    from weft.server.ring_config import RingConfig

_SWITCH = 0.0001  # seconds after which the committing thread may run; Python's default is 5 ms


_RING = "ring"  # the neighbour by which a broker of a ring reaches the others
_NO_PROFILES = "brokers on a ring have no profiles, because nothing there travels in order; use a network of links"


@asynccontextmanager
async def start(
    config: BrokerConfig, lines: LogLines | None = None, place: WorkerPlace | None = None
) -> AsyncIterator[BrokerNode]:
    """A broker that runs in this loop until the block ends. Raises OptionError and LogError."""
    lines = lines or LogLines(level="error")
    schema = None if config.schema is None else Schema.load(config.schema)
    tls = server_context(config.tls)
    security = Security(config, schema, lines)
    predicates = filter_predicates(config.predicates, config.taxonomy)
    table = routing_table(config, schema)
    most, fewer = room_for(config.connections.max)
    if fewer:
        lines.warning("file limit", reason=fewer)
    log = _open(config, schema, lines)
    builder = ThreadPoolExecutor(1, "weft-index")
    tasks: list[asyncio.Task[Any]] = []
    try:
        stored = log.restore()
        core = Core(
            log,
            stored,
            table,
            draw=lambda: secrets.randbits(63),
            name=config.name,
            schema=schema,
            rules=security.rules,
            link_credentials=security.link_credentials,
            limits=config.limits,
            advertised=config.advertised,
            predicates=predicates,
            executor=builder,
            no_profiles=_NO_PROFILES if _RING in config.links else "",
        )
        _load(core, log, stored, config, lines, place)
        options = NodeOptions(config.name, config.connections.backlog, most, config.connections.drain_timeout / 1e6)
        async with BrokerNode(core, log, options, lines) as node, contextlib.AsyncExitStack() as around:
            trimmer = Trimmer(node, config.log.retention, config.log.trim_every / 1e6)
            node.when_full = trimmer.hurry
            node.authenticator = security.authenticator
            for name, work in (("security", security.watch(node)), ("trimmer", trimmer.run())):
                tasks.append(asyncio.create_task(work, name=f"weft-{name}"))
            node.unlink_others(config.links)
            for peer, link in config.links.items():
                node.link(peer, Role(link.role))
            await node.settled()
            if place is not None:
                core.place(lambda connection, session: place.home(node.connections[connection], session))
                if not place.worker:
                    await node.listen(place.hub, trusted=True)
            for address in config.addresses:
                shared = place is not None and address in place.addresses
                if place is None or not shared or not address.unix or not place.worker:
                    lines.info("listening", address=await node.listen(address, tls, shared=shared))
            for peer, link in config.links.items():
                if link.address:
                    secured = client_context(config.tls.authority, config.tls.certificate, config.tls.key)
                    dialling = Dialler(node, peer, Address.parse(link.address), secured).run()
                    tasks.append(asyncio.create_task(dialling, name=f"weft-link-{peer}"))
            _balance(node, config)
            await around.enter_async_context(_beside(node, config, lines))
            try:
                yield node
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        with contextlib.suppress(WeftError):
            log.close()  # again, if the node did not come to it
        builder.shutdown()


@asynccontextmanager
async def _beside(node: BrokerNode, config: BrokerConfig, lines: LogLines) -> AsyncIterator[None]:
    """What the settings want beside the broker: HTTP, the gateway, re-tuning."""
    async with contextlib.AsyncExitStack() as around:
        if config.http:
            host, port = await around.enter_async_context(http_server(node, *http_place(config.http)))
            lines.info("http", address=f"http://{host}:{port}")
        if config.gateway.listen:
            await around.enter_async_context(children.gateway(node, config, lines))
        if config.retune_every:
            await around.enter_async_context(children.retuning(node, config, lines))
        yield


def _balance(node: BrokerNode, config: BrokerConfig) -> None:
    """Share the load with the other brokers of the network, if there are any."""
    settings = config.balance
    if config.name and node.addresses:
        reached = settings.address or str(node.addresses[0])
        node.driver.do(node.core.balance, settings.enabled, reached, settings.limits)


def _open(config: BrokerConfig, schema: Schema | None, lines: LogLines) -> Log:
    if config.memory:
        return MemoryLog(secrets.token_hex(16))
    opened = open_log(config.data, LogOptions(schema=schema, quota=config.log.quota or None))
    if opened.copied:
        lines.warning("new log id", reason=opened.copied)
    lines.info("log", directory=config.data, created=opened.created, incarnation=opened.log.incarnation)
    return opened.log


def _load(  # noqa: PLR0913, PLR0917 - what it puts together
    core: Core, log: Log, stored: State, config: BrokerConfig, lines: LogLines, place: WorkerPlace | None
) -> None:
    """Load the subscriptions that the settings name, if any, unless that was done before."""
    if config.load is None:
        return
    table = InitialTable.open(config.load)
    digest = table.digest()
    if is_loaded(stored, digest):
        lines.info("loaded before", source=config.load)
        return
    homes = (lambda _: True) if place is None else (lambda session: home_of(session, place.workers) == place.worker)
    report = load(core, log, table.rows(), digest, is_home=homes, named=config.auth.is_on)
    lines.info("loaded", source=config.load, subscriptions=report.added, known=report.known)
    if report.refused:
        lines.warning("subscriptions refused", count=report.refused.total(), reason=report.reasons)


# What runs as long as a broker serves, and ends before it.
Around = Callable[[BrokerNode], AbstractAsyncContextManager[Any]]


def serve(
    config: BrokerConfig, ready: Callable[[BrokerNode], None] | None = None, around: Around | None = None
) -> None:
    """Run a broker until SIGTERM or SIGINT, then stop it without losing anything. Raises what ended it otherwise."""
    if os.name == "nt":
        raise OptionError("a broker needs Linux or macOS; on Windows, Weft is a library and a client")
    lines = LogLines(config.logging.format, config.logging.level)
    if not config.memory:
        check_count(config.data, config.workers)
    if config.workers > 1:
        check_files(config)
        if not asyncio.run(run_pool(config, lines)):
            raise OptionError("a worker could not start, or failed; its own lines say why")
        return
    sys.setswitchinterval(_SWITCH)
    with asyncio.Runner(loop_factory=_loop_factory(config)) as runner:
        runner.run(_serve(config, lines, ready, around=around))


def run_worker() -> None:
    """Run one worker of several; its settings come from standard input."""
    config, place = pickle.load(sys.stdin.buffer)
    assert isinstance(config, BrokerConfig)
    sys.setswitchinterval(_SWITCH)
    lines = LogLines(config.logging.format, config.logging.level, worker=place.worker)
    try:
        with asyncio.Runner(loop_factory=_loop_factory(config)) as runner:
            runner.run(_serve(config, lines, lambda _: print("ready", flush=True), place))
    except WeftError as error:
        lines.error("failed", reason=error)
        sys.exit(1)


def check_files(config: BrokerConfig) -> None:
    """Raise OptionError or SchemaError if a file that the settings name cannot be used."""
    server_context(config.tls)
    schema = None if config.schema is None else Schema.load(config.schema)
    Security(config, schema, LogLines(level="error"))
    routing_table(config, schema)
    if config.load is not None:
        check_rows(
            InitialTable.open(config.load),
            named=config.auth.is_on,
            predicates=filter_predicates(config.predicates, config.taxonomy),
        )
    _loop_factory(config)


def _loop_factory(config: BrokerConfig) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not config.uvloop:
        return None
    try:
        import uvloop
    except ImportError:
        raise OptionError("uvloop is not installed: install weft[uvloop], or leave out the setting uvloop") from None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(
    config: BrokerConfig,
    lines: LogLines,
    ready: Callable[[BrokerNode], None] | None = None,
    place: WorkerPlace | None = None,
    around: Around | None = None,
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: lines.error("unexpected", **_described(context)))
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    schema = None if config.schema is None else Schema.load(config.schema)
    warm = partial(warm_up, lambda: routing_table(config, schema))
    compiling: asyncio.Future[int] | None = None
    if is_cold():  # the first start on this machine: clients need not wait until all kernels are compiled
        lines.info("compiling", note="kernels are compiled once on this machine; until then the broker is slower")
        compiling = loop.run_in_executor(None, warm)
        compiling.add_done_callback(lambda _: lines.info("compiled"))
    else:
        warm()
    async with start(config, lines, place) as node:
        if place is not None:  # its pool holds the other end
            loop.add_reader(sys.stdin.fileno(), asked.set)
        node.ended.add_done_callback(lambda _: asked.set())
        if compiling is not None and around is not None:  # what runs around it must answer others in time
            stopping = asyncio.create_task(asked.wait())
            first: list[asyncio.Future[Any]] = [compiling, stopping]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
        async with contextlib.nullcontext() if around is None or asked.is_set() else around(node):
            keep_pauses_short()
            garbage = asyncio.create_task(GarbageRounds(node).run(), name="weft-garbage")
            if ready is not None:
                ready(node)
            lines.info("ready", process=os.getpid())
            await asked.wait()
            garbage.cancel()
            if compiling is not None:
                compiling.cancel()
        if not node.ended.done():
            if place is not None:
                loop.remove_reader(sys.stdin.fileno())
            lines.info("stopping", connections=len(node.connections))
            for number in (signal.SIGTERM, signal.SIGINT):  # a second signal stops at once
                loop.add_signal_handler(number, node.hurry)
            await node.stop()
    node.ended.result()
    lines.info("stopped")


def _described(context: dict[str, Any]) -> dict[str, Any]:
    error = context.get("exception")
    return {"message": context.get("message", ""), "error": "" if error is None else f"{type(error).__name__}: {error}"}


def serve_ring(config: BrokerConfig, ring: RingConfig, name: str = "") -> None:
    """Run a broker on a ring until SIGTERM or SIGINT; it leaves the ring before it stops."""
    from weft.ring.bridge import RING
    from weft.server.config import LinkConfig
    from weft.server.ring_service import RingService

    address = re.sub(r"[^\w.]+", "-", f"{ring.listen.host}-{ring.listen.port}")
    named = name or config.name or (address if ring.listen.port else "node")
    alone = replace(config, name=named, model=ModelOptions("simple"), links={RING: LinkConfig()})
    data = None if config.memory else config.data
    predicates = filter_predicates(config.predicates, config.taxonomy)
    serve(alone, around=lambda node: RingService(node, replace(ring, data=data, predicates=predicates)))
