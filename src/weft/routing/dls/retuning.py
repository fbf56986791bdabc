"""The change of the label space of a whole network while it runs (DLS 5.1). Nothing is lost while the spaces change,
and no broker receives a label before its space.

The new space is sent with the first update in which a broker tells its clients' interest in new labels instead of old
ones. Both are understood until every neighbour has stated that it sends no more old ones; another re-tuning waits until
every broker has removed the old space (`wave`).
"""

from __future__ import annotations

import json
from typing import Any

from weft.errors import LabelError, LocalProtocolError, RemoteProtocolError, SchemaError
from weft.interest.label_set import LabelSet, Retuning, Stage
from weft.kernels.arrays import Ints
from weft.model.change import Change
from weft.routing.cell_table import Cells, CellTable
from weft.routing.dls.incoming import LabelsHeard
from weft.routing.dls.notes import Notes, understood
from weft.routing.dls.space import is_sound, labels_in, labels_of
from weft.routing.dls.wave import Wave
from weft.routing.interface import TableInterface
from weft.routing.jobs import Job
from weft.routing.model_hooks import unexpected
from weft.routing.table import Items, Link, Role, Tell, Update
from weft.space.label_sides import LabelSides
from weft.space.label_space import LabelSpace

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

    def meet(self, interface: LabelInterface) -> None:
        """Expect a neighbour that was attached before a restart to state how far it is."""
        assert interface.link is not None
        if self._wave is not None:
            self._wave.expect(interface.link)

    def greet(self, interface: LabelInterface) -> None:
        """Tell a neighbour with a new session again how far we are."""
        self._say(interface)

    def silence(self, interface: LabelInterface) -> Job:
        """Stop waiting for the neighbour."""
        assert interface.link is not None
        if self._wave is not None:
            self._wave.forget(interface.link)
        return super().silence(interface)

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

    def heed(self, interface: LabelInterface, update: Update, news: Change[Items, Items], new: Any) -> None:  # noqa: ARG002
        """Look events up in the new items, in a new space, or in a filter of another size."""
        assert interface.link is not None
        if self._notes.space is not None:
            self._begin(self.sides.beside(self._notes.space))
        heard = self.incoming[interface.link]
        heard.change(labels_in(news.drop.values()), labels_in(news.add.values()))
        if self._notes.anew or self._notes.switch is not None:
            heard.switch(self._notes.switch, labels_in(interface.ledger.heard.values()))

    def conclude(self, interface: LabelInterface) -> None:
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

    def settled(self) -> None:
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
