"""A dozen subscriptions to seismic events, one for each construct of the language."""

from __future__ import annotations

from dataclasses import dataclass

from weft.language.ast import Filter
from weft.language.text import parse


@dataclass(frozen=True, slots=True)
class NamedFilter:
    """A named filter, and its purpose.

    >>> print(NamedFilter("deep", "far below the crust", "depth>=300").filter)
    depth >= 300
    """

    name: str
    purpose: str
    text: str

    @property
    def filter(self) -> Filter:
        """The parsed text."""
        return parse(self.text)


SUBSCRIPTIONS: tuple[NamedFilter, ...] = (
    NamedFilter("strong", "felt by many people, anywhere", "magnitude >= 4.5"),
    NamedFilter("damaging", "strong, and close to the surface", "magnitude >= 5 AND depth < 70"),
    NamedFilter("alarm", "wake somebody up", "magnitude >= 6 OR tsunami"),
    NamedFilter("tsunami", "large, and in an oceanic region", "tsunami"),
    NamedFilter(
        "Hualien",
        "the sequence in Taiwan from 4 February on",
        "place LIKE '%, Taiwan' AND time >= TIMESTAMP '2018-02-04' AND magnitude >= 4.5",
    ),
    NamedFilter("California", "in both spellings", "place LIKE '%, CA' OR place LIKE '%, California'"),
    NamedFilter("felt in CA", "and reported by somebody there", "place LIKE '%, CA' AND felt >= 1"),
    NamedFilter(
        "Alaska",
        "a rectangle on the map",
        "latitude BETWEEN 51 AND 72 AND longitude BETWEEN -180 AND -130",
    ),
    NamedFilter("man-made", "blasts, for the record", "type IN ('explosion', 'quarry blast')"),
    NamedFilter("unchecked", "not small, and not yet reviewed", "NOT (status = 'reviewed' OR magnitude < 2.5)"),
    NamedFilter("uncertain", "stations on one side only, or unknown", "gap > 180 OR nst IS NULL"),
    NamedFilter("well seen", "more stations than degrees of gap", "gap < nst"),
)
