"""The demo's chapter with a live broker: everything that matches arrives, although the broker is killed."""

from __future__ import annotations

import io
import json

from rich.console import Console

from weft import matches, parse
from weftlab.demo import earthquakes
from weftlab.demo.live import WATCHERS, replayed, through_a_broker


def test_every_subscriber_gets_what_its_filter_means() -> None:
    console = Console(file=io.StringIO(), width=80)
    facts = json.loads(json.dumps(through_a_broker(console, earthquakes.events())))
    everything = replayed(earthquakes.events())
    assert facts["events"] == len(everything) > 1_700
    assert facts["lost"] == facts["wrong"] == 0
    for name, text in WATCHERS.items():
        wanted = sum(matches(parse(text), event) for event in everything)
        assert facts["watchers"][name]["received"] == facts["watchers"][name]["wanted"] == wanted > 0
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert "0 lost" in shown
