"""Schemas: what they refuse at birth, their file form, what they make of events and of tables."""

import math
import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import thorough
from weft.errors import EventError, SchemaError
from weft.model.door import WELL_KNOWN
from weft.model.event import Event
from weft.model.schema import Attribute, Schema
from weft.model.value import Type

QUAKES = """
[attributes.magnitude]
type = "float"
bounds = [-1.0, 10.0]
precision = 0.01
[attributes.status]
type = "string"
categories = ["automatic", "reviewed"]
[attributes.depth]
type = "float"
data = "properties.depth"
[attributes]
felt = "int"
[attributes.time]
type = "timestamp"
bounds = [2018-01-31, 2018-02-07T12:00:00+02:00]
"""


# --- attributes -------------------------------------------------------------------------------------


def test_bounds_are_kept_in_the_type_of_the_attribute():
    assert repr(Attribute("x", Type.FLOAT, low=-1, high=10.5).low) == "-1.0"
    assert repr(Attribute("x", Type.INT, low=-(2**63), high=2**63 - 1).high) == str(2**63 - 1)
    local = datetime(2018, 1, 31, 14, tzinfo=timezone(timedelta(hours=2)))
    attribute = Attribute("x", Type.TIMESTAMP, low=datetime(2018, 1, 31), high=local)
    assert attribute.low == datetime(2018, 1, 31, tzinfo=UTC)
    assert (attribute.high, attribute.high.tzinfo) == (datetime(2018, 1, 31, 12, tzinfo=UTC), UTC)


def test_a_bound_may_be_missing_and_the_two_may_be_equal():
    assert Attribute("x", Type.INT, high=3).low is None
    assert Attribute("x", Type.INT, 3, 3).high == 3


def test_a_type_may_be_given_by_its_name():
    assert Attribute("x", "timestamp").type is Type.TIMESTAMP


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"name": ""}, "not empty, not ''"),
        ({"name": 5}, "not empty, not 5"),
        ({"name": "\ud800"}, "not valid Unicode"),
        ({"type": "flaot"}, "'x' has the unknown type 'flaot': did you mean 'float'?"),
        ({"type": "strng"}, "did you mean 'string'?"),
        ({"type": "blob"}, "unknown type 'blob': use one of int, float, string, bool, timestamp"),
        ({"type": None}, "unknown type None: use one of"),
        ({"type": 10**5000}, "unknown type a huge int: use one of"),
        ({"name": "time", "type": "string"}, "'time' is always a timestamp; do not declare it as string"),
        ({"name": "id", "type": "int"}, "'id' is always a string; do not declare it as int"),
        ({"low": 2.0, "high": 1.0}, "has low 2.0 above high 1.0; swap them"),
        ({"type": "timestamp", "low": datetime(2019, 1, 1), "high": datetime(2018, 1, 1)}, "above high"),
        ({"type": "string", "low": "a"}, "is a string, which has no bounds: list its categories instead"),
        ({"type": "bool", "high": True}, "is a bool, which has no bounds"),
        ({"low": math.nan}, "low bound nan, which is not a number"),
        ({"high": math.inf}, "high bound inf, which is not a number"),
        ({"low": "1"}, "low bound '1', which is not a float"),
        ({"low": True}, "low bound True, which is not a float"),
        ({"low": Decimal(1)}, "which is not a float"),
        ({"low": datetime(2018, 1, 1)}, "which is not a float"),
        ({"low": 2**53 + 1}, "low bound 9007199254740993, which no float equals"),
        ({"type": "int", "low": 1.0}, "low bound 1.0, which is not a int"),
        ({"type": "int", "high": 2**63}, "high bound beyond 64 bits"),
        ({"type": "int", "low": -(10**5000)}, "low bound beyond 64 bits"),
        ({"type": "timestamp", "low": 5}, "low bound 5, which is not a timestamp"),
        ({"type": "timestamp", "low": date(2018, 1, 1)}, "which is not a timestamp"),
        (
            {"type": "timestamp", "low": datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))},
            "outside the years 1 to 9999",
        ),
        ({"precision": 0}, "precision 0; write a number above 0"),
        ({"precision": -0.1}, "precision -0.1"),
        ({"precision": math.inf}, "precision inf"),
        ({"precision": math.nan}, "precision nan"),
        ({"precision": 10**5000}, "precision a huge int"),
        ({"precision": True}, "precision True"),
        ({"precision": "0.1"}, "precision '0.1'"),
        ({"type": "string", "precision": 0.1}, "is a string, which has no precision"),
        ({"type": "timestamp", "precision": 0.1}, "is a timestamp, which has no precision"),
        ({"categories": ("a",)}, "is a float, which has no categories"),
        ({"type": "string", "categories": "abc"}, "categories 'abc'; write a list"),
        ({"type": "string", "categories": 5}, "categories 5; write a list"),
        ({"type": "string", "categories": (1,)}, "category 1; write a list of strings"),
        ({"type": "string", "categories": ("\ud800",)}, "write a list of strings"),
        ({"type": "string", "categories": ("a", "b", "a")}, "category 'a' twice"),
        ({"data": ""}, "data path ''"),
        ({"data": "a..b"}, "data path 'a..b'"),
        ({"data": 5}, "data path 5"),
        ({"data": "\ud800"}, "data path"),
        (
            {"name": "time", "type": "timestamp", "data": "t"},
            "'time' is an attribute of the CloudEvent itself",
        ),
    ],
)
def test_an_attribute_that_makes_no_sense_is_refused_at_birth(declared, said):
    with pytest.raises(SchemaError, match=said.replace("?", r"\?")):
        Attribute(**{"name": "x", "type": "float"} | declared)


