"""The settings of a broker. A setting has the same name in the file, the environment and on the command line.

    weft.toml                environment            weft serve
    data = "/var/lib/weft"   WEFT_DATA=...          --data ... or --set data=...
    [log]
    quota = "10 GiB"         WEFT_LOG_QUOTA=...     --set log.quota="10 GiB"

Flags win over the environment, and the environment over the file. Defaults are safe: a broker that other machines could
reach unprotected is refused unless the settings ask for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from weft.broker.limits import BalanceLimits, ClientLimits
from weft.client.tls import TlsConfig
from weft.errors import OptionError
from weft.log.retention import DEFAULT_RETENTION, Retention
from weft.protocol.addresses import DEFAULT_PORT, Address
from weft.routing.options import ModelOptions
from weft.server.settings import Bytes, Duration, Loaded, Units, load

DEFAULT_ADDRESS = Address("weft", "localhost", DEFAULT_PORT)
_LIMITS = ClientLimits(idle=60_000_000)  # a client that vanishes is noticed
_NAME = 64  # characters of a broker's name


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """`[auth]`: how clients are authenticated; see docs/guides/security.md."""

    keys: Path | None = None  # a JWK set: clients may send tokens that one of these keys has signed
    audience: str = ""  # the name under which tokens know this broker
    issuer: str = ""  # who must have issued a token
    leeway: Duration = 10_000_000  # by which clocks may differ
    max_lifetime: Duration = 0  # of a token; 0 is any time
    single_use: bool = False  # each token is accepted once
    certificates: Literal["off", "cn", "dns", "uri", "email"] = "off"  # which name of a certificate is the principal
    anonymous: bool = False  # let everybody in from other machines, without a name
    attempts: int = 5  # log-ins that an address may fail before it must wait
    first_wait: Duration = 1_000_000  # twice as long after each further failure
    max_wait: Duration = 300_000_000

    @property
    def is_on(self) -> bool:
        """Whether clients are authenticated."""
        return self.keys is not None or self.certificates != "off"

    def __post_init__(self) -> None:
        if self.is_on and self.anonymous:
            raise OptionError("auth.anonymous lets everybody in: leave it out, or leave out keys and certificates")
        if self.keys is None and (self.audience or self.issuer or self.single_use):
            raise OptionError("auth.keys is missing: name the file with the keys that verify tokens")


@dataclass(frozen=True, slots=True)
class AccessConfig:
    """`[access]`: who may do what."""

    rules: Path | None = None  # a file of access rules; without one, whoever is let in may do everything


@dataclass(frozen=True, slots=True)
class LogConfig:
    """`[log]`: how much is stored."""

    quota: Bytes = 0  # of the database; 0 is what the disk holds
    keep_age: Duration = DEFAULT_RETENTION.age or 0  # what everybody has read is kept so long; 0 is for ever
    keep_size: Bytes = DEFAULT_RETENTION.size or 0  # and so much of it; 0 is any amount
    trim_every: Duration = 60_000_000

    @property
    def retention(self) -> Retention:
        """The events that are kept although no queue needs them."""
        size: int | None = self.keep_size or None
        if self.quota:
            size = min(size or self.quota // 2, self.quota // 2)  # or a quota would be reached by what nobody needs
        return Retention(self.keep_age or None, size)


@dataclass(frozen=True, slots=True)
class LoggingConfig:
    """`[logging]`: what the broker writes to standard error."""

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


@dataclass(frozen=True, slots=True)
class LinkConfig:
    """`[links.NAME]`: a neighbouring broker of this name. One of the two has the other's address, and dials."""

    address: str = ""  # where to dial; empty to be dialled
    role: Literal["peer", "parent", "child", "master", "slave"] = "peer"  # what the neighbour is to this broker
    token: Path | None = None  # a file with the token that the neighbour is shown

    def __post_init__(self) -> None:
        if self.address:
            Address.parse(self.address)


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """`[connections]`: all connections together; what one client may do is in `[limits]`."""

    max: int = 10_000
    backlog: Bytes = 8 << 20  # that waits for the log before publishers are no longer read
    drain_timeout: Duration = 10_000_000  # that clients have to read the last bytes when the broker stops


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """`[gateway]`: the HTTP gateway, a process that the broker starts and watches; see docs/guides/gateway.md."""

    listen: str = ""  # host:port; a bare port is on this machine only, and empty means none
    hosts: tuple[str, ...] = ()  # names by which clients reach it, besides localhost and that of `listen`
    origins: tuple[str, ...] = ()  # web sites whose pages may use it, such as https://app.example
    console: bool = True  # serve the web console below /ui
    runs: Path = Path("runs")  # the directory of recorded simulations (*.weftrun) that the console plays
    ring: str = ""  # host:port of a node of a ring that the console shows
    ring_key: Path | None = None  # the secret that the nodes of that ring share
    nice: int = 10  # how far it stands back behind the broker for processor time: 0 is not at all, 19 is most

    def __post_init__(self) -> None:
        if self.listen:
            http_place(self.listen, "gateway.listen")
        if not 0 <= self.nice < 20:
            raise OptionError(f"gateway.nice is a number from 0 to 19, not {self.nice}")
        for origin in self.origins:
            scheme, _, rest = origin.partition("://")
            if scheme not in ("http", "https") or not rest or "/" in rest or "*" in rest:
                raise OptionError(f"gateway.origins has {origin!r}; write scheme and host, such as https://app.example")

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        host, _ = http_place(self.listen, "gateway.listen")
        return Address("weft", host, 0).local


