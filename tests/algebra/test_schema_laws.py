"""With a schema, events conform to it: an integer attribute steps by one, and a value is of its type or absent."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given

from strategies import KINDS, filters, number_filters, thorough
from weft.algebra import relate
from weft.algebra.merge import merge
from weft.algebra.normalize import conformed, normalize
from weft.algebra.relate import as_form, covers, equivalent, is_empty, overlaps
from weft.algebra.to_filter import to_filter
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.language.predicate import Predicates
from weft.language.text import parse
from weft.model.event import Event
from weft.model.schema import Schema

SCHEMA = Schema.of(a="int", b="string")
INTEGERS = Schema.of(a="int", b="int")

CONFORMING = [
    {"a": a, "b": b} for a, b in product((None, -2, -1, 0, 1, 2, 3, 4), (None, "", "a", "aa", "ab", "b", "c", "car"))
]
WHOLE = [{"a": a, "b": b} for a, b in product((None, -1, 0, 1, 2, 3), repeat=2)]


@given(filters(6))
@thorough(400)
def test_normal_form_keeps_meaning_on_conforming_events(filter: Filter) -> None:
    form = normalize(filter, SCHEMA)
    for event in CONFORMING:
        assert (event in form) == matches(filter, event), event
        assert matches(to_filter(form), event) == matches(filter, event), event


@given(filters(), filters())
@thorough(400)
def test_covering_and_overlap_are_sound_on_conforming_events(one: Filter, other: Filter) -> None:
    both = [(matches(one, event), matches(other, event)) for event in CONFORMING]
    if covers(one, other, SCHEMA):
        assert all(a or not b for a, b in both)
    if not overlaps(one, other, SCHEMA):
        assert not any(a and b for a, b in both)


@given(number_filters(), number_filters())
@thorough(600)
def test_covering_is_complete_on_integers(wide: Filter, narrow: Filter) -> None:
    true = all(matches(wide, event) or not matches(narrow, event) for event in WHOLE)
    assert covers(wide, narrow, INTEGERS) == true


@given(number_filters(4), number_filters(4))
@thorough(200)
def test_mergers_and_their_texts_hold_under_the_schema(one: Filter, other: Filter) -> None:
    merger = merge([one, other], INTEGERS)
    assert covers(merger.form, one, INTEGERS)
    assert covers(merger.form, other, INTEGERS)
    assert equivalent(merger.form, to_filter(merger.form), INTEGERS)


@given(filters(6))
@thorough(400)
def test_a_form_that_is_made_to_conform_keeps_its_meaning(filter: Filter) -> None:
    form = conformed(normalize(filter), SCHEMA)
    assert form.schema is SCHEMA
    assert all((event in form) == matches(filter, event) for event in CONFORMING)


@given(number_filters(), number_filters())
@thorough(300)
def test_covering_is_complete_for_forms_that_are_made_to_conform(wide: Filter, narrow: Filter) -> None:
    true = all(matches(wide, event) or not matches(narrow, event) for event in WHOLE)
    assert covers(wide, conformed(normalize(narrow), INTEGERS), INTEGERS) == true


def test_a_filter_is_normalized_once_for_two_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(relate, "normalize", lambda *args: made.append(args) or normalize(*args))
    tree = parse("a > 1 AND b = 'x'")
    forms = as_form(tree), as_form(tree, SCHEMA)
    assert (as_form(tree), as_form(tree, SCHEMA)) == forms
    assert forms[1] == normalize(tree, SCHEMA)
    assert len(made) == 1


def test_an_event_of_another_type_conforms_by_losing_the_value() -> None:
    event = SCHEMA.conform(Event.of(a="seven", b=7, c=1))
    assert event.attributes == {"c": 1}


@pytest.mark.parametrize("text", ["is_a(a, 'car')", "NOT is_a(a, 'car')", "b = 'x' AND is_a(a, 'car')"])
def test_a_predicate_of_another_type_than_the_attribute_matches_nothing(text: str) -> None:
    tested = parse(text, Predicates([KINDS]))
    assert is_empty(tested, SCHEMA)
    assert not is_empty(tested)


def test_a_predicate_of_another_type_is_null_and_that_can_be_asked_for() -> None:
    tested = parse("is_a(a, 'car') IS NULL", Predicates([KINDS]))
    assert normalize(tested, SCHEMA) == normalize(parse("TRUE"), SCHEMA)
