"""Frames: a length of four bytes, then so many bytes. Law: a reader never holds more than one frame and one read.

The length is big-endian and counts what follows it. Its highest bits are always 0 for now, because no frame is longer
than 1 MiB; they are reserved (for compression, say).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from weft.errors import LocalProtocolError, RemoteProtocolError

MAX_FRAME = 1 << 20  # bytes after the length

_LENGTH = Struct(">I")


class FrameReader:
    """Cuts what was received into frames. After an error it accepts nothing more.

    >>> reader = FrameReader()
    >>> [bytes(frame) for frame in reader.feed(b"\\0\\0\\0\\2hi\\0\\0")]
    [b'hi']
    >>> [bytes(frame) for frame in reader.feed(b"\\0\\1!")]
    [b'!']
    """

    def __init__(self, most: int = MAX_FRAME) -> None:
        self._most = most
        self._part = bytearray()  # of a frame that is not complete
        self._need = 4  # how long `_part` must be before there is anything to do
        self._broken = False

    def feed(self, data: bytes) -> list[memoryview]:
        """The frames that are complete with this data. Raises RemoteProtocolError for a frame that is too long."""
        if self._broken:
            raise RemoteProtocolError("frames follow one that was refused")
        part = self._part
        if part:
            part += data
            if len(part) < self._need:
                return []
            data = bytes(part)
            part.clear()
        view, at, end = memoryview(data), 0, len(data)
        frames: list[memoryview] = []
        self._need = 4
        while end - at >= 4:
            (size,) = _LENGTH.unpack_from(data, at)
            if size > self._most:
                self._broken = True
                raise RemoteProtocolError(f"a frame of {size:,} bytes is longer than {self._most:,}")
            if end - at < 4 + size:
                self._need = 4 + size
                break
            frames.append(view[at + 4 : at + 4 + size])
            at += 4 + size
        part += view[at:]
        return frames

    @property
    def between(self) -> bool:
        """Whether everything received was complete frames: a connection that ends otherwise was cut."""
        return not self._part


def joined(bodies: Iterable[bytes], most: int = MAX_FRAME) -> bytes:
    """Frames of these bodies, one after the other. Raises LocalProtocolError for one that is too long.

    >>> joined([b"hi", b"!"])
    b'\\x00\\x00\\x00\\x02hi\\x00\\x00\\x00\\x01!'
    """
    bodies = [*bodies]
    sizes = [*map(len, bodies)]
    longest = max(sizes, default=0)
    if longest > most:
        raise LocalProtocolError(f"a frame of {longest:,} bytes is longer than {most:,}")
    parts = [b""] * (2 * len(bodies))
    parts[::2] = map(_LENGTH.pack, sizes)
    parts[1::2] = bodies
    return b"".join(parts)
