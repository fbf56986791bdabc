"""Errors of the gateway as `application/problem+json` (RFC 9457).

`type` is a relative reference, `title` its name, `detail` one sentence, and `instance` the id of the request, which the
gateway's log lines have, too. An error that concerns a text points into it: `text`, `column`, `length`, `hint`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from weft.errors import (
    AccessError,
    BrokerError,
    ConnectError,
    EventError,
    FilterError,
    FilterSyntaxError,
    OptionError,
    PublishError,
    RequestError,
    WeftError,
)

MEDIA_TYPE = "application/problem+json"
_SHOWN = 2_000  # characters of a filter in an answer
_NEAREST = re.compile(r"; the nearest rule is (.*)\Z", re.DOTALL)
_encode = msgspec.json.Encoder().encode


class ProblemKind(NamedTuple):
    """What happened, whatever the request was."""

    name: str  # /problems/NAME
    status: int
    title: str


SYNTAX = ProblemKind("filter-syntax", 400, "The filter cannot be read")
FILTER = ProblemKind("filter", 400, "The filter cannot be used")
EVENT = ProblemKind("event", 400, "The event cannot be read")
REQUEST = ProblemKind("request", 400, "The request cannot be read")
LOGIN = ProblemKind("login", 401, "Not logged in")
ACCESS = ProblemKind("access", 403, "No access rule allows this")
ORIGIN = ProblemKind("origin", 403, "This origin is not allowed")
UNKNOWN = ProblemKind("unknown", 404, "Not found")
METHOD = ProblemKind("method", 405, "Method not allowed")
NOT_ACCEPTABLE = ProblemKind("not-acceptable", 406, "None of the accepted types is available")
CONFLICT = ProblemKind("conflict", 409, "Already in use")
TOO_LARGE = ProblemKind("too-large", 413, "Too large")
MEDIA = ProblemKind("media-type", 415, "The type of the content is not supported")
INVALID = ProblemKind("invalid", 422, "The request is understood and cannot be done")
BUSY = ProblemKind("busy", 429, "Too many requests")
FAULT = ProblemKind("fault", 500, "An error of the gateway")
UNAVAILABLE = ProblemKind("unavailable", 503, "The broker cannot be reached")
FULL = ProblemKind("full", 507, "The broker's log is full")

_CODES = {  # of the broker's refusals
    "access": ACCESS,
    "filter": FILTER,
    "event": EVENT,
    "full": FULL,
    "busy": BUSY,
    "rate": BUSY,
    "limit": BUSY,
    "unknown": UNKNOWN,
    "exists": CONFLICT,
    "leaving": CONFLICT,
}


class ProblemError(WeftError):
    """A request that ends with a problem. `fields` are added to its description, `headers` to the answer."""

    def __init__(self, kind: ProblemKind, detail: str, headers: Mapping[str, str] | None = None, **fields: Any) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.fields = kind, detail, fields
        self.headers = dict(headers or {})
        if kind.status in (429, 503):
            self.headers.setdefault("retry-after", "1")

    def body(self, request: str) -> bytes:
        """The problem as JSON; `request` is the id of the request."""
        kind = self.kind
        about = {"type": f"/problems/{kind.name}", "title": kind.title, "status": kind.status, "detail": self.detail}
        return _encode({**about, **self.fields, "instance": f"/requests/{request}"})


def problem_of(error: Exception) -> ProblemError:
    """The problem of an error.

    >>> from weft import parse
    >>> try:
    ...     parse("magnitude => 5")
    ... except WeftError as error:
    ...     found = problem_of(error)
    >>> found.kind.status, found.detail, found.fields["column"], found.fields["length"], found.fields["hint"]
    (400, "unknown operator '=>' at column 11", 11, 2, "did you mean '>='?")
    """
    match error:
        case ProblemError():
            return error
        case FilterSyntaxError():
            place = f"column {error.column}" if error.line == 1 else f"line {error.line}, column {error.column}"
            fields: dict[str, Any] = {"text": error.text[:_SHOWN], "line": error.line, "column": error.column}
            fields |= {"length": error.end - error.start, "hint": error.hint}
            return ProblemError(SYNTAX, f"{error.message} at {place}", **fields)
        case FilterError():
            return ProblemError(FILTER, str(error))
        case EventError():
            return ProblemError(EVENT, str(error))
        case AccessError():
            return _access(str(error))
        case PublishError(code=code) | RequestError(code=code):
            if code == "access":
                return _access(str(error))
            return ProblemError(_CODES.get(code, INVALID), str(error))
        case ConnectError(code="refused"):
            return login_problem()
        case OptionError():
            return ProblemError(REQUEST, str(error))
        case BrokerError() | TimeoutError():
            return ProblemError(UNAVAILABLE, str(error) or "the broker did not answer in time; try again")
        case _:
            return ProblemError(FAULT, "the gateway failed to handle the request; its log says why")


def login_problem() -> ProblemError:
    """The one answer to everybody whom the broker does not accept."""
    text = "the broker does not accept this request; send a valid token: Authorization: Bearer TOKEN"
    return ProblemError(LOGIN, text, {"www-authenticate": "Bearer"})


def _access(text: str) -> ProblemError:
    nearest = _NEAREST.search(text)
    return ProblemError(ACCESS, text) if nearest is None else ProblemError(ACCESS, text, nearest_rule=nearest[1])
