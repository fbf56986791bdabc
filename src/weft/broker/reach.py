"""Which brokers there are behind each link, and the way to them. Law: a broker is reached by one way only.

Each broker tells each neighbour all brokers on its own side of their link, with the broker before each on the way. So
everybody knows the whole tree, finds the next hop to any broker, and sees when a link would close a cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.errors import RemoteProtocolError
from weft.routing.table import Link

Brokers = tuple[tuple[str, str], ...]  # names, each with the one before it

_MOST = 10_000


class Reach:
    """The tree as one broker knows it.

    >>> reach = Reach("west")
    >>> reach.meet(Link("north"))
    >>> reach.learn(Link("north"), (("north", ""), ("east", "north")))
    True
    >>> reach.next_hop("east"), reach.path("east")
    ('north', ['west', 'north', 'east'])
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._behind: dict[Link, dict[str, str]] = {}

    def meet(self, link: Link) -> None:
        """A neighbour is there, or was at some time. One that was never there does not count."""
        self._behind.setdefault(link, {link: self.name})

    def detach(self, link: Link) -> None:
        """A neighbour is gone, with everything behind it."""
        self._behind.pop(link, None)

    def learn(self, link: Link, brokers: Brokers) -> bool:
        """A neighbour tells what is on its side; whether that is new.

        Raises RemoteProtocolError for a cycle, and nothing has changed.
        """
        behind = {name: before or self.name for name, before in brokers[:_MOST]}
        if not brokers or brokers[0] != (link, "") or any(each not in behind for each in [b for _, b in brokers[1:]]):
            raise RemoteProtocolError(f"{link} describes the brokers behind it wrongly")
        for name in behind:
            if name == self.name:
                back = [*_way(behind, name, self.name)]
                raise RemoteProtocolError(f"links must form a tree, but these make a cycle: {_shown(back)}")
            self.check(link, name, behind)
        before = self._behind.get(link)
        self._behind[link] = behind
        return behind != before

    def check(self, link: Link, name: str, behind: Mapping[str, str] | None = None) -> None:
        """Raise RemoteProtocolError if a broker behind a link is already reached by another way."""
        for other, known in self._behind.items():
            if other != link and name in known:
                way = self.path(name)
                back = [*_way(behind or {name: self.name}, name, self.name)][1:]
                raise RemoteProtocolError(f"links must form a tree, but these make a cycle: {_shown([*way, *back])}")

    def brokers(self, link: Link) -> Brokers:
        """Everything on this side of a link."""
        return (
            (self.name, ""),
            *(pair for other, known in self._behind.items() if other != link for pair in known.items()),
        )

    def next_hop(self, name: str) -> Link | None:
        """The neighbour on the way to a broker."""
        return next((link for link, known in self._behind.items() if name in known), None)

    def path(self, name: str) -> list[str]:
        """All brokers on the way to one, this one first; empty if there is no way."""
        if name == self.name:
            return [name]
        link = self.next_hop(name)
        return [] if link is None else [*reversed([*_way(self._behind[link], name, self.name)])]

    def names(self) -> list[str]:
        """All brokers that are known, this one included."""
        return sorted({self.name, *(name for known in self._behind.values() for name in known)})


def _way(behind: Mapping[str, str], name: str, end: str) -> Iterable[str]:
    """From a broker back to this one."""
    yield name
    for _ in behind:
        name = behind.get(name, end)
        yield name
        if name == end:
            return


def _shown(way: Iterable[str]) -> str:
    return " - ".join(way)
