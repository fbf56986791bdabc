"""Lint: filters that are probably mistakes. Nothing is changed, and nothing is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.language.ast import Filter, predicates_of
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.lint.lint_counts import LintedId, lint_counts
from weft.lint.lint_report import LintReport, report_of
from weft.lint.seen_attributes import SeenAttributes
from weft.model.schema import Schema


def lint_filters(
    pairs: Iterable[tuple[LintedId, Filter | str]],
    schema: Schema | None = None,
    events: Any = None,
    predicates: Predicates = NO_PREDICATES,
) -> LintReport:
    """What is wrong with filters, given as (id, filter or text) pairs.

    A schema or events say which attributes there are, and of which types; without either, only what can never or
    always be true, and duplicates, are found. `events` are Events, mappings, an Arrow table or batch, or
    SeenAttributes. With a schema, int attributes have no values between two integers. Text that is not a filter is a
    finding, not an error.

    >>> pairs = [("a", "time > '2018-02-01'"), ("b", "x > 5 AND x < 3"), ("c", "x > 5"), ("d", "NOT x <= 5")]
    >>> report = lint_filters(pairs, Schema.of(x="float"))
    >>> print(*report.lines(), sep="\\n")
    1 filter compares unlike types
      'time' is a timestamp, but is compared with a string; write TIMESTAMP '2018-02-01'
        a: time > '2018-02-01'
    1 filter can never be true
        b: x > 5 AND x < 3
    1 filter duplicates another one
      these match the same events (2 filters)
        c: x > 5
        d: NOT x <= 5

    Cost: O(characters) for conjunctions of comparisons; others are brought to normal form one by one.
    """
    rows = list(pairs)
    ids, filters = [its for its, _ in rows], [each for _, each in rows]
    called = predicates_of(each for each in filters if isinstance(each, Filter))
    known = Predicates([*(called[name] for name in called), *(predicates[name] for name in predicates)])
    seen = SeenAttributes.of(schema, events)
    return report_of(lint_counts(ids, filters, seen, schema, known), seen, known)
