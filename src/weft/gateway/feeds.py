"""Streams without a name: live subscriptions, which all streams of a principal with the same filter share.

Law: a stream has every stored event that matches, from where it began, in the order of the log: after a reconnection
to the broker the log is read from where the stream was. Where that is impossible, a `gap` says so. A reader that is too
slow loses its oldest events, and is told how many. Events that are not stored are sent at most once.

In a network, the log of a broker has events of others only while somebody there subscribes to them. So a subscription
stays for a minute after its last reader has left, and a reader that comes back in time misses nothing. One that comes
later, and one whose gateway was not connected to the broker, gets a `gap`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime

from weft.client.async_subscription import Subscription
from weft.client.client import Client
from weft.client.events import ReceivedEvent
from weft.errors import AccessError, ConnectError, RequestError, WeftError
from weft.gateway.frames import (
    NoticeKind,
    StreamFormat,
    StreamId,
    StreamItem,
    comment,
    event_item,
    notice_item,
    start_of,
)
from weft.log.base import NEVER, Offset
from weft.model.schema import Schema
from weft.model.value import to_micros
from weft.protocol.messages import History, PastEvent, read_head
from weft.protocol.questions import AskReach, BrokerReach

MOST_HELD = 1_000  # events that wait for a slow reader
MOST_HELD_BYTES = 1 << 20
CHUNK = 64 << 10  # bytes that are written at once
OTHER_LOG = "the broker has another log"
REMOVED = "these events were removed from the log"
CUT_OFF = "events that other brokers published meanwhile, until the comment `complete`, may be missing"
NO_HISTORY = "you have no right to read history, so what you missed cannot be read"


class StreamReader:
    """The reader of a stream: what waits to be written to it. One that is not `patient` loses its oldest events."""

    def __init__(self, format: StreamFormat, *, patient: bool = False) -> None:
        self.format = format
        self.position = 0  # stored events below it are not written
        self.dropped = 0  # since that was last told
        self.taken: list[int] = []  # the offsets of what was taken last
        self._patient = patient
        self._items: deque[StreamItem] = deque()
        self._size = 0
        self._comment = b""
        self._last: StreamItem | None = None  # what ends the stream
        self._waiter: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether more events wait than a slow reader may have."""
        return len(self._items) > MOST_HELD or (self._size > MOST_HELD_BYTES and len(self._items) > 1)

    def put(self, item: StreamItem) -> None:
        """An event or a notice."""
        if self._last is not None or 0 < item.offset < self.position:
            return
        self._items.append(item)
        self._size += len(item.body)
        while self.is_full and not self._patient:
            self._size -= len(self._items.popleft().body)
            self.dropped += 1
        _finish(self._waiter)

    async def room(self) -> None:
        """Wait until it is not full."""
        while self.is_full:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def end(self, item: StreamItem) -> None:
        """The stream ends with this notice, after everything else."""
        if self._last is None:
            self._last = item
            _finish(self._waiter)

    def say(self, text: str = "") -> None:
        """Write a comment; an empty one keeps the connection alive."""
        if text or not self._comment:
            self._comment = comment(self.format, text)
        _finish(self._waiter)

    def take(self) -> list[bytes]:
        """Some frames to be written."""
        frames: list[bytes] = []
        size, self.taken = 0, []
        if self.dropped:
            frames.append(notice_item("dropped", count=self.dropped).frame(self.format))
            self.dropped = 0
        items = self._items
        while items and size < CHUNK:
            item = items.popleft()
            self._size -= len(item.body)
            self.taken.append(item.offset)
            if 0 < item.offset < self.position:
                continue
            frame = item.frame(self.format)
            frames.append(frame)
            size += len(frame)
        if self._comment:
            frames.append(self._comment)
            self._comment = b""
        _finish(self._room)
        return frames

    async def wait(self) -> bool:
        """Wait until there is something to take; False if nothing more comes."""
        while not (self._items or self._comment or self.dropped):
            if self._last is not None:
                return False
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return True

    @property
    def last(self) -> bytes:
        """The notice that ends the stream."""
        return b"" if self._last is None else self._last.frame(self.format)