# --- the mapping ------------------------------------------------------------------------------------


def test_a_schema_is_an_ordered_mapping():
    price = Attribute("price", Type.FLOAT, 0, 100)
    schema = Schema.of(Attribute("a.b", Type.BOOL), symbol="string", price=price)
    assert list(schema) == ["a.b", "symbol", "price"]
    assert schema["price"] is price
    assert (schema.get("symbol").type, schema.get("absent"), len(schema)) == (Type.STRING, None, 3)
    assert ("price" in schema, "absent" in schema) == (True, False)
    assert dict(schema)["price"] is price
    with pytest.raises(KeyError):
        schema["absent"]


def test_schemas_are_equal_when_they_have_the_same_attributes_in_the_same_order():
    schema = Schema.of(a="int", b="float")
    assert schema == Schema.of(a="int", b="float")
    assert hash(schema) == hash(Schema.of(a="int", b="float"))
    assert schema != Schema.of(b="float", a="int")
    assert schema != Schema.of(a="int", b="int")
    assert schema != dict(schema)


def test_a_schema_can_be_pickled_and_not_changed():
    schema = Schema.of(a="int")
    again = pickle.loads(pickle.dumps(schema))
    assert (again, again["a"]) == (schema, schema["a"])
    with pytest.raises(AttributeError):
        schema.attributes = ()


def test_an_attribute_declared_twice_is_refused():
    with pytest.raises(SchemaError, match="'a' is declared twice"):
        Schema.of(Attribute("a", Type.INT), a="int")
    same = Attribute("a", Type.INT)
    with pytest.raises(SchemaError, match="'a' is declared twice"):
        Schema([same, same])


def test_an_attribute_under_another_name_is_refused():
    with pytest.raises(SchemaError, match="'a' is given under the name 'b'"):
        Schema.of(b=Attribute("a", Type.INT))


# --- the file form ----------------------------------------------------------------------------------


def test_a_toml_file_is_read_as_the_manual_shows(tmp_path):
    (tmp_path / "quakes.toml").write_text(QUAKES)
    assert Schema.load(tmp_path / "quakes.toml") == Schema.of(
        Attribute("magnitude", Type.FLOAT, -1.0, 10.0, precision=0.01),
        Attribute("status", Type.STRING, categories=("automatic", "reviewed")),
        Attribute("depth", Type.FLOAT, data="properties.depth"),
        Attribute("felt", Type.INT),
        Attribute("time", Type.TIMESTAMP, datetime(2018, 1, 31), datetime(2018, 2, 7, 10)),
    )


names = st.text(min_size=1, max_size=3).filter(lambda name: name not in WELL_KNOWN)
words = st.lists(st.text(max_size=2), unique=True, max_size=3).map(tuple)
paths = st.none() | st.sampled_from(["a", "a.b"])


@st.composite
def attributes(draw):
    name, kind = draw(names), draw(st.sampled_from(Type))
    rest = {"data": draw(paths)}
    bounds = {
        Type.INT: st.integers(-(2**63), 2**63 - 1),
        Type.FLOAT: st.floats(allow_nan=False, allow_infinity=False),
        Type.TIMESTAMP: st.datetimes(),
    }
    if kind in bounds:
        low, high = sorted(draw(st.tuples(bounds[kind], bounds[kind])))
        rest |= {"low": draw(st.sampled_from([None, low])), "high": draw(st.sampled_from([None, high]))}
    if kind.is_number:
        rest["precision"] = draw(st.none() | st.floats(min_value=1e-9, max_value=1e9))
    if kind is Type.STRING:
        rest["categories"] = draw(words)
    return Attribute(name, kind, **rest)


