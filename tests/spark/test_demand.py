"""The portrait says what was counted, in the terminal, on the page and in JSON."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING
from xml.dom.minidom import parseString

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from weft.demand.demand_counts import DemandCounts
from weft.demand.event_sample import EventSample
from weft.demand.filter_demand import demand_of
from weft.errors import WeftError
from weft.model.value import Type
from weft.spark import charts
from weft.spark.demand_report import Demand
from weft.spark.event_statistics import AttributeSummary, EventStatistics
from weft.spark.profile import profile
from weft.spark.statistics import Statistics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD = '<script>&"\x07'
TEXTS = [
    "x > 5",
    "x BETWEEN 1 AND 3",
    "x >= 1 AND x <= 3",
    f"kind = '{ODD}' AND x < 2",
    "time >= TIMESTAMP '2020-01-01' AND time < TIMESTAMP '2020-01-05' AND kind = 'a'",
    f'"{ODD.replace(chr(34), chr(34) * 2)}" = 1 AND gone = 1',
    "x > 5 AND x < 2",
    "TRUE",
    "x >",
]


def demand(events: bool = True) -> Demand:
    sample = pa.record_batch({"x": [1.0, 2.0, 9.0], "kind": ["a", "a", "b"]}) if events else None
    found = demand_of(range(len(TEXTS)), TEXTS, None if sample is None else EventSample.of(sample))
    seen = {
        "x": AttributeSummary(Type.FLOAT, 3, 3, (1.0, 2.0, 9.0)),
        "kind": AttributeSummary(Type.STRING, 3, 2, ("a", "b"), {"a": 2, "b": 1}),
    }
    if not events:
        return Demand(Statistics(found, None, {}))
    return Demand(Statistics(found, EventStatistics(3, seen), {("kind", "x"): 0.5}, (ODD,)))


@pytest.mark.parametrize("events", [True, False])
def test_the_page_is_one_file_and_every_text_is_escaped(events: bool, tmp_path: Path) -> None:
    demand(events).save(tmp_path / "demand.html")
    page = (tmp_path / "demand.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert not re.search(r"(src|href)=|url\(|@import", page)
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) >= 8
    for drawing in drawings:
        parseString(drawing)
    parseString(re.sub(r"<!DOCTYPE html>|<meta[^>]*>", "", page))  # all else is closed
    assert page.count("{") == page.count("}")
    assert "Filters constrain attributes that no event has" in page or not events


def test_it_says_what_was_counted() -> None:
    found = demand()
    assert found.headline == {
        "filters": "8",
        "attributes": "5",
        "different filters": "6",
        "duplicates": "14.3%",
        "match nothing": "1",
        "match everything": "1",
        "unreadable texts": "1",
        "events": "3",
    }
    assert found.attribute_rows()[0][:5] == ("x", "4", "50.0%", "one-sided 50.0%, range 50.0%", "")
    assert found.attribute_rows()[0][5] == "50.0%"  # of 3 events: 1, 2, 2 and 1 pass
    assert found.repeated_rows() == [("2", "x >= 1 AND x <= 3")]
    assert found.missing == [ODD, "gone", "time"]
    assert ("kind", "x", "1", "1.00", "+0.50") in found.pair_rows()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_it_is_shown_in_any_terminal(encoding: str) -> None:
    class Terminal(StringIO):
        @property
        def encoding(self) -> str:  # type: ignore[override]
            return encoding

    out = Terminal()
    demand().show(Console(file=out, width=160))
    shown = out.getvalue()
    assert "x >= 1 AND x <= 3" in shown
    assert ("█" in shown) is (encoding == "utf-8")
    assert ("#" in shown) is (encoding == "ascii")


def test_facts_are_read_back_and_other_names_are_refused(tmp_path: Path) -> None:
    found = demand()
    found.save(tmp_path / "demand.json")
    facts = json.loads((tmp_path / "demand.json").read_text(encoding="utf-8"))
    assert facts == found.facts
    assert DemandCounts.from_dict(facts["asked"]) == found.asked
    with pytest.raises(WeftError, match=r"\.html or \.json"):
        found.save(tmp_path / "demand.pdf")


def test_nothing_is_a_portrait_too() -> None:
    empty = Demand(Statistics(DemandCounts(), None, {}))
    empty.show(Console(file=StringIO()))
    assert "<h1>" in empty.html()


def test_a_curve_is_as_high_as_its_share() -> None:
    points = np.array([0.0, 1.0, 2.0])
    drawing = charts.demand(points, np.array([0.0, 0.5, 0.25]), np.array([1.0, 3.0]), str)
    parseString(drawing)
    assert ">50%</text>" in drawing


def test_a_profile_on_spark(spark: SparkSession) -> None:
    rows = spark.createDataFrame(list(enumerate(TEXTS)), "id bigint, filter string")
    found = profile(rows, spark.createDataFrame([(1.0, "a"), (2.0, "a"), (9.0, "b")], "x double, kind string"))
    assert found.headline == demand().headline
    assert found.asked == demand().asked