@dataclass(frozen=True, slots=True)
class BalanceConfig:
    """`[balance]`: whether sessions move to brokers that have less to do; see docs/guides/moving.md."""

    enabled: bool = False
    address: str = ""  # where clients reach this broker; by default the first address where it listens
    every: Duration = 5_000_000  # between two reports of the load
    above: float = 1.2  # times the mean load: a broker with more moves sessions away
    max_sessions: int = 64  # that it moves at a time
    min_stay: Duration = 30_000_000  # that a session stays at least where it has come

    def __post_init__(self) -> None:
        if self.address:
            Address.parse(self.address)
        if not 1.05 < self.above <= 100:
            raise OptionError(f"balance.above is {self.above:g}; it must be above 1.05, such as 1.2")
        if self.every < 100_000:
            raise OptionError("balance.every is too short; at least 100 ms are needed to measure a load")

    @property
    def limits(self) -> BalanceLimits:
        """When sessions are moved, and how many."""
        return BalanceLimits(self.every, self.above, most=self.max_sessions, rest=self.min_stay)


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """All settings of one broker."""

    name: str = ""  # among its neighbours; needed for links
    data: Path = Path("weft-data")  # the directory of the log
    memory: bool = False  # keep everything in memory only: nothing survives a restart
    listen: tuple[str, ...] = (str(DEFAULT_ADDRESS),)
    plain_text: bool = False  # accept clients without TLS from other machines
    http: str = ""  # host:port of /metrics and /health; empty for none
    schema: Path | None = None  # of events
    model: ModelOptions = field(default_factory=ModelOptions)  # of the routing table; neighbours have the same
    predicates: tuple[str, ...] = ()  # Python modules that have predicates for filters; neighbours have the same
    taxonomy: tuple[Path, ...] = ()  # files with the hierarchy of is_a
    tuning: Path | None = None  # a file of `weft tune` with the parameters of the model
    retune_every: Duration = 0  # between two re-tunings of label sets by evidence; 0 is none
    load: Path | None = None  # a folder of `weft aggregate`: the subscriptions that a new broker begins with
    advertised: bool = False  # publishers advertise
    workers: int = 1  # processes
    host: str = ""  # with several workers: the name by which clients reach this machine
    uvloop: bool = False
    tls: TlsConfig = field(default_factory=TlsConfig)
    auth: AuthConfig = AuthConfig()
    access: AccessConfig = AccessConfig()
    log: LogConfig = LogConfig()
    logging: LoggingConfig = LoggingConfig()
    limits: ClientLimits = _LIMITS
    connections: ConnectionConfig = ConnectionConfig()
    gateway: GatewayConfig = GatewayConfig()
    balance: BalanceConfig = BalanceConfig()
    links: Mapping[str, LinkConfig] = field(default_factory=dict)

    @property
    def addresses(self) -> list[Address]:
        """The addresses where it listens."""
        return [Address.parse(text) for text in self.listen]

    def __post_init__(self) -> None:
        if isinstance(self.model, str):
            object.__setattr__(self, "model", ModelOptions(self.model))
        if not self.listen:
            raise OptionError(f"listen is empty: name an address, such as {DEFAULT_ADDRESS}")
        for address in self.addresses:
            if address.tls and self.tls.certificate is None:
                raise OptionError(f"{address} needs TLS: set tls.certificate and tls.key")
            if not address.tls and not address.local and not self.plain_text:
                raise OptionError(
                    f"{address} would send everything in plain text to other machines: use "
                    f"weft+tls://{address.host}:{address.port} with a certificate, or set plain_text"
                )
            if not address.local and not self.auth.is_on and not self.auth.anonymous:
                raise OptionError(
                    f"{address} would let everybody in from other machines: set auth.keys or auth.certificates, or "
                    f"set auth.anonymous"
                )
        if self.auth.certificates != "off" and self.tls.authority is None:
            raise OptionError("auth.certificates needs tls.authority: the file with the authority that issues them")
        if self.http:
            http_place(self.http)
        if self.gateway.listen and not self.gateway.is_local:
            where = f"the gateway at {self.gateway.listen}"
            if self.tls.certificate is None and not self.plain_text:
                raise OptionError(f"{where} would send everything in plain text: set tls.certificate, or plain_text")
            if not self.auth.is_on and not self.auth.anonymous:
                raise OptionError(f"{where} would let everybody in: set auth.keys, or set auth.anonymous")
        if self.retune_every:
            if self.model.name != "dls":
                raise OptionError(f"retune_every is for label sets: set model.name to dls, not {self.model.name}")
            if self.schema is None:
                raise OptionError("retune_every needs a schema with bounds of attributes: set schema")
            if self.retune_every < 1_000_000:
                raise OptionError("retune_every is too short; give at least 1 s")
        if self.gateway.listen and self.workers > 1:
            raise OptionError("gateway.listen needs a broker with one worker: run `weft gateway` beside several")
        if len(self.name) > _NAME or any(not (c.isalnum() or c in "-_.") for c in self.name):
            raise OptionError(f"name: up to {_NAME} letters, digits and -_. are allowed, but not {self.name!r}")
        if self.links and not self.name:
            raise OptionError("a broker with links needs a name: set name")
        if self.name in self.links:
            raise OptionError(f"links.{self.name} is this broker itself; a neighbour has another name")
        if not 1 <= self.workers <= 64:
            raise OptionError(f"workers is {self.workers}; choose a number from 1 to 64")
        if self.workers > 1 and self.memory:
            raise OptionError("several workers need a log on disk: leave out memory, or run one worker")


