"""What a node of a ring says of itself, to whoever asks."""

from __future__ import annotations

import msgspec


class NodeReport(msgspec.Struct, frozen=True, tag=True):
    """What one node says of itself."""

    id: int
    address: str
    broker: str
    clients: list[str]  # addresses for clients
    joined: bool
    predecessor: str
    successors: list[str]
    records: int  # subscriptions stored here, copies included
    load: int  # subscriptions that it matches
    subscriptions: int  # of its own clients, as the ring knows them
    published: int  # events of its own clients, since its start
    visited: int  # events that came to be matched here
    received: int  # events for its own clients
    waiting: int  # events on their way
    owed: int  # events of its own clients that wait for a broker that is down
    given_up: int  # and those that have waited for too long
    lost: int  # messages that could not be sent
    topics: list[str] = []  # whose groups it is a member of
