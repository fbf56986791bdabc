"""The report about mistakes in filters, in words and as data. Every sentence names its count; examples are real
filters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from weft.errors import FilterError
from weft.language.ast import ELEMENT, AttributeRef, Between, Compare, Filter, Has, HasElement, In, Like, Operator
from weft.language.constant import Constant
from weft.language.format import format_constant, format_name
from weft.language.lexer import doubtful_quotes
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse
from weft.lint.lint_counts import EXAMPLES, LintCounts, LintedId, Tally
from weft.lint.name_hint import KnownNames
from weft.lint.seen_attributes import SeenAttributes
from weft.lint.tree_problems import LintKind, ProblemKey, tree_problems
from weft.model.value import Type, parse_timestamp

__all__ = ["LintFinding", "LintKind", "LintReport", "report_of"]

_HINTS = 200  # unknown names for which a known one is looked for
_SHOWN = 5  # findings of a kind
_CUT = 100  # characters of a filter
_SAID = {
    LintKind.INVALID: ("{} is not valid", "{} are not valid"),
    LintKind.UNKNOWN_ATTRIBUTE: ("{} names attributes that {who}", "{} name attributes that {who}"),
    LintKind.UNLIKE_TYPES: ("{} compares unlike types", "{} compare unlike types"),
    LintKind.NEVER_TRUE: ("{} can never be true", "{} can never be true"),
    LintKind.ALWAYS_TRUE: ("{} is always true", "{} are always true"),
    LintKind.DUPLICATE: ("{} duplicates another one", "{} duplicate another one"),
}
_ARTICLES = {"int": "an int"}


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One mistake: what it is, how many filters have it, which, and the texts of the first."""

    kind: LintKind
    message: str
    count: int
    ids: tuple[LintedId, ...]
    texts: tuple[str, ...]
    attribute: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON types."""
        examples = [{"id": its, "filter": text} for its, text in zip(self.ids, self.texts, strict=False)]
        return {
            "kind": str(self.kind),
            "message": self.message,
            "attribute": self.attribute,
            "count": self.count,
            "examples": examples,
        }


@dataclass(frozen=True, slots=True)
class LintReport:
    """All findings, the worst kind and the most frequent first.

    `counts` has the filters of each kind, each filter once; `dead` is how many can never match, for any reason.
    `ignored` are attributes that are lists of mappings, which no filter can test, with the number of events that have
    one (0 if that is not known).
    """

    filters: int
    dead: int
    counts: Mapping[LintKind, int]
    findings: tuple[LintFinding, ...]
    by_events: bool = True
    ignored: Mapping[str, int] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether there are filters, and nothing is wrong with any."""
        return bool(self.filters) and not self.findings

    def of(self, kind: str) -> tuple[LintFinding, ...]:
        """The findings of one kind."""
        return tuple(finding for finding in self.findings if finding.kind == kind)

    def lines(self, shown: int = _SHOWN) -> Iterator[str]:
        """The report in sentences, indented by rank: kinds, findings, examples."""
        if not self.filters:
            yield "there are no filters"
        for kind, count in self.counts.items():
            yield self.sentence(kind, count)
            findings = self.of(kind)
            for finding in findings[:shown]:
                if finding.message:
                    many = f" ({finding.count:,} filters)" if finding.count > 1 else ""
                    yield f"  {finding.message}{many}"
                for its, text in zip(finding.ids, finding.texts, strict=False):
                    yield f"    {its}: {_cut(text)}"
            if len(findings) > shown:
                yield f"  and {len(findings) - shown:,} more"
        yield from self.ignored_lists()

    def notes(self) -> list[str]:
        """One sentence for each kind, with its first example: what a command prints at its end."""
        if not self.filters:
            return ["there are no subscriptions, so nothing can match"]
        found = []
        for kind, count in self.counts.items():
            first = self.of(kind)[0]
            why = "" if kind is LintKind.DUPLICATE or not first.message else f" ({first.message})"
            found.append(f"{self.sentence(kind, count)}, such as {first.ids[0]}: {_cut(first.texts[0])}{why}")
        return [*found, *self.ignored_lists()]

    def ignored_lists(self) -> list[str]:
        """A sentence for each attribute that is ignored because it is a list of mappings."""
        said = []
        for name, count in sorted(self.ignored.items()):
            where = f" in {count:,} event{'' if count == 1 else 's'}" if count else ""
            said.append(f"{name!r} is a list of mappings or of lists{where}, which is ignored: no filter can test it")
        return said

    def sentence(self, kind: LintKind, count: int) -> str:
        """How many filters have a mistake of a kind."""
        who = "no event has" if self.by_events else "are not in the schema"
        subject = f"{count:,} filter{'' if count == 1 else 's'}"
        return _SAID[kind][count > 1].format(subject, who=who)

    def to_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            "filters": self.filters,
            "clean": self.clean,
            "dead": self.dead,
            "counts": {str(kind): count for kind, count in self.counts.items()},
            "findings": [finding.to_dict() for finding in self.findings],
            "ignored_lists": dict(sorted(self.ignored.items())),
        }


