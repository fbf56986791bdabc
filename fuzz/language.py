"""Coverage-guided fuzzing of everything that parses: `make fuzz`, or `python fuzz/language.py -max_total_time=60`.

Laws: bytes become a filter or a FilterSyntaxError, nothing else; a filter is written and read back as the same tree,
means the same in JSON, has a normal form that holds the same events (or is refused as too complex), and covers itself.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import gettempdir

import atheris

with atheris.instrument_imports(include=["weft"]):
    from weft.algebra.normalize import normalize
    from weft.algebra.relate import covers, equivalent, overlaps
    from weft.algebra.to_filter import to_filter
    from weft.errors import FilterSyntaxError, FilterTooComplexError
    from weft.language.any_filter import as_filter
    from weft.language.ast import Filter, attributes
    from weft.language.dialects import from_json, to_json
    from weft.language.grammar import parse_text
    from weft.language.lexer import MAX_TEXT
    from weft.language.meaning import truth
    from weft.language.predicate import Predicates
    from weft.language.taxonomy import IsA, Taxonomy
    from weft.language.text import parse

KNOWN = Predicates([IsA(Taxonomy({"car": ["vehicle"], "vehicle": ["thing"]}))])
DAY = datetime(2018, 2, 1, tzinfo=UTC)
VALUES = (
    None,
    True,
    False,
    0,
    1,
    -1,
    0.5,
    2**63 - 1,
    float("inf"),
    "",
    "a",
    "ab",
    "car",
    "%",
    "SS",
    "ß",
    "\u212a",
    DAY,
)
SMALL = 400  # longer texts are parsed, but not normalized: an iteration should be short

# A byte of an input in tokens picks one of these: random bytes are then mostly near to a filter.
SIGNS = (
    "=",
    "!=",
    "<>",
    "<",
    "<=",
    ">",
    ">=",
    "(",
    ")",
    ",",
    "-",
    "+",
    ".",
    "\n",
    "==",
    "'",
    '"',
    "\0",
    "\ud800",
    "--",
    "/*",
    "*/",
    "$",
)
WORDS = (
    "AND",
    "OR",
    "NOT",
    "IS",
    "NULL",
    "TRUE",
    "FALSE",
    "IN",
    "LIKE",
    "ILIKE",
    "BETWEEN",
    "ESCAPE",
    "TIMESTAMP",
    "is_a(",
)
NAMES = ("a", "b", "a.b", '"odd ""name"', "\u0131s", "escape", "timestamp", '"and"', "\N{GRINNING FACE}", "\ufeff")
NUMBERS = ("0", "1", "-1", "1.5", ".5", "2.", "1e3", "1e999", "1e-999", "9223372036854775808", "00", "5a")
STRINGS = (
    "''",
    "'a'",
    "'it''s'",
    "'a%'",
    "'%a_'",
    "'%_%'",
    "'a!%'",
    "'!'",
    "'car'",
    "'2018-02-01'",
    "'\ufffd'",
    "'ß%'",
    "'%K_'",
)
TOKENS = (*SIGNS, *WORDS, *NAMES, *NUMBERS, *STRINGS)
KEYS = ("exact", "prefix", "suffix", "all", "any", "not", "sql", "a", "", "al", "time", "$or", "exists", "numeric")
MORE_KEYS = ("anything-but", "cidr", "wildcard", "equals-ignore-case")
CONSTANTS = ("1", "true", "null", "NaN", "1e999", '"x = 1"', '"a"', '""', '"\\ud800"')
ITEMS = (*(f'"{key}":' for key in (*KEYS, *MORE_KEYS)), *"{}[],:", *CONSTANTS)

SEEDS = (
    "magnitude >= 5 AND depth < 70",
    "NOT (x = 'it''s' OR y LIKE 'a!%_' ESCAPE '!') IS NOT TRUE",
    "x BETWEEN -1.5e3 AND +.5 AND \"odd name\" NOT IN (1, 'a', TRUE, TIMESTAMP '2018-02-01T00:00:00.5+01:00')",
    "is_a(kind, 'vehicle') AND a.b > c AND 5 < x OR NULL IS NULL",
    '{"all": [{"exact": {"a": 1}}, {"prefix": {"b": "x"}}, {"not": {"sql": "x = 1"}}]}',
    '[{"any": [{"suffix": {"b": "x"}}, {"sql": "x"}]}]',
    "x ILIKE 'a%' -- a comment\nAND /* another */ y NOT ILIKE '%ß_' ESCAPE '!'",
    '{"a": ["x", 5, {"anything-but": {"wildcard": "*b"}}], "$or": [{"b": [{"numeric": [">", 0]}]}, {"time": [1]}]}',
)


def one_input(data: bytes) -> None:
    """Check the laws on one input. Its first byte says what the others are: text or JSON, in bytes or in tokens."""
    way, rest = (data[0] % 4, data[1:]) if data else (0, b"")
    if way == 1:
        text = rest.decode("utf-8", "surrogateescape")
    elif way == 3:
        text = "".join(ITEMS[byte % len(ITEMS)] for byte in rest)
    elif way == 2:
        text = " ".join(TOKENS[byte % len(TOKENS)] for byte in rest)
    else:
        text = rest.decode("utf-8", "surrogateescape")
    check_reading(text, as_json=way in (1, 3))


def check_reading(text: str, as_json: bool) -> None:
    """A filter that obeys the laws, or an error that points into the text."""
    try:
        tree = (as_filter if text[:1] == "{" else from_json)(text, KNOWN) if as_json else parse(text, KNOWN)
    except FilterSyntaxError as error:
        said = error
    else:
        check(tree)
        assert as_json or parse_text(text, KNOWN).tree == tree, "the cache changed a tree"
        return
    assert 0 <= said.start <= len(said.text)
    str(said).encode()


def check(tree: Filter) -> None:
    """Every law of a tree."""
    assert tree.depth <= 100
    spelled = str(tree)
    if len(spelled.encode()) <= MAX_TEXT:
        again = parse(spelled, KNOWN)
        assert again == tree, "reading what was written gives another tree"
        assert hash(again) == hash(tree)
        assert str(again) == spelled
    dialect = json.dumps(to_json(tree))
    same = from_json(dialect, KNOWN) if len(dialect) <= MAX_TEXT else tree
    names = sorted(attributes(tree))
    events = [dict.fromkeys(names, value) for value in VALUES]
    events += [{name: VALUES[(3 * at + shift) % len(VALUES)] for at, name in enumerate(names)} for shift in range(4)]
    truths = [truth(tree, event) for event in events]
    assert truths == [truth(same, event) for event in events], "JSON changed the meaning"
    if len(spelled) > SMALL:
        return
    try:
        form = normalize(tree)
    except FilterTooComplexError:
        return
    assert [event in form for event in events] == [known is True for known in truths], "the normal form differs"
    assert covers(form, form), "a filter does not cover itself"
    assert overlaps(form, form) == bool(form)
    try:
        other = normalize(to_filter(form))
    except FilterTooComplexError:
        return
    assert equivalent(form, other), "an expressed form means something else"


def main() -> None:
    """Run until told to stop, from the seeds and what earlier runs found, or on the files the command line names."""
    given = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    corpus = Path(gettempdir(), "weft-fuzz-language")
    corpus.mkdir(exist_ok=True)
    for number, seed in enumerate(SEEDS):
        (corpus / f"seed{number}").write_bytes(bytes([seed[0] in "{["]) + seed.encode())
    atheris.Setup(sys.argv if given else [*sys.argv, str(corpus)], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