@given(st.lists(attributes(), unique_by=lambda attribute: attribute.name, max_size=3).map(Schema))
@thorough(100, routine=100)
def test_every_schema_survives_its_file_form(tmp_path_factory, schema):
    assert Schema.from_dict(schema.to_dict()) == schema
    path = tmp_path_factory.getbasetemp() / "schema.json"
    schema.save(path)
    assert Schema.load(path) == schema


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ([], "the schema is not a table"),
        ({}, "the schema has no table 'attributes'"),
        ({"atributes": {}}, "the schema has the unknown key 'atributes': did you mean 'attributes'?"),
        ({"attributes": []}, "'attributes' is not a table"),
        ({"attributes": {"x": 5}}, "attribute 'x' is not a table"),
        ({"attributes": {"x": {}}}, "attribute 'x' has no type; add one of int, float"),
        ({"attributes": {"x": "real"}}, "attribute 'x' has the unknown type 'real'"),
        ({"attributes": {"x": {"type": "int", "bound": [0, 1]}}}, "'bound': did you mean 'bounds'?"),
        (
            {"attributes": {"x": {"type": "int", "unit": "km"}}},
            "unknown key 'unit': it may have type, bounds",
        ),
        ({"attributes": {"x": {"y": {"type": "int"}}}}, "unknown key 'y': quote a dotted name"),
        ({"attributes": {"x": {"type": "int", "bounds": [0]}}}, r"bounds \[0\]; write \[low, high\]"),
        ({"attributes": {"x": {"type": "int", "bounds": 5}}}, "bounds 5; write"),
        ({"attributes": {"x": {"type": "int", "bounds": [0, 1], "low": 0}}}, "both bounds and low or high"),
        ({"attributes": {"x": {"type": "int", "bounds": ["a", 1]}}}, "low bound 'a', which is not a int"),
        ({"attributes": {"x": {"type": "string", "categories": []}}}, "an empty list of categories"),
        ({"attributes": {"x": {"type": "timestamp", "low": "now"}}}, "bound 'now', which is not a timestamp"),
        ({"attributes": {"": "int"}}, "not empty, not ''"),
        ({"attributes": {10**5000: {}}}, "attribute a huge int has no type"),
    ],
)
def test_a_form_that_is_no_schema_is_refused(form, said):
    with pytest.raises(SchemaError, match=said.replace("?", r"\?")):
        Schema.from_dict(form)


def test_bounds_with_one_end_open_are_written_alone():
    schema = Schema.of(Attribute("x", Type.TIMESTAMP, low=datetime(2018, 1, 31)))
    assert schema.to_dict() == {"attributes": {"x": {"type": "timestamp", "low": "2018-01-31T00:00:00Z"}}}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("s.toml", "[attributes\n", "s.toml: cannot be read: .*line 1"),
        ("s.toml", "[attributes.x]\ntype = 'int'\ntype = 'int'\n", "s.toml: cannot be read: .*line 3"),
        ("s.toml", "[attributes.x]\ntype = 'intt'", "s.toml: attribute 'x' has the unknown type 'intt'"),
        (
            "s.toml",
            "[attributes.x]\ntype = 'float'\nbounds = [-inf, 1.0]",
            "s.toml: .*-inf, which is not a number",
        ),
        ("s.json", '{"attributes":\n {', "s.json: cannot be read: .*line 2"),
        ("s.json", '{"attributes": {"x": "int", "x": "int"}}', "s.json: 'x' appears twice"),
        ("s.json", "[" * 100_000, "s.json: cannot be read: nested too deep"),
        ("s.yaml", "", "s.yaml: a schema must be a .toml or .json file"),
    ],
)
def test_a_bad_file_is_named_with_the_place(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(SchemaError, match=said):
        Schema.load(tmp_path / name)


def test_a_file_that_is_missing_or_no_text_is_named(tmp_path):
    with pytest.raises(SchemaError, match=r"none.toml: cannot be read: No such file"):
        Schema.load(tmp_path / "none.toml")
    (tmp_path / "s.json").write_bytes(b"\xff")
    with pytest.raises(SchemaError, match=r"s.json: cannot be read: .*utf-8"):
        Schema.load(str(tmp_path / "s.json"))


def test_a_schema_is_saved_as_json_only(tmp_path):
    with pytest.raises(SchemaError, match=r"ends in \.json"):
        Schema.of(x="int").save(tmp_path / "s.toml")


# --- what it makes of events ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "conformed"),
    [
        ("float", 1.5, 1.5),
        ("float", 1, 1),
        ("float", 2**53 + 1, 2**53 + 1),
        ("float", True, None),
        ("float", "1.5", None),
        ("float", math.nan, None),
        ("int", 1, 1),
        ("int", 3.0, 3),
        ("int", 3.5, None),
        ("int", -(2.0**63), -(2**63)),
        ("int", 2.0**63, None),
        ("int", math.inf, None),
        ("int", False, None),
        ("bool", True, True),
        ("bool", 1, None),
        ("string", "a", "a"),
        ("string", 1, None),
        ("timestamp", datetime(2018, 1, 31, tzinfo=UTC), datetime(2018, 1, 31, tzinfo=UTC)),
        ("timestamp", "2018-01-31", None),
    ],
)
def test_a_declared_attribute_is_of_its_type_or_absent(kind, value, conformed):
    event = Schema.of(x=kind).conform(Event({"x": value, "y": "untouched"}, "payload"))
    assert (type(event["x"]), event["x"]) == (type(conformed), conformed)
    assert ("x" in event) == (conformed is not None)
    assert (event["y"], event.payload) == ("untouched", "payload")


