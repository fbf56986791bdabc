"""Normal forms as text, for programs that store them.

Weft itself does not: the log has the texts of filters, snapshots have boxes as bytes, and links send MessagePack.

Law: whatever was admitted can be written and read again, and means the same.

A short filter can have a long normal form. So the limits apply to the texts that users write; stored text is read back
with `LIMITS.stored_text` and a larger budget.
"""

from __future__ import annotations

from weft.algebra.box import NormalForm
from weft.algebra.budget import Budget
from weft.algebra.normalize import normalize
from weft.algebra.to_filter import to_filter
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse
from weft.model.limits import LIMITS
from weft.model.schema import Schema

_MORE = 8  # how much larger the budget is for reading back


def to_stored(form: NormalForm) -> str:
    """The text of a normal form, at most `LIMITS.stored_text` bytes if the form is that of an admitted filter.

    >>> from weft import parse
    >>> to_stored(normalize(parse("NOT (x < 5 OR x > 9) AND x != 7")))
    'x >= 5 AND x < 7 OR x > 7 AND x <= 9'
    """
    return str(to_filter(form))


def from_stored(text: str, schema: Schema | None = None, predicates: Predicates = NO_PREDICATES) -> NormalForm:
    """The normal form of a text that `to_stored` wrote, or that is an admitted filter's own. Raises FilterError."""
    tree = parse(text, predicates, limit=LIMITS.stored_text)
    return normalize(tree, schema, Budget(_MORE * LIMITS.steps), stored=True)
