"""With whom a broker may be linked: the tree of brokers, and what the two ends of a link must agree on.

Each broker sends each neighbour the names of all brokers on its own side of their link, each with the broker before it
on the path. So every broker knows the whole tree, finds the next hop to any other, and detects a link that would close
a cycle: a broker is reached by one path only. Brokers that would interpret an item or an event differently are refused,
with one sentence that says what differs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from weft.errors import AccessError, RemoteProtocolError
from weft.protocol.link_messages import LinkHello
from weft.protocol.messages import VERSION
from weft.routing.options import ModelOptions
from weft.routing.table import Link, Role, RoutingTable

AuthenticateLink = Callable[[LinkHello], None]  # raises AccessError
BrokersBehind = tuple[tuple[str, str], ...]  # names, each with the one before it on the path; the nearest first

_MAX_BROKERS = 10_000  # that one neighbour may describe
_RETUNED = ("space", "side")  # what a table of labels may change while it runs


class Reach:
    """The tree as one broker knows it.

    >>> reach = Reach("west")
    >>> reach.add_neighbour(Link("north"))
    >>> reach.update(Link("north"), (("north", ""), ("east", "north")))
    True
    >>> reach.next_hop("east"), reach.path("east")
    ('north', ['west', 'north', 'east'])
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._behind: dict[Link, dict[str, str]] = {}
        self._described: set[Link] = set()  # neighbours that have said who is behind them, since this broker started

    def add_neighbour(self, link: Link) -> None:
        """Add a neighbour at its first session. Before that it does not count."""
        self._behind.setdefault(link, {link: self.name})

    def remove_neighbour(self, link: Link) -> None:
        """Remove a neighbour with everything behind it."""
        self._behind.pop(link, None)
        self._described.discard(link)

    def is_described(self, link: Link) -> bool:
        """Whether a neighbour has said which brokers are behind it, since this broker started."""
        return link in self._described

    def update(self, link: Link, brokers: BrokersBehind) -> bool:
        """Replace what is known to be behind a neighbour; returns whether that has changed.

        Raises RemoteProtocolError for a cycle, and changes nothing then.
        """
        behind = {name: before or self.name for name, before in brokers[:_MAX_BROKERS]}
        if not brokers or brokers[0] != (link, "") or any(before not in behind for _, before in brokers[1:]):
            raise RemoteProtocolError(f"{link} describes the brokers behind it wrongly")
        for name in behind:
            if name == self.name:
                raise _cycle(_path_back(behind, name, self.name))
            self.check(link, name, behind)
        before = self._behind.get(link)
        self._behind[link] = behind
        self._described.add(link)
        return behind != before

    def check(self, link: Link, name: str, behind: Mapping[str, str] | None = None) -> None:
        """Raise RemoteProtocolError if a broker behind a link is already reached by another path."""
        for other, known in self._behind.items():
            if other != link and name in known:
                back = [*_path_back(behind or {name: self.name}, name, self.name)][1:]
                raise _cycle([*self.path(name), *back])

    def brokers(self, link: Link) -> BrokersBehind:
        """Everything on this side of a link."""
        others = (pair for other, known in self._behind.items() if other != link for pair in known.items())
        return (self.name, ""), *others

    @property
    def first(self) -> str:
        """The smallest name of all brokers, the same at each of them: it begins what only one may begin."""
        return min((self.name, *(name for known in self._behind.values() for name in known)))

    def next_hop(self, name: str) -> Link | None:
        """The neighbour on the path to a broker."""
        return next((link for link, known in self._behind.items() if name in known), None)

    def path(self, name: str) -> list[str]:
        """All brokers on the path to one, this one first; empty if there is no path."""
        if name == self.name:
            return [name]
        link = self.next_hop(name)
        return [] if link is None else [*reversed([*_path_back(self._behind[link], name, self.name)])]


