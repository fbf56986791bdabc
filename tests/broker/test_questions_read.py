"""What is read of questions, answers, page tokens and relays: nonsense raises what it should, or is dropped. The work
of a page does not depend on how much there is in a broker.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.harness import Broker
from broker.network import Network
from broker.test_questions import ask, pages, replies
from measured_work import measured
from weft.broker.limits import ClientLimits, RefusalError
from weft.broker.questions.asking import RelayedAnswer
from weft.broker.questions.listings import Listings, ListProgress, ListStep
from weft.errors import RemoteProtocolError
from weft.protocol.codec import encode
from weft.protocol.link_messages import LinkRelay, RelayKind
from weft.protocol.messages import Answer, Failed, Question, SubNumber, Subscribe
from weft.protocol.questions import (
    AnyQuestion,
    AskOrder,
    AskRelated,
    AskSessions,
    AskSubscriptions,
    AskTrace,
    AskWhy,
    encode_body,
    read_answer,
    read_question,
)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8)
)
NAMES = st.sampled_from(
    [
        "ask",
        "answer",
        "session",
        "text",
        "filter",
        "filters",
        "link",
        "number",
        "node",
        "rows",
        "trace",
        "parts",
        "event",
    ]
)
KINDS = st.sampled_from(
    [
        "sessions",
        "subscriptions",
        "items",
        "order",
        "related",
        "search",
        "overlay",
        "summary",
        "trace",
        "why",
        "matches",
        "disconnect",
        "detach",
        "change",
        "done",
    ]
)
VALUES = st.recursive(
    SCALARS, lambda each: st.lists(each, max_size=4) | st.dictionaries(NAMES, each, max_size=4), max_leaves=12
)
MAPS = st.builds(
    lambda kind, field, rest: {**rest, field: kind},
    KINDS,
    st.sampled_from(["ask", "answer"]),
    st.dictionaries(NAMES, VALUES, max_size=5),
)
BODIES = st.binary(max_size=40) | MAPS.map(msgspec.msgpack.encode)


@settings(deadline=None)
@given(BODIES)
@example(b"\x81\xa3ask" * 20_000)
@example(b"\x91" * 5_000)
def test_a_body_is_a_question_or_answer_or_a_protocol_error(body: bytes) -> None:
    for read in (read_question, read_answer):
        with suppress(RemoteProtocolError):
            found = read(body)
            assert type(read(bytes(encode_body(found)))) is type(found)  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.binary(max_size=80) | VALUES.map(msgspec.msgpack.encode))
def test_a_page_token_is_known_or_refused(token: bytes) -> None:
    listings, question = Listings(1, most_work=1), AskSessions()
    steps = (ListStep(1, number) for number in range(3))
    first = listings.begin("", question, steps, ListProgress(), lambda rows, _: rows)  # type: ignore[arg-type, return-value]
    if token == first.token:
        assert listings.go_on("", question, token).token
        return
    with pytest.raises(RefusalError) as refused:
        listings.go_on("", question, token)
    assert refused.value.code == "page"


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(MAPS, st.sampled_from(["", "b", "z"]), st.binary(max_size=6)), min_size=1, max_size=4))
def test_a_broker_answers_every_question_once_or_refuses_it(said: list[tuple[Any, str, bytes]]) -> None:
    network = Network("a", "b").chain()
    node = network["a"]
    node.hello("q", "")
    for number, (body, broker, page) in enumerate(said):
        node.say("q", Question(number, msgspec.Raw(msgspec.msgpack.encode(body)), broker, page))
    network.wait(5 * ClientLimits().explain)
    answered = [each.request if isinstance(each, Answer) else each.number for each in replies(node)]
    assert sorted(answered) == [*range(len(said))]
    network.check()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["question", "answer"]), st.lists(SCALARS | BODIES, max_size=6)), max_size=6))
def test_a_broker_drops_what_it_cannot_read_of_another(relayed: list[tuple[str, list[Any]]]) -> None:
    network = Network("a", "b").chain()
    node = network["a"]
    ask(node, AskSessions(), "b")
    for tag, fields in relayed:
        for kind in (RelayKind.QUESTION, RelayKind.ANSWER):
            body = msgspec.msgpack.encode([tag, *fields])
            node.core._dispatch._relay(LinkRelay("a", "b", body, kind=kind), node.now)
    network.wait(2 * ClientLimits().explain)
    assert len(replies(node)) == 1
    node.core.check()


# -- work -----------------------------------------------------------------------------------------------------


def filled(sessions: int, subscriptions: int) -> Broker:
    node = Broker(checked=False, limits=ClientLimits(subscriptions=10_000, changes=1_000))
    node.hello("s", "alerts")
    texts = [f"x > {number} AND y = 'p{number % 40}'" for number in range(subscriptions)]
    for first in range(0, subscriptions, 500):
        some = enumerate(texts[first : first + 500], first)
        node.say("s", *(Subscribe(SubNumber(number), text) for number, text in some))
    for number in range(sessions):
        node.core._sessions.add(f"away {number}", "")
    node.hello("q", "")
    return node


QUESTIONS: list[AnyQuestion] = [
    AskSessions(),
    AskSessions("nobody has this name"),
    AskSubscriptions(),
    AskSubscriptions(text="no filter has this text"),
    AskRelated("x > 5"),
    AskRelated("y = 'p7'"),
    AskOrder(),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=repr)
def test_a_page_takes_the_same_work_however_much_there_is(question: AnyQuestion) -> None:
    longest = []
    for sessions, subscriptions in ((8_000, 700), (24_000, 1_500)):
        node = filled(sessions, subscriptions)
        body, token, lines = encode_body(question), b"", []
        for _ in range(12):
            found = measured(partial(node.say, "q", Question(1, body, "", token)))
            lines.append(found.lines)
            (answer,) = found.result
            assert isinstance(answer, Answer), answer
            token = answer.page
            if not token:
                break
        longest.append(max(lines))
    assert longest[1] < 1.2 * longest[0] + 500
    assert max(longest) < 120_000, "lines of Python, and calls"


def test_pages_together_have_everything() -> None:
    node = filled(1_000, 1_000)
    assert sum(len(page.rows) for page in pages(node, AskSessions())) == 1_002
    assert sum(len(page.rows) for page in pages(node, AskSubscriptions())) == 1_000
    related = pages(node, AskRelated("y = 'p7'"))
    assert sum(len(page.rows) for page in related) == 25
    assert [page.seen for page in related] == sorted(page.seen for page in related)
    assert related[-1].seen == related[-1].total == 1_000


def test_why_takes_a_bounded_amount_of_work() -> None:
    lines = []
    for sessions, subscriptions in ((1_000, 400), (4_000, 1_600)):
        node = filled(sessions, subscriptions)
        found = measured(partial(node.say, "q", Question(1, encode_body(AskWhy("alerts")))))
        assert not isinstance(found.result[0], Failed)
        lines.append(found.lines)
    assert lines[1] < 1.2 * lines[0] + 500


# -- frames ---------------------------------------------------------------------------------------------------


def test_long_texts_make_shorter_pages_and_every_answer_fits_a_frame() -> None:
    node = Broker(checked=False, limits=ClientLimits(subscriptions=10_000, changes=1_000))
    node.hello("s", "é" * 250)
    long = "ß" * 2_500
    node.say("s", *(Subscribe(SubNumber(number), f"x = {number} OR y = '{long}'") for number in range(150)))
    wide = " OR ".join(f"ü{number} = '{'ß' * 20}'" for number in range(100))
    node.say("s", Subscribe(SubNumber(200), wide))
    node.hello("q", "")
    for question in (AskSubscriptions(), AskRelated("x > 5"), AskOrder(), AskWhy("é" * 250)):
        token = b""
        while True:
            (answer,) = node.say("q", Question(1, encode_body(question), "", token))
            assert isinstance(answer, Answer)
            assert len(encode([answer])) < 600_000
            token = answer.page
            if not token:
                break
    event = msgspec.Raw(msgspec.msgpack.encode({f"ü{number}": "ß" * 200 for number in range(100)}))
    (traced,) = node.say("q", Question(1, encode_body(AskTrace("é" * 250, event, SubNumber(200)))))
    assert isinstance(traced, Answer)
    assert len(encode([traced])) < 600_000


@pytest.mark.parametrize(
    "message",
    [
        Question(1, encode_body(AskSessions()), "n" * 900_000),
        Question(1, encode_body(AskSessions()), "b", bytes(900_000)),
        Question(1, encode_body(AskSessions()), "b", bytes(65)),
    ],
)
def test_what_would_not_fit_the_frame_of_a_link_is_refused(message: Question) -> None:
    network = Network("a", "b").chain()
    network["a"].hello("q", "")
    (refused,) = network["a"].say("q", message)
    network.settle()
    assert isinstance(refused, Failed)
    assert refused.code == ("page" if message.page else "question")


def test_an_answer_of_another_broker_that_grows_is_refused_not_sent() -> None:
    network = Network("a", "b").chain()
    node = network["a"]
    ask(node, AskSubscriptions(), "b")
    row = {"session": "", "number": 1, "filter": ""}
    body = msgspec.msgpack.encode({"answer": "subscriptions", "rows": [row] * 25_000})
    relayed = msgspec.msgpack.encode(RelayedAnswer(1, body))
    assert len(relayed) < 1_000_000
    node.core._dispatch._relay(LinkRelay("a", "b", relayed, kind=RelayKind.ANSWER), node.now)
    network.settle()  # the true answer comes too late
    (refused,) = replies(node)
    assert isinstance(refused, Failed)
    assert (refused.code, refused.reason) == ("size", "the answer does not fit a frame; ask for less")
