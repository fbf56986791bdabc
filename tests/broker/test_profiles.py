"""Profiles that last: who is shown which, exactly once, through brokers, restarts and full logs."""

from __future__ import annotations

import msgspec
import pytest

from broker.profile_network import SECOND, ProfileNetwork
from weft.broker.profiles.profile_item import LivingProfile, check_region, profile_item, read_profile
from weft.errors import FilterError, RemoteProtocolError
from weft.language.text import parse
from weft.protocol.codec import encode
from weft.protocol.explanation import explanation_of
from weft.protocol.link_messages import LinkEvents, LinkFeatures, LinkNumbered, LinkProgress
from weft.protocol.messages import (
    Accepted,
    Answer,
    Complete,
    Deliver,
    Explain,
    Explained,
    Failed,
    Goodbye,
    Hello,
    ProfilePublished,
    Publish,
    PublishProfile,
    Question,
    Replace,
    Subscribe,
    SubscribeProfiles,
    Unsubscribe,
    WithdrawProfile,
)
from weft.protocol.questions import AskWhy, WhyReport, encode_body, read_answer
from weft.routing.table import About, Link

QUERIES = {1: (0, 10), 2: (12, 20), 3: (2, 10), 4: (15, 22), 5: (12, 14)}  # Figure 6.4
PROFILES = {"P1": (1, 5), "P2": (5, 10), "P3": (5, 25), "P4": (17, 20), "P5": (7, 9)}
COVERED = {1: {"P1", "P2", "P5"}, 2: {"P4"}, 3: {"P2", "P5"}, 4: {"P4"}}
OVERLAPPED = {
    1: {"P1", "P2", "P3", "P5"},
    2: {"P3", "P4"},
    3: {"P1", "P2", "P3", "P5"},
    4: {"P3", "P4"},
    5: {"P3"},
}


def region(low: int, high: int) -> str:
    return f"x BETWEEN {low} AND {high}"


def query(number: int, text: str, meeting: str = "covering", queue: int = 0) -> SubscribeProfiles:
    return SubscribeProfiles(Subscribe(number, text, queue), meeting)


def publish(name: str, text: str, seconds: int = 60, payload: bytes = b"", number: int = 1) -> PublishProfile:
    return PublishProfile(number, name, text, seconds * SECOND, payload)


@pytest.fixture
def pair() -> ProfileNetwork:
    """A publisher at west, a subscriber at east."""
    network = ProfileNetwork("west", "east").chain()
    network.greet("west", "station")
    network.greet("east", "driver")
    return network


@pytest.mark.parametrize("first", ["queries", "profiles"])
@pytest.mark.parametrize(("meeting", "wanted"), [("covering", COVERED), ("overlap", OVERLAPPED)])
def test_figure_6_4_through_two_brokers(pair, meeting, wanted, first):
    def ask() -> None:
        pair.do("east", "driver", *(query(number, region(*each), meeting) for number, each in QUERIES.items()))

    if first == "queries":
        ask()
    pair.do("west", "station", *(publish(name, region(*each)) for name, each in PROFILES.items()))
    if first == "profiles":
        ask()
    assert pair.shown("east", "driver") == wanted


def test_without_queries_no_profile_is_sent(pair):
    pair.do("west", "station", publish("7", region(1, 5)))
    told = [each for _, each in pair["west"].sent if isinstance(each, LinkNumbered)]
    assert not any(getattr(each.frame, "ids", ()) for each in told)
    assert pair.do("east", "driver", query(1, region(0, 9)))[0] == Accepted("subscribe", 1, 1)
    assert pair.shown("east", "driver") == {1: {"7"}}


def test_a_query_is_complete_when_every_profile_that_it_meets_has_arrived(pair):
    pair.do("west", "station", publish("7", region(1, 5)))
    said = pair.do("east", "driver", query(1, region(0, 9)))
    assert [type(each) for each in said] == [Accepted, Deliver, Complete] or Complete(1) in said
    assert Complete(1) in said


def test_ordinary_events_come_as_before(pair):
    pair.do("east", "driver", query(1, "x > 5"))
    pair.do("west", "station", Publish.of(1, {"x": 6}, b"six"), Publish.of(2, {"x": 5}))
    assert pair["east"].got("driver") == [b"six"]


