"""A broker for the tests of your own programs: `with weft.testing.broker() as broker: ...`."""

from __future__ import annotations

from weft.testing.local_broker import LocalBroker, broker

__all__ = ["LocalBroker", "broker"]
