"""A wave over a tree of brokers that change to something new. Law: who has heard DONE from all its links meets the old
never again.

No broker leads. A leaf has done as soon as it has changed, and everybody says so to a neighbour when all others have
said it; so every direction of every link is told it in the end. A neighbour that leaves is waited for no more; one that
comes must wait until all is over, for it may bring the old with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.interest.label_set import Stage
from weft.routing.table import Link


class Wave:
    """What each neighbour of a broker that has changed has said and been told.

    >>> north, south = Link("north"), Link("south")
    >>> wave = Wave([north, south])
    >>> wave.due()
    []
    >>> wave.hear(north, Stage.DONE)
    >>> wave.due(), wave.over
    (['south'], False)
    """

    def __init__(self, links: Iterable[Link]) -> None:
        self.heard = dict.fromkeys(links, Stage.UNAWARE)
        self.told = dict.fromkeys(self.heard, Stage.OFFERED)  # who begins tells everybody

    def hear(self, link: Link, stage: Stage) -> None:
        """A neighbour has come so far; it never falls back."""
        self.heard[link] = max(self.heard[link], stage)

    def expect(self, link: Link) -> None:
        """A neighbour that was there before a restart: nothing is known of it."""
        self.heard[link], self.told[link] = Stage.UNAWARE, Stage.OFFERED

    def forget(self, link: Link) -> None:
        """A neighbour is gone."""
        del self.heard[link], self.told[link]

    def due(self) -> list[Link]:
        """The neighbours that must hear that we have done, noted as told."""
        waiting = [link for link, stage in self.heard.items() if stage is not Stage.DONE]
        news = [link for link, told in self.told.items() if told is not Stage.DONE and not {*waiting} - {link}]
        for link in news:
            self.told[link] = Stage.DONE
        return news

    @property
    def over(self) -> bool:
        """Whether nobody says anything more in old words."""
        return all(stage is Stage.DONE for stage in self.heard.values())