def test_a_change_has_a_higher_version_and_is_shown_once(pair):
    pair.do("east", "driver", query(1, "x >= 0"))
    (one,) = pair.do("west", "station", publish("7", region(1, 5), payload=b"a"))
    (other,) = pair.do("west", "station", publish("7", region(1, 6), payload=b"b"))
    assert isinstance(one, ProfilePublished)
    assert other.version > one.version
    assert [(each.change, each.version) for each in pair.notices("east", "driver")] == [
        ("appeared", one.version),
        ("changed", other.version),
    ]
    assert pair["east"].got("driver") == [b"a", b"b"]


def test_a_request_that_is_repeated_changes_nothing(pair):
    pair.do("east", "driver", query(1, "x >= 0"))
    for _ in range(2):
        (said,) = pair.do("west", "station", PublishProfile(1, "7", region(1, 5), SECOND, b"", token=99))
        assert isinstance(said, ProfilePublished)
    assert [each.change for each in pair.notices("east", "driver")] == ["appeared"]


def test_a_driver_who_enters_the_area_is_shown_the_difference(pair):
    for name, low in (("coast", 0), ("ridge", 10), ("valley", 20)):
        pair.do("west", "station", publish(name, region(low, low + 5)))
    pair.do("east", "driver", query(1, region(0, 12), "overlap"))
    pair.do("east", "driver", Replace(1, region(12, 30)))
    assert [(each.change, each.name, each.reason) for each in pair.notices("east", "driver")] == [
        ("appeared", "coast", ""),
        ("appeared", "ridge", ""),
        ("ended", "coast", "left"),
        ("appeared", "valley", ""),
    ]


def test_a_profile_ends_by_the_clock_without_any_message(pair):
    pair.do("east", "driver", query(1, "x >= 0"))
    pair.do("west", "station", publish("7", region(1, 5), seconds=60))
    pair.cut("west", "east")
    pair.wait(59 * SECOND)
    assert pair.shown("east", "driver") == {1: {"7"}}
    pair.wait(SECOND)
    assert pair.notices("east", "driver")[-1][1:3] == ("ended", "7")
    assert pair.notices("east", "driver")[-1].reason == "expired"


def test_its_time_counts_from_its_publication_not_from_its_arrival(pair):
    pair.do("east", "driver", query(1, "x >= 0"))
    pair.cut("west", "east")
    pair.do("west", "station", publish("7", region(1, 5), seconds=60))
    pair.wait(50 * SECOND)
    pair.dial("west", "east")
    pair.settle()
    assert pair.shown("east", "driver") == {1: {"7"}}
    pair.wait(10 * SECOND)
    assert pair.shown("east", "driver") == {1: set()}


def test_a_withdrawal_ends_it_everywhere_and_the_tables_forget_it(pair):
    pair.do("east", "driver", query(1, "x >= 0"))
    pair.do("west", "station", publish("7", region(1, 5)))
    assert pair.do("west", "station", WithdrawProfile(9, "7")) == [Accepted("withdraw profile", 9, 1)]
    assert pair.notices("east", "driver")[-1][1:5:3] == ("ended", "withdrawn")
    pair.do("east", "driver", Unsubscribe(1))
    for broker in pair.brokers.values():
        for neighbour in broker.core._neighbours.values():
            table = neighbour.exchanges[1].table
            assert not any(table.heard(neighbour.peer, about) or table.told(neighbour.peer, about) for about in About)


def test_what_was_withdrawn_stays_withdrawn_across_a_restart(pair):
    pair.do("east", "driver", query(1, "x >= 0"))
    pair.do("west", "station", publish("7", region(1, 5)), publish("8", region(1, 5)), WithdrawProfile(9, "7"))
    pair.crash("west")
    pair.dial("west", "east")
    pair.settle()
    assert pair.shown("east", "driver") == {1: {"8"}}
    pair.greet("west", "station")
    assert isinstance(pair.do("west", "station", WithdrawProfile(9, "7"))[0], Failed)
    assert isinstance(pair.do("west", "station", WithdrawProfile(9, "8"))[0], Accepted)
    assert pair.shown("east", "driver") == {1: set()}


def test_notices_are_durable_and_are_not_written_twice(pair):
    pair.do("east", "driver", query(1, "x >= 0"))
    pair["east"].cut("driver")
    pair.do("west", "station", publish("7", region(1, 5)))
    pair.crash("east")
    pair.dial("west", "east")
    pair.settle()
    end = pair["east"].core.end
    pair.greet("east", "driver")
    pair.settle()
    assert pair.shown("east", "driver") == {1: {"7"}}
    assert pair["east"].core.end == end == 2


