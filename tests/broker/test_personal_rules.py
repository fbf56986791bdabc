"""`{me}` in access rules: each principal gets the rule for its own name, whatever characters that has."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.harness import Broker
from broker.test_questions import named
from weft.broker.personal_rules import personal_texts
from weft.broker.rules import Rights, Rules
from weft.errors import AccessError
from weft.language.ast import attributes
from weft.language.constant import Constant
from weft.language.meaning import matches
from weft.language.text import parse
from weft.model.event import Event
from weft.protocol.messages import Failed, Publish, Published, Refused, SubNumber, Subscribe

NAMES = st.text(
    st.one_of(st.sampled_from("ab'\"%_\\!~^|#{}me .=-"), st.characters(codec="utf-8")), min_size=1, max_size=12
)
RULES = (
    "owner = '{me}'",
    "path LIKE '{me}/%'",
    "path LIKE '/\\{me}' ESCAPE '!'",
    "who IN ('{me}', 'all')",
    '"to.{me}" = 1',
)


@settings(deadline=None)
@given(NAMES, NAMES)
def test_a_rule_is_for_its_own_principal_alone(me: str, other: str) -> None:
    texts = personal_texts(RULES, me)
    assert texts is not None
    owner, below, escaped, listed, named_after = map(parse, texts)
    for name in (me, other):
        mine = name == me
        assert matches(owner, Event({"owner": name})) == mine
        assert matches(below, Event({"path": f"{name}/x"})) == (mine or f"{name}/x".startswith(f"{me}/"))
        assert matches(escaped, Event({"path": f"/\\{name}"})) == mine
        assert matches(listed, Event({"who": name})) == (mine or name == "all")
    assert attributes(named_after) == {f"to.{me}"}


@settings(deadline=None)
@given(NAMES)
def test_a_name_never_becomes_another_filter(me: str) -> None:
    texts = personal_texts(("x > 5 AND owner = '{me}'",), me)
    assert texts is not None
    tree = parse(texts[0])
    assert tree.operands[1].right == Constant.of(me)  # type: ignore[attr-defined]


def test_rules_without_a_placeholder_are_as_they_were_and_nobody_has_no_name() -> None:
    assert personal_texts(("x > 5", "y = 'me'"), "ann") == ("x > 5", "y = 'me'")
    assert personal_texts(None, "ann") is None
    assert personal_texts(("owner = '{me}'", "x > 5"), "") == ("x > 5",)
    assert personal_texts(("owner = '{me}'",), "\ud800") == ()


def test_everybody_reads_and_publishes_their_own() -> None:
    rules = Rules(
        {"boss": Rights(subscribe=("owner = '{me}'", "x > 9"))},
        default=Rights(subscribe=("owner = '{me}'",), publish=("owner = '{me}'",)),
    )
    node = Broker(rules=rules, authenticate=named)
    for name in ("ann", "bob", "boss"):
        node.hello(name, name, credentials=name.encode())
        (*_, answer) = node.say(name, Subscribe(SubNumber(1), f"owner = '{name}' AND x > 0"))
        assert not isinstance(answer, Failed)
        other = node.say(name, Subscribe(SubNumber(2), "owner = 'eve'"))
        assert [each.code for each in other if isinstance(each, Failed)] == ["access"]
    assert isinstance(node.say("ann", Publish.of(1, {"owner": "ann", "x": 3}, b"mine"))[0], Published)
    assert isinstance(node.say("ann", Publish.of(2, {"owner": "bob", "x": 3}))[-1], Refused)
    assert [node.got(name) for name in ("ann", "bob", "boss")] == [[b"mine"], [], []]
    assert rules.of("ann") is rules.of("ann"), "read once"
    for number in range(2_000):
        rules.of(f"client {number}")
    assert len(rules._personal) == 1_000
    with pytest.raises(AccessError):
        rules.of("ann").check_subscribe(parse("owner = 'bob'"))
    assert not rules.of("").may_read({"owner": "{me}"}), "a placeholder is no name"
