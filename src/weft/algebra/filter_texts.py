"""Many texts, of which some may not be filters. The filters are read as `columns_of_texts` reads them; every other text
is refused with a reason, without affecting the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from weft.algebra.bulk import columns_of_texts
from weft.algebra.columns import BoxColumns
from weft.errors import FilterError
from weft.language.any_filter import as_filter
from weft.language.dialects import is_json
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.model.schema import Schema

_NOTHING = "FALSE"  # in the place of a text that is not a filter: it has no box


class Readable(NamedTuple):
    """The boxes of the texts that are filters, owned by the numbers of the texts, and why the others were refused."""

    columns: BoxColumns
    refused: dict[int, str]


def readable(
    texts: Sequence[str | None], schema: Schema | None = None, predicates: Predicates = NO_PREDICATES
) -> Readable:
    """The columns of all texts that are filters, in any form, and the reasons why the others were refused.

    >>> found = readable(["x > 5", "x => 5", None, '{"exact": {"type": "a"}}'])
    >>> found.columns.owners.tolist(), sorted(found.refused), found.refused[2]
    ([0, 3], [1, 2], 'there is no filter; the text is NULL')

    Cost: that of `columns_of_texts`.
    """
    plain: list[str] = []
    refused: dict[int, str] = {}
    for number, text in enumerate(texts):
        try:
            if text is None:
                raise FilterError("there is no filter; the text is NULL")
            plain.append(plain_text(text, predicates))
        except FilterError as error:
            refused[number] = str(error)
            plain.append(_NOTHING)
    wrong: dict[int, FilterError] = {}
    columns = columns_of_texts(plain, schema, predicates, wrong)
    refused |= {number: str(error) for number, error in wrong.items()}
    return Readable(columns, dict(sorted(refused.items())))


def plain_text(text: str, predicates: Predicates = NO_PREDICATES) -> str:
    """A filter's text, also if it is given in JSON or as an EventBridge pattern. Raises FilterError for other JSON."""
    return str(as_filter(text, predicates)) if is_json(text) else text
