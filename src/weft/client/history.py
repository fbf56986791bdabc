"""History: past events of a broker's log, page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from weft.errors import OptionError, RequestError
from weft.log.base import NEVER, Offset
from weft.model.value import Value, from_micros
from weft.protocol.messages import History, ReadHistory, read_head


@dataclass(frozen=True, slots=True)
class HistoricEvent:
    """An event that a broker has stored.

    >>> from weft.testing import broker
    >>> with broker() as local, local.connect_sync() as client:
    ...     _ = client.publish({"magnitude": 6.1}, payload="felt")
    ...     [(event.offset, event["magnitude"], event.payload) for event in client.history()]
    [(1, 6.1, b'felt')]
    """

    offset: int
    stored_at: datetime
    attributes: dict[str, Value]
    payload: bytes
    datacontenttype: str = ""

    def __getitem__(self, name: str) -> Value | None:
        return self.attributes.get(name)


class HistoryPages:
    """The pages of a range of offsets, one after another."""

    def __init__(self, first: int, end: int | None) -> None:
        self._at, self._end, self._log_id = first, end, ""
        history_request(first, end, "TRUE")  # raises OptionError

    def request(self, text: str) -> Callable[[int], ReadHistory] | None:
        """What to request next; None if everything was read."""
        done = self._log_id and (self._end is None or self._at >= self._end)
        return None if done else history_request(self._at, self._end, text)

    def events(self, page: History) -> Iterator[HistoricEvent]:
        """The events of the next page. Raises RequestError if the log is no longer the one that was read before."""
        if self._log_id not in ("", page.log_id):
            raise RequestError("the broker has another log than when reading began; begin again", "log")
        end = page.end if self._end is None else min(self._end, page.end)
        self._at, self._end, self._log_id = page.next, end, page.log_id
        for event in page.events:
            head = read_head(event.head)
            at = from_micros(event.at)
            yield HistoricEvent(event.offset, at, head.attributes, event.payload, head.datacontenttype)


def history_request(first: int, end: int | None, text: str) -> Callable[[int], ReadHistory]:
    """The request for a range of offsets, by its number. Raises OptionError."""
    last = NEVER if end is None else end
    for offset in (first, last):
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= NEVER:
            raise OptionError(f"{offset!r} is not an offset; give an integer from 0 on")
    return partial(ReadHistory, first=Offset(first), end=Offset(last), filter=text)
