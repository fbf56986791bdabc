"""Events in streams: server-sent events, lines of JSON, and WebSocket messages.

The id of an event is LOG.OFFSET: 8 digits of the log's identity, and the event's offset in it. A stream that begins
after an id is complete as far as the log goes back; events that are not stored have no id. Server-sent events have it
in their own field, the other two as the extension `weftid`.

Besides events, a stream has notices: `gap` (events that are missing, from and to which id, and why), `dropped` (how
many, because the reader was too slow), `revoked` (the access rules no longer allow it), `problem` (an event that the
client sent was refused) and `stopping` (connect again). The last of a stream says why it ends.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

import msgspec

from weft.gateway.cloud_http import EVENT_ID, SOURCE, write_event
from weft.gateway.problems import NOT_ACCEPTABLE, REQUEST, ProblemError
from weft.model.schema import Schema

SSE, NDJSON, WEBSOCKET = "text/event-stream", "application/x-ndjson", "websocket"
SUBPROTOCOL = "cloudevents.json"
_LOG = 8  # digits of a log's identity
_ID = re.compile(r"([0-9a-f]{8})\.([0-9]{1,18})")
_encode = msgspec.json.Encoder().encode

StreamFormat = Literal["text/event-stream", "application/x-ndjson", "websocket"]
NoticeKind = Literal["gap", "dropped", "revoked", "problem", "stopping"]


class StreamId(NamedTuple):
    """The place of an event in a log.

    >>> StreamId.parse("9f3c21aa.1042"), str(StreamId("9f3c21aa", 1042))
    (StreamId(log='9f3c21aa', offset=1042), '9f3c21aa.1042')
    """

    log: str
    offset: int

    @classmethod
    def of(cls, log_id: str, offset: int) -> StreamId:
        """The id of an event in a log with this identity."""
        return cls(log_id[:_LOG], offset)

    @classmethod
    def parse(cls, text: str) -> StreamId:
        """The id that a client sends back. Raises ProblemError."""
        found = _ID.fullmatch(text)
        if found is None:
            raise ProblemError(REQUEST, f"{text[:60]!r} is not the id of an event, such as 9f3c21aa.1042")
        return cls(found[1], int(found[2]))

    def __str__(self) -> str:
        return f"{self.log}.{self.offset}"


class StreamItem:
    """An event or a notice for streams, written once for each format."""

    __slots__ = ("_frames", "_notice", "body", "id")

    def __init__(self, body: bytes, id: StreamId | None = None, notice: str = "") -> None:
        self.body, self.id, self._notice = body, id, notice
        self._frames: dict[str, bytes] = {}

    @property
    def offset(self) -> int:
        """Of the event; 0 if it is not stored, or this is a notice."""
        return 0 if self.id is None else self.id.offset

    def frame(self, format: StreamFormat) -> bytes:
        """The bytes of a stream of this format."""
        found = self._frames.get(format)
        if found is None:
            found = self._frames[format] = self._sse() if format == SSE else self._json(format)
        return found

    def _sse(self) -> bytes:
        head = b"" if not self._notice else b"event: %b\n" % self._notice.encode()
        if self.id is not None:
            head += b"id: %b\n" % str(self.id).encode()
        return b"%bdata: %b\n\n" % (head, self.body)

    def _json(self, format: StreamFormat) -> bytes:
        body = self.body
        if self._notice:
            about = {"specversion": "1.0", "id": self._notice, "source": SOURCE, "type": f"weft.{self._notice}"}
            body = _encode({**about, "data": msgspec.Raw(body)})
        elif self.id is not None:
            body = b'%b,"%b":"%b"}' % (body[:-1], EVENT_ID.encode(), str(self.id).encode())
        return body if format == WEBSOCKET else body + b"\n"


def event_item(
    attributes: dict[str, Any], payload: bytes, kind: str, id: StreamId | None, schema: Schema | None = None
) -> StreamItem:
    """An event for streams; `kind` is the media type of its payload."""
    return StreamItem(write_event(attributes, payload, kind, "transient" if id is None else str(id), schema), id)


def notice_item(kind: NoticeKind, **about: Any) -> StreamItem:
    """A notice for streams.

    >>> print(notice_item("dropped", count=3).frame(SSE).decode(), end="")
    event: dropped
    data: {"count":3}
    <BLANKLINE>
    """
    return StreamItem(_encode(about), None, kind)


def comment(format: StreamFormat, text: str = "") -> bytes:
    """Bytes that keep a connection alive and mean nothing; none in a WebSocket, which has its own."""
    return b": %b\n\n" % text.encode() if format == SSE else b"\n" if format == NDJSON else b""


def start_of(format: StreamFormat) -> bytes:
    """The first bytes of a stream: a browser that loses it connects again after a second."""
    return b"retry: 1000\n: subscribed\n\n" if format == SSE else b""


def format_of(accept: str) -> StreamFormat:
    """The format of a stream by the header `Accept`: server-sent events, unless lines of JSON are wanted.

    >>> format_of("*/*"), format_of("application/x-ndjson;q=1, text/html")
    ('text/event-stream', 'application/x-ndjson')
    """
    wanted = [each.partition(";")[0].strip().lower() for each in accept.split(",")]
    for each in wanted:
        if each in ("application/x-ndjson", "application/ndjson", "application/jsonl"):
            return "application/x-ndjson"
        if each in (SSE, "text/*", "*/*", ""):
            return "text/event-stream"
    raise ProblemError(NOT_ACCEPTABLE, f"a stream is {SSE} or {NDJSON}; accept one of them")
