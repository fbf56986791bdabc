"""The identity of a connection. It is known before anything but the first message of the connection is read.

The driver gives each connection a callable that knows what the transport knows (its address, its certificate) and is
called once, with the credentials of the first message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from weft.log.base import NEVER


class Identity(NamedTuple):
    """A principal, as access rules name it, until when that holds, and by what."""

    principal: str
    until: int = NEVER  # UTC microseconds
    key: str | None = None  # the id of the key that vouches for it; None for a certificate


Authenticate = Callable[[bytes], Identity]  # of credentials; raises AccessError, whose words only the operator sees