def _finish(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


class HistoryReader:
    """Reads the broker's log for the streams of one client, one request at a time."""

    def __init__(self, client: Client, schema: Schema | None) -> None:
        self.client, self.schema = client, schema
        self._lock = asyncio.Lock()

    async def page(self, first: int, text: str) -> History:
        """What is stored from an offset on, and where to go on. Raises AccessError or RequestError."""
        async with self._lock:
            return await self.client.read_history(first, filter=text)

    async def is_linked(self) -> bool:
        """Whether events may come from other brokers; True if the broker is too old to say."""
        try:
            found = (await self.client.ask(AskReach())).answer
        except RequestError:
            return True
        return not isinstance(found, BrokerReach) or found.neighbours > 0

    async def pages(self, first: int, text: str) -> AsyncIterator[tuple[int, list[StreamItem]]]:
        """The events up to the end of the log, page by page, each with where the next one begins."""
        while True:
            page = await self.page(first, text)
            first = page.next
            yield first, [self._item(event, page.log_id) for event in page.events]
            if page.next >= page.end:
                return

    async def find(self, since: datetime, text: str) -> int:
        """The offset of the first event that was stored at a time or later. Cost: O(log n) pages."""
        at = to_micros(since)
        page = await self.page(0, text)
        low, high = page.oldest, page.end
        while low < high:
            middle = (low + high) // 2
            page = await self.page(middle, text)
            while not page.events and page.next < high:
                page = await self.page(page.next, text)
            if page.events and page.events[0].offset < high and page.events[0].at < at:
                low = Offset(page.events[0].offset + 1)
            else:
                high = Offset(middle)
        return low

    async def begin(self, text: str, after: StreamId) -> tuple[int | None, StreamItem | None]:
        """Where to go on after an event, None if that is impossible; also a notice about what is missing."""
        try:
            page = await self.page(NEVER, text)
        except AccessError:
            return None, gap(after, None, NO_HISTORY)
        except RequestError as error:
            return None, gap(after, None, str(error))
        log = page.log_id
        if after.log != StreamId.of(log, 0).log or after.offset >= page.end:
            return None, gap(after, StreamId.of(log, page.end), OTHER_LOG)
        if after.offset + 1 < page.oldest:
            return page.oldest, gap(after, StreamId.of(log, page.oldest), REMOVED)
        return after.offset + 1, None

    def _item(self, event: PastEvent, log_id: str) -> StreamItem:
        head = read_head(event.head)
        place = StreamId.of(log_id, event.offset)
        return event_item(head.attributes, event.payload, head.datacontenttype, place, self.schema)


def gap(after: StreamId | None, to: StreamId | None, reason: str) -> StreamItem:
    """The notice that events between two ids are missing, which themselves are not."""
    ends = {"from": None if after is None else str(after), "to": None if to is None else str(to)}
    return notice_item("gap", **ends, reason=reason)


class LiveFeed:
    """The live events of one filter for all its listeners. `left` is called when it is over.

    It goes on for `linger` seconds without listeners, so that one that comes back has missed nothing.
    """

    def __init__(self, log: HistoryReader, text: str, left: Callable[[], None], linger: float = 0) -> None:
        self.text, self.listeners = text, set[StreamReader]()
        self.is_over = self.is_complete = False
        self.idle_since = float("inf")  # when the last listener has left
        self._log, self._client, self._left, self._linger = log, log.client, left, linger
        self._unbroken = 0  # the broker has had the subscription ever since the log ended there
        self._opening: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None  # once the broker has accepted it
        self._tasks: set[asyncio.Task[None]] = set()
        self._log_id = ""
        self._position: int | None = None  # all stored events below it were given; None if nobody may read history
        self._connections = 0  # of the client, when the log was last read
        self._waiting: list[StreamItem] | None = None  # what arrives while the log is read

    # -- life ------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Subscribe, unless that is done. Raises what the broker says."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name="weft-feed")
        try:
            await asyncio.shield(self._opening)
        except WeftError:
            self.is_over = True
            self._left()
            raise

    async def _open(self) -> None:
        self._connections = self._client.connections
        subscription = await self._client.subscribe(self.text)
        self._log_id = self._client.log_id
        with suppress(AccessError, RequestError):
            self._position = self._unbroken = (await self._log.page(NEVER, self.text)).end
        if self.is_over:  # everybody has left meanwhile
            await subscription.close()
            return
        self._subscription = subscription
        self._start(self._run(subscription))
        self._start(self._complete(subscription))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name="weft-feed")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _complete(self, subscription: Subscription) -> None:
        with suppress(WeftError):
            await subscription.complete()
            self.is_complete = True
            for listener in self.listeners:
                listener.say("complete")

    def add(self, listener: StreamReader) -> None:
        """Give it every event from now on."""
        self.listeners.add(listener)
        self.idle_since = float("inf")
        if self.is_complete:
            listener.say("complete")

    def remove(self, listener: StreamReader) -> None:
        """It is gone."""
        self.listeners.discard(listener)
        if not self.listeners:
            self.idle_since = min(self.idle_since, asyncio.get_running_loop().time())
            if not self._linger:
                self.close()

    def close(self) -> None:
        """End the subscription; nobody listens."""
        self.is_over = True
        for task in self._tasks:
            task.cancel()
        self._left()

    def is_idle(self, now: float) -> bool:
        """Whether nobody has listened for long."""
        return not self.listeners and self.idle_since + self._linger <= now

    async def missed(self, after: StreamId) -> StreamItem | None:
        """The notice for a reader that goes on after an event, unless the broker has had the subscription since."""
        if after.offset >= self._unbroken or not await self._log.is_linked():
            return None
        return gap(after, None, CUT_OFF)

    def end(self, kind: NoticeKind, reason: str) -> None:
        """End all streams."""
        self.is_over = True
        for listener in self.listeners:
            listener.end(notice_item(kind, reason=reason))

    async def _run(self, subscription: Subscription) -> None:
        dropped = 0
        try:
            async with subscription:
                async for event in subscription:
                    self._arrived(event)
                    if subscription.dropped != dropped:
                        for listener in self.listeners:
                            listener.dropped += subscription.dropped - dropped
                        dropped = subscription.dropped
            self.end("stopping", "the connection to the broker has ended; connect again")
        except WeftError as error:
            self.end(*ending(error))
        except Exception:
            self.end("stopping", "the gateway failed; connect again")
            raise
        finally:
            self._left()

    # -- events ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Read the log if the client was connected anew; this is called every second, and for each event."""
        if self._subscription is None or self._waiting is not None or self.is_over:
            return
        if self._client.connections != self._connections:
            self._waiting = []
            self._start(self._catch_up(self._subscription))

    def _arrived(self, event: ReceivedEvent) -> None:
        self.check()
        if self._waiting is None and not self.listeners:
            if event.offset and self._position is not None:
                self._position = max(self._position, event.offset + 1)
            return
        place = StreamId.of(self._client.log_id, event.offset) if event.offset else None
        item = event_item(event.attributes, event.payload, event.datacontenttype, place, self._log.schema)
        if self._waiting is not None:
            self._waiting.append(item)
        else:
            self._give(item)

    def _give(self, item: StreamItem) -> None:
        if item.offset and self._position is not None:
            if item.offset < self._position:
                return
            self._position = item.offset + 1
        for listener in self.listeners:
            listener.put(item)

    async def _catch_up(self, subscription: Subscription) -> None:
        """Read what was stored while the client was not connected; again, if that happens meanwhile."""
        while self._client.connections != self._connections:
            self._connections = self._client.connections
            self.is_complete = False
            try:
                if self._position is None:
                    self._give(gap(None, None, NO_HISTORY))
                    continue
                page = await self._log.page(NEVER, self.text)
                if page.log_id != self._log_id or self._position > page.end:
                    self._give(gap(None, StreamId.of(page.log_id, page.oldest), OTHER_LOG))
                    self._log_id, self._position = page.log_id, page.oldest
                else:
                    before = StreamId.of(page.log_id, self._position - 1)
                    if self._position < page.oldest:
                        self._give(gap(before, StreamId.of(page.log_id, page.oldest), REMOVED))
                    if await self._log.is_linked():
                        self._give(gap(before, None, CUT_OFF))
                self._unbroken = page.end
                async for _, items in self._log.pages(self._position, self.text):
                    for item in items:
                        self._give(item)
            except WeftError as error:
                self._give(gap(None, None, str(error)))
        self._start(self._complete(subscription))  # behind the gap
        waiting, self._waiting = self._waiting or [], None
        for item in waiting:
            self._give(item)


