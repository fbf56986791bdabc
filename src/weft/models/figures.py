"""The costs of a routing model on a user's data. Figures are values; they state what was measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from weft.tuning.budget import FILTERS_NOTHING


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """The figures of one model, on the broker in the middle of three; `evidence` explains how they are measured.

    A range of a curve and a label are one item each: the bundling of labels says nothing about the interest.
    """

    model: str
    forwarded: int  # items that the neighbour in the east knows at the end
    forwarded_bytes: int  # filters as text, ranges and labels as MessagePack
    all_bytes: int  # every subscription as text: the size of forwarding all of them
    updates: int  # total, to that neighbour
    sent: int  # items added by those updates
    dropped: int
    table: int  # items heard and told, of all neighbours
    memory: int  # bytes
    insert_us: float  # per subscription, one at a time
    batch_us: float  # per subscription, many at a time
    remove_us: float
    tidy_ms: float
    match_us: float  # per event, many at a time
    route_us: float  # per single event
    events: int
    wanted: int  # events that a subscription wants
    unwanted: int  # events that were sent although no subscription wants them

    @property
    def forwarded_share(self) -> float:
        """The forwarded bytes, relative to the bytes of all subscriptions."""
        return self.forwarded_bytes / self.all_bytes if self.all_bytes else 0.0

    @property
    def unwanted_share(self) -> float:
        """The false positives: unwanted events sent, relative to all events."""
        return self.unwanted / self.events if self.events else 0.0

    @property
    def passed_share(self) -> float:
        """Unwanted events sent, relative to all unwanted events; 0 if there are none."""
        return self.unwanted / (self.events - self.wanted) if self.events > self.wanted else 0.0

    @property
    def filters_nothing(self) -> bool:
        """Whether nearly all unwanted events are sent: such a model is flooding at a higher price."""
        return self.passed_share >= FILTERS_NOTHING

    @property
    def change_us(self) -> float:
        """The mean time to add or remove a subscription."""
        return (self.insert_us + self.remove_us) / 2

    def to_dict(self) -> dict[str, Any]:
        """The figures for JSON."""
        shares = {name: getattr(self, name) for name in ("forwarded_share", "unwanted_share", "passed_share")}
        return {**asdict(self), **shares, "filters_nothing": self.filters_nothing}


@dataclass(frozen=True, slots=True)
class NotRun:
    """A model without figures, and the reason."""

    model: str
    reason: str
