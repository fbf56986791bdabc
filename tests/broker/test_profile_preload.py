"""Preloaded queries cost no comparison, and a wrong guess only those for its place (thesis, chapter 7)."""

from __future__ import annotations

from broker.profile_network import SECOND, ProfileNetwork
from weft.protocol.messages import PublishProfile, Question, Subscribe, SubscribeProfiles
from weft.protocol.questions import PreloadQueries, encode_body

RIGHT, WRONG, OTHER = (f"x > {low} AND name LIKE '%{piece}%'" for low, piece in ((7, 1), (8, 2), (9, 3)))


def comparisons_of(wanted: str, *preloaded: str) -> tuple[int, set[str]]:
    """What a query costs, of whose region and others some were preloaded, and what it is shown."""
    network = ProfileNetwork("west")
    network.greet("west", "station", "driver")
    for low in range(20):
        region = f"x BETWEEN {low} AND {low + 3} OR name LIKE '%{low}%'"
        network.do("west", "station", PublishProfile(1, str(low), region, 60 * SECOND))
    if preloaded:
        network.do("west", "driver", Question(1, encode_body(PreloadQueries(preloaded, "overlap"))))
    network.do("west", "driver", SubscribeProfiles(Subscribe(9, "y = 1"), "overlap"))
    before = network["west"].core._notices.comparisons
    network.do("west", "driver", SubscribeProfiles(Subscribe(1, wanted), "overlap"))
    return network["west"].core._notices.comparisons - before, network.shown("west", "driver")[1]


def test_a_preloaded_query_costs_no_comparison_and_a_wrong_guess_only_those_for_its_place():
    plain, shown = comparisons_of(RIGHT)
    assert plain > 20, "each profile, and the other query"
    assert comparisons_of(RIGHT, RIGHT, OTHER) == (0, shown)
    unexpected, others = comparisons_of(WRONG)
    cost, found = comparisons_of(WRONG, RIGHT, OTHER)
    assert cost - unexpected <= 2 * 4, "each guess is compared with the query, and with no profile again"
    assert found == others
