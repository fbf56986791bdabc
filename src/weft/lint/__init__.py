"""Mistakes in filters, found before they cost an event.

>>> from weft.lint import lint_filters
>>> report = lint_filters([("rule-1", "xx > 5"), ("rule-2", "x > 5")], events=[{"x": 3}])
>>> print(*report.lines(), sep="\\n")
1 filter names attributes that no event has
  no event has 'xx'; did you mean 'x'?
    rule-1: xx > 5
"""

from weft.lint.filter_lint import lint_filters as lint_filters
from weft.lint.lint_report import LintFinding as LintFinding
from weft.lint.lint_report import LintKind as LintKind
from weft.lint.lint_report import LintReport as LintReport
from weft.lint.seen_attributes import SeenAttributes as SeenAttributes
