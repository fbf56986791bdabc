"""Label sets as the paper prints them: counting filters and nothing else (DLS 4, Algorithms 1 to 4). For comparison
only: these brokers LOSE EVENTS after unsubscriptions (errata, DLS 3), and no routing table uses them.

A label that collides with others in the broker's filter is never forwarded. The neighbour finds it by the same
collision, until one of the others is withdrawn; from then on its events are lost. `told_labels` decides by exact counts
instead and loses none. What the paper saves is memory: `weft bench dls` measures both.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import LabelError
from weft.model.change import Change
from weft.routing.dls.structure import CountingFilter, FilterShape

_Client = TypeVar("_Client", bound=Hashable)
Forwarded = Change[list[int], list[int]]


class FilterReceiver:
    """What a neighbour wants, as an event routing table stores it: a counting filter, without the labels.

    Behind a sender that decides by exact counts, it finds every label that is wanted. It cannot be resized, nor can it
    list its labels: both require the labels.

    >>> receiver = FilterReceiver(FilterShape(64))
    >>> receiver.change(drop=[], add=[3, 5])
    >>> receiver.change(drop=[3, 99], add=[])
    >>> receiver.contains([3, 5]).tolist()
    [False, True]
    """

    def __init__(self, shape: FilterShape) -> None:
        self.held = CountingFilter(shape)

    def change(self, drop: Iterable[int], add: Iterable[int]) -> None:
        """Remove labels, each if it is found, as in the paper, and add others. Cost: O(hashes) per label."""
        for label in drop:
            _remove(self.held, label)
        self.held.add(list(add))

    def contains(self, labels: ArrayLike) -> NDArray[np.bool_]:
        """Whether it seems to want each label."""
        return self.held.contains(labels)

    @property
    def nbytes(self) -> int:
        """The memory of the counters."""
        return self.held.nbytes


class FilterBroker(Generic[_Client]):
    """A broker's own side: a filter of all its clients' labels (SFF), and a small one for each client.

    >>> broker: FilterBroker[str] = FilterBroker(FilterShape(64), FilterShape(16))
    >>> broker.subscribe("ann", [3, 5]), broker.subscribe("bob", [5])
    (Change(drop=[], add=[3, 5]), Change(drop=[], add=[]))
    >>> broker.clients_of(5, publisher="ann"), broker.unsubscribe("ann", [3, 5])
    (['bob'], Change(drop=[3], add=[]))
    """

    def __init__(self, shape: FilterShape, client_shape: FilterShape) -> None:
        self.all = CountingFilter(shape)
        self.clients: dict[_Client, CountingFilter] = {}
        self._client_shape = client_shape

    def subscribe(self, client: _Client, labels: Iterable[int]) -> Forwarded:
        """Algorithm 2: forward the labels that seem new."""
        mine = self.clients.get(client)
        if mine is None:
            mine = self.clients[client] = CountingFilter(self._client_shape)
        forwarded: Forwarded = Change([], [])
        for label in labels:
            mine.add([label])
            if not self.all.counts([label])[0]:
                forwarded.add.append(label)
            self.all.add([label])
        return forwarded

    def unsubscribe(self, client: _Client, labels: Iterable[int]) -> Forwarded:
        """Algorithm 3 over the given labels (errata, DLS 1): withdraw those that seem to be the last.

        Raises LabelError for a client without subscriptions.
        """
        mine = self.clients.get(client)
        if mine is None:
            raise LabelError(f"{client!r} has no subscriptions; unsubscribe only what was subscribed")
        forwarded: Forwarded = Change([], [])
        for label in labels:
            if self.all.counts([label])[0] == 1:
                forwarded.drop.append(label)
            _remove(self.all, label)
            _remove(mine, label)
        return forwarded

    def clients_of(self, label: int, publisher: _Client | None = None) -> list[_Client]:
        """Algorithm 4: the clients that seem to want an event of this label, except its publisher.

        Cost: O(clients), with one look-up in each filter.
        """
        return [client for client, held in self.clients.items() if client != publisher and held.contains([label])[0]]

    @property
    def nbytes(self) -> int:
        """The memory of all counters."""
        return self.all.nbytes + sum(held.nbytes for held in self.clients.values())


def _remove(held: CountingFilter, label: int) -> None:
    """Remove a label if it is found, even though the counters may belong to others."""
    if held.counts([label])[0]:
        held.remove([label])
