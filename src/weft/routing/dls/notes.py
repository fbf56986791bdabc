"""The notes of an update of labels, understood. Law: what cannot be is refused before anything has changed."""

from __future__ import annotations

from typing import NamedTuple

from weft.errors import LabelError, RemoteProtocolError, WeftError
from weft.interest.label_set import Retuning, Stage, Switch
from weft.interest.label_twin import TwinFilter
from weft.routing.table import Link, Update
from weft.space.label_sides import LabelSides
from weft.space.label_space import LabelSpace


class Notes(NamedTuple):
    """What a neighbour says besides its labels."""

    switch: Switch | None = None
    stage: Stage = Stage.UNAWARE
    space: LabelSpace | None = None  # the one to come, if that is new to us
    late: bool = False  # it waits for a word of ours that was lost with a session: all is over here


def understood(link: Link, update: Update, twin: TwinFilter | None, sides: LabelSides) -> Notes:
    """The notes of an update from a link with such a filter. Raises RemoteProtocolError."""
    found = Notes()
    try:
        for note in update.notes:
            if isinstance(note, Switch):
                if twin is None or found.switch is not None:
                    raise LabelError("it has a filter more than we agreed on")
                twin.admit(note, fresh=update.fresh)
                found = found._replace(switch=note)
            else:
                found = _offered(note, found, sides, fresh=update.fresh)
    except (WeftError, ValueError) as error:
        raise RemoteProtocolError(f"{link} tells what cannot be: {error}; its session must start anew") from None
    return found


def _offered(note: Retuning, found: Notes, sides: LabelSides, *, fresh: bool) -> Notes:
    space, stage = LabelSpace.from_json(note.space), Stage(note.stage)
    if found.stage or stage is Stage.UNAWARE:
        raise LabelError("a re-tuning is at one stage at a time")
    if sides.coming is not None:
        if space.parameters != sides.coming.parameters:
            raise LabelError("two label spaces are to follow one: re-tune at one broker of a network only")
        return found._replace(stage=stage)
    if space.parameters == sides.space.parameters:
        return found._replace(late=fresh or stage is not Stage.DONE)
    return found._replace(stage=stage, space=space)
