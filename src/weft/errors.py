"""Every error that Weft raises on purpose. Each message states in one sentence what is wrong and what to do.

WeftError
├── FilterError               a filter that cannot be used; in a bulk call it has the position and the id
│   ├── FilterSyntaxError     text or JSON that is not a filter: line, column, caret, hint
│   ├── FilterTypeError       an object that is not a filter at all
│   └── FilterTooComplexError a filter beyond a documented limit
├── SubscriptionError         subscriptions that cannot be added or found: id, position
│   ├── InvalidIdError        an id of the wrong type, or out of range
│   ├── DuplicateIdError      an id that already exists, or comes twice in one call
│   └── UnknownIdError        an id that does not exist
├── SchemaError               a schema that is invalid, or lacks what an operation needs
├── EventError                an event, or a batch of events, that cannot be read: attribute, position
├── SnapshotError             a saved index that cannot be opened
├── RingError                 a ring, a node or a placement that is wrong, or a node that cannot join
├── RangeError                ranges that are not a set of curve points, or that cannot be removed
├── LabelError                labels, or filters of labels, that do not fit together or cannot be removed
├── TuningError               samples or a budget that allow no choice of parameters, or an invalid tuning file
├── OptionError               an option outside its allowed values
├── LogError                  a log that cannot be opened, read or written
│   ├── LogFullError          the quota or the disk is full: nothing was stored, and the log can go on
│   └── LogFailedError        it is unknown what is stored: the process must end and recover
├── AccessError               a request that a client's access rules or limits do not allow
├── BrokerError               a request that a broker does not accept, or a broker that cannot be reached
│   ├── ConnectError          no broker can be reached, or the broker refuses this client: code
│   ├── PublishError          an event that the broker refused; it is not stored: code, position
│   ├── RequestError          a request that the broker refused, and that changed nothing: code
│   ├── SessionTakenError     a newer connection uses the same name
│   └── ClientClosedError     a client or a subscription that is closed
├── PipelineError             a pipeline that cannot run: no Java, missing columns, bad rows where none are allowed
└── ProtocolError             a violation of the rules between neighbours
    ├── LocalProtocolError    by the caller on this side: nothing was changed, nothing was sent
    └── RemoteProtocolError   by the neighbour: its message is rejected as a whole
"""

from __future__ import annotations

from typing import Any, Self

_WINDOW = 72
_BEGINNING, _END = 1_500, 500  # characters of a message that are shown, if it is longer


class WeftError(Exception):
    """The base of all Weft errors.

    >>> from weft import parse
    >>> try:
    ...     parse("price <")
    ... except WeftError as error:
    ...     print(type(error).__name__)
    FilterSyntaxError
    """

    def __str__(self) -> str:
        return _brief(super().__str__())


class FilterError(WeftError, ValueError):
    """A filter that cannot be used.

    An error of a bulk call names the filter: `position` counts from 0 among those given, `id` is its subscription's.

    >>> from weft import Index
    >>> try:
    ...     Index([("rule-1", "x > 5"), ("rule-2", "x >")])
    ... except FilterError as error:
    ...     error.position, error.id
    (1, 'rule-2')
    """

    position: int | None = None
    id: object = None

    def at(self, position: int, id: object = None) -> Self:
        """The same error, as that of one filter among many. Cost: O(1).

        >>> print(FilterError("no such predicate").at(3, "rule-4"))
        filter 3 (id 'rule-4'): no such predicate
        """
        self.position, self.id = position, id
        return self

    def __str__(self) -> str:
        return self._place() + super().__str__()

    def _place(self) -> str:
        if self.position is None:
            return ""
        return (
            f"filter {self.position}: " if self.id is None else f"filter {self.position} (id {_brief(repr(self.id))}): "
        )


class FilterSyntaxError(FilterError):
    """Text or JSON that is not a filter. The message marks the place with a caret, and adds a hint where possible.

    >>> from weft import parse
    >>> parse("price => 95")
    Traceback (most recent call last):
        ...
    weft.errors.FilterSyntaxError: unknown operator '=>' at column 7
      price => 95
            ^^
    did you mean '>='?
    """

    def __init__(self, message: str, text: str = "", start: int = 0, end: int = 0, hint: str = "") -> None:
        start = max(0, min(start, len(text)))
        before = text.rfind("\n", 0, start) + 1
        self.message = _brief(message)
        self.text = text
        self.start = start
        self.end = max(end, start + 1)
        self.line = text.count("\n", 0, start) + 1
        self.column = start - before + 1
        self.hint = _brief(hint)
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        made = (self.message, self.text, self.start, self.end, self.hint)
        return type(self), made, {name: value for name, value in vars(self).items() if name in ("position", "id")}

    def __str__(self) -> str:
        place = f"column {self.column}" if self.line == 1 else f"line {self.line}, column {self.column}"
        said = [f"{self._place()}{self.message} at {place}"]
        if self.text:
            said += _excerpt(self.text, self.start, self.end)
        if self.hint:
            said.append(self.hint)
        return "\n".join(said)


class FilterTypeError(FilterError, TypeError):
    """An object that is not a filter: neither text, nor a condition built with `F`, nor JSON."""


class FilterTooComplexError(FilterError):
    """A filter beyond a documented limit of size, depth or boxes."""


class SubscriptionError(WeftError, ValueError):
    """Subscriptions that cannot be added or found. `id` is the one at fault, `position` its place in a bulk call.

    >>> from weft import Index
    >>> index = Index({"rule-1": "x > 5"})
    >>> try:
    ...     index.add("rule-1", "x > 7")
    ... except SubscriptionError as error:
    ...     print(error.id, error, sep=": ")
    rule-1: subscription 'rule-1' already exists; use replace()
    """

    def __init__(self, message: str, id: object = None, position: int | None = None) -> None:
        super().__init__(message)
        self.message = _brief(message)
        self.id = id
        self.position = position

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.id, self.position)

    def __str__(self) -> str:  # KeyError would show the message in quotes
        return self.message