def test_a_broker_between_that_forgets_what_it_has_passed_on_ends_nothing():
    network = ProfileNetwork("west", "middle", "east", at_once=False).chain()
    network.greet("west", "station")
    network.greet("east", "driver")
    network.do("east", "driver", query(1, "x >= 0"))
    network["west"].say("station", publish("7", region(1, 5)))
    network.settle(but="middle")  # it has passed the profile on, and has not stored it
    assert network.shown("east", "driver") == {1: {"7"}}
    network.crash("middle")
    network.dial("middle", "east")
    network.settle()
    assert network.shown("east", "driver") == {1: {"7"}}
    network.dial("west", "middle")
    network.settle()
    assert [each.change for each in network.notices("east", "driver")] == ["appeared"]


def test_a_full_log_delays_notices_and_loses_none():
    network = ProfileNetwork("west", "east", at_once=False).chain()
    network.greet("west", "station")
    network.greet("east", "driver")
    network.settle()
    network.do("east", "driver", query(1, "x >= 0"))
    network["west"].say("station", publish("7", region(1, 5)))
    network.settle(but="east")
    for _ in range(3):
        network["east"].log.fail_commits()
        network.settle()
    network.wait(5 * SECOND)
    assert network.shown("east", "driver") == {1: {"7"}}


def test_an_end_that_could_not_be_stored_is_not_forgotten_with_the_profile(pair):
    """The log refuses the end of a profile, not the cleaning up behind it, and the broker crashes."""
    east = pair["east"]
    pair.do("east", "driver", query(1, "x >= 0"))
    pair.do("west", "station", publish("7", region(1, 5), seconds=3))
    pair.wait(2 * SECOND)
    east.at_once = False
    for broker in ("east", "west"):
        pair[broker].wait(SECOND)  # the end
    pair.settle(but="east")  # west drops the profile: what was shown of it needs not be remembered
    assert len(east.core._journal.groups) > 1
    east.reject()
    east.commit(9)
    east.at_once = True
    pair.crash("east")
    pair.dial("west", "east")
    pair.settle()
    pair.greet("east", "driver")
    pair.settle()
    assert pair.shown("east", "driver") == {1: set()}


def test_who_replaced_the_filter_while_the_profile_was_not_known_has_left_it(pair):
    pair.do("east", "driver", query(1, region(0, 9)))
    pair.do("west", "station", publish("7", region(1, 5)))
    pair.crash("east")  # what neighbours have sent is unconfirmed until they say it again
    pair.greet("east", "driver")
    pair.do("east", "driver", Replace(1, region(20, 30)))
    pair.crash("east")
    pair.greet("east", "driver")
    pair.dial("west", "east")
    pair.settle()
    assert pair.notices("east", "driver")[-1][1:5:3] == ("ended", "left")


def test_who_replaced_the_filter_and_still_meets_it_has_not_left_it(pair):
    pair.do("east", "driver", query(1, region(0, 9)))
    pair.do("west", "station", publish("7", region(1, 5)))
    pair.do("east", "driver", Replace(1, region(0, 8)))
    pair.crash("east")
    pair.greet("east", "driver")
    pair.do("west", "station", WithdrawProfile(9, "7"))
    pair.dial("west", "east")
    pair.settle()
    assert [(each.change, each.reason) for each in pair.notices("east", "driver")][-1] == ("ended", "withdrawn")


@pytest.mark.parametrize("others", [(), (query(2, "x >= 50"),)], ids=["alone", "another query meets the new version"])
def test_a_version_elsewhere_ends_it_as_withdrawn_whatever_others_ask_for(pair, others):
    pair.do("east", "driver", query(1, region(0, 9)), *others)
    pair.do("west", "station", publish("7", region(1, 5)))
    pair.do("west", "station", publish("7", region(60, 65)))
    ended = [each for each in pair.notices("east", "driver") if each.number == 1][-1]
    assert (ended.change, ended.reason) == ("ended", "withdrawn")


def test_a_profile_that_cannot_be_stored_is_never_shown(pair):
    pair.do("east", "driver", query(1, "x >= 0"))
    pair["west"].at_once = False
    pair["west"].say("station", publish("7", region(1, 5)))
    pair["west"].reject()
    pair["west"].at_once = True
    pair.settle()
    assert pair["west"].messages("station")[-1] == Failed("publish profile", 1, "full", "the log is full")
    assert pair.notices("east", "driver") == []


