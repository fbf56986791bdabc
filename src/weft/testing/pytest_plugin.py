"""The pytest plugin: fixtures with a real broker. pytest loads it by itself where Weft is installed.

def test_the_alarm_rings(weft_broker):
    with weft_broker.connect_sync() as client:
        ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from weft.client.sync import SyncClient
    from weft.testing.local_broker import LocalBroker


@pytest.fixture
def weft_broker() -> Iterator[LocalBroker]:
    """A broker in memory, on a free port, for one test: `weft.testing.broker()`."""
    from weft.testing import broker  # here, so that test runs without it start as before

    with broker() as local:
        yield local


@pytest.fixture
def weft_client(weft_broker: LocalBroker) -> Iterator[SyncClient]:
    """A connected client of `weft_broker`."""
    with weft_broker.connect_sync() as client:
        yield client