def _path_back(behind: Mapping[str, str], name: str, end: str) -> Iterable[str]:
    """The names from a broker back to this one."""
    yield name
    for _ in behind:
        name = behind.get(name, end)
        yield name
        if name == end:
            return


def _cycle(path: Iterable[str]) -> RemoteProtocolError:
    return RemoteProtocolError(f"links must form a tree, but these make a cycle: {' - '.join(path)}")


def _role_name(value: str) -> str:
    """The name of a role that a neighbour sent; what is not known is shown as it is."""
    try:
        return str(Role(value))
    except ValueError:
        return value


def check_agreement(mine: str, table: RoutingTable, predicates: tuple[str, ...], role: Role, theirs: LinkHello) -> None:
    """Raise AccessError unless two brokers agree on everything that gives items and events their meaning."""
    oldest, newest = theirs.versions
    if not oldest <= VERSION <= newest:
        raise AccessError(f"{mine} speaks version {VERSION} of the protocol, {theirs.name} {oldest} to {newest}")
    if theirs.to != mine:
        raise AccessError(f"{theirs.name} expects {theirs.to} here, but this broker is {mine}; check its address")
    if theirs.role != role.converse.value:
        raise AccessError(
            f"{theirs.name} is attached as {role} here, and attaches {mine} as {_role_name(theirs.role)}; "
            f"it must be {role.converse}"
        )
    if predicates != theirs.predicates:
        odd = ", ".join(sorted({*predicates} ^ {*theirs.predicates}))
        raise AccessError(f"{mine} and {theirs.name} have different predicates: only one of them has {odd}")
    if table.fingerprint != theirs.fingerprint and (differing := _difference(mine, table, theirs)):
        raise AccessError(f"{mine} and {theirs.name} differ: {differing}; configure both in the same way")


def _difference(mine: str, table: RoutingTable, theirs: LinkHello) -> str:
    """What differs between two tables; empty if one of them is merely further ahead in a re-tuning."""
    try:
        one, other = json.loads(table.fingerprint), json.loads(theirs.fingerprint)
    except (ValueError, RecursionError):
        return "the fingerprint of a table cannot be read"
    found = _first_difference(one, other, "")
    if found is None:
        return ""
    path, a, b = found
    if path.rsplit(".", 1)[-1].split("[")[0] in _RETUNED and _is_retuning(table.settings, theirs.settings):
        return ""
    return f"{path} is {_shortened(a)} at {mine} and {_shortened(b)} at {theirs.name}"


def _first_difference(one: Any, other: Any, path: str) -> tuple[str, Any, Any] | None:
    """The first difference between two JSON values."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}, key=lambda key: (key != "model", key != "options", key)):
            if key == "options":  # of the settings
                found = _first_option(one.get(key) or {}, other.get(key) or {})
                if found is not None:
                    return found
                continue
            inner = f"{path}.{key}" if path and key not in _RETUNED else key
            found = _first_difference(one.get(key), other.get(key), inner)
            if found is not None:
                return found
        return None
    return None if one == other else (path or "the table", one, other)


def _first_option(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first option of the model that differs, under the name of its setting."""
    defaults = ModelOptions()
    for name in sorted({*one, *other}):
        default = getattr(defaults, name, None)
        mine, theirs = one.get(name, default), other.get(name, default)
        if mine != theirs:
            return f"model.{name}", mine, theirs
    return None


def _is_retuning(mine: str, theirs: str) -> bool:
    """Whether one table is about to change to the label space that the other one has already."""
    try:
        one, other = json.loads(mine or "{}"), json.loads(theirs or "{}")
    except (ValueError, RecursionError):
        return False
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    return one.get("side") != other.get("side") and any(
        early.get("coming") is not None and early["coming"] == late.get("space")
        for early, late in ((one, other), (other, one))
    )


def _shortened(value: Any) -> str:
    text = "absent" if value is None else json.dumps(value, sort_keys=True)
    return text if len(text) <= 60 else text[:57] + "..."