def test_profiles_end_with_their_session(pair):
    pair.do("east", "driver", query(1, "x >= 0"))
    pair.do("west", "station", publish("7", region(1, 5)), publish("8", region(1, 5)))
    assert pair.shown("east", "driver") == {1: {"7", "8"}}
    pair.do("west", "station", Goodbye(forget=True))
    assert pair.shown("east", "driver") == {1: set()}


def test_two_subscriptions_of_one_queue_are_shown_each_its_own(pair):
    pair.do("east", "driver", query(1, region(0, 9)), query(2, region(0, 4)))
    pair.do("west", "station", publish("7", region(1, 3)), publish("8", region(1, 8)))
    assert pair.shown("east", "driver") == {1: {"7", "8"}, 2: {"7"}}
    pair.do("east", "driver", Unsubscribe(1))
    pair.do("west", "station", WithdrawProfile(9, "7"))
    assert pair.shown("east", "driver")[2] == set()


@pytest.mark.parametrize(
    ("message", "code", "part"),
    [
        (publish("", "x > 1"), "profile", "the id of a profile"),
        (publish("7", "x > 1 AND x < 1"), "filter", "empty"),
        (publish("7", "weft.profile = 'a'"), "filter", "reserved"),
        (publish("7", "x >"), "filter", ""),
        (PublishProfile(1, "7", "x > 1", 0), "profile", "more than 0 seconds"),
        (publish("7", "x > 1", payload=bytes(1 << 16)), "filter", ""),
        (query(1, "x > 1", queue=0).__class__(Subscribe(1, "x > 1", share="all"), "overlap"), "share", "shared queue"),
        (SubscribeProfiles(Subscribe(1, "x > 1", durable=False), "overlap"), "durable", "durable queue"),
    ],
    ids=lambda each: type(each).__name__ if not isinstance(each, str) else each,
)
def test_what_cannot_be_granted_is_refused_with_a_sentence(pair, message, code, part):
    (failed,) = pair.do("east", "driver", message)
    assert isinstance(failed, Failed)
    assert failed.code == code
    assert part in failed.reason


def test_a_session_without_a_name_has_no_profiles(pair):
    pair["east"].hello("nobody", "", versions=(2, 5))
    for message in (publish("7", "x > 1"), query(1, "x > 1")):
        (failed,) = pair.do("east", "nobody", message)
        assert (failed.code, "give the session a name" in failed.reason) == ("durable", True)


def test_a_broker_that_may_not_have_profiles_says_why():
    network = ProfileNetwork("west", no_profiles="a ring has no profiles; use a network of links")
    network.greet("west", "station")
    for message in (publish("7", "x > 1"), query(1, "x > 1")):
        (failed,) = network.do("west", "station", message)
        assert (failed.code, failed.reason) == ("profiles", "a ring has no profiles; use a network of links")


# -- neighbours of older versions -----------------------------------------------------------------------


def test_an_older_neighbour_is_told_apart_and_profiles_are_refused_with_a_sentence(pair, monkeypatch):
    def refuse(connection: object, neighbour: object, features: object) -> None:
        raise RemoteProtocolError(f"east runs an older version of Weft without {features}; update it")

    west = pair["west"].core._links
    monkeypatch.setattr(pair["east"].core._links, "_needs", refuse)
    pair.do("west", "station", publish("7", "x > 1"))
    assert west.without_profiles == "east runs an older version of Weft without profiles; update it"
    assert pair["west"].link("east").reason == west.without_profiles
    pair.dial("west", "east")  # the link works without
    pair.settle()
    assert pair["west"].link("east").connected
    (failed,) = pair.do("west", "station", publish("7", "x > 1"))
    assert (failed.code, failed.reason) == ("profiles", west.without_profiles)


def test_nothing_is_said_of_profiles_before_there_are_any(pair):
    pair.do("east", "driver", Subscribe(1, "x > 5"))
    pair.do("west", "station", Publish.of(1, {"x": 6}))
    pair.wait(120 * SECOND)
    sent = [each for broker in pair.brokers.values() for _, each in broker.sent]
    assert not any(isinstance(each, LinkNumbered | LinkFeatures) for each in sent)


@pytest.mark.parametrize("number", [0, 2])
def test_a_frame_of_a_table_that_is_not_there_ends_the_session(pair, number):
    link = next(each.connection for each in pair.wires if each.broker == "west")
    pair["west"].read(link, encode([LinkNumbered(number, LinkProgress())]))
    pair.settle()
    assert not pair["west"].link("east").connected
    assert f"table {number}" in pair["west"].link("east").reason


