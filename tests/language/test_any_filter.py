"""A filter in any form, at every door."""

import json

import pytest

import weft
from weft.client.options import filter_text
from weft.errors import FilterError
from weft.language.any_filter import as_filter
from weft.model.limits import LIMITS

TEXT = "source = 'aws.ec2' AND detail.count > 5"
EVENTBRIDGE = {"source": ["aws.ec2"], "detail": {"count": [{"numeric": [">", 5]}]}}
PATTERN = weft.from_eventbridge(EVENTBRIDGE)  # its tests see lists, too
FORMS = [
    TEXT,
    weft.parse(TEXT),
    (weft.F.source == "aws.ec2") & (weft.F["detail.count"] > 5),
    {"sql": TEXT},
    json.dumps({"sql": TEXT}),
    EVENTBRIDGE,
    json.dumps(EVENTBRIDGE),
]


def _added(form):
    index = weft.Index()
    index.add("a", form)
    return index["a"]


def _replaced(form):
    index = weft.Index()
    index.replace("a", form)
    return index["a"]


DOORS = {
    "Index.add": _added,
    "Index.replace": _replaced,
    "Index": lambda form: weft.Index({"a": form})["a"],
    "client": lambda form: weft.parse(filter_text(form)),
    "as_filter": as_filter,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "form", FORMS, ids=["text", "filter", "builder", "json", "json text", "pattern", "pattern text"]
)
def test_every_form_of_a_filter_means_the_same_at_every_door(door, form):
    assert weft.equivalent(DOORS[door](form), PATTERN if form in FORMS[5:] else TEXT)


@pytest.mark.parametrize("form", FORMS[3:])
def test_forms_are_read_by_the_functions_too(form):
    assert weft.matches(form, {"source": "aws.ec2", "detail": {"count": 6}})
    assert weft.covers("source = 'aws.ec2'", form)


def test_a_text_beyond_the_limit_is_refused_without_being_decoded():
    with pytest.raises(FilterError, match="longer than"):
        as_filter('{"source": [' + ",".join(['"a"'] * LIMITS.text) + "]}")