def report_of(
    counts: LintCounts, seen: SeenAttributes | None, predicates: Predicates = NO_PREDICATES, most: int | None = None
) -> LintReport:
    """The counts in words; `most` findings of duplicates at most, all unless told."""
    findings = []
    rows = sorted(counts.tallies.items(), key=lambda row: (list(LintKind).index(row[0].kind), -row[1].count, row[0]))
    known = None if seen is None or not rows else KnownNames(seen)
    for place, (key, tally) in enumerate(rows):
        message = _message(key, tally, seen, predicates, known if place < _HINTS else None)
        found = LintFinding(key.kind, message, tally.count, tuple(tally.ids), tuple(tally.texts), key.attribute or None)
        findings.append(found)
    groups = counts.duplicates()
    for group in groups[:most]:
        ids, texts = zip(*(counts.owners[at] for at in group), strict=True)
        findings.append(
            LintFinding(LintKind.DUPLICATE, "these match the same events", len(group), ids, texts[:EXAMPLES])
        )
    kinds = Counter(counts.kinds)
    kinds[LintKind.DUPLICATE] = sum(len(group) - 1 for group in groups)
    by_kind = {kind: kinds[kind] for kind in LintKind if kinds[kind]}
    by_events, ignored = (True, {}) if seen is None else (seen.by_events, seen.ignored)
    return LintReport(counts.filters, counts.dead, by_kind, tuple(findings), by_events, ignored)


def _message(
    key: ProblemKey, tally: Tally, seen: SeenAttributes | None, predicates: Predicates, known: KnownNames | None
) -> str:
    if key.kind is LintKind.UNKNOWN_ATTRIBUTE:
        assert seen is not None
        for name in seen.ignored:
            if key.attribute == name or key.attribute.startswith(f"{name}."):
                return f"{name!r} is a list of mappings or of lists, which no filter can test"
        near = None if known is None else known.nearest(key.attribute)
        said = f"no event has {key.attribute!r}" if seen.by_events else f"{key.attribute!r} is not in the schema"
        if near:
            return f"{said}; did you mean {near!r}?"
        return f"{said}; strings go in single quotes" if _is_quoted(key.attribute, tally.texts) else said
    if key.kind is LintKind.UNLIKE_TYPES:
        assert seen is not None
        try:
            found = tree_problems(parse(tally.texts[0], predicates), seen).problems
        except FilterError:
            found = ()
        leaf = next((problem.leaf for problem in found if problem.key == key), None)
        return _unlike(key, seen, leaf)
    return ""


def _is_quoted(name: str, texts: Sequence[str]) -> bool:
    """Whether a name is in double quotes where a string is likely."""
    try:
        return any(name in doubtful_quotes(text) for text in texts)
    except FilterError:  # not a text
        return False


def _unlike(key: ProblemKey, seen: SeenAttributes, leaf: Filter | None) -> str:
    if key.attribute in seen.lists and not isinstance(leaf, Has | HasElement):
        return f"{key.attribute!r} is a list, which only HAS can test; write {_as_has(key.attribute, leaf)}"
    kinds = " or ".join(_named(kind) for kind in sorted(seen[key.attribute])) or "an empty list"
    said = f"{key.attribute!r} is {kinds}"
    if isinstance(leaf, AttributeRef):
        return f"{said}, not a bool; compare it with a value"
    if isinstance(leaf, Compare) and isinstance(leaf.right, AttributeRef):
        others = " or ".join(_named(kind) for kind in sorted(seen[leaf.right.name]))
        return f"{said}, but is compared with {leaf.right.name!r}, which is {others}"
    said = f"{said}, but is compared with {_named(key.wanted)}"
    better = _better(leaf, seen[key.attribute])
    return f"{said}; write {better}" if better else said


def _as_has(name: str, leaf: Filter | None) -> str:
    """The test of a list that a leaf is likely to mean."""
    match leaf:
        case Compare(_, Operator.EQ, Constant() as right):
            return str(Has(AttributeRef(name), (right,)))
        case In(_, values):
            return str(Has(AttributeRef(name), values))
        case Compare(_, _, Constant()) | Between() | Like():
            return str(HasElement(AttributeRef(name), replace(leaf, left=ELEMENT)))
    return f"{format_name(name)} HAS .."


def _better(leaf: Filter | None, kinds: frozenset[Type]) -> str | None:
    """The first constant of a leaf as the attribute's type would have it, if it reads as one."""
    constant = _constant(leaf)
    if constant is None or len(kinds & {Type.STRING, Type.BOOL, Type.TIMESTAMP}) + any(k.is_number for k in kinds) > 1:
        return None
    kind, value = next(iter(kinds)), constant.value
    if constant.type is not Type.STRING:
        return f"'{format_constant(constant)}'" if kind is Type.STRING and constant.type.is_number else None
    try:
        if kind is Type.TIMESTAMP:
            parse_timestamp(str(value))
            return f"TIMESTAMP {format_constant(constant)}"
        if kind is Type.BOOL and str(value).lower() in ("true", "false"):
            return str(value).upper()
        if kind.is_number:
            float(str(value))
            return str(value)
    except ValueError:
        pass
    return None


def _constant(leaf: Filter | None) -> Constant | None:
    match leaf:
        case Compare(_, _, Constant() as right):
            return right
        case Between(_, low):
            return low
        case In(_, values) | Has(_, values):
            return values[0]
    return None


def _named(kind: str) -> str:
    return _ARTICLES.get(kind, f"a {kind}")


def _cut(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= _CUT else line[: _CUT - 1] + "…"
