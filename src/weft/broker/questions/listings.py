"""Lists in pages: a list is made a piece at a time, whatever its length, and a page token says which page comes next.

A list shows what was there when it began; what is gone by the time of its page is left out. Only a few lists are kept,
and none longer than the broker runs. The last page is kept too: a client that reconnects may ask for it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from weft.broker.limits import RefusalError
from weft.protocol.questions import MOST_ROWS, MOST_TOKEN, AnyAnswer, ListQuestion

MOST_WORK = 3_000  # for one page; about microseconds
_MOST_LISTS = 64  # that are kept; the one that was used longest ago goes first
_MOST_BYTES = 500_000  # of the rows of a page, besides the last
_GONE = "this list is no longer kept; ask again without a page token"


class ListStep(NamedTuple):
    """A piece of work, and the row that it has found, if any."""

    work: int
    row: Any = None


@dataclass(slots=True)
class ListProgress:
    """How far a list is."""

    total: int = 0
    seen: int = 0


class Page(NamedTuple):
    """An answer, and the token of the next one; empty at the end."""

    answer: AnyAnswer
    token: bytes = b""


class PageToken(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Which list of which process, and which of its pages."""

    incarnation: int
    number: int
    page: int


MakePage = Callable[[tuple[Any, ...], ListProgress], AnyAnswer]
_read = msgspec.msgpack.Decoder(PageToken).decode
_encode = msgspec.msgpack.Encoder().encode


@dataclass(slots=True, eq=False)
class _List:
    """A list that is not at its end, or whose last page may be asked for again."""

    principal: str
    question: ListQuestion
    steps: Iterator[ListStep]
    progress: ListProgress
    make: MakePage
    page: int = 0  # the number of the page that comes next
    last: Page | None = None


class Listings:
    """The lists of one process. `incarnation` tells its tokens from those of others."""

    def __init__(self, incarnation: int, most_work: int = MOST_WORK) -> None:
        self._incarnation, self._most_work = incarnation, most_work
        self._numbers = 0
        self._lists: dict[int, _List] = {}

    def begin(
        self, principal: str, question: ListQuestion, steps: Iterator[ListStep], progress: ListProgress, make: MakePage
    ) -> Page:
        """The first page of a list."""
        self._numbers += 1
        self._lists[self._numbers] = _List(principal, question, steps, progress, make)
        if len(self._lists) > _MOST_LISTS:
            del self._lists[next(iter(self._lists))]
        return self._next(self._numbers)

    def go_on(self, principal: str, question: ListQuestion, token: bytes) -> Page:
        """The page of a token. Raises RefusalError."""
        try:
            asked = _read(token) if len(token) <= MOST_TOKEN else None
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            asked = None
        if asked is None:
            raise RefusalError("page", "this is not a page token; pass the one of the last answer, or none")
        listed = self._lists.pop(asked.number, None)
        if listed is None or asked.incarnation != self._incarnation:
            if listed is not None:
                self._lists[asked.number] = listed
            raise RefusalError("page", _GONE)
        self._lists[asked.number] = listed  # used last
        if (listed.principal, listed.question) != (principal, question):
            raise RefusalError("page", "the page token belongs to another question; repeat the question with its token")
        if asked.page == listed.page - 1 and listed.last is not None:
            return listed.last
        if asked.page != listed.page:
            raise RefusalError("page", _GONE)
        return self._next(asked.number)

    def _next(self, number: int) -> Page:
        listed = self._lists[number]
        rows: list[Any] = []
        work, size, ended = 0, 0, True
        for step in listed.steps:
            work += step.work
            if step.row is not None:
                rows.append(step.row)
                size += len(_encode(step.row))
            if work >= self._most_work or len(rows) >= MOST_ROWS or size >= _MOST_BYTES:
                ended = False
                break
        listed.page += 1
        token = b"" if ended else _encode(PageToken(self._incarnation, number, listed.page))
        listed.last = page = Page(listed.make(tuple(rows), listed.progress), token)
        return page