def test_an_event_that_conforms_comes_back_itself():
    event = Event.of(x=1, y=200.0)
    assert Schema.of(Attribute("y", Type.FLOAT, 0, 100), x="float", absent="int").conform(event) is event


def test_conforming_leaves_the_event_given_as_it_was():
    event = Event.of(x="text", y=2.0)
    Schema.of(x="int", y="int").conform(event)
    assert event == Event.of(x="text", y=2.0)


# --- what it makes of tables ------------------------------------------------------------------------


def test_a_schema_is_inferred_with_types_bounds_and_categories():
    table = pa.table(
        {
            "n": pa.array([3, None, -1, 2], pa.int8()),
            "x": pa.array([1.5, math.nan, math.inf, -2.0], pa.float32()),
            "d": pa.array([Decimal("1.10"), None, Decimal("-2.20"), None]),
            "status": ["b", "a", "b", "a"],
            "code": pa.array(["u", "v", "u", "v"]).dictionary_encode(),
            "name": ["p", "q", "r", "p"],
            "flag": [True, False, None, True],
            "at": pa.array([1, 0, None, -1], pa.timestamp("ns")),
            "day": [date(2018, 1, 31), None, None, date(2018, 1, 1)],
            "where": pa.array([{"lat": 1.0}, {"lat": 2.0}, None, None]),
            "tags": [["a"]] * 4,
            "nothing": pa.nulls(4),
            "unknown": pa.nulls(4, pa.int64()),
        }
    )
    assert Schema.infer(table) == Schema.of(
        Attribute("n", Type.INT, -1, 3),
        Attribute("x", Type.FLOAT, -2.0, 1.5),
        Attribute("d", Type.FLOAT, -2.2, 1.1),
        Attribute("status", Type.STRING, categories=("a", "b")),
        Attribute("code", Type.STRING, categories=("u", "v")),
        Attribute("name", Type.STRING),
        Attribute("flag", Type.BOOL),
        Attribute("at", Type.TIMESTAMP, datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1)),
        Attribute("day", Type.TIMESTAMP, datetime(2018, 1, 1), datetime(2018, 1, 31)),
        Attribute("where.lat", Type.FLOAT, 1.0, 2.0),
        Attribute("tags", Type.STRING, categories=("a",)),
        Attribute("unknown", Type.INT),
    )


def test_categories_are_few_and_repeat():
    many = pa.table({"s": [str(i % 65) for i in range(1000)]})
    assert Schema.infer(many)["s"].categories == ()
    assert len(Schema.infer(many, most_categories=65)["s"].categories) == 65
    few = pa.table({"s": [str(i % 64) for i in range(1000)]})
    assert len(Schema.infer(few)["s"].categories) == 64
    assert Schema.infer(pa.table({"s": ["a", None, None, None, "b"]}))["s"].categories == ()


def test_what_is_seen_in_one_chunk_is_joined_with_the_others():
    table = pa.concat_tables([pa.table({"n": [1, 5], "s": ["b", "b"]}), pa.table({"n": [-3, 2], "s": ["a", "a"]})])
    assert Schema.infer(table) == Schema.of(
        Attribute("n", Type.INT, -3, 5), Attribute("s", Type.STRING, categories=("a", "b"))
    )
    assert Schema.infer(table.to_batches()[0])["n"].high == 5


def test_an_empty_table_has_types_all_the_same():
    assert Schema.infer(pa.table({"n": pa.array([], pa.int64()), "l": pa.array([], pa.list_(pa.int8()))})) == (
        Schema.of(n="int")
    )


def test_a_column_with_a_fixed_type_must_have_it():
    with pytest.raises(SchemaError, match="'time' is always a timestamp; do not declare it as int"):
        Schema.infer(pa.table({"time": [1517363399650]}))


def test_columns_that_become_the_same_attribute_are_refused():
    table = pa.table([pa.array([1]), pa.array([{"b": 1}])], names=["a.b", "a"])
    with pytest.raises(EventError, match=r"two columns named 'a\.b'"):
        Schema.infer(table)
