"""What a malformed text says: the golden table of errors, and how errors behave."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from strategies import PREDICATES
from weft import Event, F, WeftError, parse
from weft.errors import (
    DuplicateIdError,
    EventError,
    FilterError,
    FilterSyntaxError,
    FilterTooComplexError,
    PublishError,
    RemoteProtocolError,
    SchemaError,
)
from weft.language.lexer import MAX_TEXT

# Each case: the text, a line of dashes, what str(error) says. Cases are separated by an empty line.
GOLDEN = r"""
x =
---
expected an attribute, a value or '(', but the text ends at column 4
  x =
     ^

x = = 1
---
expected an attribute, a value or '(', not '=' at column 5
  x = = 1
      ^

x == 1
---
unknown operator '==' at column 3
  x == 1
    ^^
did you mean '='?

price => 95
---
unknown operator '=>' at column 7
  price => 95
        ^^
did you mean '>='?

x =< 5
---
unknown operator '=<' at column 3
  x =< 5
    ^^
did you mean '<='?

x ! 5
---
unknown operator '!' at column 3
  x ! 5
    ^
did you mean NOT?

!x
---
unknown operator '!' at column 1
  !x
  ^
did you mean NOT?

x && y
---
unknown operator '&&' at column 3
  x && y
    ^^
did you mean AND?

x & y
---
unknown operator '&' at column 3
  x & y
    ^
did you mean AND?

x || y
---
unknown operator '||' at column 3
  x || y
    ^^
did you mean OR?

x | y
---
unknown operator '|' at column 3
  x | y
    ^
did you mean OR?

x = 'abc
---
unterminated string at column 5
  x = 'abc
      ^
a string ends with a quote; a quote inside it is doubled: 'it''s'

"abc = 1
---
unterminated name at column 1
  "abc = 1
  ^
a quoted name ends with a double quote; a double quote inside it is doubled

x ≤ 5
---
unknown operator '≤' at column 3
  x ≤ 5
    ^
did you mean '<='?

x ≥ 5
---
unknown operator '≥' at column 3
  x ≥ 5
    ^
did you mean '>='?

x ≠ 5
---
unknown operator '≠' at column 3
  x ≠ 5
    ^
did you mean '!='?

x + 1 > 5
---
expected AND, OR or the end, not '+' at column 3
  x + 1 > 5
    ^
filters have no arithmetic; compare attributes with constants or with each other

x * 2 > 5
---
unknown operator '*' at column 3
  x * 2 > 5
    ^
filters have no arithmetic; compare attributes with constants or with each other

x - 1 > 5
---
expected AND, OR or the end, not '-' at column 3
  x - 1 > 5
    ^
filters have no arithmetic; compare attributes with constants or with each other

x / 2 = 1
---
unknown operator '/' at column 3
  x / 2 = 1
    ^
filters have no arithmetic; compare attributes with constants or with each other

x % 2 = 0
---
unknown operator '%' at column 3
  x % 2 = 0
    ^
filters have no arithmetic; compare attributes with constants or with each other

x = 1 y = 2
---
expected AND, OR or the end, not 'y' at column 7
  x = 1 y = 2
        ^

x = 1 ANDD y = 2
---
expected AND, OR or the end, not 'ANDD' at column 7
  x = 1 ANDD y = 2
        ^^^^
did you mean AND?

x CONTAINS 'a'
---
expected AND, OR or the end, not 'CONTAINS' at column 3
  x CONTAINS 'a'
    ^^^^^^^^
did you mean LIKE '%text%', or HAS 'value' for a list?

tags HAS rock
---
HAS takes constants at column 10
  tags HAS rock
           ^^^^
strings go in single quotes: 'rock'

tags HAS ('a', 'b')
---
expected a value, a test, ANY or ALL after HAS at column 10
  tags HAS ('a', 'b')
           ^
several values: HAS ANY ('a', 'b') or HAS ALL ('a', 'b'); several tests: HAS (> 5 AND < 9)

sizes HAS (size > 5)
---
inside HAS, the elements are compared with constants at column 12
  sizes HAS (size > 5)
             ^^^^
tests inside HAS begin with an operator: HAS (> 5 AND < 9), HAS LIKE 'a%'

