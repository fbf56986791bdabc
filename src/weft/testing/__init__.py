"""A broker for the tests of your own programs: `with weft.testing.broker() as broker: ...`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.testing.local_broker import LocalBroker as LocalBroker
    from weft.testing.local_broker import broker as broker

__all__ = ["LocalBroker", "broker"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'weft.testing' has no attribute {name!r}")
    from weft.testing import local_broker  # at its first use: pytest imports this package for its plugin

    return getattr(local_broker, name)


def __dir__() -> list[str]:
    return list(__all__)
