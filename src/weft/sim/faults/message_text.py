"""Messages as a person reads them in a trace. Law: one line each, and nothing that is empty."""

from __future__ import annotations

import msgspec

from weft.broker.messages import Deliver

_EMPTY: tuple[object, ...] = (0, "", b"", (), [], {}, None, False)


def shown(message: object) -> str:
    """A message in a line of the trace: its name and what is not empty.

    >>> from weft.broker.messages import Ping
    >>> shown(Ping(7))
    'Ping token=7'
    """
    assert isinstance(message, msgspec.Struct)
    fields = []
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if isinstance(value, msgspec.Raw):
            value = msgspec.msgpack.decode(value)
        elif name == "letters":
            value = [letter.offset for letter in value]
        elif isinstance(message, Deliver) and name == "packed":
            name, value = "numbers", message.numbers  # noqa: PLW2901 - as a person reads it
        if value not in _EMPTY:
            fields.append(f"{name}={value}")
    return f"{type(message).__name__} {' '.join(fields)}"
