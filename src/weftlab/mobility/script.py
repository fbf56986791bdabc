"""Mobility scripts: who moves when, and what is published meanwhile. A script is drawn from a seed before any protocol
runs, can be stored in a file, and is replayed in the same way for every protocol.

Times are microseconds. A client leaves its broker at `at`, and arrives at another one after `away`. What happens at the
same time happens in the order of the script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from weft.errors import WeftError
from weft.language.meaning import matches
from weftlab.mobility.topology import BrokerTree

HOUR = 3_600_000_000
_FORMAT = "weft mobility script 1"
_VALUES = 100  # of the attribute x, from 0


class MobilityArea(StrEnum):
    """Where clients are, and move to."""

    BORDER = "border"  # edge brokers, the leaves of the tree
    FULL = "full"  # all brokers


class Movers(StrEnum):
    """Which clients move."""

    SUBSCRIBERS = "subscribers"
    PUBLISHERS = "publishers"
    BOTH = "both"


class ClientSpec(msgspec.Struct, frozen=True):
    """A client: a subscriber with its filter, or a publisher with its advertisement, at its first broker."""

    name: str
    publishes: bool
    at: int
    filter: str


class RelocateStep(msgspec.Struct, frozen=True, tag="move", tag_field="do"):
    """A client leaves its broker for another one."""

    at: int
    client: str
    to: int
    away: int


class PublishStep(msgspec.Struct, frozen=True, tag="publish", tag_field="do"):
    """A publisher publishes an event; `kind` is the number of its type, from 1."""

    at: int
    client: str
    x: int
    kind: int = 1


class InterestStep(msgspec.Struct, frozen=True, tag="interest", tag_field="do"):
    """A client that does not move subscribes (with a filter) or unsubscribes; what it receives is not judged."""

    at: int
    client: str
    broker: int
    filter: str = ""


ScriptStep = RelocateStep | PublishStep | InterestStep
_STEP: msgspec.json.Decoder[ScriptStep] = msgspec.json.Decoder(ScriptStep)


class _Header(msgspec.Struct):
    format: str
    brokers: int
    kinds: int
    rendezvous: list[int]
    clients: list[ClientSpec]


@dataclass(frozen=True, slots=True)
class Script:
    """All that happens in a run. `rendezvous` has the rendezvous points, one per type."""

    brokers: int
    rendezvous: tuple[int, ...]
    clients: tuple[ClientSpec, ...]
    steps: tuple[ScriptStep, ...]

    def __post_init__(self) -> None:
        """Raises WeftError for a script that cannot be played."""
        if not self.rendezvous:
            raise WeftError("the script has no rendezvous point; name at least one")
        known = {each.name: each for each in self.clients}
        if len(known) < len(self.clients):
            raise WeftError("two clients of the script have the same name; rename one")
        for place in (*self.rendezvous, *(each.at for each in self.clients)):
            self._check_broker(place)
        last = 0
        for step in self.steps:
            if step.at < last:
                raise WeftError(f"the steps of the script are not in the order of time: {step.at} comes after {last}")
            last = step.at
            if not isinstance(step, InterestStep) and step.client not in known:
                raise WeftError(f"there is no client {step.client!r} in the script")
            if isinstance(step, RelocateStep):
                self._check_broker(step.to)
                if step.away < 0:
                    raise WeftError(f"{step.client} arrives before it leaves; make `away` at least 0")
            elif isinstance(step, InterestStep):
                self._check_broker(step.broker)
            elif not known[step.client].publishes:
                raise WeftError(f"{step.client} publishes, and it is a subscriber; name a publisher")
            elif not 1 <= step.kind <= self.kinds:
                raise WeftError(f"there is no type {step.kind}; the script has {self.kinds}")

    def _check_broker(self, number: int) -> None:
        if not 0 <= number < self.brokers:
            raise WeftError(f"there is no broker {number}; the script is for {self.brokers}, from 0")

    @property
    def kinds(self) -> int:
        """The number of types, each with a rendezvous point."""
        return len(self.rendezvous)

    @property
    def moves(self) -> int:
        """The number of moves."""
        return sum(isinstance(step, RelocateStep) for step in self.steps)

    def moves_client(self, name: str) -> bool:
        """Whether the client moves."""
        return any(isinstance(step, RelocateStep) and step.client == name for step in self.steps)

    def save(self, path: Path) -> None:
        """Write the script: a line of JSON for the clients, and one for each step."""
        header = _Header(_FORMAT, self.brokers, self.kinds, list(self.rendezvous), list(self.clients))
        lines = [msgspec.json.encode(header), *map(msgspec.json.encode, self.steps)]
        path.write_bytes(b"\n".join([*lines, b""]))

    @classmethod
    def load(cls, path: Path) -> Script:
        """Read a script. Raises WeftError with the line that is wrong."""
        lines = path.read_bytes().splitlines()
        read = [_decoded(path, at, line) for at, line in enumerate(lines or [b""], 1) if line.strip() or at == 1]
        header, steps = read[0], read[1:]
        if not isinstance(header, _Header) or any(isinstance(step, _Header) for step in steps):
            raise WeftError(f"{path} is not a mobility script; write one with weft sim mobility --save-script FILE")
        if header.format != _FORMAT:
            raise WeftError(f"{path} has the format {header.format!r}; this version reads {_FORMAT!r}")
        played = tuple(step for step in steps if not isinstance(step, _Header))
        return cls(header.brokers, tuple(header.rendezvous), tuple(header.clients), played)


def _decoded(path: Path, at: int, line: bytes) -> _Header | ScriptStep:
    try:
        if at == 1:
            return msgspec.json.decode(line, type=_Header)
        return _STEP.decode(line)
    except msgspec.DecodeError as error:
        raise WeftError(f"{path}, line {at}, is not part of a mobility script: {error}") from None


# -- generated ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScriptSettings:
    """What a generated script has. The defaults are those of the thesis (5.8); nothing is published there."""

    subscribers: int = 50
    publishers: int = 1
    moves: int = 100
    movers: Movers = Movers.SUBSCRIBERS
    area: MobilityArea = MobilityArea.BORDER
    interval: int = HOUR  # between two moves
    away: int = HOUR // 2
    jitter: bool = False  # intervals and absences uniform between 0 and twice as much
    events: int = 0  # published around each arrival
    window: int = 150_000  # they are published from so long before it to so long after it
    churn: int = 0  # subscriptions of other clients that come and go
    alike: bool = True  # all clients have the same filter; or ranges of x, some of which cover others
    kinds: int = 1  # types of events, each with a rendezvous point

    def __post_init__(self) -> None:
        for name in ("subscribers", "publishers", "kinds"):
            if getattr(self, name) < 1:
                raise WeftError(f"a script needs at least one of its {name}")
        for name in ("moves", "interval", "away", "events", "churn"):
            if getattr(self, name) < 0:
                raise WeftError(f"{name} must not be negative")

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


BUSY = ScriptSettings(
    subscribers=6,
    publishers=3,
    interval=60_000,
    away=25_000,
    jitter=True,
    events=8,
    window=80_000,
    churn=2,
    alike=False,
    area=MobilityArea.FULL,
)  # traffic during moves: hand-overs overlap, and events are in flight wherever a mistake loses them


def busy(**changes: Any) -> ScriptSettings:
    """The settings with traffic during moves, changed in some points."""
    return replace(BUSY, **changes)


def generate_script(tree: BrokerTree, settings: ScriptSettings, rng: np.random.Generator) -> Script:
    """A script for a tree of brokers. The same generator state gives the same script."""
    border = settings.area is MobilityArea.BORDER and len(tree.leaves) > 1
    places: Sequence[int] = tree.leaves if border else range(tree.size)
    inner = tree.inner
    rendezvous = tuple(int(inner[rng.integers(len(inner))]) for _ in range(settings.kinds))
    draw_filter = _filters(settings, rng)
    clients = [
        ClientSpec(f"{letter}{number}", publishes, _drawn(places, rng), draw_filter(publishes))
        for publishes, letter, size in ((False, "s", settings.subscribers), (True, "p", settings.publishers))
        for number in range(1, size + 1)
    ]
    movers = [
        each.name
        for each in clients
        if settings.movers is Movers.BOTH or each.publishes == (settings.movers is Movers.PUBLISHERS)
    ]
    at = {each.name: each.at for each in clients}
    values = {each.name: _values(each) for each in clients if each.publishes}
    publishers = list(values)
    steps: list[ScriptStep] = []
    now = settings.interval
    for number in range(settings.moves):
        client = movers[int(rng.integers(len(movers)))]
        to = _drawn(places, rng, at[client])
        at[client] = to
        away = int(rng.integers(2 * settings.away + 1)) if settings.jitter else settings.away
        steps.append(RelocateStep(now, client, to, away))
        begin = max(0, now + away - settings.window)
        for _ in range(settings.events):
            publisher = publishers[int(rng.integers(len(publishers)))]
            moment = begin + int(rng.integers(now + away + settings.window - begin + 1))
            x = values[publisher][int(rng.integers(len(values[publisher])))]
            steps.append(PublishStep(moment, publisher, x, int(rng.integers(settings.kinds)) + 1))
        steps += _churn(number, now, settings, places, draw_filter, rng)
        now += int(rng.integers(2 * settings.interval + 1)) if settings.jitter else settings.interval
    steps.sort(key=lambda step: step.at)
    return Script(tree.size, rendezvous, tuple(clients), tuple(steps))


def _churn(  # noqa: PLR0913, PLR0917 - what a step is drawn from
    number: int,
    now: int,
    settings: ScriptSettings,
    places: Sequence[int],
    draw_filter: Callable[[bool], str],
    rng: np.random.Generator,
) -> list[ScriptStep]:
    found: list[ScriptStep] = []
    for each in range(settings.churn):
        place, begin = _drawn(places, rng), now + int(rng.integers(settings.interval + 1))
        end = begin + 1 + int(rng.integers(4 * settings.interval + 1))
        name = f"c{number}.{each}"
        found += [InterestStep(begin, name, place, draw_filter(False)), InterestStep(end, name, place)]
    return found


def _drawn(places: Sequence[int], rng: np.random.Generator, other_than: int = -1) -> int:
    while (place := places[int(rng.integers(len(places)))]) == other_than and len(places) > 1:
        pass
    return int(place)


def _filters(settings: ScriptSettings, rng: np.random.Generator) -> Callable[[bool], str]:
    """What draws filters: the same for all clients, or ranges; advertisements are wider than subscriptions."""

    def draw(publishes: bool) -> str:
        if settings.alike:
            return f"x >= 0 AND x <= {_VALUES - 1}"
        width = (20, 40, 60, 100)[int(rng.integers(4))] if not publishes else (50, 100)[int(rng.integers(2))]
        low = 20 * int(rng.integers((_VALUES - width) // 20 + 1))
        return f"x >= {low} AND x <= {low + width - 1}"

    return draw


def _values(publisher: ClientSpec) -> list[int]:
    """The values that the publisher advertises."""
    found = [x for x in range(_VALUES) if matches(publisher.filter, {"x": x})]
    if not found:
        raise WeftError(f"{publisher.name} advertises {publisher.filter}, which no x from 0 to {_VALUES - 1} matches")
    return found
