"""What a page is made of: its name in the navigation, the questions it asks, and its live topics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from weft.gateway.calls import GatewayCall
from weft.gateway.clients import PrincipalClient

if TYPE_CHECKING:
    from weft.console.live import LiveHub
    from weft.console.login import Logins
    from weft.console.samples import SampleStore
    from weft.console.worker import Worker
    from weft.server.config import GatewayConfig

NavigationGroup = Literal["Operate", "Understand", "Apply", ""]  # empty: not in the navigation


class ConsoleServices(NamedTuple):
    """What all pages share in the process of the gateway."""

    worker: Worker
    live: LiveHub
    logins: Logins
    samples: SampleStore
    config: GatewayConfig


@dataclass(slots=True)
class ConsoleCall(GatewayCall):
    """One question of a page: a call of the gateway, with what pages share besides."""

    services: ConsoleServices = None  # type: ignore[assignment] # is always given


class ConsoleRoute(NamedTuple):
    """A question of pages, below /api/v1; changes are POST requests with JSON."""

    method: Literal["GET", "POST"]
    path: str
    handler: Callable[[ConsoleCall], Awaitable[Any]]
    query: frozenset[str] = frozenset()  # the parameters it takes


class TopicWatch(NamedTuple):
    """A live topic that somebody looks at: `tail:magnitude > 5` has the argument `magnitude > 5`."""

    client: PrincipalClient
    argument: str
    services: ConsoleServices


TopicSource = Callable[[TopicWatch], AsyncIterator[Any]]  # yields the whole state whenever it has changed


@dataclass(frozen=True)
class ConsolePage:
    """A page. Its script is static/pages/NAME.js, its address /ui/NAME."""

    name: str
    title: str
    group: NavigationGroup = ""
    about: str = ""  # one sentence, for the navigation and the command box
    routes: tuple[ConsoleRoute, ...] = ()
    topics: Mapping[str, TopicSource] = field(default_factory=dict)


def get(path: str, handler: Callable[[ConsoleCall], Awaitable[Any]], *query: str) -> ConsoleRoute:
    """A question that changes nothing."""
    return ConsoleRoute("GET", path, handler, frozenset(query))


def post(path: str, handler: Callable[[ConsoleCall], Awaitable[Any]]) -> ConsoleRoute:
    """A change, or a question with a body."""
    return ConsoleRoute("POST", path, handler)
