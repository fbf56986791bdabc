"""Places of events as bytes, and the space that a publisher needs to compute them (MICS 6.1, DLS 5.3).

A place is the keys of an event: its point on each curve, or its cell of each attribute. All keys of a space have the
same size, the smallest that holds the greatest of them. A place has a meaning only in the space for which it was
computed.

A space is bounded: one of more than `MOST_SPACE` bytes is not sent, and brokers then map events themselves.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from weft.errors import RemoteProtocolError, SchemaError
from weft.kernels.arrays import Ints
from weft.model.schema import Schema

MOST_SPACE = 1 << 16  # bytes of a space as it is sent
_MOST_TEXT = 1 << 22  # and of its text
_MAPPING = 1  # how values are mapped: programs that do it differently have different numbers


@dataclass(frozen=True, slots=True)
class PlaceFormat:
    """How the places of one space are written. `limits` are the greatest values of the keys.

    >>> places = PlaceFormat("the fingerprint of a table", (255, 700))
    >>> data = places.encode(np.array([[3, 5], [255, 700]]))
    >>> data.hex(" ", 4), places.decode(data, 2).tolist(), places.decode(data, 3), places.decode(b"\\xff" * 8, 2)
    ('03000500 ff00bc02', [[3, 5], [255, 700]], None, None)
    """

    fingerprint: str
    limits: tuple[int, ...]
    space: bytes = field(init=False)  # its name on links
    width: int = field(init=False)  # bytes of a place
    _type: np.dtype[Any] = field(init=False, repr=False)
    _limits: np.ndarray[Any, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        name = blake2b(f"{_MAPPING} {self.fingerprint}".encode(), digest_size=8).digest()
        size = next(size for size in (1, 2, 4, 8) if max(self.limits) < 1 << 8 * size)
        object.__setattr__(self, "space", name)
        object.__setattr__(self, "width", size * len(self.limits))
        object.__setattr__(self, "_type", np.dtype(f"<u{size}"))
        object.__setattr__(self, "_limits", np.array(self.limits, self._type))

    def encode(self, keys: Ints) -> bytes:
        """The places of events, one row of keys each, one after the other."""
        return keys.astype(self._type).tobytes()

    def decode(self, data: bytes, count: int) -> Ints | None:
        """The keys of so many events; None if the bytes are not those of places in this space."""
        if len(data) != count * self.width:
            return None
        keys = np.frombuffer(data, self._type).reshape(count, len(self.limits))
        return None if (keys > self._limits).any() else keys.astype(np.int64)

    def divide(self, data: bytes) -> list[bytes]:
        """The place of each event."""
        width = self.width
        return [data[at : at + width] for at in range(0, len(data), width)]


def pack_space(fingerprint: str, schema: Schema | None) -> bytes:
    """A space as it is sent to publishers, who map events as they conform to the schema; empty if it is too large."""
    text = json.dumps([_MAPPING, fingerprint, None if schema is None else schema.to_dict()], separators=(",", ":"))
    packed = zlib.compress(text.encode(), 9) if len(text) <= _MOST_TEXT else b""
    return packed if len(packed) <= MOST_SPACE else b""


def unpack_space(packed: bytes) -> tuple[str, Schema | None]:
    """The fingerprint and the schema of a space. Raises RemoteProtocolError."""
    try:
        unzip = zlib.decompressobj()
        text = unzip.decompress(packed, _MOST_TEXT)
        if not unzip.eof or len(packed) > MOST_SPACE:
            raise ValueError("it is not complete, or too large")
        mapping, fingerprint, schema = json.loads(text)
        if mapping != _MAPPING:
            raise ValueError(f"it is for version {mapping!r} of the mapping, and this program has {_MAPPING}")
        if not isinstance(fingerprint, str):
            raise ValueError("it has no fingerprint")
        return fingerprint, None if schema is None else Schema.from_dict(schema)
    except (ValueError, TypeError, AttributeError, RecursionError, SchemaError, zlib.error) as error:
        raise RemoteProtocolError(f"a space that was received cannot be read: {error}") from None
