"""Subscriptions with a name over HTTP: the session `http/PRINCIPAL/ID` at the broker, read by a stream or by pulls.

Law: every event of the subscription is given to a reader until it is acknowledged. A stream acknowledges what it has
written, and goes on after the id that its reader names. What was pulled is leased: if it is neither acknowledged nor
refused within that time, the next pull has it again. One stream reads at a time; a newer one ends the older.

The connection to the broker is open while somebody reads, and for some minutes afterwards. The name of its session says
what the broker does not: whether it is ordered, and when it expires.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import NamedTuple

from weft.client.async_subscription import Subscription
from weft.client.events import ReceivedEvent
from weft.errors import WeftError
from weft.gateway.feeds import CHUNK, HistoryReader, StreamReader, ending, live_frames
from weft.gateway.frames import NoticeKind, StreamFormat, StreamId, StreamItem, event_item, notice_item, start_of

IDLE = 300.0  # seconds that the connection stays open when nobody reads
_NEVER = float("inf")
_MORE = 0.002  # seconds that a pull waits for more events than it has
_MOST_REPLAYED = 100_000  # offsets that are remembered; beyond that a reader may get events twice


_KIND = re.compile(r"http(-unordered)?(?:-([0-9]{1,10})s)?")


class SessionName(NamedTuple):
    """The session of a subscription. Its name says what the broker does not.

    >>> str(SessionName("amy", "k3v9")), str(SessionName("amy", "k3v9", False, 60))
    ('http/amy/k3v9', 'http-unordered-60s/amy/k3v9')
    """

    principal: str
    id: str
    ordered: bool = True
    expires: int | None = None

    def __str__(self) -> str:
        kind = f"http{'' if self.ordered else '-unordered'}{f'-{self.expires}s' if self.expires else ''}"
        return f"{kind}/{self.principal}/{self.id}"

    @classmethod
    def read(cls, name: str, principal: str) -> SessionName | None:
        """What a name says; None if it is not that of a subscription of this principal."""
        kind, _, rest = name.partition("/")
        found, (owner, _, last) = _KIND.fullmatch(kind), rest.rpartition("/")
        if found is None or owner != principal or not last:
            return None
        return cls(owner, last, not found[1], int(found[2]) if found[2] else None)


class DurableOptions(NamedTuple):
    """What a subscription is besides its filter."""

    since: int | datetime | None = None
    ordered: bool = True
    lag: int | None = 0  # None if it is not known, and was given before
    expires: int | None = None  # seconds without a reader after which it is removed; None: as the broker says


class PulledEvent(NamedTuple):
    """An event that was pulled."""

    item: StreamItem
    attempt: int


class _Open:
    """An event that was given to a reader, and not acknowledged."""

    __slots__ = ("attempts", "event", "until")

    def __init__(self, event: ReceivedEvent) -> None:
        self.event, self.until, self.attempts = event, _NEVER, 0


class DurableSubscription:
    """One subscription with a name."""

    def __init__(self, log: HistoryReader, id: str, name: str, text: str, options: DurableOptions) -> None:
        self.id, self.text, self.options = id, text, options
        self.is_over = False  # it must be opened anew
        self._log, self.session = log, name
        self._subscription: Subscription | None = None
        self._open: dict[int, _Open] = {}
        self._stream: StreamReader | None = None
        self._pulling = asyncio.Lock()
        self._users = 0
        self._idle_since = _now()
        self.gaps = 0  # ranges that the broker dropped, as far as readers were told

    # -- life ------------------------------------------------------------------------------------------------

    async def open(self) -> Subscription:
        """Subscribe, unless that is done. Raises what the broker says."""
        if self._subscription is None:
            since, ordered, lag, expires = self.options
            how = {"since": since, "ordered": ordered, "lag": lag or 0, "expires": expires}
            made = self._log.client.subscribe(self.text, name=self.session, **how)  # type: ignore[arg-type]
            self._subscription = made
        try:
            await self._subscription
        except WeftError:
            self.is_over = True
            raise
        return self._subscription

    @property
    def is_reading(self) -> bool:
        """Whether a stream reads it."""
        return self._stream is not None

    @property
    def unacknowledged(self) -> int:
        """How many events were given to a reader and are not acknowledged."""
        return len(self._open)

    async def replace(self, text: str) -> None:
        """Change the filter from the next event on."""
        await (await self.open()).replace(text)
        self.text = text

    async def remove(self) -> None:
        """End it for good."""
        await (await self.open()).unsubscribe()
        self.end("stopping", "the subscription was removed")

    def end(self, kind: NoticeKind, reason: str) -> None:
        """End its stream."""
        if self._stream is not None:
            self._stream.end(notice_item(kind, reason=reason))

    def keep_alive(self) -> None:
        """Write something to its stream."""
        if self._stream is not None:
            self._stream.say()

    def is_idle(self, now: float) -> bool:
        """Whether nobody has read it for long."""
        idle = min(IDLE, self.options.expires or IDLE)  # it expires when nobody has a connection to the broker
        return not self._users and self._stream is None and self._idle_since + idle < now

    async def close(self) -> None:
        """Leave it: what is not acknowledged goes back to the broker."""
        if self._subscription is not None:
            await self._subscription.close()

    # -- events ----------------------------------------------------------------------------------------------

    async def _next(self, lease: float) -> _Open:
        """The next event to be given: one whose lease is over, or a new one."""
        now = _now()
        late = min((offset for offset, each in self._open.items() if each.until <= now), default=0)
        if late:
            found = self._open[late]
        else:
            subscription = await self.open()
            while True:
                event = await anext(subscription)
                late, known = event.offset, self._open.get(event.offset)
                if known is None or not late:
                    found = _Open(event)
                    if late:
                        self._open[late] = found
                    break
                known.event = event  # it was delivered again after a reconnection
                if known.until <= _now():
                    found = known
                    break
        found.until = _now() + lease
        found.attempts = max(found.attempts + 1, found.event.attempt)
        return found

    def _item(self, event: ReceivedEvent) -> StreamItem:
        place = StreamId.of(self._log.client.log_id, event.offset) if event.offset else None
        return event_item(event.attributes, event.payload, event.datacontenttype, place, self._log.schema)

    async def _settle(self, offsets: Iterable[int]) -> int:
        settled = 0
        for offset in offsets:
            found = self._open.pop(offset, None)
            if found is not None:
                await found.event.ack()
                settled += 1
        return settled

    # -- streams ---------------------------------------------------------------------------------------------

    async def stream(self, format: StreamFormat, after: StreamId | None) -> AsyncIterator[list[bytes]]:
        """The frames of a stream. What is written is acknowledged."""
        await self.open()
        self.end("stopping", "a newer connection reads this subscription")
        listener = self._stream = StreamReader(format, patient=True)
        first, notice = (None, None) if after is None else await self._log.begin(self.text, after)
        replayed: set[int] = set()
        pump: asyncio.Task[None] | None = None
        try:
            yield [start_of(format)]
            if notice is not None:
                yield [notice.frame(format)]
            if first is not None:
                async for _, items in self._log.pages(first, self.text):
                    yield [item.frame(format) for item in items]
                    if len(replayed) < _MOST_REPLAYED:
                        replayed.update(item.offset for item in items)
            pump = asyncio.create_task(self._pump(listener, replayed), name="weft-pump")
            async for frames in live_frames(listener):
                yield frames
                await self._settle(listener.taken)
                listener.taken = []
        finally:
            if pump is not None:
                pump.cancel()
            if self._stream is listener:
                self._stream = None
            for each in self._open.values():
                each.until = min(each.until, _now()) if each.until == _NEVER else each.until
            self._idle_since = _now()

    async def _pump(self, listener: StreamReader, replayed: set[int]) -> None:
        """Hand events to a stream, as fast as it is read, but for those that it has from the log."""
        subscription = await self.open()
        try:
            while True:
                found = await self._next(_NEVER)
                for first, end in subscription.gaps[self.gaps :]:
                    self.gaps += 1
                    log = self._log.client.log_id
                    ends = {"from": str(StreamId.of(log, first - 1)), "to": str(StreamId.of(log, end))}
                    listener.put(notice_item("gap", **ends, reason="the subscription was too far behind"))
                await listener.room()
                item = self._item(found.event)
                if item.offset in replayed:
                    await self._settle([item.offset])
                else:
                    listener.put(item)
        except StopAsyncIteration:
            self.is_over = True
            listener.end(notice_item("stopping", reason="the subscription has ended"))
        except WeftError as error:
            self.is_over = True
            kind, reason = ending(error)
            listener.end(notice_item(kind, reason=reason))
        except Exception:
            listener.end(notice_item("stopping", reason="the gateway failed; connect again"))
            raise

    # -- pull ------------------------------------------------------------------------------------------------

    async def pull(self, most: int, wait: float, lease: float) -> list[PulledEvent]:
        """Up to `most` events, within `wait` seconds; they come again unless they are settled within `lease`."""
        self._users += 1
        found: list[PulledEvent] = []
        size = 0
        try:
            async with self._pulling:
                deadline = _now() + wait
                while len(found) < most and size < 16 * CHUNK:
                    patience = deadline if not found else _now() + _MORE
                    lease_ends = min((each.until for each in self._open.values()), default=_NEVER)
                    try:
                        async with asyncio.timeout_at(min(patience, max(lease_ends, _now()))):
                            each = await self._next(lease)
                    except TimeoutError:
                        if lease_ends < patience:
                            continue
                        break
                    except StopAsyncIteration:
                        self.is_over = True
                        break
                    item = self._item(each.event)
                    found.append(PulledEvent(item, each.attempts))
                    size += len(item.body)
            return found
        except BaseException as error:
            self.is_over |= isinstance(error, WeftError)
            self.give_back(found)
            raise
        finally:
            self._users -= 1
            self._idle_since = _now()

    def give_back(self, events: Iterable[PulledEvent]) -> None:
        """What was pulled did not reach its reader: the next pull has it."""
        for event in events:
            if event.item.offset in self._open:
                self._open[event.item.offset].until = 0

    async def ack(self, upto: int | None, offsets: Iterable[int]) -> int:
        """Settle what was pulled: everything up to an offset, and some more. Returns how many there were."""
        below = [] if upto is None else [offset for offset in self._open if offset <= upto]
        wanted = {*below, *offsets}
        unknown = [offset for offset in wanted if offset not in self._open]
        if unknown:  # of an earlier connection: the broker delivers them again, unless it learns of this
            await (await self.open()).ack(unknown)
        return await self._settle(sorted(wanted)) + len(unknown)

    async def nack(self, offsets: Iterable[int], reason: str) -> int:
        """Report that events could not be handled. Returns how many there were."""
        failed = 0
        for offset in sorted(offsets):
            found = self._open.pop(offset, None)
            if found is not None:
                await found.event.nack(reason)
                failed += 1
                if self.options.ordered:  # all behind it come again
                    for behind in [each for each in self._open if each > offset]:
                        del self._open[behind]
        return failed


def _now() -> float:
    return asyncio.get_running_loop().time()