sizes HAS > limit
---
inside HAS, the elements are compared with constants at column 13
  sizes HAS > limit
              ^^^^^
tests inside HAS begin with an operator: HAS (> 5 AND < 9), HAS LIKE 'a%'

sizes HAS NOT > 5
---
expected BETWEEN, IN, LIKE or ILIKE after NOT at column 15
  sizes HAS NOT > 5
                ^
put other conditions in parentheses: HAS (NOT > 5); or write x NOT HAS ...

flags HAS IS TRUE
---
expected NULL or NOT NULL after HAS IS at column 14
  flags HAS IS TRUE
               ^^^^
for bools write HAS TRUE or HAS FALSE

flags HAS (IS TRUE)
---
an element is not a condition; write = TRUE at column 19
  flags HAS (IS TRUE)
                    ^

sizes HAS (> 5 OR TRUE)
---
a test inside HAS compares the elements of the list with constants at column 23
  sizes HAS (> 5 OR TRUE)
                        ^

kinds HAS is_a('vehicle')
---
is_a cannot be called inside HAS at column 11
  kinds HAS is_a('vehicle')
            ^^^^
only cidr, time_like can

tags HAS ANY ()
---
HAS ANY needs at least one value at column 15
  tags HAS ANY ()
                ^

'a' HAS 'a'
---
HAS tests an attribute, not a constant at column 5
  'a' HAS 'a'
      ^^^
write tags HAS 'rock'

x ILIKE 5
---
expected a string after ILIKE at column 9
  x ILIKE 5
          ^
a pattern is a string constant: x LIKE 'a%'

x NOT ILIKE 'a!' ESCAPE '!'
---
in a pattern of ILIKE, '!' can only escape '%', '_' and itself at column 25
  x NOT ILIKE 'a!' ESCAPE '!'
                          ^^^

x ILKE 'a'
---
expected AND, OR or the end, not 'ILKE' at column 3
  x ILKE 'a'
    ^^^^
did you mean ILIKE?

x EXISTS
---
expected AND, OR or the end, not 'EXISTS' at column 3
  x EXISTS
    ^^^^^^
did you mean IS NOT NULL?

x XOR y
---
expected AND, OR or the end, not 'XOR' at column 3
  x XOR y
    ^^^
write (a AND NOT b) OR (b AND NOT a)

x RLIKE 'a'
---
expected AND, OR or the end, not 'RLIKE' at column 3
  x RLIKE 'a'
    ^^^^^
filters have no regular expressions; LIKE has % and _

x STARTSWITH 'a'
---
expected AND, OR or the end, not 'STARTSWITH' at column 3
  x STARTSWITH 'a'
    ^^^^^^^^^^
did you mean LIKE 'text%'?

(x = 1
---
expected ')' to close the parenthesis, but the text ends at column 7
  (x = 1
        ^

x = 1)
---
unbalanced ')' at column 6
  x = 1)
       ^

((x = 1) AND y
---
expected ')' to close the parenthesis, but the text ends at column 15
  ((x = 1) AND y
                ^

)
---
expected an attribute, a value or '(', not ')' at column 1
  )
  ^

()
---
expected an attribute, a value or '(', not ')' at column 2
  ()
   ^

x IN ()
---
IN needs at least one value at column 7
  x IN ()
        ^

