"""Questions to a broker: what the two faces of a client share, and what they return."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from weft.client.history import HistoricEvent
from weft.errors import OptionError, RemoteProtocolError
from weft.log.base import NEVER, Offset
from weft.model.value import from_micros, to_micros
from weft.protocol.messages import Answer, Question, read_head
from weft.protocol.questions import (
    AnyAnswer,
    AnyQuestion,
    AskRelated,
    FoundEvents,
    ListAnswer,
    RelatedList,
    RelatedSubscription,
    Relationship,
    SearchEvents,
    WouldSend,
    encode_body,
    read_answer,
)

A = TypeVar("A")

_LISTED = 20  # subscriptions of each kind that a relation lists


class AnswerPage(NamedTuple):
    """An answer, the token with which the same question is continued, and the broker that has answered."""

    answer: AnyAnswer
    page: bytes
    broker: str


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Events that a search has found, and how far it is.

    `scanned` of `total` stored events were compared with the filter so far. Events below `oldest` are no longer stored.
    """

    events: tuple[HistoricEvent, ...]
    scanned: int
    total: int
    next: int  # the offset from which the search goes on
    oldest: int
    log_id: str

    @property
    def is_done(self) -> bool:
        """Whether everything was looked at."""
        return self.scanned >= self.total


@dataclass(frozen=True, slots=True)
class RelationReport:
    """The subscriptions of a broker that have events in common with a filter, and what neighbours would be sent.

    `counts` are of all of them, by kind: equal, covers, covered, overlaps (what the subscription is to the filter);
    `subscriptions` are some of each kind.
    """

    counts: dict[Relationship, int]
    subscriptions: tuple[RelatedSubscription, ...]
    sends: tuple[WouldSend, ...]
    compared: int


_Ask = Callable[[AnyQuestion, str, bytes], Awaitable[AnswerPage]]


def question_message(question: AnyQuestion, broker: str, page: bytes) -> Callable[[int], Question]:
    """The message that asks a question, by its number. Raises OptionError."""
    if not isinstance(question, AnyQuestion):
        raise OptionError(f"{type(question).__name__} is not a question; see weft.protocol.questions")
    return partial(Question, body=encode_body(question), broker=broker, page=page)


def answer_page(message: Answer) -> AnswerPage:
    """The answer in a message. Raises RemoteProtocolError."""
    return AnswerPage(read_answer(message.body), message.page, message.broker)


def expected(answer: AnyAnswer, kind: type[A]) -> A:
    """An answer of a kind. Raises RemoteProtocolError for another one."""
    if not isinstance(answer, kind):
        raise RemoteProtocolError(f"the broker has answered with {type(answer).__name__}, not {kind.__name__}")
    return answer


def rows_of(answer: AnyAnswer) -> tuple[Any, ...]:
    """The rows of a list. Raises RemoteProtocolError for another answer."""
    if not isinstance(answer, ListAnswer):
        raise RemoteProtocolError(f"the broker has answered with {type(answer).__name__}, which is not a list")
    return answer.rows


async def listed(ask: _Ask, question: AnyQuestion, broker: str) -> AsyncIterator[Any]:
    """The rows of all pages of a list."""
    page = b""
    while True:
        found = await ask(question, broker, page)
        for row in rows_of(found.answer):
            yield row
        page = found.page
        if not page:
            return


async def related(ask: _Ask, filter: str, broker: str, progress: Callable[[int, int], object] | None) -> RelationReport:
    """All pages of a relation together."""
    counts: dict[Relationship, int] = {"equal": 0, "covers": 0, "covered": 0, "overlaps": 0}
    kept: list[RelatedSubscription] = []
    page = b""
    while True:
        found = await ask(AskRelated(filter), broker, page)
        answer, page = expected(found.answer, RelatedList), found.page
        for row in answer.rows:
            counts[row.relationship] += 1
            if counts[row.relationship] <= _LISTED:
                kept.append(row)
        if progress is not None:
            progress(answer.seen, answer.total)
        if not page:
            return RelationReport(counts, tuple(kept), answer.sends, answer.seen)


class SearchPages:
    """The pages of a search, one after another."""

    def __init__(self, filter: str, since: int | datetime | None, until: int | datetime | None) -> None:
        first, since_time = _bound(since)
        end, until_time = _bound(until)
        self._question = SearchEvents(
            filter, Offset(first or 0), Offset(NEVER if end is None else end), since_time, until_time
        )
        self._first: int | None = None  # where the search began
        self.is_done = False

    @property
    def question(self) -> SearchEvents:
        """What to ask next."""
        return self._question

    def page(self, answer: AnyAnswer) -> SearchPage:
        """The next page. Raises RemoteProtocolError."""
        found = expected(answer, FoundEvents)
        if self._first is None:
            self._first = found.first
        self._question = SearchEvents(self._question.filter, found.next, found.end)
        self.is_done = found.is_done
        scanned, total = found.next - self._first, found.end - self._first
        return SearchPage(tuple(_events(found)), scanned, total, found.next, found.oldest, found.log_id)


def _events(found: FoundEvents) -> Iterator[HistoricEvent]:
    for event in found.events:
        head = read_head(event.head)
        yield HistoricEvent(event.offset, from_micros(event.at), head.attributes, event.payload, head.datacontenttype)


def _bound(at: int | datetime | None) -> tuple[int | None, int | None]:
    """An offset or a time, as a pair of both. Raises OptionError."""
    if at is None:
        return None, None
    if isinstance(at, datetime):
        return None, max(0, to_micros(at))
    if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at <= NEVER:
        raise OptionError(f"{at!r} is neither an offset nor a time; give an integer from 0 on, or a datetime")
    return at, None
