"""A wave over a tree of brokers that change to something new. A broker that has received DONE from all its links never
receives anything old again. When a broker has received MOVED from all its links, no broker has anything old.

No broker leads. A leaf is done as soon as it has changed, and a broker tells a neighbour that it is done when all
others have told it so; eventually every direction of every link is told. That it has moved is told in the same way, by
brokers that have heard DONE from everyone. The next wave begins only then. Otherwise it could reach a broker that
still has two spaces, because the DONE that it waits for was lost with a session. A neighbour that leaves is no longer
waited for. A new one must wait until the wave is over, because it may bring the old with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.interest.label_set import Stage
from weft.routing.table import Link


class Wave:
    """What each neighbour of a broker that has changed has sent and received.

    >>> north, south = Link("north"), Link("south")
    >>> wave = Wave([north, south])
    >>> wave.due()
    []
    >>> wave.hear(north, Stage.DONE)
    >>> wave.due(), wave.changed, wave.over
    (['south'], False, False)
    """

    def __init__(self, links: Iterable[Link]) -> None:
        self.heard = dict.fromkeys(links, Stage.UNAWARE)
        self.told = dict.fromkeys(self.heard, Stage.OFFERED)  # the broker that begins tells all neighbours

    def hear(self, link: Link, stage: Stage) -> None:
        """Record how far a neighbour is. It never goes back."""
        self.heard[link] = max(self.heard[link], stage)

    def expect(self, link: Link) -> None:
        """Expect a neighbour that was attached before a restart, of which nothing is known."""
        self.heard[link], self.told[link] = Stage.UNAWARE, Stage.OFFERED

    def forget(self, link: Link) -> None:
        """Remove a neighbour."""
        del self.heard[link], self.told[link]

    def due(self) -> list[Link]:
        """The neighbours that must hear how far we are now; they are marked as told."""
        news = [link for link, told in self.told.items() if self._stage(link) > told]
        for link in news:
            self.told[link] = self._stage(link)
        return news

    def _stage(self, link: Link) -> Stage:
        """How far we are, as a neighbour may know it."""
        others = min((stage for each, stage in self.heard.items() if each != link), default=Stage.MOVED)
        if others is Stage.MOVED and self.changed:
            return Stage.MOVED
        return Stage.DONE if others >= Stage.DONE else Stage.OFFERED

    @property
    def changed(self) -> bool:
        """Whether no neighbour sends anything old any more."""
        return all(stage >= Stage.DONE for stage in self.heard.values())

    @property
    def over(self) -> bool:
        """Whether no broker has anything old any more."""
        return all(stage is Stage.MOVED for stage in self.heard.values())
