"""Every limit of Weft in one place. No legal filter or event costs more than these figures allow.

`LIMITS` holds for the whole process. Whoever runs the process may raise a figure before the first filter is read:

    from weft.model.limits import LIMITS
    LIMITS.steps = 1_000_000

Connected brokers should have the same figures: what one admits, the other must be able to read. Raising a limit never
changes an answer; it only changes what is admitted, and what that may cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WRITTEN: Final = 8  # how many times longer than a user's a text may be that Weft wrote: 1e15 becomes 1000000000000000.0
MAX_DEPTH: Final = 100  # of filters and of events; fixed, because each level takes room on the stack


@dataclass(slots=True)
class Limits:
    """The figures; the defaults are those of the documentation (docs/guides/filters.md, Limits)."""

    # filters
    text: int = 64 * 1024  # bytes of a filter's text, as a user writes it
    stored_text: int = 4 * 1024 * 1024  # bytes of an admitted filter's text, as Weft writes it and reads it back
    tokens: int = 8_192  # tokens in a filter's text; the constants of an IN do not count
    tests: int = 1_536  # tests in a filter's text; `x IN (1, 2)` is one
    name: int = 1024  # characters of an attribute's name, dots included
    names: int = 512  # different attributes in a filter
    likes: int = 1_024  # LIKE and ILIKE tests in a filter's text
    calls: int = 512  # of predicates in a filter's text
    boxes: int = 256  # of a normal form
    sets: int = 640  # attributes that the boxes of a normal form test, summed over the boxes
    patterns: int = 256  # LIKE patterns of one term, and terms of one attribute in a box
    residuals: int = 256  # comparisons between attributes and predicates in one box
    steps: int = 40_000  # of any operation of the algebra; a step takes half a microsecond or so
    shapes: int = 32 * 1024 * 1024  # bytes that remembered shapes of filter texts may take

    # indexes
    filter_weight: int = 40_000  # bounds in one filter's normal form; each takes about 100 bytes
    tail_weight: int = 2_048  # bounds of the newest filters together, before they go into a tree
    memo_bytes: int = 32 * 1024 * 1024  # strings of events, remembered with their codes, in all indexes together
    memo_longest: int = 256  # characters; a longer string is not remembered

    # events
    attributes: int = 4096  # of an event
    event: int = 1024 * 1024  # bytes of an event's names and strings; the payload does not count
    elements: int = 10_000  # of a list in an event


LIMITS: Final = Limits()
