"""The same scripts on real brokers with real clients: they deliver what light brokers deliver, at a like cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft.errors import ProtocolError
from weft.protocol.messages import Deliver
from weft.recording import Recording
from weftlab.mobility.campaign import NetworkSettings, prepared
from weftlab.mobility.cores import CoreWorld
from weftlab.mobility.protocols import RUNNERS, MobilityOutcome, outcome_of, run_world
from weftlab.mobility.recorded import record_run, state_of
from weftlab.mobility.script import MobilityArea, Movers, ScriptSettings, busy
from weftlab.mobility.world import Phase

SMALL = NetworkSettings(areas=2, routers=4)


def both(settings: ScriptSettings, seed: int, name: str = "weft") -> tuple[MobilityOutcome, MobilityOutcome]:
    scene = prepared(SMALL, settings, seed)
    real, light = (RUNNERS[each](*scene, None) for each in (f"{name}-cores", name))
    return real, light


@pytest.mark.parametrize("name", ["weft", "weft-make"])
@pytest.mark.parametrize("movers", Movers)
@pytest.mark.parametrize("alike", [True, False])
def test_real_brokers_agree_with_light_ones_on_what_is_delivered(name: str, movers: Movers, alike: bool) -> None:
    real, light = both(busy(moves=15, movers=movers, alike=alike), 7, name)
    assert real.delivered == light.delivered
    assert (real.lost, real.unfinished, real.duplicates, real.disordered, real.unsafe_notices) == (0, 0, 0, 0, 0)
    assert real.moves == light.moves == 15
    assert real.due == light.due > 50


def test_the_thesis_settings_play_on_real_brokers() -> None:
    settings = ScriptSettings(subscribers=8, moves=5, area=MobilityArea.BORDER, events=2)
    real, light = both(settings, 3)
    assert real.delivered == light.delivered
    assert real.updated == light.updated


def test_a_client_that_keeps_its_connection_is_interrupted_for_a_shorter_time() -> None:
    scene = prepared(SMALL, busy(moves=15), 7)
    broken, made = (RUNNERS[name](*scene, None).mean("pauses") for name in ("weft-cores", "weft-make-cores"))
    assert 0 < made < broken / 2


def test_every_update_has_the_hand_over_that_caused_it() -> None:
    for movers in Movers:
        _, world = run_world("weft-cores", *prepared(SMALL, busy(moves=12, movers=movers, churn=0), 2))
        assert isinstance(world, CoreWorld)
        assert world.other_updates == 0
        assert all(each.hops[Phase.SYNCHRONISE, "state"] > 0 for each in world.handovers)
        ways = [len(world.tree.path(each.source, each.target)) - 1 for each in world.handovers]
        assert [each.hops[Phase.SYNCHRONISE, "flush"] for each in world.handovers] == ways


def test_the_same_script_gives_the_same_result_byte_for_byte() -> None:
    scene = prepared(SMALL, busy(moves=10, movers=Movers.BOTH), 4)
    one, other = (json.dumps(RUNNERS["weft-cores"](*scene, None).to_dict(), sort_keys=True) for _ in range(2))
    assert one == other


def test_a_run_on_real_brokers_is_recorded(tmp_path: Path) -> None:
    scene = prepared(SMALL, busy(moves=6), 1)
    assert record_run("weft-cores", *scene, tmp_path / "run.weftrun").failures == []
    recording = Recording(tmp_path / "run.weftrun")
    assert {"leave", "arrive", "finish"} <= {step.phase for step in recording.steps()}
    _, world = run_world("weft-cores", *scene)
    assert recording.state(recording.size) == state_of(world)


def test_a_broker_that_forgets_events_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client is not shown is a loss in the trace, whatever the brokers say."""
    from weftlab.mobility.cores import CoreClient

    shown = CoreClient._arrived

    def forgetful(self: CoreClient, messages: list[Deliver]) -> None:
        if len(messages) > 1:
            shown(self, messages[1:])

    monkeypatch.setattr(CoreClient, "_arrived", forgetful)
    tree, script = prepared(SMALL, busy(moves=6), 1)
    world = CoreWorld(tree, script)
    world.run()
    assert outcome_of("weft-cores", world.trace, world.handovers).lost > 0


def test_a_session_that_a_broker_refuses_ends_the_run() -> None:
    tree, script = prepared(SMALL, busy(moves=2), 1)
    world = CoreWorld(tree, script)
    world.warm_up()
    name = next(step.client for step in script.steps if step.client in world.clients)
    client = world.clients[name]
    client.line.session.adverts.clear()
    with pytest.raises(ProtocolError, match="does not go on"):
        client.line.perform(client.line.session.fail(ValueError("planted")))
