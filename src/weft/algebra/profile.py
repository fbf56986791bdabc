"""Profiles: events that are regions and last for a time (thesis, chapter 6). While it lasts, a profile matches a
subscription by covering or by overlap, as the subscription requires.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from weft.algebra.box import NormalForm
from weft.algebra.normalize import normalize
from weft.algebra.relate import Region, as_form, covers, overlaps
from weft.errors import EventError
from weft.language.any_filter import AnyFilter, as_filter
from weft.model.schema import Schema


class Meeting(StrEnum):
    """How much of a profile must match a subscription."""

    COVERING = "covering"  # all of it
    OVERLAP = "overlap"  # some of it


@dataclass(frozen=True, slots=True)
class Profile:
    """A region with an identity, a version and a time span in microseconds; without a duration it lasts until it is
    removed. A duration may also be a timedelta. A higher version replaces a lower one.

    >>> storm = Profile("storms", "7", "lat BETWEEN 40 AND 45 AND wind >= 30", start=0, duration=timedelta(minutes=10))
    >>> storm.meets("wind > 20", Meeting.COVERING), storm.meets("lat > 44", Meeting.COVERING)
    (True, False)
    >>> storm.meets("lat > 44", Meeting.OVERLAP), storm.lasts_at(600_000_000)
    (True, False)
    """

    source: str
    id: str
    region: AnyFilter
    start: int = 0
    duration: int | timedelta | None = None
    schema: Schema | None = None
    version: int = 1
    form: NormalForm = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.source or not self.id:
            raise EventError("a profile needs a source and an id")
        if isinstance(self.duration, timedelta):
            object.__setattr__(self, "duration", self.duration // timedelta(microseconds=1))
        for what, value in (("start", self.start), ("duration", self.duration or 1), ("version", self.version)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise EventError(f"a profile's {what} is an integer, in microseconds if it is a time, not {value!r}")
        if self.duration is not None and not self.duration > 0:  # type: ignore[operator]
            raise EventError("a profile's duration must be more than 0 microseconds")
        object.__setattr__(self, "region", as_filter(self.region))
        object.__setattr__(self, "form", normalize(self.region, self.schema))

    @property
    def identity(self) -> tuple[str, str]:
        """What identifies it. Cost: O(1).

        >>> Profile("storms", "7", "wind >= 30").identity
        ('storms', '7')
        """
        return self.source, self.id

    @property
    def end(self) -> int | None:
        """When it expires; None if it does not. Cost: O(1).

        >>> Profile("storms", "7", "wind >= 30", start=60, duration=600).end
        660
        """
        return None if self.duration is None else self.start + self.duration  # type: ignore[operator]

    def lasts_at(self, now: int) -> bool:
        """Whether it has started and not expired. Cost: O(1).

        >>> storm = Profile("storms", "7", "wind >= 30", start=60, duration=600)
        >>> storm.lasts_at(0), storm.lasts_at(60), storm.lasts_at(660)
        (False, True, False)
        """
        return self.start <= now and (self.end is None or now < self.end)

    def meets(self, subscription: Region, meeting: Meeting) -> bool:
        """Whether the subscription receives the profile: by covering only when proven, by overlap unless disproved.

        Cost: that of `covers` or `overlaps`, and that of `normalize` for a filter.

        >>> storm = Profile("storms", "7", "wind >= 30")
        >>> storm.meets("wind > 20", Meeting.COVERING), storm.meets("wind > 40", Meeting.OVERLAP)
        (True, True)
        """
        wanted = as_form(subscription, self.schema)
        if meeting is Meeting.COVERING:
            return bool(self.form) and covers(wanted, self.form, self.schema)
        return overlaps(wanted, self.form, self.schema)