def http_place(text: str, setting: str = "http") -> tuple[str, int]:
    """Host and port of a text such as "127.0.0.1:9339". Raises OptionError.

    >>> http_place("9339"), http_place("[::1]:80")
    (('127.0.0.1', 9339), ('::1', 80))
    """
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise OptionError(f"{setting} is {text!r}; write a host and a port, such as 127.0.0.1:9339")
    return host.strip("[]") or "127.0.0.1", int(port)


_TIMES = ("backoff", "max_backoff", "ack_delay", "hello", "idle", "expires", "heartbeat", "link_silence", "explain")
_SIZES = ("filter", "window_bytes", "held_bytes", "tail", "link_bytes")
SHORT = {"model": "model.name"}  # `model = "mics"` is a model without further options
RENAMED = {  # settings that had another name; the old one is accepted, with a note
    "auth.longest": "auth.max_lifetime",
    "auth.longest_wait": "auth.max_wait",
    "connections.most": "connections.max",
    "balance.rest": "balance.min_stay",
    "connections.patience": "connections.drain_timeout",
    "limits.floors": "limits.ack_delay",
    "limits.longest_backoff": "limits.max_backoff",
    "limits.strangers": "limits.unauthenticated",
}
RENAMED_ROLES: Mapping[str, Literal["parent", "child"]] = {"master": "parent", "slave": "child"}
UNITS: Units = {ClientLimits: dict.fromkeys(_TIMES, Duration) | dict.fromkeys(_SIZES, Bytes)}


def load_config(
    file: Path | None = None, environment: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Loaded[BrokerConfig]:
    """The settings of a file, the environment and flags such as {"log.quota": "1 GiB"}. Raises OptionError."""
    loaded = load(BrokerConfig(), UNITS, file, environment or {}, flags or {}, RENAMED, SHORT)
    links, notes = dict(loaded.config.links), list(loaded.notes)
    for name, link in links.items():
        if (role := RENAMED_ROLES.get(link.role)) is not None:
            links[name] = replace(link, role=role)
            notes.append(f"links.{name}.role: {link.role} is now called {role}")
    return loaded._replace(config=replace(loaded.config, links=links), notes=tuple(notes))