x IN (1
---
expected ')' or ',' in the list of IN, but the text ends at column 8
  x IN (1
         ^

x IN 1
---
expected '(' after IN at column 6
  x IN 1
       ^

x IN (1,)
---
expected an attribute, a value or '(', not ')' at column 9
  x IN (1,)
          ^

x IN (1 2)
---
expected ')' or ',' in the list of IN at column 9
  x IN (1 2)
          ^

x NOT 5
---
expected BETWEEN, IN, LIKE, ILIKE or HAS after NOT at column 7
  x NOT 5
        ^

x NOT
---
expected BETWEEN, IN, LIKE, ILIKE or HAS after NOT, but the text ends at column 6
  x NOT
       ^

x IS 5
---
expected NULL, TRUE or FALSE after IS at column 6
  x IS 5
       ^

x IS
---
expected NULL, TRUE or FALSE after IS, but the text ends at column 5
  x IS
      ^

x IS NOT
---
expected NULL, TRUE or FALSE after IS, but the text ends at column 9
  x IS NOT
          ^

x IS NOT MAYBE
---
expected NULL, TRUE or FALSE after IS at column 10
  x IS NOT MAYBE
           ^^^^^

x BETWEEN 1
---
expected AND in x BETWEEN low AND high, but the text ends at column 12
  x BETWEEN 1
             ^

x BETWEEN 1 OR 5
---
expected AND in x BETWEEN low AND high at column 13
  x BETWEEN 1 OR 5
              ^^

x BETWEEN 1 AND
---
expected an attribute, a value or '(', but the text ends at column 16
  x BETWEEN 1 AND
                 ^

x LIKE 5
---
expected a string after LIKE at column 8
  x LIKE 5
         ^
a pattern is a string constant: x LIKE 'a%'

x LIKE y
---
expected a string after LIKE at column 8
  x LIKE y
         ^
a pattern is a string constant: x LIKE 'a%'

x LIKE
---
expected a string after LIKE, but the text ends at column 7
  x LIKE
        ^
a pattern is a string constant: x LIKE 'a%'

x LIKE 'a' ESCAPE
---
expected a string after ESCAPE, but the text ends at column 18
  x LIKE 'a' ESCAPE
                   ^
a pattern is a string constant: x LIKE 'a%'

x LIKE 'a' ESCAPE 'ab'
---
the ESCAPE of LIKE must be a single character at column 19
  x LIKE 'a' ESCAPE 'ab'
                    ^^^^

x LIKE 'a!b' ESCAPE '!'
---
in a pattern of LIKE, '!' can only escape '%', '_' and itself at column 21
  x LIKE 'a!b' ESCAPE '!'
                      ^^^

x = NULL
---
a comparison with NULL is never true at column 5
  x = NULL
      ^^^^
did you mean IS NULL?

NULL = x
---
a comparison with NULL is never true at column 1
  NULL = x
  ^^^^
did you mean IS NULL?

x IN (1, NULL)
---
a comparison with NULL is never true at column 10
  x IN (1, NULL)
           ^^^^
did you mean IS NULL?

x < 5 < 10
---
expected AND, OR or the end, not '<' at column 7
  x < 5 < 10
        ^
comparisons do not chain; write a < x AND x < b, or x BETWEEN a AND b; test conditions with IS TRUE

1 < x < 5
---
expected AND, OR or the end, not '<' at column 7
  1 < x < 5
        ^
comparisons do not chain; write a < x AND x < b, or x BETWEEN a AND b; test conditions with IS TRUE

(x = 1) = TRUE
---
a condition cannot be compared at column 9
  (x = 1) = TRUE
          ^
test it with IS TRUE, IS FALSE or IS NULL

x = (y = 1)
---
a condition cannot be compared at column 5
  x = (y = 1)
      ^
test it with IS TRUE, IS FALSE or IS NULL

5
---
5 is not a condition at column 1
  5
  ^
compare it with something: x = 5

'a'
---
'a' is not a condition at column 1
  'a'
  ^^^
compare it with something: x = 'a'

x AND 5
---
5 is not a condition at column 7
  x AND 5
        ^
compare it with something: x = 5

x OR 'a'
---
'a' is not a condition at column 6
  x OR 'a'
       ^^^
compare it with something: x = 'a'

NOT 5
---
5 is not a condition at column 5
  NOT 5
      ^
compare it with something: x = 5

5 IS TRUE
---
5 is not a condition at column 1
  5 IS TRUE
  ^
compare it with something: x = 5

x = 5a
---
malformed number '5a' at column 5
  x = 5a
      ^^

x = 1.2.3
---
malformed number '1.2.' at column 5
  x = 1.2.3
      ^^^^

x = 1e
---
malformed number '1e' at column 5
  x = 1e
      ^^

x = 0x10
---
malformed number '0x' at column 5
  x = 0x10
      ^^

x = 1_000
---
malformed number '1_' at column 5
  x = 1_000
      ^^

x = 9223372036854775808
---
9223372036854775808 does not fit in 64 bits; write it as a float, with a decimal point or an exponent at column 5
  x = 9223372036854775808
      ^^^^^^^^^^^^^^^^^^^

x = -9223372036854775809
---
-9223372036854775809 does not fit in 64 bits; write it as a float, with a decimal point or an exponent at column 6
  x = -9223372036854775809
       ^^^^^^^^^^^^^^^^^^^

x = 1e999
---
the number does not fit in a 64-bit float at column 5
  x = 1e999
      ^^^^^

x = -
---
expected a number after the sign, but the text ends at column 6
  x = -
       ^

x = - y
---
expected a number after the sign at column 7
  x = - y
        ^

x = --5
---
expected an attribute, a value or '(', but the text ends at column 8
  x = --5
         ^

x = - -5
---
expected a number after the sign at column 7
  x = - -5
        ^

x = TIMESTAMP 'soon'
---
invalid timestamp: write it as 'YYYY-MM-DD' or 'YYYY-MM-DDTHH:MM:SS.ffffffZ' at column 15
  x = TIMESTAMP 'soon'
                ^^^^^^

x = TIMESTAMP '2018-13-01'
---
invalid timestamp: month must be in 1..12 at column 15
  x = TIMESTAMP '2018-13-01'
                ^^^^^^^^^^^^

x = TIMESTAMP '2018-02-30'
---
invalid timestamp: day is out of range for month at column 15
  x = TIMESTAMP '2018-02-30'
                ^^^^^^^^^^^^

x = TIMESTAMP '0001-01-01T00:00+01:00'
---
invalid timestamp: outside the years 1 to 9999 in UTC at column 15
  x = TIMESTAMP '0001-01-01T00:00+01:00'
                ^^^^^^^^^^^^^^^^^^^^^^^^

x = TIMESTAMP '2018-02-01T00:00+24:00'
---
invalid timestamp: no such zone: +24:00 at column 15
  x = TIMESTAMP '2018-02-01T00:00+24:00'
                ^^^^^^^^^^^^^^^^^^^^^^^^

x = TIMESTAMP 5
---
expected AND, OR or the end, not '5' at column 15
  x = TIMESTAMP 5
                ^

AND
---
expected an attribute, a value or '(', not 'AND' at column 1
  AND
  ^^^

x AND
---
expected an attribute, a value or '(', but the text ends at column 6
  x AND
       ^

x OR
---
expected an attribute, a value or '(', but the text ends at column 5
  x OR
      ^

NOT
---
expected an attribute, a value or '(', but the text ends at column 4
  NOT
     ^

OR x
---
expected an attribute, a value or '(', not 'OR' at column 1
  OR x
  ^^

x AND OR y
---
expected an attribute, a value or '(', not 'OR' at column 7
  x AND OR y
        ^^

NOT AND x
---
expected an attribute, a value or '(', not 'AND' at column 5
  NOT AND x
      ^^^

SELECT * FROM t
---
unknown operator '*' at column 8
  SELECT * FROM t
         ^
a filter is only the condition: leave out everything up to WHERE

x = ""
---
'' cannot name an attribute at column 5
  x = ""
      ^^

x = ?
---
unexpected character '?' at column 5
  x = ?
      ^

x = $1
---
unexpected character '$' at column 5
  x = $1
      ^
names with '$' go in double quotes: "$1"

order$id > 5
---
unexpected character '$' at column 6
  order$id > 5
       ^
names with '$' go in double quotes: "order$id"

x.y. = 1
---
unexpected character '.' at column 4
  x.y. = 1
     ^

x = {1}
---
unexpected character '{' at column 5
  x = {1}
      ^

x @ y
---
unexpected character '@' at column 3
  x @ y
    ^
names with '@' go in double quotes

is_a(x)
---
is_a takes an attribute and one concept, as in is_a(kind, 'vehicle') at column 7
  is_a(x)
        ^

foo(x, 1)
---
unknown predicate 'foo' at column 1
  foo(x, 1)
  ^^^
there are no functions, only predicates: among, cidr, is_a, time_like

x = 'a' 'b'
---
expected AND, OR or the end, not "'b'" at column 9
  x = 'a' 'b'
          ^^^

x = 5 - c
---
expected AND, OR or the end, not '-' at column 7
  x = 5 - c
        ^
filters have no arithmetic; compare attributes with constants or with each other

x / y = 1
---
unknown operator '/' at column 3
  x / y = 1
    ^
filters have no arithmetic; compare attributes with constants or with each other

x = 1 /* AND y = 2
---
unterminated comment at column 7
  x = 1 /* AND y = 2
        ^^
a comment that starts with /* ends with */

/* all */ x = 1 -- one
  AND /* two */ = 2
---
expected an attribute, a value or '(', not '=' at line 2, column 17
    AND /* two */ = 2
                  ^

-- nothing
---
an empty text is not a filter at column 11
  -- nothing
            ^
the filter that matches everything is TRUE

x = 1
AND y ==
 2
---
unknown operator '==' at line 2, column 7
  AND y ==
        ^^
did you mean '='?

x = 1
AND
  y = 'abc
def
---
unterminated string at line 3, column 7
    y = 'abc
        ^
a string ends with a quote; a quote inside it is doubled: 'it''s'

x = 'a
b' AND y = = 1
---
expected an attribute, a value or '(', not '=' at line 2, column 12
  b' AND y = = 1
             ^
"""

CASES = [tuple(case.split("\n---\n")) for case in GOLDEN.strip().split("\n\n")]


@pytest.mark.parametrize(("text", "said"), CASES, ids=[text for text, _ in CASES])
def test_a_malformed_text_says_what_and_where_and_what_to_do(text: str, said: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text, PREDICATES)
    error = caught.value
    assert str(error) == said
    # The fields say the same as the text.
    message, line, caret, *hint = said.split("\n")
    assert message.startswith(f"{error.message} at ")
    assert message.endswith(f"column {error.column}")
    assert (f"line {error.line}, " in message) == (error.line > 1)
    assert error.hint == "\n".join(hint)
    assert error.text == text
    shown = text.split("\n")[error.line - 1]
    if len(shown) <= 72:
        assert line == "  " + shown
        assert caret == " " * (error.column + 1) + "^" * (len(caret) - error.column - 1)
    assert error.start == sum(len(before) + 1 for before in text.split("\n")[: error.line - 1]) + error.column - 1
    if error.end <= len(text):
        assert caret.count("^") == min(error.end, text.find("\n", error.start) % (len(text) + 1)) - error.start


def test_the_table_is_as_long_as_it_should_be() -> None:
    assert len(CASES) >= 90
    assert len({text for text, _ in CASES}) == len(CASES)


# -- where the place is special ---------------------------------------------------------------------


def said(text: str) -> str:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    return str(caught.value)


def test_an_empty_text_hints_at_the_filter_that_matches_everything() -> None:
    assert said("") == "an empty text is not a filter at column 1\nthe filter that matches everything is TRUE"
    assert said("  \n ").startswith("an empty text is not a filter at line 2, column 2\n")
    assert parse("TRUE") is not None


def test_lines_are_counted_from_one_and_end_with_a_newline() -> None:
    assert said("\n\n  x =") == (
        "expected an attribute, a value or '(', but the text ends at line 3, column 6\n    x =\n       ^"
    )
    assert said("x = 1 AND\ny = 2 AND\nz == 3\nAND w = 4") == (
        "unknown operator '==' at line 3, column 3\n  z == 3\n    ^^\ndid you mean '='?"
    )


def test_a_string_over_two_lines_is_underlined_on_its_first() -> None:
    assert said("x =\n'a\nb'\n5") == "expected AND, OR or the end, not '5' at line 4, column 1\n  5\n  ^"
    assert said("x LIKE 'a'\nESCAPE 'a\nb'") == (
        "the ESCAPE of LIKE must be a single character at line 2, column 8\n  ESCAPE 'a\n         ^^"
    )


def test_a_long_line_is_cut_around_the_place() -> None:
    lines = said("a" * 500 + " == 1 AND " + "b" * 500).split("\n")
    assert lines[0] == "unknown operator '==' at column 502"
    assert lines[1] == "  …" + "a" * 35 + " == 1 AND " + "b" * 27 + "…"
    assert lines[2] == " " * 39 + "^^"
    assert all(len(line) < 80 for line in lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = \0", "unexpected character '\\x00'"),
        ("\ufeffx = 1", "unexpected character '\\ufeff'"),
        ("x = \u202e1", "unexpected character '\\u202e'"),
        ("x = \x1b[31m", "unexpected character '\\x1b'"),
        ("x = \u200b1", "unexpected character '\\u200b'"),
    ],
)
def test_characters_that_do_not_print_are_named_and_not_printed(text: str, message: str) -> None:
    shown = said(text)
    assert shown.startswith(f"{message} at column ")
    assert all(sign.isprintable() or sign == "\n" for sign in shown)
    assert "\N{REPLACEMENT CHARACTER}" in shown


def test_a_lone_surrogate_is_pointed_at() -> None:
    assert said("x = 'a\ud800'") == (
        "a lone surrogate is not text at column 7\n  x = 'a\N{REPLACEMENT CHARACTER}'\n        ^"
    )
    said("x = 'a\ud800'").encode()


@pytest.mark.parametrize("text", ["x\t= = 1", "x = = 1\r\nAND y = 2"])
def test_tabs_and_carriage_returns_are_no_strange_characters(text: str) -> None:
    # Else every text that is indented with tabs, or comes from Windows, would be full of replacement characters.
    assert "\N{REPLACEMENT CHARACTER}" not in said(text)


@pytest.mark.parametrize("constant", ["5", "'a'", "-5", "+5", "(5)", "TIMESTAMP '2018-02-01'", "((-1.5))"])
def test_the_hint_for_a_bare_constant_is_itself_a_filter(constant: str) -> None:
    # A constant may be several tokens.
    for text in ("{}", "x AND {}", "{} OR x", "NOT {}", "({} AND x)", "{} IS TRUE"):
        with pytest.raises(FilterSyntaxError, match="is not a condition") as caught:
            parse(text.format(constant))
        assert caught.value.hint.startswith("compare it with something: x = ")
        assert parse(caught.value.hint.removeprefix("compare it with something: ")) == parse(f"x = {constant}")


NULLS = ("x = NULL", "NULL < x", "x IN (1, NULL)", "x IN (NULL)", "x IN (NULL, 1)", "x BETWEEN NULL AND 5")


@pytest.mark.parametrize("text", NULLS)
def test_every_comparison_with_null_hints_at_is_null(text: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    assert caught.value.message == "a comparison with NULL is never true"
    assert caught.value.hint == "did you mean IS NULL?"


def test_a_text_past_the_limit_says_so() -> None:
    assert said("x = 1 OR " * 20_000).startswith(f"the text is longer than {MAX_TEXT} bytes at column ")
    wide = "x = '" + "\N{GRINNING FACE}" * 16_385 + "'"
    assert len(wide) < MAX_TEXT < len(wide.encode())
    assert said(wide).startswith(f"the text is longer than {MAX_TEXT} bytes at column ")


# -- errors as objects ------------------------------------------------------------------------------


def test_the_tree_of_errors() -> None:
    for kind in (FilterSyntaxError, FilterTooComplexError):
        assert issubclass(kind, FilterError)
    for kind in (FilterError, SchemaError, EventError):
        assert issubclass(kind, WeftError)
        assert issubclass(kind, ValueError)
    assert not issubclass(WeftError, ValueError)


def test_a_syntax_error_survives_pickling_and_copying() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse("x = 1\nAND y == 2")
    error = caught.value
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is FilterSyntaxError
        assert str(again) == str(error)
        assert vars(again) == vars(error)
    assert error.args == ("unknown operator '=='",)


def test_a_place_outside_of_the_text_is_moved_inside() -> None:
    error = FilterSyntaxError("wrong", "ab\ncd", 99, 50, "do this")
    assert (error.line, error.column, error.start, error.end) == (2, 3, 5, 50)
    assert str(error) == "wrong at line 2, column 3\n  cd\n    ^\ndo this"
    assert (FilterSyntaxError("wrong", "ab", -5).column, FilterSyntaxError("wrong").column) == (1, 1)


def test_filters_and_events_survive_pickling() -> None:
    tree = parse("x = 1 AND (y LIKE 'a%' OR NOT z IS NULL) AND t < TIMESTAMP '2018-02-01'")
    event = Event.of(x=1, y="abc", payload=[1, 2])
    assert pickle.loads(pickle.dumps(tree)) == tree
    assert pickle.loads(pickle.dumps(event)) == event
    deep = parse("NOT " * 99 + "x")
    assert pickle.loads(pickle.dumps(deep)) == deep


def test_errors_never_hide_a_python_error() -> None:
    """No message of Python's own leaks: each says what is wrong in the words of the language."""
    for text, _ in CASES:
        shown = said(text)
        assert not re.search(r"Error|object has no attribute|NoneType|Traceback|lambda", shown), shown


def test_no_message_is_long_whatever_it_quotes() -> None:
    """The beginning and the end are shown, so that the hint is."""
    long = "x" * 200_000
    errors = [
        FilterError(f"{long!r} is wrong; write less"),
        FilterError("wrong").at(3, long),
        FilterSyntaxError(f"unexpected {long}", long, 5, 100_000, f"write {long}"),
        DuplicateIdError(f"subscription {long} already exists; use replace()", long),
        EventError(f"attribute {long} is given twice; keep one", long, 7),
        PublishError(f"refused: {long}", "limit", 3),
        SchemaError(long),
        RemoteProtocolError(long),
    ]
    for error in errors:
        assert len(str(error)) < 7_000
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(errors[3]).endswith("already exists; use replace()")
    for make in (
        lambda: F[long] > 1,
        lambda: F.x.like(["%" * 200_000]),
        lambda: F.x.contains([long]),
        lambda: parse(long),
    ):
        with pytest.raises(WeftError) as caught:
            make()
        assert len(str(caught.value)) < 7_000


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("detail-type = 'x'", "names with '-' go in double quotes: \"detail-type\"; there is no arithmetic"),
        (
            "a = 1 AND user-agent LIKE 'a%'",
            "names with '-' go in double quotes: \"user-agent\"; there is no arithmetic",
        ),
        ("x = a-b-c", "names with '-' go in double quotes: \"a-b-c\"; there is no arithmetic"),
        ("a.b-c.d IS NULL", "names with '-' go in double quotes: \"a.b-c.d\"; there is no arithmetic"),
        ("a - b > 5", "filters have no arithmetic; compare attributes with constants or with each other"),
        ("x = 5-3", "filters have no arithmetic; compare attributes with constants or with each other"),
        ("x ~ 'a'", "filters have no regular expressions; LIKE has % and _"),
        ("x !~ 'a'", "filters have no regular expressions; LIKE has % and _"),
        ("x > DATE '2020-01-01'", "a date is a timestamp: write TIMESTAMP '2020-01-01'"),
        ("x BETWEEN date '2020-01-01' AND date '2021-01-01'", "a date is a timestamp: write TIMESTAMP '2020-01-01'"),
        ("x > INTERVAL '1 day'", "filters have no durations; compare with TIMESTAMP '2018-02-01T09:30:00Z'"),
        ("x NOT NULL", "did you mean IS NOT NULL?"),
        ("x = 1 AND y NOT NULL", "did you mean IS NOT NULL?"),
        ("x NOTNULL", "did you mean IS NOT NULL?"),
        ("x ISNULL", "did you mean IS NULL?"),
        ("WHERE x = 5", "a filter is only the condition: leave out everything up to WHERE"),
        ("where (x = 5)", "a filter is only the condition: leave out everything up to WHERE"),
        ("WHERE NOT x", "a filter is only the condition: leave out everything up to WHERE"),
        ('WHERE "x" = 5', "a filter is only the condition: leave out everything up to WHERE"),
        ("SELECT * FROM t WHERE x", "a filter is only the condition: leave out everything up to WHERE"),
        ("SELECT x FROM t", "a filter is only the condition: leave out everything up to WHERE"),
        ('x LIKE "a%"', "strings go in single quotes, names in double quotes: 'a%'"),
    ],
)
def test_the_hint_says_what_to_write(text: str, hint: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    "text",
    [
        "where = 5",
        "WHERE",
        "WHERE IS NULL",
        "where NOT IN (1)",
        "where NOT LIKE 'a'",
        "where ILIKE 'a'",
        "NOT where",
        "date = 5",
        "date IS NULL",
        "interval > 5 AND time IS NOT NULL",
        "\"detail-type\" = 'x'",
        "x = -3",
        "select = 1",
    ],
)
def test_words_of_sql_are_names_where_nothing_else_is_meant(text: str) -> None:
    assert parse(str(parse(text))) == parse(text)
