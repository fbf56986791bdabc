"""Preloaded queries cost no comparison, and a wrong guess its look-up only (thesis, chapter 7)."""

from __future__ import annotations

from broker.profile_network import SECOND, ProfileNetwork
from weft.protocol.messages import PublishProfile, Question, Subscribe, SubscribeProfiles
from weft.protocol.questions import PreloadQueries, encode_body


def test_a_preloaded_query_costs_no_comparison_and_a_wrong_guess_its_look_up_only():
    network = ProfileNetwork("west")
    network.greet("west", "station", "driver")
    for low in range(20):
        region = f"x BETWEEN {low} AND {low + 3} OR name LIKE '%{low}%'"
        network.do("west", "station", PublishProfile(1, str(low), region, 60 * SECOND))
    right, wrong = "x > 7 AND name LIKE '%1%'", "x > 8 AND name LIKE '%2%'"
    network.do("west", "driver", Question(1, encode_body(PreloadQueries((right,), "overlap"))))
    notices = network["west"].core._notices
    before = notices.comparisons
    network.do("west", "driver", SubscribeProfiles(Subscribe(1, right), "overlap"))
    assert notices.comparisons == before
    network.do("west", "driver", SubscribeProfiles(Subscribe(2, wrong), "overlap"))
    assert notices.comparisons > before
    assert network.shown("west", "driver")[1]