class InvalidIdError(SubscriptionError, TypeError):
    """An id of the wrong type, or out of range."""


class DuplicateIdError(SubscriptionError, KeyError):
    """An id that already exists, or comes twice in one call."""


class UnknownIdError(SubscriptionError, KeyError):
    """An id that does not exist."""


class SchemaError(WeftError, ValueError):
    """A schema that is invalid, or lacks what an operation needs (such as bounds for a volume).

    >>> from weft import Schema
    >>> Schema.of(depth="flaot")
    Traceback (most recent call last):
        ...
    weft.errors.SchemaError: attribute 'depth' has the unknown type 'flaot': did you mean 'float'?
    """


class EventError(WeftError, ValueError):
    """An event, or a batch of events, that cannot be read.

    `attribute` is the attribute or column at fault, `position` the event's place in a batch, where there is one.

    >>> from weft import Index
    >>> error = Index({"rule-1": "x > 5"}).match_batch([{"x": 7}, {"x": b"7"}]).errors[1]
    >>> error.attribute, error.position
    ('x', 1)
    """

    def __init__(self, message: str, attribute: str | None = None, position: int | None = None) -> None:
        super().__init__(message)
        self.message = _brief(message)
        self.attribute = attribute
        self.position = position

    def at(self, position: int) -> EventError:
        """The same error, as that of one event among many. Cost: O(1).

        >>> print(EventError("attribute 'x' is given twice", "x").at(3))
        event 3: attribute 'x' is given twice
        """
        return EventError(self.message, self.attribute, position)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.attribute, self.position)

    def __str__(self) -> str:
        return self.message if self.position is None else f"event {self.position}: {self.message}"


class SnapshotError(WeftError):
    """A saved index that cannot be opened: damaged, written by another program, or by a newer version.

    >>> from weft import Index
    >>> Index.open("no-such-folder")
    Traceback (most recent call last):
        ...
    weft.errors.SnapshotError: no-such-folder is not a snapshot: there is no index.json in it
    """


class RangeError(WeftError, ValueError):
    """Ranges that are not a set of curve points, or that cannot be removed."""


class LabelError(WeftError, ValueError):
    """Labels, or counting filters of labels, that do not fit together or cannot be removed."""


class TuningError(WeftError, ValueError):
    """Samples or a budget that allow no choice of parameters, or an invalid tuning file."""


class OptionError(WeftError, ValueError):
    """An option of a constructor or a call that is outside its allowed values."""


class PipelineError(WeftError):
    """A pipeline that cannot run: no Java, no Spark, missing columns, or bad rows where none are allowed."""


class RingError(WeftError, ValueError):
    """A ring, a node or a placement that is wrong, or a node that cannot join."""


class LogError(WeftError):
    """A log that cannot be opened, read or written."""


class LogFullError(LogError):
    """The quota or the disk is full. Nothing was stored, and the log can go on."""


class LogFailedError(LogError):
    """It is unknown what is stored. The process must end, and recover when it starts again."""


class AccessError(WeftError):
    """A request that a client's access rules or limits do not allow."""


class BrokerError(WeftError):
    """A request that a broker does not accept, or a broker that cannot be reached."""


class ConnectError(BrokerError, ConnectionError):
    """No broker can be reached, or the broker refuses this client; then `code` is one word for the reason."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.message = _brief(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.code)


class RequestError(BrokerError):
    """The broker refused a request. It changed nothing; `code` is one word for the reason."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.message = _brief(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.code)


class PublishError(BrokerError):
    """The broker refused an event. It is not stored, and no subscriber gets it; `code` is one word for the reason.

    After `publish_many`, `position` is the place of the first refused event, and `refused` has the reason of each one
    by its position. All the others are stored.
    """

    def __init__(
        self, message: str, code: str = "", position: int | None = None, refused: dict[int, str] | None = None
    ) -> None:
        super().__init__(message)
        self.message = _brief(message)
        self.code = code
        self.position = position
        self.refused = refused or {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.code, self.position, self.refused)

    def __str__(self) -> str:
        return self.message if self.position is None else f"event {self.position}: {self.message}"


class SessionTakenError(BrokerError):
    """A newer connection uses the same name, and this one has ended."""


class ClientClosedError(BrokerError):
    """The client or the subscription is closed."""


class ProtocolError(WeftError):
    """A violation of the rules between neighbours, or between a broker and its table."""


class LocalProtocolError(ProtocolError):
    """This side violated the rules. Nothing was changed, and nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The neighbour violated the rules. Its message is rejected as a whole."""


def _brief(text: str) -> str:
    """A message as it is shown: of one that quotes a long value, the beginning and the end."""
    return text if len(text) <= _BEGINNING + _END else f"{text[:_BEGINNING]} ... {text[-_END:]}"


def _excerpt(text: str, start: int, end: int) -> list[str]:
    """The line around `start`, cut to a readable width, and the carets below it."""
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", start)
    stop = len(text) if stop < 0 else stop
    left = max(begin, start - _WINDOW // 2)
    right = min(stop, left + _WINDOW)
    head = "…" if left > begin else ""
    tail = "…" if right < stop else ""
    line = text[left:right].rstrip("\r").replace("\t", " ")
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    carets = "^" * max(1, min(end, right) - start)
    return [f"  {head}{shown}{tail}", "  " + " " * (len(head) + start - left) + carets]
