"""User predicates and the taxonomy, by example."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path

import pytest

from strategies import AMONG, KINDS, PREDICATES
from weft import F, covers, matches, normalize, overlaps, parse
from weft.errors import FilterError, FilterSyntaxError
from weft.language.predicate import NO_PREDICATES, Predicate, Predicates
from weft.language.taxonomy import IsA, Taxonomy
from weft.model.value import Type, Value


@dataclass(frozen=True)
class Near:
    """Within a distance of a point on the line of numbers: `near(x, 5, 2)`."""

    name: str = "near"
    type: Type = Type.FLOAT

    def check(self, arguments: tuple[Value, ...]) -> None:
        if len(arguments) != 2:
            raise ValueError("near takes an attribute, a point and a distance")

    def matches(self, value: Value, arguments: tuple[Value, ...]) -> bool:
        return abs(value - arguments[0]) <= arguments[1]  # type: ignore[operator]

    def covers(self, wide: tuple[Value, ...], narrow: tuple[Value, ...]) -> bool:
        return abs(wide[0] - narrow[0]) + narrow[1] <= wide[1]  # type: ignore[operator]

    def overlaps(self, one: tuple[Value, ...], other: tuple[Value, ...]) -> bool:
        return abs(one[0] - other[0]) <= one[1] + other[1]  # type: ignore[operator]


# -- the registry -----------------------------------------------------------------------------------


def test_a_registry_knows_its_predicates_by_name() -> None:
    known = Predicates([Near(), KINDS])
    assert (sorted(known), len(known)) == (["is_a", "near"], 2)
    assert known["near"] == known.get("near") == Near()
    assert known.get("far") is None
    with pytest.raises(KeyError):
        known["far"]
    assert len(NO_PREDICATES) == 0


def test_the_same_predicate_may_be_registered_again_but_no_other_under_its_name() -> None:
    known = Predicates((Near(),))
    known.register(Near())
    known.register(Near("near_too"))
    with pytest.raises(FilterError, match="another predicate is already registered as 'near'"):
        known.register(Near(type=Type.INT))
    assert known["near"] == Near()
    assert len(known) == 2


@pytest.mark.parametrize("name", ["", "two words", "1a", "a-b", "a.b", "größe", "near\n"])
def test_a_predicate_needs_a_plain_name(name: str) -> None:
    with pytest.raises(FilterError, match="cannot name a predicate: use letters, digits and '_'"):
        Predicates([Near(name)])


@pytest.mark.parametrize("name", ["and", "NOT", "In", "null", "true", "between"])
def test_a_reserved_word_names_no_predicate(name: str) -> None:
    # No text could call it, and what format writes could not be read.
    with pytest.raises(FilterError):
        Predicates([Near(name)])


@pytest.mark.parametrize("wrong", [5, "near", object(), None, lambda value: True])
def test_what_lacks_the_methods_is_no_predicate(wrong: object) -> None:
    with pytest.raises(
        FilterError, match="is not a predicate: it needs name, type, check, matches, covers and overlaps"
    ):
        Predicates([wrong])  # type: ignore[list-item]


def test_a_class_is_no_predicate_but_its_instances_are() -> None:
    # A class has all the attributes of its instances, but fails when it is called.
    with pytest.raises(FilterError):
        Predicates([IsA])  # type: ignore[list-item]
    assert isinstance(KINDS, Predicate)


# -- in texts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "near(x)",
            "near takes an attribute, a point and a distance at column 7\n  near(x)\n        ^",
        ),
        (
            "far(x, 1)",
            "unknown predicate 'far' at column 1\n  far(x, 1)\n  ^^^\n"
            "there are no functions, only predicates: cidr, is_a, near, time_like",
        ),
        (
            "near(5, 1, 2)",
            "the first argument of near must be an attribute at column 6\n  near(5, 1, 2)\n       ^",
        ),
        (
            "near(x, y, 2)",
            "near takes one attribute, then constants at column 9\n  near(x, y, 2)\n          ^",
        ),
        (
            "near(x, 1 2)",
            "expected ')' or ',' in the arguments of near at column 11\n  near(x, 1 2)\n            ^",
        ),
        (
            "near(x, 1, 2) = 5",
            "a condition cannot be compared at column 15\n  near(x, 1, 2) = 5\n                ^\n"
            "test it with IS TRUE, IS FALSE or IS NULL",
        ),
    ],
)
def test_errors_point_at_the_argument(text: str, said: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text, Predicates([Near(), KINDS]))
    assert str(caught.value) == said


def test_without_a_registry_there_are_no_functions() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse("UPPER(x) = 'A'")
    assert caught.value.message == "unknown predicate 'UPPER'"
    assert caught.value.hint == "there are no functions, only predicates: cidr, time_like"


def test_calls_take_part_in_the_algebra() -> None:
    known = Predicates([Near()])
    wide, narrow, far = (parse(text, known) for text in ("near(x, 5, 3)", "near(x, 6, 1)", "near(x, 50, 1)"))
    assert matches(wide, {"x": 7.5}) is True
    assert matches(wide, {"x": 9}) is False
    assert matches(~wide, {"x": "a"}) is False
    assert (covers(wide, narrow), covers(narrow, wide)) == (True, False)
    assert (overlaps(wide, narrow), overlaps(wide, far)) == (True, False)
    assert covers(~narrow, ~wide)
    assert not normalize(wide & far)


def test_a_predicate_of_floats_takes_ints_and_no_bools() -> None:
    called = parse("near(x, 5, 3)", Predicates([Near()]))
    assert [matches(called, {"x": value}) for value in (5, 5.0, True, "5")] == [True, True, False, False]


# -- the taxonomy -----------------------------------------------------------------------------------

DIAMOND = Taxonomy({"amphibian car": ["car", "boat"], "car": ["vehicle"], "boat": ["vehicle"], "vehicle": "thing"})


def test_a_concept_is_itself_and_all_its_ancestors() -> None:
    for ancestor in ("amphibian car", "car", "boat", "vehicle", "thing"):
        assert DIAMOND.is_a("amphibian car", ancestor)
    assert not DIAMOND.is_a("car", "boat")
    assert not DIAMOND.is_a("vehicle", "car")
    assert DIAMOND.below("vehicle") == {"vehicle", "car", "boat", "amphibian car"}
    assert DIAMOND.below("amphibian car") == {"amphibian car"}


def test_an_unknown_concept_is_only_itself() -> None:
    assert DIAMOND.is_a("bicycle", "bicycle")
    assert not DIAMOND.is_a("bicycle", "vehicle")
    assert not DIAMOND.is_a("car", "bicycle")
    assert DIAMOND.below("bicycle") == {"bicycle"}
    assert Taxonomy({}).is_a("a", "a")


@pytest.mark.parametrize(
    "parents",
    [
        {"a": ["a"]},
        {"a": ["b"], "b": ["a"]},
        {"a": ["b"], "b": ["c"], "c": ["d"], "d": ["b"]},
        {"x": ["y"], "a": ["x", "b"], "b": ["a"]},
    ],
)
def test_a_cycle_is_refused(parents: dict[str, list[str]]) -> None:
    with pytest.raises(FilterError, match=r"the taxonomy has a cycle through '[abcd]'"):
        Taxonomy(parents)


def test_a_long_chain_needs_no_deep_stack() -> None:
    chain = Taxonomy({f"c{n}": [f"c{n + 1}"] for n in range(1_200)})
    assert chain.is_a("c0", "c1200")
    with pytest.raises(FilterError, match="cycle"):
        Taxonomy({f"c{n}": [f"c{(n + 1) % 20_000}"] for n in range(20_000)})


def test_shared_parents_are_no_cycle() -> None:
    tangled = Taxonomy({"a": ["b", "c", "d"], "b": ["c", "d"], "c": ["d"]})
    assert tangled.below("d") == {"a", "b", "c", "d"}


def test_is_a_covers_and_overlaps_exactly() -> None:
    is_a = IsA(DIAMOND)
    known = Predicates([is_a])

    def f(concept: str) -> object:
        return parse(f"is_a(x, '{concept}')", known)

    assert covers(f("vehicle"), f("car"))  # type: ignore[arg-type]
    assert not covers(f("car"), f("vehicle"))  # type: ignore[arg-type]
    assert overlaps(f("car"), f("boat"))  # type: ignore[arg-type]
    assert not overlaps(f("car"), f("bicycle"))  # type: ignore[arg-type]
    assert covers(f("car"), F.x == "amphibian car")  # type: ignore[arg-type]


def test_taxonomies_and_predicates_of_them_are_values() -> None:
    again = Taxonomy({"vehicle": ["thing"], "boat": "vehicle", "car": ("vehicle",), "amphibian car": {"boat", "car"}})
    assert again == DIAMOND
    assert hash(IsA(again)) == hash(IsA(DIAMOND))
    assert IsA(again) == IsA(DIAMOND) != KINDS
    assert Taxonomy({}) != DIAMOND
    assert repr(DIAMOND) == "Taxonomy(5 concepts)"
    called = parse("is_a(x, 'vehicle') AND y = 1", PREDICATES)
    assert pickle.loads(pickle.dumps(called)) == called
    assert called != parse("is_a(x, 'vehicle') AND y = 1", Predicates([IsA(DIAMOND), AMONG]))


# -- files ------------------------------------------------------------------------------------------


def test_a_taxonomy_loads_from_toml_and_json(tmp_path: Path) -> None:
    toml, json = tmp_path / "kinds.toml", tmp_path / "kinds.json"
    toml.write_text('"amphibian car" = ["car", "boat"]\ncar = ["vehicle"]\nboat = "vehicle"\nvehicle = ["thing"]\n')
    json.write_text('{"amphibian car": ["car", "boat"], "car": ["vehicle"], "boat": "vehicle", "vehicle": ["thing"]}')
    assert Taxonomy.load(toml) == Taxonomy.load(str(json)) == DIAMOND


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("a.toml", "car = [", "Invalid value"),
        ("a.toml", "car = [1]", "the parents of 'car' are not a list of strings"),
        ("a.toml", "[car]\nx = 1", "the parents of 'car' are not a list of strings"),
        ("a.toml", 'a = ["b"]\nb = ["a"]', "the taxonomy has a cycle"),
        ("a.toml", 'a = "b"\na = "c"', "Cannot overwrite a value"),
        ("a.json", "{", "Expecting property name"),
        ("a.json", "[]", "it is not a table of child = [parents]"),
        ("a.json", '{"car": 5}', "the parents of 'car' are not a list of strings"),
        ("a.json", '{"car": null}', "the parents of 'car' are not a list of strings"),
        ("a.json", '{"car": [["vehicle"]]}', "the parents of 'car' are not a list of strings"),
        ("a.json", "", "Expecting value"),
        ("a.txt", "car = 1", "Expecting value"),
        ("a.json", b"\xff\xfe", "codec can't decode"),
        ("a.json", "[" * 100_000, ""),
        ("a.toml", "a = " + "[" * 100_000, ""),
    ],
)
def test_a_file_that_is_no_taxonomy_says_why(tmp_path: Path, file: str, content: str | bytes, reason: str) -> None:
    place = tmp_path / file
    place.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(FilterError) as caught:
        Taxonomy.load(place)
    assert str(caught.value).startswith(f"cannot read the taxonomy {place}: ")
    assert reason in str(caught.value)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(FilterError, match=r"cannot read the taxonomy .*No such file"):
        Taxonomy.load(tmp_path / "none.toml")
    with pytest.raises(FilterError, match="cannot read the taxonomy"):
        Taxonomy.load(tmp_path)
