"""The parser of the notes in an update of labels. An impossible note is rejected before anything changes."""

from __future__ import annotations

from typing import NamedTuple

from weft.errors import LabelError, RemoteProtocolError, WeftError
from weft.interest.label_set import Retuning, Stage, Switch
from weft.interest.label_twin import TwinFilter
from weft.routing.table import Link, Update
from weft.space.label_sides import LabelSides
from weft.space.label_space import LabelSpace


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
