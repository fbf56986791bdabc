"""Events as they come in, often one or a few at a time. Law: the matches are those of a batch.

The first event of a batch costs as much as ten or more events that are matched one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.index.base import AnyEvent, Matches, MatchIndex

_FEW = 8  # events that are matched one by one


def match_events(index: MatchIndex, events: Sequence[AnyEvent]) -> Matches:
    """The subscriptions of each event. Raises EventError for an event that cannot be read."""
    if len(events) <= _FEW:
        return Matches.of(map(index.match, events))
    return index.match_batch(events).checked()
