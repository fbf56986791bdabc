"""What a model of routing costs on somebody's data. Law: figures are values; what was measured is what is said."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figures:
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
    def change_us(self) -> float:
        """A subscription that comes or goes, on average."""
        return (self.insert_us + self.remove_us) / 2

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "forwarded_share": self.forwarded_share, "unwanted_share": self.unwanted_share}


@dataclass(frozen=True, slots=True)
class NotRun:
    """A model without figures, and why."""

    model: str
    reason: str
