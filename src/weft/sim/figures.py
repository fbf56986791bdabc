"""What a model of routing costs on somebody's data. Law: figures are values; what was measured is what is said."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from weft.tuning.budget import FILTERS_NOTHING


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """The figures of one model, on the broker in the middle of three; `evidence` says how they are measured.

    A range of a curve and a label are an item each: how labels are bundled says nothing about the interest.
    """

    model: str
    forwarded: int  # items that the neighbour in the east knows at the end
    forwarded_bytes: int  # filters as text, ranges and labels as MessagePack
    all_bytes: int  # every subscription as text: what forwarding all of them takes
    updates: int  # to that neighbour, in all
    sent: int  # items added by those updates
    dropped: int
    table: int  # items heard and told, all neighbours together
    memory: int  # bytes
    insert_us: float  # of one subscription, one at a time
    batch_us: float  # of one subscription, many at a time
    remove_us: float
    tidy_ms: float
    match_us: float  # of one event, many at a time
    route_us: float  # of one event alone
    events: int
    wanted: int  # events that somebody wants
    unwanted: int  # events that were sent, and nobody wants

    @property
    def forwarded_share(self) -> float:
        """What is forwarded, in bytes, by what all subscriptions are."""
        return self.forwarded_bytes / self.all_bytes if self.all_bytes else 0.0

    @property
    def unwanted_share(self) -> float:
        """The false positives: unwanted events sent, by all events."""
        return self.unwanted / self.events if self.events else 0.0

    @property
    def passed_share(self) -> float:
        """Unwanted events sent, by all that nobody wants; 0 if there is none."""
        return self.unwanted / (self.events - self.wanted) if self.events > self.wanted else 0.0

    @property
    def filters_nothing(self) -> bool:
        """Whether nearly all events that nobody wants are sent: such a model is flooding at a higher price."""
        return self.passed_share >= FILTERS_NOTHING

    @property
    def change_us(self) -> float:
        """A subscription that comes or goes, on average."""
        return (self.insert_us + self.remove_us) / 2

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        shares = {name: getattr(self, name) for name in ("forwarded_share", "unwanted_share", "passed_share")}
        return {**asdict(self), **shares, "filters_nothing": self.filters_nothing}


@dataclass(frozen=True, slots=True)
class NotRun:
    """A model without figures, and why."""

    model: str
    reason: str
