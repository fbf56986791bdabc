"""A label space that changes while a network runs: the wave, its notes, and the table.

A wave over a tree of brokers that change to something new. A broker that has received DONE from all its links never
receives anything old again. When a broker has received MOVED from all its links, no broker has anything old.

No broker leads. A leaf is done as soon as it has changed, and a broker tells a neighbour that it is done when all
others have told it so; eventually every direction of every link is told. That it has moved is told in the same way, by
brokers that have heard DONE from everyone. The next wave begins only then. Otherwise it could reach a broker that
still has two spaces, because the DONE that it waits for was lost with a session. A neighbour that leaves is no longer
waited for. A new one must wait until the wave is over, because it may bring the old with it.

The parser of the notes in an update of labels. An impossible note is rejected before anything changes.

The change of the label space of a whole network while it runs (DLS 5.1). Nothing is lost while the spaces change,
and no broker receives a label before its space.

The new space is sent with the first update in which a broker tells its clients' interest in new labels instead of old
ones. Both are understood until every neighbour has stated that it sends no more old ones; another re-tuning waits until
every broker has removed the old space (`wave`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from weft.errors import LabelError, LocalProtocolError, RemoteProtocolError, SchemaError, WeftError
from weft.kernels.arrays import Ints
from weft.model.change import Change
from weft.routing.cell_table import Cells, CellTable
from weft.routing.dls.incoming import LabelsHeard
from weft.routing.dls.items import LabelSet, Retuning, Stage, Switch
from weft.routing.dls.label_sides import LabelSides, is_sound, labels_in, labels_of
from weft.routing.dls.space import LabelSpace
from weft.routing.dls.structure import TwinFilter
from weft.routing.interface import TableInterface
from weft.routing.jobs import Job
from weft.routing.model_hooks import unexpected
from weft.routing.table import Items, Link, Role, Tell, Update


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


class Notes(NamedTuple):
    """What a neighbour sends in addition to its labels."""

    switch: Switch | None = None
    stage: Stage = Stage.UNAWARE
    space: LabelSpace | None = None  # the next space, if it is new to us
    late: bool = False  # it waits for a message of ours that was lost with a session; the wave is over here
    anew: bool = False  # both ends rebuild the filter: a session begins, or what is left of earlier ones is dropped


def understood(  # noqa: PLR0913 - what is known of the link, and of ourselves
    link: Link, update: Update, twin: TwinFilter | None, sides: LabelSides, *, anew: bool, waving: bool
) -> Notes:
    """The notes of an update from a link with the given filter, which is rebuilt if `anew`; `waving` if a re-tuning is
    not over here. Raises RemoteProtocolError.
    """
    found = Notes(anew=anew)
    try:
        for note in update.notes:
            if isinstance(note, Switch):
                if twin is None or found.switch is not None:
                    raise LabelError("it switches a filter that was not agreed on")
                twin.admit(note, fresh=anew)
                found = found._replace(switch=note)
            else:
                found = _offered(note, found, sides, fresh=update.fresh, waving=waving)
    except (WeftError, ValueError) as error:
        raise RemoteProtocolError(f"{link} sent invalid notes: {error}; restart its session") from None
    return found


def _offered(note: Retuning, found: Notes, sides: LabelSides, *, fresh: bool, waving: bool) -> Notes:
    space, stage = LabelSpace.from_json(note.space), Stage(note.stage)
    if found.stage or stage is Stage.UNAWARE:
        raise LabelError("a re-tuning is at exactly one stage")
    newest = sides.space if sides.coming is None else sides.coming
    if space.parameters == newest.parameters:
        if waving:
            return found._replace(stage=stage)
        return found._replace(late=fresh or stage is not Stage.MOVED)
    if sides.coming is None:
        return found._replace(stage=stage, space=space)  # whoever begins has heard that everybody has moved
    if space.parameters == sides.space.parameters:
        return found  # it has not heard yet that the re-tuning before this one is over; this one says so
    raise LabelError("there is already another next label space; re-tune at one broker of a network only")


LabelInterface = TableInterface[LabelSet, Cells[Ints]]

_TOGETHER = 16  # subscriptions that are mapped again as one piece of work


class RetunedTable(CellTable[LabelSet, Ints]):
    """A table of labels whose space can be changed while it runs."""

    def __init__(self, space: LabelSpace, side: int, **options: Any) -> None:
        super().__init__(**options)
        self.sides = LabelSides.of(space, side)
        self.incoming = LabelsHeard()
        self._wave: Wave | None = None  # while any broker may have two spaces
        self._notes = Notes()  # of the update being processed

    @property
    def sides(self) -> LabelSides:
        """The label spaces: the one in use and, during a re-tuning, the next one."""
        return self._sides

    @sides.setter
    def sides(self, sides: LabelSides) -> None:
        self._sides, self._fingerprint = sides, ""

    @property
    def space(self) -> LabelSpace:
        """The label space in use; the old one during a re-tuning."""
        return self.sides.space

    @property
    def retuning(self) -> bool:
        """Whether a broker of the network may still have the old space."""
        return self._wave is not None

    def retune(self, space: LabelSpace) -> list[Tell]:
        """Replace the label space in use, here and in the whole network.

        Call it at one broker: neighbours pass it on. Both spaces are understood until each neighbour has stated that it
        sends nothing in the old one, which is then removed. Raises LocalProtocolError while another re-tuning is not
        over everywhere.
        """
        known = self.space if self.sides.coming is None else self.sides.coming
        if space.parameters == known.parameters:
            return []
        if self._wave is not None:
            raise LocalProtocolError("another re-tuning is in progress; wait until `retuning` is False")
        self._begin(self.sides.beside(space))
        return self._flush()

    # -- links --------------------------------------------------------------------------------------

    def attach(self, link: Link, role: Role = Role.PEER) -> list[Tell]:
        """Everything that the neighbour should know, fresh.

        Raises LocalProtocolError for a new neighbour during a re-tuning: it would bring old labels to brokers that have
        already removed them.
        """
        if link not in self.links and self._wave is not None:
            raise LocalProtocolError(f"{link} cannot be attached while the label space is re-tuned; try again later")
        return super().attach(link, role)

    def link_added(self, interface: LabelInterface) -> None:
        """Expect a neighbour that was attached before a restart to state how far it is."""
        assert interface.link is not None
        if self._wave is not None:
            self._wave.expect(interface.link)

    def session_begun(self, interface: LabelInterface) -> None:
        """Tell a neighbour with a new session again how far we are."""
        self._say(interface)

    def link_removed(self, interface: LabelInterface) -> Job:
        """Stop waiting for the neighbour."""
        assert interface.link is not None
        if self._wave is not None:
            self._wave.forget(interface.link)
        return super().link_removed(interface)

    # -- updates of neighbours ----------------------------------------------------------------------

    def understand(self, interface: LabelInterface, update: Update, news: Change[Items, Items]) -> None:
        """Read the notes of an update, and check its labels. Raises RemoteProtocolError."""
        link = interface.link
        assert link is not None
        anew = update.fresh or interface.ledger.completed_by(update)
        notes = understood(link, update, self.incoming[link].twin, self.sides, anew=anew, waving=self.retuning)
        sides, stage = self.sides, notes.stage
        if notes.space is not None:
            sides = sides.beside(notes.space)
        elif self._wave is not None:
            stage = max(stage, self._wave.heard[link])
        for item in update.add.values():
            if not is_sound(item, sides):
                raise unexpected(link, "a set of our labels", item)
        if stage >= Stage.DONE and sides.coming is not None:
            kept = [item for item_id, item in interface.ledger.heard.items() if item_id not in news.drop]
            if (sides.sides(labels_in([*kept, *news.add.values()])) == sides.side).any():
                raise RemoteProtocolError(
                    f"{link} sent labels of the old space after stating that it was done with it; restart its session"
                )
        self._notes = notes

    def apply_update(self, interface: LabelInterface, update: Update, news: Change[Items, Items], new: Any) -> None:  # noqa: ARG002
        """Look events up in the new items, in a new space, or in a filter of another size."""
        assert interface.link is not None
        if self._notes.space is not None:
            self._begin(self.sides.beside(self._notes.space))
        heard = self.incoming[interface.link]
        heard.change(labels_in(news.drop.values()), labels_in(news.add.values()))
        if self._notes.anew or self._notes.switch is not None:
            heard.switch(self._notes.switch, labels_in(interface.ledger.heard.values()))

    def after_update(self, interface: LabelInterface) -> None:
        """Answer a neighbour that waits for a message of ours, and record how far it is."""
        assert interface.link is not None
        notes, self._notes = self._notes, Notes()
        if notes.late:
            interface.ledger.notes += (Retuning(self.space.to_json(), Stage.MOVED),)
        if self._wave is not None:
            self._wave.hear(interface.link, notes.stage)

    # -- the wave -----------------------------------------------------------------------------------

    def _begin(self, sides: LabelSides) -> None:
        """Announce the new space to all neighbours, with what is wanted here in its labels."""
        self._wave = Wave(self.links)
        self._move(sides)
        for interface in self.links.values():
            self._say(interface)
        self._jobs.run(self._map_anew())

    def _map_anew(self) -> Job:
        """Map local subscriptions to new labels instead of old ones, some at a time."""
        for number, sub in enumerate([*self.here.held]):
            old = self.here.held.get(sub)
            if old is not None and (self.sides.sides(old.cells) == self.sides.side).any():
                labels = labels_of(old.wanted, self.sides)
                assert labels is not None
                new = self.here.held[sub] = Cells(labels, old.wanted)
                yield from self.revise(self.here, [old], [new])
            if number % _TOGETHER == 0:
                yield

    def nothing_pending(self) -> None:
        """Tell neighbours how far we are; remove the old space when no neighbour sends any of its labels."""
        if self._wave is None:
            return
        for link in self._wave.due():
            self._say(self.links[link])
        if self._wave.changed and self.sides.coming is not None:
            self._move(self.sides.moved())
        if self._wave.over:
            self._wave = None

    def _say(self, interface: LabelInterface) -> None:
        """Send how far we are with the next update. The later of two stages implies the earlier."""
        if self._wave is not None and interface.attached:
            assert interface.link is not None
            newest = self.space if self.sides.coming is None else self.sides.coming
            stage = Retuning(newest.to_json(), self._wave.told[interface.link])
            others = (note for note in interface.ledger.notes if not isinstance(note, Retuning))
            interface.ledger.notes = (*others, stage)

    def _move(self, sides: LabelSides) -> None:
        self.sides = sides
        for heard in self.incoming.values():
            heard.space = sides

    # -- restart ------------------------------------------------------------------------------------

    @property
    def settings(self) -> str:
        """The space in use, its side, the next one, and whether a re-tuning is not over everywhere: a table must keep
        them through a restart.
        """
        coming = None if self.sides.coming is None else self.sides.coming.to_json()
        kept = {"space": self.space.to_json(), "side": self.sides.side, "coming": coming, "retuning": self.retuning}
        return json.dumps(kept)

    def resume(self, settings: str) -> None:
        """Restore the spaces. Raises LocalProtocolError."""
        if not settings:
            return
        try:
            kept = json.loads(settings)
            sides = LabelSides.of(LabelSpace.from_json(kept["space"]), kept["side"])
            coming = kept["coming"]
            self.sides = sides if coming is None else sides.beside(LabelSpace.from_json(coming))
        except (KeyError, TypeError, ValueError, OverflowError, SchemaError, LabelError) as error:
            raise LocalProtocolError(
                f"these are not the settings of a table of labels: {error}; pass those that `settings` returned"
            ) from None
        self._wave = Wave(()) if coming is not None or kept.get("retuning") else None

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().check()
        assert self.retuning or self.sides.coming is None, "two spaces without a re-tuning"
