"""Networks of brokers under faults, with every option of a model: every promise is kept."""

from __future__ import annotations

import pytest

from weft.models.candidates import options_of
from weft.routing.options import OPTIONS
from weftlab.faults.campaign import Setting, run_seeds

MODELS = [
    "simple:local=forest",
    "covering:local=merged",
    "covering:structure=poset",
    "covering:tests=1",
    "merging:scope=local",
    "merging:scope=aggregate",
    "merging:lazy=true",
    "merging:added_volume=0.3:saturation=3",
    "merging:local=merged:structure=poset",
    "negative:k=1:zeta=true:selection=cost",
    "negative:boxes=4:rebuild=false",
    "negative:local=forest",
    "mics:gap=2:cells=4",
    "mics:attributes=x:cap=2",
    "mics:dimensions=1",
    "mics-exact:attributes=x",
    "dls:cells=4:bundle=2",
    "dls:counters=8:hashes=2:growth=0.3",
    "dls:cuts=x 2 4",
    "dls:local=forest",
]


def test_every_option_is_among_them() -> None:
    assert {option for model in MODELS for option in options_of(model).chosen} == {*OPTIONS}


@pytest.mark.parametrize("model", MODELS)
def test_every_promise_is_kept_with_an_option(model: str) -> None:
    found = run_seeds([len(model)], Setting(30, True, 3, model))
    assert found.seeds == 1
    assert not found.failures


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_every_promise_is_kept_with_an_option_and_two_hundred_seeds(model: str) -> None:
    assert not run_seeds(range(1, 201), Setting(30, True, 3, model)).failures
