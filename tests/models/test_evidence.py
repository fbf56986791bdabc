"""Models on somebody's data: figures by hand, false positives by another way, lost events, and the advice."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import asdict, replace
from functools import partial
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import events as every_event
from strategies import filters, thorough
from weft import matches, parse
from weft.errors import ProtocolError, WeftError
from weft.index.base import SubId
from weft.language.text import parse_many
from weft.model.schema import Attribute, Schema
from weft.model.value import Type
from weft.models.candidates import CANDIDATES, TableTerms
from weft.models.evidence import EAST, HERE, BrokerRow, Data, GroundTruth
from weft.models.evidence import compare as compare_warm
from weft.models.figures import ModelFigures
from weft.models.footprint import footprint
from weft.models.recommendation import Weights, recommend
from weft.routing.covering.table import CoveringTable
from weft.routing.flooding.table import FloodingTable
from weft.routing.identity.table import IdentityTable
from weft.space.grid import Grid
from weftlab.overlay.range_workloads import WORKLOADS

TIMES = ("insert_us", "batch_us", "remove_us", "tidy_ms", "match_us", "route_us")
AXES = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 2]} for name in ("a", "b")}})


def data(texts, events, western, leaving=(), schema=None):
    return Data([parse(text) for text in texts], events, schema, np.array(western, bool), np.array(leaving, np.int64))


compare = partial(compare_warm, warm=0)


def only(found):
    assert not found.not_run, found.not_run
    (figures,) = found.figures
    return figures


# -- figures -----------------------------------------------------------------------------------------


def test_figures_worked_out_by_hand():
    texts = ["x > 5", "x > 0", "x > 5", "y = 1"]
    given_ = data(texts, [{"x": 3}, {"x": 9}, {"z": 1}, {"y": 1}], [False, True, True, False], [3])
    found = compare(given_, ["identity", "covering"])
    identity, covering = found.figures
    assert (found.wanted, found.scanned) == (3, 4)
    assert (identity.forwarded, covering.forwarded) == (3, 2)
    assert identity.forwarded_bytes == len("x > 5x > 0y = 1")
    assert covering.forwarded_bytes == len("x > 0y = 1")
    assert identity.all_bytes == len("".join(texts))
    assert (identity.updates, identity.sent, identity.dropped) == (3, 3, 0)  # the third is known already
    assert (covering.updates, covering.sent, covering.dropped) == (3, 3, 1)  # x > 5 goes when x > 0 comes
    # the west tells x > 0 and x > 5 and is told x > 5 and y = 1; by covering x > 5 is told from neither side at the end
    assert identity.table == 2 + 2 + 3
    assert covering.table == 1 + 2 + 2
    for each in found.figures:
        assert (each.events, each.wanted, each.unwanted, each.unwanted_share) == (4, 3, 0, 0)
        assert all(getattr(each, name) >= 0 for name in TIMES)
        assert each.memory > 0


def test_flooding_sends_all_unwanted_events():
    given_ = data(["x > 5", "x > 7"], [{"x": at} for at in range(10)], [False, True])
    figures = only(compare(given_, ["flooding"], candidates={"flooding": lambda terms: FloodingTable()}))
    assert (figures.forwarded, figures.table, figures.updates) == (0, 0, 0)
    assert (figures.wanted, figures.unwanted) == (4, 6)


@pytest.mark.parametrize("cells", [3, 5, 9])
def test_curve_ranges_let_pass_exactly_what_shares_a_cell(cells):
    schema = Schema.of(Attribute("x", Type.FLOAT, 0, 10))
    texts = ["x BETWEEN 2.2 AND 3.1", "x BETWEEN 7 AND 7.5", "x = 2.5", "x > 9.9"]
    events = [{"x": at / 10} for at in range(-10, 120)] + [{"y": 1}]
    given_ = Data.of([parse(text) for text in texts], events, schema)
    figures = only(compare(given_, ["mics"], cells=cells))
    grid = Grid.uniform(schema, cells)
    covered = set()
    for text in texts:
        boxes = grid.boxes(text)
        for low, high in zip(boxes.lows[:, 0].tolist(), boxes.highs[:, 0].tolist(), strict=True):
            covered |= {*range(low, high + 1)}
    sent = [event for event in events if grid.cell(event)[0] in covered]
    wanted = [event for event in events if any(matches(parse(text), event) for text in texts)]
    assert figures.wanted == len(wanted)
    assert figures.unwanted == len(sent) - len(wanted) > 0


def test_labels_count_one_by_one():
    workload = WORKLOADS["zipf"](60, 40)
    given_ = Data.of(parse_many(workload.texts()), workload.table.to_pylist(), Schema.infer(workload.table))
    coarse, fine = (only(compare(given_, ["dls"], cells=cells)) for cells in (4, 32))
    assert fine.forwarded > coarse.forwarded > 1
    assert fine.unwanted < coarse.unwanted


def test_the_same_seed_gives_the_same_figures_but_for_the_times():
    workload = WORKLOADS["zipf"](40, 50)
    wanted, events, schema = parse_many(workload.texts()), workload.table.to_pylist(), Schema.infer(workload.table)

    def figures(seed):
        found = compare(Data.of(wanted, events, schema, seed), ["covering", "negative", "mics"], cells=8)
        return [{k: v for k, v in asdict(each).items() if k not in (*TIMES, "memory")} for each in found.figures]

    assert figures(1) == figures(1)
    assert figures(1) != figures(2)


def test_models_that_cannot_run_say_why_and_the_others_run():
    given_ = data(["place = 'here'", "place LIKE 'a%'"], [{"place": "here"}], [False, True])
    found = compare(given_)
    assert [each.model for each in found.not_run] == ["mics", "dls"]
    assert all("bounds or categories" in each.reason for each in found.not_run)
    assert [each.model for each in found.figures] == [name for name in CANDIDATES if name not in ("mics", "dls")]
    schema = Schema.of(*(Attribute(f"a{n}", Type.FLOAT, 0, 1) for n in range(70)))
    wide = Data.of([parse(" AND ".join(f"a{n} > 0" for n in range(70)))], [{"a1": 0.5}], schema)
    (reason,) = (each.reason for each in compare(wide, ["dls"]).not_run)
    assert "at most 31" in reason


def test_some_of_the_data_first():
    tables = []
    counted = {"counted": lambda terms: tables.append(IdentityTable(terms.schema)) or tables[-1]}
    given_ = Data.of([parse(f"x > {n}") for n in range(9)], [{"x": 3}], None)
    assert compare_warm(given_, candidates=counted, models=["counted"], warm=4).figures[0].forwarded == 9
    assert len(tables) == 2 * 7  # a row one by one, its new neighbour, and a row for batches
    assert max(len(table.heard(HERE)) for table in tables[:7] if HERE in table.links) == 4


def test_patience_ends():
    given_ = data(["x > 5", "x > 7"], [{"x": 6}], [False, True])
    (stopped,) = compare(given_, ["covering"], patience=-1).not_run
    assert "took more than" in stopped.reason
    assert "0 of 2" in stopped.reason


def test_memory_is_bounded():
    given_ = data(["x > 5", "x > 7"], [{"x": 6}], [False, True])
    found = compare(given_, ["identity", "covering"], room=-(1 << 60))
    assert [each.model for each in found.not_run] == ["identity", "covering"]
    assert all("MB for 0 of 2" in each.reason for each in found.not_run)


def test_a_slow_model_leaves_the_others_their_share():
    class Slow(IdentityTable):
        def change(self, add, drop):
            until = process_time() + 0.05
            while process_time() < until:
                pass
            return super().change(add, drop)

    made = {"slow": lambda terms: Slow(terms.schema), "identity": lambda terms: IdentityTable(terms.schema)}
    given_ = Data.of([parse(f"x > {n}") for n in range(400)], [{"x": 3}], None)
    found = compare(given_, list(made), candidates=made, patience=3.0)
    assert [each.model for each in found.not_run] == ["slow"]
    assert [each.model for each in found.figures] == ["identity"]


def test_a_grid_has_what_filters_use_and_events_bound():
    schema = Schema.of(
        Attribute("x", Type.FLOAT, 0, 1), Attribute("unused", Type.INT, 0, 9), Attribute("half", Type.INT, low=0),
        Attribute("kind", Type.STRING, categories=("a", "b")), ok="bool", place="string",
    )  # fmt: skip
    wanted = [parse("kind = 'a' AND half > 3 AND place = 'p'"), parse("kind = 'b' OR x > 0 OR ok OR odd = 1")]
    terms = TableTerms.of(schema, wanted)
    assert next(iter(terms.grid)) == "kind"
    assert set(terms.grid) == {"kind", "x", "ok"}
    assert terms.unseen == ("half", "odd", "place")


# -- lost events -------------------------------------------------------------------------------------


class Deaf(IdentityTable):
    """Forgets whatever it is told."""

    def learn(self, link, update):
        return []


class Blocked(IdentityTable):
    """Tells the first neighbour only: what goes west is right, nothing goes east."""

    def tell(self, interface, key):
        if interface.link != "east":
            super().tell(interface, key)


class Forgetful(CoveringTable):
    """Does not tell what a filter had covered when that goes."""

    def change(self, add, drop):
        return [
            type(tell)(tell.link, type(tell.update)(drop=tell.update.drop)) if tell.update.drop else tell
            for tell in super().change(add, drop)
        ]


class Moody(IdentityTable):
    """Routes alone otherwise than together."""

    def route(self, event, source):
        return set()


@pytest.mark.parametrize(("table", "said"), [(Deaf, "loses"), (Blocked, "loses"), (Moody, "differently alone")])
def test_a_table_that_loses_events_ends_the_comparison(table, said):
    given_ = data(["x > 5", "x > 7"], [{"x": 6}, {"x": 8}], [False, True])
    with pytest.raises(ProtocolError, match=said):
        compare(given_, ["bad"], candidates={"bad": lambda terms: table(terms.schema)})


def test_what_is_lost_by_removal_is_found():
    given_ = data(["x > 5", "x > 7"], [{"x": 6}, {"x": 8}], [False, False], [0])
    bad = {"bad": lambda terms: Forgetful(terms.schema)}
    with pytest.raises(ProtocolError, match=r"loses 1 of 2 events between east and here, the first is .*8"):
        compare(given_, ["bad"], candidates=bad)
    stays = replace_leaving(given_, [1])
    assert only(compare(stays, ["bad"], candidates=bad)).forwarded == 1


def replace_leaving(given_, leaving):
    return Data(given_.filters, given_.events, given_.schema, given_.western, np.array(leaving, np.int64))


@given(st.lists(filters(4), min_size=1, max_size=6), st.data())
@thorough(25)
def test_what_is_wanted_is_what_the_filters_mean(wanted, draw):
    events = every_event()[:: draw.draw(st.integers(7, 40))]
    truth = GroundTruth(Data(wanted, events, None, np.ones(len(wanted), bool), np.zeros(0, np.int64)))
    among = np.array(draw.draw(st.lists(st.booleans(), min_size=len(wanted), max_size=len(wanted))))
    chosen = [each for each, taken in zip(wanted, among, strict=True) if taken]
    assert truth.wanted(among).tolist() == [any(matches(each, event) for each in chosen) for event in events]


@given(st.lists(filters(4), min_size=1, max_size=5), st.integers(0, 9), st.sampled_from([None, 3, 6]))
@thorough(8, routine=2)
def test_no_model_loses_an_event_and_exact_ones_send_no_unwanted_events(wanted, seed, cells):
    found = compare(Data.of(wanted, every_event()[seed::29], AXES, seed), cells=cells)
    assert {each.model for each in found.figures} | {each.model for each in found.not_run} == set(CANDIDATES)
    assert {each.model for each in found.not_run} <= {"mics", "dls"}
    assert all(each.unwanted == 0 for each in found.figures if each.model not in ("flooding", "mics", "dls"))
    for each in found.figures:
        assert each.unwanted == each.events - each.wanted or each.model != "flooding"


def test_a_new_neighbour_hears_the_same():
    row = BrokerRow(CoveringTable)
    for sub, text in enumerate(["x > 5", "x > 7", "y = 1"]):
        row.change(sub == 1, {SubId(sub): parse(text)}, [])
    before, counts = dict(row.table(EAST).heard(HERE)), (row.updates, row.sent, row.dropped)
    row.reconnect()
    assert dict(row.table(EAST).heard(HERE)) == before
    assert (row.updates, row.sent, row.dropped) == counts
    row.change(False, {}, [SubId(0)])
    assert row.arriving([{"x": 6}, {"x": 8}, {"y": 1}]).tolist() == [False, True, True]


# -- memory ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", CANDIDATES)
def test_the_footprint_is_about_what_is_allocated(model):
    workload = WORKLOADS["uniform"](80, 5)
    schema, wanted = Schema.infer(workload.table), parse_many(workload.texts())
    terms = TableTerms.of(schema, wanted, 16)

    def filled():
        table = CANDIDATES[model](terms)
        table.attach("north")
        table.attach("south")
        for sub, each in enumerate(wanted):
            table.change({SubId(sub): each}, ())
        return table

    filled()  # caches fill
    gc.collect()
    tracemalloc.start()
    try:
        table = filled()
        gc.collect()
        allocated = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.7 < footprint(table, [wanted, terms]) / allocated < 1.4


def test_what_is_shared_does_not_count():
    words = [f"word {n}" for n in range(100)]
    assert footprint({"words": words}) > 100 * 50
    assert footprint({"words": words}, shared=[words]) < 400
    boxed = np.array([["long text " * 50]], object)
    assert footprint(boxed) > 500
    view = np.zeros(1000)[::2]
    assert footprint(view) > 8000
    ring = [1]
    ring.append(ring)
    assert footprint(ring) < 200


# -- the advice --------------------------------------------------------------------------------------

PLAIN = ModelFigures("plain", 10, 100, 1000, 1, 1, 0, 1, 10**6, 10.0, 5.0, 10.0, 1.0, 1.0, 9.0, 100, 50, 0)


def model(name, **changes):
    return replace(PLAIN, model=name, **changes)


@st.composite
def some_figures(draw):
    few = st.sampled_from([1, 2, 5, 50])
    return [
        model(
            f"m{n}",
            forwarded_bytes=10 * draw(few), unwanted=draw(st.sampled_from([0, 0, 1, 9])), match_us=draw(few) / 2,
            insert_us=draw(few) * 1.0, remove_us=draw(few) * 1.0, memory=draw(few) * 1000,
        )
        for n in range(draw(st.integers(1, 5)))
    ]  # fmt: skip


def better_nowhere(one, other):
    """That `one` is better than `other` in nothing."""
    names = ("forwarded_bytes", "unwanted", "match_us", "change_us", "memory")
    return all(getattr(one, name) >= getattr(other, name) for name in names)


@given(some_figures())
@thorough(300)
def test_what_is_recommended_is_not_dominated_and_about_the_best_by_points(figures):
    found = recommend(figures)
    named = {each.model: each for each in figures}
    winner = named[found.model]
    assert found.model not in found.dominated
    for each in figures:
        if better_nowhere(winner, each) and not better_nowhere(each, winner):
            pytest.fail(f"{each.model} is better than {found.model}")
    assert found.points[found.model] <= min(found.points.values()) + 1.0
    for loser, by in found.dominated.items():
        assert better_nowhere(named[loser], named[by])
        assert not better_nowhere(named[by], named[loser])
    earlier = figures[: figures.index(winner)]
    best = min(found.points[each.model] for each in figures if each.model not in found.dominated)
    assert all(each.model in found.dominated or found.points[each.model] > best + 1.0 for each in earlier)
    assert (found.runner_up is None) == (len(figures) == 1)
    assert found.runner_up != found.model
    if found.when is not None:
        assert not better_nowhere(named[found.runner_up], winner)


def test_dominance_comes_before_simplicity():
    found = recommend([model("simple", match_us=1.01), model("better")])
    assert (found.model, found.dominated) == ("better", {"simple": "better"})
    assert found.when is None
    assert "not better in anything that counts" in found.reason


def test_of_even_models_the_simplest():
    found = recommend([model("simple", forwarded_bytes=105), model("other", memory=1_010_000)])
    assert found.model == "simple"  # half a point more, and even
    assert recommend([model("simple", forwarded_bytes=115), model("other", memory=1_010_000)]).model == "other"
    equal = recommend([model("one"), model("two")])
    assert (equal.model, equal.dominated) == ("one", {})
    assert "the next, two, is as good" in equal.reason


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [
        ({"forwarded_bytes": 120}, {"forwarded_bytes": 90, "unwanted": 8}, 0),  # 3 % less, 8 % in vain
        ({"forwarded_bytes": 900}, {"forwarded_bytes": 90, "unwanted": 8}, 1),  # 81 % less
        ({"match_us": 10.0}, {"match_us": 1.0, "forwarded_bytes": 180}, 1),  # ten times as fast, 8 % more
        ({"match_us": 10.0}, {"match_us": 1.0, "forwarded_bytes": 220}, 0),  # and 12 % more
        ({"insert_us": 190.0}, {"unwanted": 1}, 1),  # ten times slower to change, 1 % in vain
        ({"insert_us": 190.0}, {"unwanted": 3}, 0),
        ({"memory": 10**7}, {"forwarded_bytes": 130}, 1),
        ({"memory": 10**7}, {"forwarded_bytes": 160}, 0),
    ],
)
def test_what_weighs_how_much(first, second, winner):
    found = recommend([model("first", **first), model("second", **second)])
    assert found.model == ("first", "second")[winner]
    assert found.runner_up == ("second", "first")[winner]
    assert found.when is not None
    assert found.when.startswith(f"choose {found.runner_up} if ")


def test_the_reason_has_the_numbers_that_decide():
    found = recommend(
        [model("covering", forwarded=1, forwarded_bytes=120), model("mics", forwarded_bytes=90, unwanted=8)]
    )
    assert "covering: it forwards 1 item (12.0% of the bytes" in found.reason
    assert (
        "mics would forward fewer bytes (9.0% of all instead of 12.0%), but sends more unwanted events" in found.reason
    )
    assert "(8.0% instead of 0.0%)" in found.reason
    assert found.to_dict()["points"]["covering"] == 12.0
    alone = recommend([model("mics", unwanted=8)])
    assert alone.reason.endswith("sends 8.0% of all events needlessly; no other model was run")
    assert alone.when is None


FLOODING = {"forwarded": 0, "forwarded_bytes": 0, "match_us": 0.01, "insert_us": 0.1, "remove_us": 0.1, "memory": 900}


def test_what_filters_nothing_is_never_recommended_for_its_few_items():
    idle = model("mics", forwarded=1, forwarded_bytes=3, unwanted=50, memory=1000, match_us=0.1)
    found = recommend([model("flooding", unwanted=50, **FLOODING), model("covering", forwarded_bytes=900), idle])
    assert (found.model, found.filter_nothing) == ("covering", ("flooding", "mics"))
    assert found.to_dict()["filter_nothing"] == ["flooding", "mics"]
    assert "mics" not in found.points, "nobody is measured against it"
    assert "mics" not in found.reason
    nearly = model("mics", forwarded_bytes=3, unwanted=40, memory=1000, match_us=0.1)
    assert recommend([model("covering", forwarded_bytes=900), nearly]).filter_nothing == ()


def test_flooding_is_the_advice_where_nothing_is_filtered():
    idle = model("mics", forwarded_bytes=3, unwanted=50)
    found = recommend([model("flooding", unwanted=50, **FLOODING), idle])
    assert found.model == "flooding"
    assert "sends 50.0% of all events needlessly; no other model that was run filters" in found.reason
    assert recommend([idle]).model == "mics", "there is no other"
    wanted = {"wanted": 100}
    found = recommend([model("flooding", **FLOODING, **wanted), model("covering", **wanted)])
    assert found.model == "flooding"
    assert "nothing to filter" in found.reason


def test_weights_are_the_callers():
    figures = [model("slow", match_us=100.0), model("large", forwarded_bytes=900)]
    assert recommend(figures).model == "slow"
    assert recommend(figures, Weights(matching=100.0)).model == "large"


def test_nothing_to_recommend():
    with pytest.raises(WeftError, match="no model could run"):
        recommend([])
