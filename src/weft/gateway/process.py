"""The gateway as a process: `weft gateway`, alone or started by `weft serve`.

Started by a broker, it ends with it: the broker holds the other end of its standard input.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from weft.client.client import Client, connect
from weft.client.tls import TlsConfig, server_context
from weft.errors import WeftError
from weft.gateway.app import LOOPBACK, Gateway, GatewaySite
from weft.gateway.clients import ClientPool
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.predicate_modules import filter_predicates
from weft.model.schema import Schema
from weft.server.clock import clock
from weft.server.config import BrokerConfig, GatewayConfig, http_place
from weft.server.http import guarded, http_serving
from weft.server.log_lines import LogLines
from weft.server.security.files import WatchedFile
from weft.server.security.tokens import TokenKeys, TokenPolicy, Tokens, read_keys

MOST_CONNECTIONS = 10_000
_HEARTBEAT = 10.0
_EVERY = 0.5  # seconds between two looks at the keys
SiteAround = Callable[[Gateway], GatewaySite]


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """How a gateway reaches its broker, and what it knows of it."""

    config: GatewayConfig
    brokers: tuple[str, ...]
    authority: Path | None = None  # of the broker's certificate
    schema: Path | None = None
    predicates: Predicates = NO_PREDICATES
    tls: TlsConfig = field(default_factory=TlsConfig)
    keys: Path | None = None  # with which tokens are verified before they are passed on
    policy: TokenPolicy = field(default_factory=TokenPolicy)


def gateway_options(config: BrokerConfig, address: str) -> GatewayOptions:
    """The options of a gateway beside a broker with these settings, which it reaches at this address.

    Raises OptionError or FilterError if its predicates cannot be used.
    """
    auth, tls = config.auth, config.tls
    is_plain = config.gateway.is_local or config.plain_text
    return GatewayOptions(
        config.gateway,
        (address,),
        schema=config.schema,
        predicates=filter_predicates(config.predicates, config.taxonomy),
        tls=TlsConfig() if is_plain else TlsConfig(tls.certificate, tls.key),
        keys=auth.keys,
        policy=TokenPolicy(auth.audience, auth.issuer, auth.leeway, auth.max_lifetime, auth.single_use),
    )


@asynccontextmanager
async def running_gateway(
    options: GatewayOptions, lines: LogLines, around: SiteAround | None = None
) -> AsyncIterator[tuple[str, int]]:
    """A gateway in this loop until the block ends. Yields host and port. Raises OptionError.

    `around` puts more around it, such as the console, unless `gateway.console` is off.
    """
    config = options.config
    host, port = http_place(config.listen)
    schema = None if options.schema is None else Schema.load(options.schema)
    keys = None if options.keys is None else WatchedFile(options.keys, read_keys, lines)
    tokens = None if keys is None else Tokens(keys.value, options.policy, since=clock().utc)

    def client(token: bytes) -> Client:
        authority = None if options.authority is None else str(options.authority)
        return connect(options.brokers, token=token or None, ca=authority, heartbeat=_HEARTBEAT)

    counts: Counter[str] = Counter()
    pool = ClientPool(
        client, counts, schema=schema, predicates=options.predicates, tokens=tokens, single_use=options.policy.once
    )
    named = {f"[{host}]" if ":" in host else host, *(each.lower() for each in config.hosts)}
    gateway = Gateway(pool, lines, counts, hosts=LOOPBACK | named, origins=frozenset(config.origins), config=config)
    app: GatewaySite = gateway if around is None or not config.console else around(gateway)
    tls = server_context(options.tls)
    async with (
        http_serving(
            app,
            host,
            port,
            counts,
            http=guarded(counts, connections=MOST_CONNECTIONS),
            ws="websockets-sansio",
            ws_per_message_deflate=False,
            ws_max_size=1 << 20,
            ssl_context_factory=None if tls is None else lambda *_: tls,
        ) as place,
        app.running(),
    ):
        watching = asyncio.create_task(_watch(keys, tokens), name="weft-keys")
        try:
            yield place
        finally:
            watching.cancel()


async def _watch(keys: WatchedFile[TokenKeys] | None, tokens: Tokens | None) -> None:
    """Use new keys within a second, as the broker does."""
    while keys is not None and tokens is not None:
        await asyncio.sleep(_EVERY)
        if keys.poll():
            tokens.keys = keys.value


def run_child(around: SiteAround | None = None) -> None:
    """Run a gateway that a broker has started: its settings come from standard input, which ends with the broker."""
    config, address = pickle.load(sys.stdin.buffer)
    assert isinstance(config, BrokerConfig)
    lines = LogLines(config.logging.format, config.logging.level)
    try:
        serve_gateway(gateway_options(config, address), lines, around, watched=True)
    except WeftError as error:
        lines.error("gateway failed", reason=error)
        sys.exit(1)


def serve_gateway(
    options: GatewayOptions, lines: LogLines, around: SiteAround | None = None, *, watched: bool = False
) -> None:
    """Run a gateway until SIGTERM or SIGINT; if it is `watched`, also until standard input ends.

    The process gets less processor time than others of this machine, so that a busy gateway does not slow the broker.
    """
    if options.config.nice and hasattr(os, "nice"):
        os.nice(options.config.nice)
    asyncio.run(_serve(options, lines, around, watched))


async def _serve(options: GatewayOptions, lines: LogLines, around: SiteAround | None, watched: bool) -> None:
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    loop.set_exception_handler(lambda _, context: lines.error("unexpected", message=context.get("message", "")))
    if watched:
        loop.add_reader(sys.stdin.fileno(), asked.set)
    async with running_gateway(options, lines, around) as (host, port):
        scheme = "https" if options.tls.certificate else "http"
        shown = f"[{host}]" if ":" in host else host
        lines.info("gateway", address=f"{scheme}://{shown}:{port}", process=os.getpid())
        if watched:
            print("ready", flush=True)
        await asked.wait()
    lines.info("gateway stopped")
