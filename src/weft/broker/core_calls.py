"""How every call of a core begins and ends. Law: effects are returned in order, and an error has changed nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod

from weft.broker.effects import Effect, Now
from weft.broker.state import BrokerState


class CoreCalls(ABC):
    """A part of a core that its driver calls."""

    _state: BrokerState

    @abstractmethod
    def _begin(self, now: Now) -> None:
        """Every call begins so."""

    @abstractmethod
    def _finish(self, now: Now) -> list[Effect]:
        """Every call ends so."""