def ending(error: WeftError) -> tuple[NoticeKind, str]:
    """How a stream ends whose subscription has ended with an error."""
    if isinstance(error, AccessError):
        return "revoked", str(error)
    if isinstance(error, ConnectError) and error.code == "refused":
        return "revoked", "your credentials are no longer valid"
    return "stopping", f"{error}; connect again"


async def feed_stream(
    feed: LiveFeed,
    log: HistoryReader,
    listener: StreamReader,
    first: int | None = None,
    notices: Sequence[StreamItem] = (),
) -> AsyncIterator[list[bytes]]:
    """The frames of a stream: what is stored from `first` on, then live events. It is one of the feed's readers."""
    form = listener.format
    yield [start_of(form), *(each.frame(form) for each in notices)]
    if first is not None:
        at = first
        listener.position = NEVER  # what arrives while the log is read is in the log
        for is_last in (False, True):
            if is_last:
                listener.position = at  # from here on it is collected, and read once more
            async for end, items in log.pages(at, feed.text):
                yield [item.frame(form) for item in items]
                at = end
        listener.position = at
    async for frames in live_frames(listener):
        yield frames


async def live_frames(listener: StreamReader) -> AsyncIterator[list[bytes]]:
    """What is put into a listener, until it ends."""
    while await listener.wait():
        yield listener.take()
    yield [listener.last]
