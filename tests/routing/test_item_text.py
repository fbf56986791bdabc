"""Items as text: subscriptions are cells in some models, advertisements are filters in all."""

from __future__ import annotations

import pytest

from weft import parse
from weft.model.schema import Schema
from weft.routing.item_text import item_text
from weft.routing.registry import MODELS, make_table
from weft.routing.table import About, Link, Role

SCHEMA = Schema.from_dict({"attributes": {"x": {"type": "int", "bounds": [0, 7]}}})


@pytest.mark.parametrize("model", [name for name in MODELS if name != "flooding"])
def test_an_advertisement_is_shown_as_its_filter(model: str) -> None:
    table = make_table(model, SCHEMA, advertised=True)
    table.attach(Link("north"), Role.PEER)
    (tell,) = table.advertise("client", {1: parse("x > 5")}, ())
    (item,) = tell.update.add.values()
    assert item_text(item, table.codec, 100, About.ADVERTISEMENTS) == "x > 5"
