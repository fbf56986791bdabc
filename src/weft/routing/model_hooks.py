"""The hooks of a routing model: how filters become items, what a link is told, and which links want an event. The
abstract hooks are enough; every other hook has a meaning when it is left as it is.

`engine.TableEngine` calls the hooks, in this order:

- a subscription changes: `prepare` (may refuse), `store`, `revise`;
- a neighbour is attached: `link_added`, `tell_everything`, `session_begun`; it is removed: `link_removed`, `revise`;
- a neighbour's update: `prepare_update` (may refuse), `apply_update`, `store`, `revise`, `after_update`;
- every call ends: `nothing_pending` if so, then `before_flush` for each link.

Those that return a job tell their additions before they first yield, and withdraw
last, so that nothing is lost in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic

from weft.algebra.box import NormalForm
from weft.errors import LocalProtocolError, RemoteProtocolError
from weft.index.base import AnyEvent
from weft.model.change import Change
from weft.routing.interface import H, K, TableInterface
from weft.routing.item_codec import LabelItems, RangeItems
from weft.routing.jobs import Job
from weft.routing.table import Exactness, Item, ItemId, Items, Link, Overlap, Places, Routes, Update, WantedItem


class ModelHooks(ABC, Generic[K, H]):
    """The part of a table that differs from model to model."""

    model: ClassVar[str]

    @property
    @abstractmethod
    def exactness(self) -> Exactness:
        """Which of the laws hold."""

    @property
    @abstractmethod
    def agreed(self) -> Mapping[str, object]:
        """What neighbours must agree on in addition to model, exactness and schema, in JSON types."""

    @property
    @abstractmethod
    def overlap(self) -> Overlap:
        """How items compare with advertisements."""

    def cell_items(self) -> RangeItems | LabelItems | None:
        """How items are encoded; None if they are filters."""
        return None

    @abstractmethod
    def prepare(self, wanted: WantedItem | NormalForm) -> Any:
        """A subscription in the form that `store` expects; None if it never matches. Raises FilterTooComplexError."""

    @abstractmethod
    def prepare_update(
        self, interface: TableInterface[K, H], update: Update, news: Change[Items, Items]
    ) -> Mapping[ItemId, Any]:
        """The items of an update in the form that `store` expects, without those that never match. Raises
        RemoteProtocolError.
        """

    def store(self, new: Any) -> H:
        """What the table holds of a subscription or an item from now on."""
        held: H = new
        return held

    @abstractmethod
    def item(self, key: K) -> Item:
        """The item that a told key stands for."""

    @abstractmethod
    def revise(self, source: TableInterface[K, H], drop: Sequence[H], add: Sequence[H]) -> Job:
        """Tell and withdraw, at all listening links except the source, after a source changed what it holds."""

    @abstractmethod
    def tell_everything(self, interface: TableInterface[K, H]) -> Job:
        """Tell a new neighbour what all others want."""

    @abstractmethod
    def link_removed(self, interface: TableInterface[K, H]) -> Job:
        """Forget what a removed neighbour was told. What it held is removed afterwards, by `revise`."""

    def link_added(self, interface: TableInterface[K, H]) -> None:
        """Make room for a neighbour that may tell something."""

    def session_begun(self, interface: TableInterface[K, H]) -> None:
        """Add whatever must accompany the first update of a neighbour's session."""

    def apply_update(
        self, interface: TableInterface[K, H], update: Update, news: Change[Items, Items], new: Mapping[ItemId, Any]
    ) -> None:
        """Called after a neighbour told something: look events up in it from now on."""

    def after_update(self, interface: TableInterface[K, H]) -> None:
        """Called when the consequences of a neighbour's update are told, except for pending ones."""

    def nothing_pending(self) -> None:
        """Called when nothing is pending."""

    @abstractmethod
    def wanting(self, event: AnyEvent) -> set[Link]:
        """The links that want an event."""

    @abstractmethod
    def wanting_batch(self, events: Sequence[AnyEvent], places: Places | None) -> Routes:
        """The positions of the events that each link wants."""

    def improve(self, budget: int) -> None:
        """Tell the same in fewer items, examining about `budget` of them."""

    def before_flush(self, interface: TableInterface[K, H]) -> None:
        """Add whatever must accompany an update to a link that is about to be created."""

    def admitting(self, interface: TableInterface[K, H], event: AnyEvent) -> Iterator[Item]:  # noqa: ARG002
        """The items heard that admit an event; none, unless the model tells any."""
        return iter(())

    def resume(self, settings: str) -> None:
        """Restore what `settings` returned."""
        if settings:
            raise LocalProtocolError(f"a table of model {self.model} has no settings; restore it without")

    @property
    def settings(self) -> str:
        """Empty, unless the model changes while it runs."""
        return ""


def unexpected(link: Link | None, what: str, item: object) -> RemoteProtocolError:
    """The error for an item of another kind."""
    return RemoteProtocolError(f"{link} sent an item that is not {what}: {item!r}")