def test_events_come_on_lane_0_only(pair):
    link = next(each.connection for each in pair.wires if each.broker == "west")
    pair["west"].read(link, encode([LinkNumbered(3, LinkEvents(()))]))
    assert "lane 3" in pair["west"].link("east").reason


# -- items ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["x > 5", "x > 5 AND y < 3", "x > 5 OR y < 3", "TRUE", "name LIKE '%''s'"])
def test_a_profile_is_read_back_from_its_item(text):
    made = LivingProfile("Zoë's", "7", 3, 9, b"\0\xff", parse(text))
    found = read_profile(parse(str(profile_item(made))))
    assert (found.identity, found.version, found.expires, found.payload) == (made.identity, 3, 9, b"\0\xff")
    assert str(found.region) == str(made.region)


@pytest.mark.parametrize("text", ["x > 5", "weft.profile = 'a'", "x > 5 AND weft.profile = '[1]'"])
def test_what_is_no_profile_breaks_the_protocol(text):
    with pytest.raises(RemoteProtocolError):
        read_profile(parse(text))


def test_reserved_names_are_refused():
    with pytest.raises(FilterError, match="reserved"):
        check_region(parse("x > 1 OR weft.profile.id = '7'"))


def test_a_hello_of_the_last_version_is_still_welcome(pair):
    assert pair["west"].hello("older", versions=(2, 4))
    assert isinstance(Hello(), Hello)
    assert pair["west"].core.is_attached(Link("east"))


def test_a_version_never_goes_back_even_if_an_older_one_is_dropped_last():
    network = ProfileNetwork("west")
    network.greet("west", "driver")
    network.do("west", "driver", query(1, "x >= 0"))
    core = network["west"].core
    old, new = (LivingProfile("station", "7", version, 1 << 60, b"", parse("x > 5")) for version in (1, 2))

    def heard(gone, came, now):
        core._begin(now)
        core._notices._change(Link("east"), gone, came)
        return core._finish(now)

    for gone, came in (((), (old,)), ((), (new,)), ((new,), ()), ((old,), ())):
        network["west"].call(heard, gone, came)
    assert [(each.change, each.version) for each in network.notices("west", "driver")] == [
        ("appeared", 1),
        ("changed", 2),
        ("ended", 2),
    ]
    assert not network["west"].log.restore().shown


# -- questions ------------------------------------------------------------------------------------------


def explained(pair: ProfileNetwork, **attributes: object) -> list[str]:
    pair["west"].say("station", Explain(1, msgspec.Raw(msgspec.msgpack.encode(attributes))))
    pair.wait(SECOND)
    (found,) = [each for each in pair["west"].messages("station") if isinstance(each, Explained)]
    return [line.strip() for line in explanation_of(found.body).lines()]


def test_explain_names_the_profiles_that_an_event_lies_in_and_who_is_shown_profiles(pair):
    pair.do("west", "station", publish("7", region(1, 5)), publish("8", region(5, 9)))
    pair.do("east", "driver", query(1, "x >= 0", "overlap"))
    lines = explained(pair, x=2)
    assert lines.count("*  lies in the profiles station/7") == 2
    assert "*  subscription 1 of driver: x >= 0 (is shown profiles by overlap, too)" in lines


def test_explanations_without_profiles_have_the_bytes_that_they_had(pair):
    pair.do("east", "driver", Subscribe(1, "x >= 0"))
    explained(pair, x=2)
    (found,) = [each for each in pair["west"].messages("station") if isinstance(each, Explained)]
    assert b"profiles" not in bytes(found.body)


def causes(pair: ProfileNetwork) -> dict[str, str]:
    said = pair.do("east", "driver", Question(7, encode_body(AskWhy("driver", 1))))
    pair.wait(10 * SECOND)
    said = [each for each in pair["east"].messages("driver") if isinstance(each, Answer)]
    report = read_answer(said[-1].body)
    assert isinstance(report, WhyReport)
    return {each.cause: each.evidence for each in report.findings}


def test_why_says_that_no_profile_meets_a_subscription_and_what_would(pair):
    pair.do("west", "station", publish("7", region(1, 50)))
    pair.do("east", "driver", query(1, region(0, 9)), query(2, "x >= 0", "overlap"))
    found = causes(pair)
    assert found["no-profile"].startswith("1 living profiles are known here, and 1 of them overlap")
    pair.do("east", "driver", Replace(1, region(0, 60)))
    found = causes(pair)
    assert "no-profile" not in found
    assert "unmatched" not in found
