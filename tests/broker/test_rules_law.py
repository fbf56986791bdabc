"""The law of access: whatever is delivered matches a rule of its subscriber at that time, whatever happens.

Rules and filters are of the whole language. The broker is driven at random: rules change, filters are replaced, groups
wait for the log or are lost, connections pause and break, deliveries fail and become dead letters, the broker restarts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from broker.harness import Broker
from strategies import EVENTS, filters, thorough
from weft.broker.admission import read_head
from weft.broker.effects import Close, ConnectionId, Effect, Send
from weft.broker.identity import Identity
from weft.broker.limits import ClientLimits
from weft.broker.messages import (
    Ack,
    DeadLetters,
    Deliver,
    Hello,
    ListDead,
    Nack,
    NewEpoch,
    Publish,
    QueueNumber,
    Replace,
    RetryDead,
    Revoked,
    SubNumber,
    Subscribe,
    Unsubscribe,
)
from weft.broker.rules import Rights, Rules
from weft.language.ast import Filter, conjunction, disjunction
from weft.language.meaning import matches
from weft.language.text import parse
from weft.log.base import Offset
from weft.model.event import Event

PRINCIPALS = ("ann", "bob")
SMALL = ClientLimits(window_events=2, turn=3, tail=3_000, backoff=100, longest_backoff=200, failures=1, held=5)


class Watched(Broker):
    """A broker whose every delivery is held against the rules of the moment."""

    def __init__(self, rules: dict[str, list[Filter]]) -> None:
        self.allowed = rules
        self.delivered = 0
        self.counted: Counter[str] = Counter()  # of all that ran
        self.open: dict[str, dict[int, set[int]]] = {}
        super().__init__(
            at_once=False, authenticate=lambda who: Identity(who.decode()), limits=SMALL, rules=as_rules(rules)
        )

    def restart(self) -> None:
        self.counted.update(self.core.counts)
        super().restart()

    def set_rules(self, rules: dict[str, list[Filter]]) -> None:
        self.allowed = rules
        self.options["rules"] = as_rules(rules)
        self.take(self.core.set_rules(self.options["rules"], self.now))

    def take(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                for message in effect.messages:
                    if isinstance(message, Deliver):
                        self.hold(effect.connection, message.head)
                        self.open[effect.connection].setdefault(message.queue, set()).add(message.offset)
                    elif isinstance(message, DeadLetters):
                        for letter in message.letters:
                            self.hold(effect.connection, letter.head)
            elif isinstance(effect, Close):
                self.open.pop(effect.connection, None)
        super().take(effects)

    def hold(self, connection: str, head: Any) -> None:
        event = Event(read_head(head).attributes)
        rules = self.allowed[connection.partition("/")[0]]
        assert any(matches(rule, event) for rule in rules), (connection, event, rules)
        self.delivered += 1


def as_rules(rules: dict[str, list[Filter]]) -> Rules:
    rights = {who: Rights(subscribe=tuple(map(str, some))) for who, some in rules.items() if who in PRINCIPALS}
    return Rules(rights, default=Rights(subscribe=()))


class Run:
    """Random clients over a few filters, so that rules often cover what is asked for."""

    def __init__(self, pool: list[Filter], seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.pool = pool
        self.on = Watched(self.rules())
        self.count = 0
        self.publisher()

    def draw(self, many: int) -> int:
        return int(self.rng.integers(many))

    def wanted(self) -> str:
        one, other = (self.pool[self.draw(len(self.pool))] for _ in range(2))
        return str((one, one, one, conjunction(one, other), disjunction(one, other))[self.draw(5)])

    def rules(self) -> dict[str, list[Filter]]:
        return {who: [self.pool[self.draw(len(self.pool))] for _ in range(1 + self.draw(2))] for who in PRINCIPALS}

    def publisher(self) -> None:
        self.sequence, self.epoch = 0, 1
        self.on.connect("pub")
        self.on.say("pub", Hello(credentials=b"pub"))

    def publish(self) -> None:
        loose, *durable = [EVENTS[self.draw(len(EVENTS))] for _ in range(1 + self.draw(6))]
        numbered = [Publish.of(self.sequence + n, each) for n, each in enumerate(durable, 1)]
        self.sequence += len(numbered)
        self.on.say("pub", *numbered, Publish.of(0, loose))

    def arrive(self) -> None:
        if len(self.on.open) < 5:
            self.count += 1
            who = PRINCIPALS[self.draw(2)]
            name = f"{who}/{self.count}"
            self.on.open[name] = {}
            self.on.connect(name)
            session = f"{who}{self.draw(2)}" if self.draw(3) else ""
            self.on.say(name, Hello(session=session, credentials=who.encode()))

    def subscribe(self, name: str, number: SubNumber, queue: QueueNumber) -> None:
        share = "work" if self.draw(5) == 0 else ""
        since = Offset(1) if not share and self.draw(4) == 0 else None
        durable = None if share or self.draw(3) else False
        self.on.say(name, Subscribe(number, self.wanted(), queue, durable, since=since, share=share))

    def answer(self, name: str) -> None:
        for queue, offsets in list(self.on.open[name].items()):
            some = tuple(Offset(each) for each in sorted(offsets) if self.draw(2) and each)
            if self.draw(2):
                self.on.say(name, Ack(QueueNumber(queue), Offset(0), tuple((o, Offset(o + 1)) for o in some)))
                offsets.difference_update(some)
            else:
                self.on.say(name, Nack(QueueNumber(queue), some), ListDead(1, QueueNumber(queue)))
                self.on.say(name, RetryDead(2, QueueNumber(queue), some))

    def lose(self) -> None:
        """Groups do not fit into the log."""
        if self.on.persists:
            self.on.reject()
            self.commit()
            self.sequence, self.epoch = 0, self.epoch + 1
            self.on.say("pub", NewEpoch(self.epoch))

    def restart(self) -> None:
        self.on.open.clear()
        self.on.restart()
        self.publisher()

    def commit(self) -> None:
        while self.on.persists:
            self.on.commit()

    def step(self) -> None:
        on = self.on
        names = [*on.open]
        name = names[self.draw(len(names))] if names else ""
        number, queue = SubNumber(1 + self.draw(6)), QueueNumber(self.draw(3))
        what = self.draw(32)
        if what < 3:
            self.arrive()
        elif what < 12:
            self.publish()
        elif what < 14:
            on.set_rules(self.rules())
        elif what == 14:
            (self.lose, self.lose, self.restart)[self.draw(3)]()
        elif what < 18:
            on.wait(self.draw(300))
        elif not name:
            return
        elif what < 25:
            self.subscribe(name, number, queue)
        elif what < 27:
            on.say(name, Replace(number, self.wanted()))
        elif what == 27:
            on.say(name, Unsubscribe(number))
        elif what < 30:
            self.answer(name)
        elif what == 30:
            on.core.paused(ConnectionId(name))
        elif self.draw(2):
            on.take(on.core.resumed(ConnectionId(name), on.now))
        else:
            on.cut(name)
            on.open.pop(name, None)
        if self.draw(3):
            self.commit()

    def all(self, steps: int) -> Watched:
        for _ in range(steps):
            self.step()
            self.on.core.check()
        self.commit()
        self.on.wait(1_000_000)
        self.on.counted.update(self.on.core.counts)
        return self.on


def is_text(filter: Filter) -> bool:
    """Without the tests' own predicate, which a broker does not know."""
    return "is_a(" not in str(filter)


@thorough(80, routine=25)
@given(st.lists(filters(4).filter(is_text), min_size=3, max_size=6), st.integers(0, 1 << 32))
def test_whatever_is_delivered_matches_a_rule_of_its_subscriber(pool: list[Filter], seed: int) -> None:
    Run(pool, seed).all(60)


POOL = ("a < 1", "a >= 0", "a LIKE 'a%'", "b = 1 OR a = 2", "a IS NULL", "NOT (a > 1)", "a < b", "TRUE")


def test_the_runs_deliver_withhold_and_revoke() -> None:
    seen: Counter[str] = Counter()
    for seed in range(6):
        on = Run([*map(parse, POOL)], seed).all(400)
        seen.update(on.counted)
        seen["delivered"] += on.delivered
        seen["told"] += sum(isinstance(each, Revoked) for _, each in on.sent)
    assert min(seen["delivered"], seen["revoked subscriptions"]) > 50, seen
    assert min(seen["told"], seen["withheld by rules"], seen["rejected groups"]) > 5, seen
    assert seen["dead letters"], seen
